/**
 * What a bulk preparation does next, and what it says in the end: pure.
 *
 * 1. While something is missing that a pass could prepare, another pass is made.
 * 2. A re-derivation is made only where it makes the set complete: nothing missing, nothing surplus, nothing blocked, and a
 *    head that does not say so.
 * 3. A pass that found nothing to prepare, and two that prepared nothing of what they found, end it: what is left is for people.
 * 4. Outside of `swarm` a change starts coverage again, and is made only where that was said to be wanted; in `pallet` none is.
 */
import type { MethodResponse } from '../../contract/methods.js';
import { type Reference, referenceOf } from '../../contract/schema.js';

export type CutoverState = MethodResponse<'readFleetCutoverState'>;

/** What one pass over the list came to. */
export interface Pass {
  /** Missing and unblocked at the pass's derivation. */
  readonly ready: number;
  /** Missing and blocked. */
  readonly blocked: number;
  readonly created: number;
  /** Prepared by somebody else between the list and our mutation. */
  readonly foreign: number;
}

export interface Passes {
  readonly last: Pass | null;
  /** Passes in a row that found something and prepared none of it. */
  readonly fruitless: number;
}

export type NextStep = 'pass' | 'rederive' | 'end';

const maximumFruitless = 2;

export function nextStep(state: CutoverState, { last, fruitless }: Passes): NextStep {
  if (isComplete(state)) return 'end';
  if (state.missingCount > 0) {
    return last !== null && (last.ready === 0 || fruitless >= maximumFruitless) ? 'end' : 'pass';
  }
  return state.scope !== null && state.surplusCount === 0 && state.blockers.length === 0 ? 'rederive' : 'end';
}

export function isComplete({ aggregate, behind }: CutoverState): boolean {
  return aggregate?.state === 'complete' && !behind;
}

export function isFruitless({ ready, created, foreign }: Pass): boolean {
  return ready > 0 && created === 0 && foreign === 0;
}

export type StopCode = 'interrupted' | 'confirmation-needed' | 'phase-refused';

/** Why no change may be made in this phase; null where one may. */
export function phaseStop(phase: CutoverState['runtime']['phase'], confirmed: boolean): StopCode | null {
  switch (phase) {
    case 'swarm':
      return null;
    case 'draining':
    case 'switching':
      return confirmed ? null : 'confirmation-needed';
    case 'pallet':
      return 'phase-refused';
  }
}

/** What a run has done so far. */
export interface Tally {
  created: number;
  foreign: number;
  mutations: number;
  conflicts: number;
  /** Mutations whose answer was lost, and that were found done when they were repeated. */
  repeats: number;
  rederivations: number;
  /** Entries that the service refused, by code; of the last pass. */
  refused: Map<string, number>;
}

export interface Reason {
  readonly code: string;
  readonly count: number | null;
  readonly detail: string;
}

/** One line for programs; its members are only ever added to. */
export interface PreparationResult {
  readonly clusterId: string;
  readonly dryRun: boolean;
  /** Handoffs that this run made. */
  readonly created: number;
  /** Required entries that are prepared now, by whomever. */
  readonly prepared: number;
  /** Required entries. */
  readonly total: number;
  /** Missing entries that something blocks. */
  readonly skippedBlocked: number;
  readonly mutations: number;
  readonly conflicts: number;
  readonly repeats: number;
  readonly rederivations: number;
  /** `unknown` where the service was lost on the way. */
  readonly state: 'complete' | 'incomplete' | 'absent' | 'unknown';
  readonly aggregate: Reference | null;
  /** Why it is not complete; empty where it is. */
  readonly reasons: readonly Reason[];
  readonly ms: number;
}

export interface Ending {
  readonly clusterId: string;
  readonly dryRun: boolean;
  /** The last one that was read; null where none was. */
  readonly state: CutoverState | null;
  readonly blocked: number;
  readonly tally: Tally;
  readonly stop: StopCode | 'unreachable' | null;
  readonly ms: number;
}

export function preparationResult({ clusterId, dryRun, state, blocked, tally, stop, ms }: Ending): PreparationResult {
  const { created, mutations, conflicts, repeats, rederivations, refused } = tally;
  const total = state?.derivation.requiredCount ?? 0;
  const complete = state !== null && isComplete(state) && stop === null;
  const lost = stop === 'unreachable' || state === null;
  return {
    clusterId,
    dryRun,
    created,
    prepared: total - (state?.missingCount ?? 0),
    total,
    skippedBlocked: blocked,
    mutations,
    conflicts,
    repeats,
    rederivations,
    state: lost ? 'unknown' : complete ? 'complete' : state.aggregate === null ? 'absent' : 'incomplete',
    aggregate: state === null || state.aggregate === null ? null : referenceOf(state.aggregate),
    reasons: complete
      ? []
      : [
          ...stopReasons(stop),
          ...(state === null ? [] : openReasons(state, blocked, refused, dryRun ? created : null)),
        ],
    ms: Math.round(ms),
  };
}

const stopDetails: Readonly<Record<StopCode | 'unreachable', string>> = {
  interrupted: 'it was interrupted; run it again to go on',
  'confirmation-needed': 'in this phase every change starts coverage again: give --yes to make it',
  'phase-refused': 'no handoff is prepared any more in this phase',
  unreachable: 'the service was lost on the way; run it again to go on',
};

function stopReasons(stop: Ending['stop']): Reason[] {
  return stop === null ? [] : [{ code: stop, count: null, detail: stopDetails[stop] }];
}

/** What a person can do something about, in the order in which it is worth looking at. */
function openReasons(
  state: CutoverState,
  blocked: number,
  refused: ReadonlyMap<string, number>,
  /** Entries that a dry run would have prepared; null where it was none. */
  wouldCreate: number | null,
): Reason[] {
  const reasons: Reason[] = [];
  const add = (code: string, count: number | null, detail: string) => reasons.push({ code, count, detail });
  for (const { code, count } of state.blockers) {
    add(code, count, blockerDetails.get(code) ?? 'see `call listFleetCutoverBlockers` for each with its reason');
  }
  const missing = state.missingCount - (wouldCreate ?? 0);
  if (missing > 0) {
    for (const [code, count] of refused) add(code, count, 'entries that the service refused');
    const some = blocked === 0 ? '' : `; ${blocked} of them are blocked: see \`required --blocked\``;
    add('missing', missing, `required entries are not prepared${some}`);
  }
  if (state.surplusCount > 0) {
    add(
      'surplus',
      state.surplusCount,
      'prepared handoffs are not required any more: see `required --state surplus`, and remove them',
    );
  }
  if (state.behind && wouldCreate === null) add('behind', null, 'the prepared set was derived from older evidence');
  return reasons;
}

const blockerDetails: ReadonlyMap<string, string> = new Map([
  ['scope-missing', 'no scope was accepted: see `scope suggest`'],
  ['service-unclassified', 'services without a class: see `scope suggest`'],
  ['coreflow-undetermined', 'the scope does not say which service relays, or that none does'],
  ['overlap-keys', 'two keys on one source: `scope suggest` offers the owners'],
  ['overlap-container', 'a source is mounted by others: `scope suggest` offers the confirmations'],
  ['volume-unmounted', 'volumes that nothing mounts: `scope suggest` offers to call them dormant'],
]);

/** Lines for people. */
export function preparationLines(result: PreparationResult): string[] {
  const { dryRun, created, prepared, total, mutations, conflicts, repeats, aggregate, state, reasons } = result;
  const done = dryRun
    ? `dry run: ${created} handoffs would be prepared in ${mutations} mutations; nothing was changed`
    : `${created} handoffs prepared in ${mutations} mutations (${conflicts} conflicts, ${repeats} repeats)`;
  const head = aggregate === null ? 'no aggregate' : `aggregate ${aggregate.id} generation ${aggregate.generation}`;
  return [
    done,
    `${head} ${state}: ${prepared} of ${total} required entries are prepared`,
    ...reasons.map(({ code, count, detail }) => `  ${count === null ? code : `${count} ${code}`}: ${detail}`),
  ];
}
