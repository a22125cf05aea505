/**
 * Prepares what is missing of a whole fleet, page by page: at most one page in memory, one mutation under way, and no state
 * of its own: the list says what is missing, so that a run that was killed is gone on with by another one.
 *
 * Somebody else may change the set meanwhile. The reference of each mutation's result is what the next one expects; where
 * that fails, the rest of the list is older than the set. A dry run under the new reference then tells which of the next
 * batch nobody has prepared, and only those are sent under the same reference: what another administrator asked for is
 * never overwritten, and no page is read twice.
 */
import { setTimeout as pause } from 'node:timers/promises';
import type { AdministratorClient } from '../../client/administrator-client.js';
import { ProblemError } from '../../client/errors.js';
import { newMutationId } from '../../client/mutation-id.js';
import { repeatUntilAnswered } from '../../client/repetition.js';
import type { IHandoffUpsert } from '../../contract/cutover-methods.js';
import type { MethodRequest } from '../../contract/methods.js';
import { type Reference, referenceOf } from '../../contract/schema.js';
import {
  type CutoverState,
  isFruitless,
  nextStep,
  type Pass,
  phaseStop,
  type StopCode,
  type Tally,
} from './preparation.js';
import { requiredPages } from './required-pages.js';

export interface FleetPreparation {
  readonly clusterId: string;
  /** Asked for with every handoff that is made; null leaves it to the provider. */
  readonly capacityBytes: number | null;
  readonly dryRun: boolean;
  /** Changes in phases in which they start coverage again. */
  readonly confirmed: boolean;
  /** Ends the run after the mutation that is under way. */
  readonly signal: AbortSignal;
}

/** Who is told how it goes. */
export interface PreparationObserver {
  progress(done: number, total: number): void;
  note(text: string): void;
}

/** What is known of a run at any moment, also of one that failed. */
export interface Running {
  readonly tally: Tally;
  /** Blocked entries that the last pass met. */
  blocked: number;
  state: CutoverState | null;
  stop: StopCode | null;
}

export const nothingDone = (): Running => ({
  tally: { created: 0, foreign: 0, mutations: 0, conflicts: 0, repeats: 0, rederivations: 0, refused: new Map() },
  blocked: 0,
  state: null,
  stop: null,
});

/** Fills `running` until nothing more can be done. Throws what the client throws. */
export async function prepareFleet(
  client: AdministratorClient,
  task: FleetPreparation,
  observer: PreparationObserver,
  running: Running,
): Promise<void> {
  await new FleetPreparer(client, task, observer, running).run();
}

/** Thrown inside a run only: it ends here, and `running.stop` says why. */
class Stopped extends Error {}

/** About two minutes in all, besides the client's own attempts: a service that restarts is waited for. */
const patience = { attempts: 40, firstDelayMs: 500, maximumDelayMs: 5_000 };

/** Compares that another writer may make fail. */
const staleCodes: ReadonlySet<string> = new Set(['aggregate-stale', 'scope-stale', 'runtime-stale']);

/** Longest wait after a lost compare, in ms; grows with those lost in a row, so that two runs don't keep step. */
const conflictPauseMs = 20;
const maximumConflictPauseMs = 500;

interface Expected {
  readonly runtime: Reference;
  readonly scope: Reference;
  aggregate: Reference | null;
}

class FleetPreparer {
  readonly #client: AdministratorClient;
  readonly #task: FleetPreparation;
  readonly #observer: PreparationObserver;
  readonly #running: Running;
  #expected!: Expected;
  /** Since the list was pinned, only this run has changed the set. */
  #listIsCurrent = true;
  #conflictsInARow = 0;
  #warnedIn: CutoverState['runtime']['phase'] | null = null;

  constructor(client: AdministratorClient, task: FleetPreparation, observer: PreparationObserver, running: Running) {
    this.#client = client;
    this.#task = task;
    this.#observer = observer;
    this.#running = running;
  }

  async run(): Promise<void> {
    // Not waited for: a service that never answered is a wrong address.
    this.#adopt(await this.#client.readFleetCutoverState({ clusterId: this.#task.clusterId }));
    try {
      await this.#steps();
    } catch (error) {
      if (!(error instanceof Stopped)) throw error;
      if (this.#running.stop !== 'confirmation-needed') await this.#readState();
    }
  }

  async #steps(): Promise<void> {
    let last: Pass | null = null;
    let fruitless = 0;
    for (;;) {
      const step = nextStep(this.#state, { last, fruitless });
      if (step === 'end') return;
      if (step === 'pass') {
        last = await this.#pass();
        fruitless = isFruitless(last) ? fruitless + 1 : 0;
        if (this.#task.dryRun) return;
      } else if (this.#task.dryRun) {
        this.#stopByPhase();
        this.#running.tally.mutations += 1;
        this.#running.tally.rederivations += 1;
        return;
      } else {
        await this.#rederive();
      }
      await this.#readState();
    }
  }

  get #state(): CutoverState {
    return this.#running.state!;
  }

  async #readState(): Promise<void> {
    const { clusterId } = this.#task;
    this.#adopt(await this.#patiently('read', () => this.#client.readFleetCutoverState({ clusterId })));
  }

  #adopt(state: CutoverState): void {
    this.#running.state = state;
    const { runtime, scope, aggregate } = state;
    // Without a scope nothing is required, and nothing is sent.
    if (scope !== null) {
      this.#expected = {
        runtime: referenceOf(runtime),
        scope,
        aggregate: aggregate === null ? null : referenceOf(aggregate),
      };
    }
  }

  /** Once over the list, at one derivation. */
  async #pass(): Promise<Pass> {
    const { tally } = this.#running;
    const { clusterId, signal, dryRun } = this.#task;
    const before = { created: tally.created, foreign: tally.foreign };
    const total = before.created + before.foreign + this.#state.missingCount;
    let ready = 0;
    let first = true;
    this.#running.blocked = 0;
    tally.refused.clear();
    this.#stopByPhase();
    for await (const page of requiredPages(this.#list, clusterId, { signal })) {
      if (first) {
        this.#expected.aggregate = page.aggregate;
        this.#listIsCurrent = true;
        first = false;
      }
      for (const { state, blockers } of page.entries) {
        if (state === 'missing' && blockers.length > 0) this.#running.blocked += 1;
      }
      for (const upserts of page.mutations) {
        ready += upserts.length;
        if (dryRun) this.#count(upserts.length);
        else await this.#prepare(upserts);
        this.#observer.progress(tally.created + tally.foreign, Math.max(total, tally.created + tally.foreign));
      }
    }
    this.#stopIfInterrupted();
    return {
      ready,
      blocked: this.#running.blocked,
      created: tally.created - before.created,
      foreign: tally.foreign - before.foreign,
    };
  }

  readonly #list: AdministratorClient['listFleetCutoverRequiredVolumeHandoffs'] = (request) =>
    this.#patiently('read', () => this.#client.listFleetCutoverRequiredVolumeHandoffs(request));

  #count(created: number): void {
    this.#running.tally.created += created;
    this.#running.tally.mutations += 1;
  }

  /** Until every entry of the batch is prepared, by us or somebody else, or refused. */
  async #prepare(listed: readonly IHandoffUpsert[]): Promise<void> {
    const { capacityBytes } = this.#task;
    let upserts = listed.map((upsert) => ({
      ...upsert,
      request: { ...upsert.request, requestedCapacityBytes: capacityBytes },
    }));
    while (upserts.length > 0) {
      this.#stopIfInterrupted();
      this.#stopByPhase();
      try {
        if (!this.#listIsCurrent) {
          const created = await this.#wouldCreate(upserts);
          this.#running.tally.foreign += upserts.length - created.length;
          upserts = created;
          if (upserts.length === 0) return;
        }
        const answer = await this.#send(upserts, false);
        this.#expected.aggregate = referenceOf(answer.aggregate);
        this.#conflictsInARow = 0;
        this.#running.tally.created += answer.handoffs.filter(({ change }) => change === 'created').length;
        this.#countAnswer(answer);
        return;
      } catch (error) {
        if (!(error instanceof ProblemError)) throw error;
        if (staleCodes.has(error.code)) await this.#afterConflict();
        else if (error.code === 'batch-refused') upserts = this.#withoutRefused(upserts, error);
        else throw error;
      }
    }
  }

  /** Those that are not prepared under the expected reference, as the service itself would judge them. */
  async #wouldCreate<T extends IHandoffUpsert>(upserts: readonly T[]): Promise<T[]> {
    const { handoffs } = await this.#send(upserts, true);
    return upserts.filter((_, index) => handoffs[index]?.change === 'created');
  }

  #send(upserts: readonly IHandoffUpsert[], dryRun: boolean) {
    const { runtime, scope, aggregate: expectedAggregate } = this.#expected;
    const { clusterId } = this.#task;
    const request: MethodRequest<'prepareFleetCutoverVolumeHandoffs'> = {
      mutationId: newMutationId(),
      ...(dryRun ? { dryRun } : {}),
      clusterId,
      runtime,
      scope,
      expectedAggregate,
      upserts: [...upserts],
      removals: [],
    };
    return this.#patiently('change', () => this.#client.prepareFleetCutoverVolumeHandoffs(request));
  }

  #withoutRefused<T>(upserts: readonly T[], error: ProblemError): T[] {
    const refused = new Map(
      error.entries.filter(({ list }) => list === 'upserts').map(({ index, code }) => [index, code]),
    );
    // A refusal that names none would come again for ever.
    if (refused.size === 0) throw error;
    const { tally } = this.#running;
    for (const code of refused.values()) tally.refused.set(code, (tally.refused.get(code) ?? 0) + 1);
    return upserts.filter((_, index) => !refused.has(index));
  }

  async #rederive(): Promise<void> {
    this.#stopIfInterrupted();
    this.#stopByPhase();
    const { runtime, scope, aggregate: expectedAggregate } = this.#expected;
    const { clusterId } = this.#task;
    const request = { mutationId: newMutationId(), clusterId, runtime, scope, expectedAggregate };
    try {
      this.#countAnswer(
        await this.#patiently('change', () => this.#client.rederiveFleetCutoverVolumeHandoffs(request)),
      );
      this.#running.tally.rederivations += 1;
      this.#conflictsInARow = 0;
    } catch (error) {
      if (!(error instanceof ProblemError) || !staleCodes.has(error.code)) throw error;
      await this.#afterConflict();
    }
  }

  #countAnswer({ replayed }: { readonly replayed: boolean }): void {
    this.#running.tally.mutations += 1;
    if (replayed) this.#running.tally.repeats += 1;
  }

  async #afterConflict(): Promise<void> {
    this.#running.tally.conflicts += 1;
    this.#conflictsInARow += 1;
    this.#listIsCurrent = false;
    const longest = Math.min(maximumConflictPauseMs, conflictPauseMs * this.#conflictsInARow);
    await pause(Math.random() * longest);
    await this.#readState();
  }

  #stopIfInterrupted(): void {
    if (this.#task.signal.aborted) this.#stop('interrupted');
  }

  /** The phase as it was when the expected references were read: under another one the compare fails. */
  #stopByPhase(): void {
    const { phase } = this.#state.runtime;
    const { confirmed, dryRun } = this.#task;
    const stop = phaseStop(phase, confirmed || dryRun);
    if (stop !== null) this.#stop(stop);
    if (phase === 'swarm' || this.#warnedIn === phase) return;
    this.#warnedIn = phase;
    this.#observer.note(
      `${phase}: with a change coverage starts again, and every node reports every page once more` +
        (dryRun ? '; it needs --yes' : ''),
    );
  }

  #stop(code: StopCode): never {
    this.#running.stop = code;
    throw new Stopped(code);
  }

  /** A repeat is the very same request: of a mutation whose answer was lost the service tells what became of it. */
  #patiently<T>(effect: 'read' | 'change', attempt: () => Promise<T>): Promise<T> {
    let waiting = false;
    return repeatUntilAnswered(
      effect,
      async () => {
        try {
          const answer = await attempt();
          if (waiting) this.#observer.note('the service answers again');
          return answer;
        } catch (error) {
          if (!waiting && !(error instanceof ProblemError && error.status < 500)) {
            waiting = true;
            this.#observer.note('the service does not answer; waiting for it');
          }
          throw error;
        }
      },
      patience,
      this.#task.signal,
    );
  }
}
