/**
 * The gates of each phase: one pure function, used by the advance, its dry run and `explain` alike.
 *
 * 1. Gates are cumulative: a later phase asks again for what an earlier one had closed.
 * 2. Only snapshots that name the runtime being left count.
 * 3. Unknown is never met. A node that is written off is asked for nothing more.
 * 4. No service is stopped while that would delete a required volume, and no phase follows while one is gone: see
 *    `volume-handoff/kept-volumes.ts`.
 */
import type { IFleetCutoverCoreflowRelay } from '../../contract/coreflow.js';
import type { IFleetCutoverGate, TGateCode } from '../../contract/gate.js';
import type { TFleetCutoverPhase } from '../../contract/runtime.js';
import type { Reference } from '../../contract/schema.js';

/** How many things are missing, and the first of them. */
export interface Shortage {
  readonly count: number;
  readonly first: readonly {
    readonly nodeId: string | null;
    readonly swarmServiceId: string | null;
    readonly detail: string;
  }[];
}

export interface Seen {
  readonly reference: Reference;
  /** Null for records that are not seen again, such as a scope. */
  readonly ageMs: number | null;
}

/** What is known of the relay that the scope classes `coreflow`. */
export type RelayFacts =
  | { readonly kind: 'undetermined' }
  /** The scope says that there is none; `labelled`: services that call themselves one nevertheless. */
  | { readonly kind: 'none'; readonly labelled: Shortage }
  | {
      readonly kind: 'classified';
      readonly swarmServiceId: string;
      /** Other services that call themselves one. */
      readonly labelled: Shortage;
      /** The service as the latest manager snapshot has it; null where it is gone. */
      readonly service: { readonly specVersion: number; readonly specDigest: string } | null;
      /** Its containers on all nodes, in any state. */
      readonly containers: Shortage;
      /** The one live container with its evidence; null where there is none or more than one. */
      readonly live: IFleetCutoverCoreflowRelay | null;
      /** What the runtime bound on the way to `switching`; null before. */
      readonly bound: IFleetCutoverCoreflowRelay | null;
      /** Nodes whose Spark does not refuse the old mode. */
      readonly oldModeAccepted: Shortage;
      readonly credential: {
        readonly credentialId: string;
        readonly generation: number;
        readonly revoked: boolean;
      } | null;
    };

export interface GateFacts {
  readonly scope: { readonly reference: Reference; readonly complete: boolean; readonly unclassified: Shortage } | null;
  readonly targetSet: Reference | null;
  readonly managerSnapshot: (Seen & { readonly current: boolean; readonly incomplete: string | null }) | null;
  /** Target nodes without a whole local snapshot under the runtime being left. */
  readonly unobservedTargets: Shortage;
  /** The same of all nodes of the cluster. */
  readonly unobservedNodes: Shortage;
  /** Local snapshots that were seen longest ago. */
  readonly oldestSnapshots: readonly Seen[];
  readonly entriesOutsideTargets: Shortage;
  readonly quarantined: Shortage;
  readonly blockers: Shortage;
  readonly aggregate: { readonly reference: Reference; readonly complete: boolean; readonly behind: boolean } | null;
  readonly missingHandoffs: Shortage;
  /** Prepared although not required any more. */
  readonly surplusHandoffs: Shortage;
  readonly uncovered: Shortage;
  /** Volumes of required entries that are not on their node any more. */
  readonly vanishedVolumes: Shortage;
  /** Anonymous volumes that Swarm would delete together with the containers that mount them. */
  readonly unkeptVolumes: Shortage;
  /** Nodes of whose volumes neither is known yet; the next report of each tells. */
  readonly unjudgedVolumes: Shortage;
  /** The same of revoked nodes, which report nothing any more. */
  readonly unjudgedRevoked: Shortage;
  readonly relay: RelayFacts;
  /** Application services that are neither gone nor at zero, and their non-terminal tasks. */
  readonly runningServices: Shortage;
  readonly runningTasks: Shortage;
  readonly activeContainers: Shortage;
  readonly confirmedContainers: Shortage;
  readonly palletNotReady: Shortage;
}

const nothing: Shortage = { count: 0, first: [] };
const one = (detail: string): Shortage => ({ count: 1, first: [{ nodeId: null, swarmServiceId: null, detail }] });

function join(...shortages: readonly Shortage[]): Shortage {
  return {
    count: shortages.reduce((sum, each) => sum + each.count, 0),
    first: shortages.flatMap((each) => each.first),
  };
}

type Actor = IFleetCutoverGate['acts'];

function gate(
  code: TGateCode,
  acts: Actor,
  missing: Shortage,
  evidence: readonly (Seen | null)[] = [],
): IFleetCutoverGate {
  return {
    code,
    met: missing.count === 0,
    missingCount: missing.count,
    missing: missing.first.slice(0, 10).map((each) => ({ ...each })),
    evidence: evidence
      .filter((each) => each !== null)
      .slice(0, 10)
      .map(({ reference, ageMs }) => ({ reference, ageMs })),
    acts: missing.count === 0 ? 'nobody' : acts,
  };
}

const record = (reference: Reference | null | undefined): Seen | null =>
  reference === null || reference === undefined ? null : { reference, ageMs: null };

/** The phase that follows, or null after the last. */
export function nextPhase(phase: TFleetCutoverPhase): TFleetCutoverPhase | null {
  switch (phase) {
    case 'swarm':
      return 'draining';
    case 'draining':
      return 'switching';
    case 'switching':
      return 'pallet';
    case 'pallet':
      return null;
    default: {
      const unexpected: never = phase;
      throw new TypeError(`unexpected phase ${String(unexpected)}`);
    }
  }
}

/** What must go on being true in the last phase: a retirement is void while the relay is seen again. */
export function standingGates(facts: GateFacts): IFleetCutoverGate[] {
  return coreflowRetired(facts.relay);
}

/** Every gate of the way to a phase. */
export function gatesTo(phase: TFleetCutoverPhase, facts: GateFacts): IFleetCutoverGate[] {
  switch (phase) {
    case 'swarm':
      return [];
    case 'draining':
      return toDraining(facts);
    case 'switching':
      return [...toDraining(facts), ...prepared(facts), coreflowIdentified(facts.relay)];
    case 'pallet':
      return [...toDraining(facts), ...prepared(facts), ...stopped(facts)];
    default: {
      const unexpected: never = phase;
      throw new TypeError(`unexpected phase ${String(unexpected)}`);
    }
  }
}

function toDraining(facts: GateFacts): IFleetCutoverGate[] {
  const scope = record(facts.scope?.reference);
  const targets = record(facts.targetSet);
  return [
    gate('scope-complete', 'administrator', scopeShortage(facts), [scope]),
    gate('inventory-current', 'spark', inventoryShortage(facts), [facts.managerSnapshot]),
    gate('targets-accepted', 'administrator', facts.targetSet === null ? one('no target set was accepted') : nothing, [
      targets,
    ]),
    gate('targets-observed', 'spark', facts.unobservedTargets, facts.oldestSnapshots),
    gate('targets-cover-entries', 'administrator', facts.entriesOutsideTargets, [targets]),
    gate('no-quarantine', 'administrator', facts.quarantined),
  ];
}

const relayUndetermined = 'the scope does not say which service is Coreflow, or that there is none';

function scopeShortage({ scope }: GateFacts): Shortage {
  if (scope === null) return one('no scope was accepted');
  if (scope.complete) return nothing;
  return scope.unclassified.count > 0 ? scope.unclassified : one(relayUndetermined);
}

function inventoryShortage({ managerSnapshot }: GateFacts): Shortage {
  if (managerSnapshot === null) return one('no manager snapshot was accepted');
  if (managerSnapshot.incomplete !== null)
    return one(`the latest manager snapshot is incomplete: ${managerSnapshot.incomplete}`);
  return managerSnapshot.current
    ? nothing
    : one('the latest manager snapshot was not taken under the runtime being left');
}

function prepared(facts: GateFacts): IFleetCutoverGate[] {
  const { aggregate, missingHandoffs, surplusHandoffs } = facts;
  const unequal = join(missingHandoffs, surplusHandoffs);
  const evidence = [record(aggregate?.reference)];
  const incomplete =
    aggregate === null
      ? one('there is no aggregate')
      : aggregate.complete
        ? nothing
        : one('the aggregate is incomplete');
  const behind =
    aggregate === null
      ? one('there is no aggregate')
      : aggregate.behind
        ? one('keys, blockers, scope or targets changed since: rederive or prepare')
        : nothing;
  return [
    gate('no-blocker', 'administrator', facts.blockers),
    gate('aggregate-complete', 'administrator', unequal.count > 0 ? unequal : incomplete, evidence),
    gate('aggregate-current', 'administrator', behind, evidence),
    gate(
      'coverage-complete',
      'pallet',
      aggregate === null || !aggregate.complete ? one('no complete aggregate can be covered') : facts.uncovered,
      evidence,
    ),
    // Stopping a service is what deletes them, so they must be kept before the phase that stops services, and be there after it.
    volumesGate('volumes-present', facts.vanishedVolumes, facts),
    volumesGate('anonymous-volumes-kept', facts.unkeptVolumes, facts),
  ];
}

/** A person acts first where there is something for one to do; reports come by themselves. */
function volumesGate(
  code: TGateCode,
  found: Shortage,
  { unjudgedVolumes, unjudgedRevoked, oldestSnapshots }: GateFacts,
): IFleetCutoverGate {
  const forPeople = join(found, unjudgedRevoked);
  return gate(code, forPeople.count > 0 ? 'administrator' : 'spark', join(forPeople, unjudgedVolumes), oldestSnapshots);
}

/** Who the relay is must be known while it lives: afterwards nobody could tell that it is gone. */
function coreflowIdentified(relay: RelayFacts): IFleetCutoverGate {
  switch (relay.kind) {
    case 'undetermined':
      return gate('coreflow-identified', 'administrator', one(relayUndetermined));
    case 'none':
      return gate('coreflow-identified', 'administrator', relay.labelled);
    case 'classified': {
      if (relay.labelled.count > 0) return gate('coreflow-identified', 'administrator', relay.labelled);
      if (relay.credential === null) {
        return gate(
          'coreflow-identified',
          'administrator',
          one('no relay is registered, whose credential could be revoked'),
        );
      }
      if (relay.live !== null) {
        return gate('coreflow-identified', 'nobody', nothing, [
          record(relay.live.managerSnapshot),
          record(relay.live.localSnapshot),
        ]);
      }
      if (relay.service === null)
        return gate('coreflow-identified', 'administrator', one('the relay’s service is not in the manager snapshot'));
      const several = relay.containers.count > 1;
      return gate(
        'coreflow-identified',
        several ? 'administrator' : 'spark',
        several ? relay.containers : one('no running container of the relay was reported under the runtime being left'),
      );
    }
    default: {
      const unexpected: never = relay;
      throw new TypeError(`unexpected relay ${JSON.stringify(unexpected)}`);
    }
  }
}

function stopped(facts: GateFacts): IFleetCutoverGate[] {
  const running = join(facts.runningServices, facts.runningTasks);
  const containers = join(facts.unobservedNodes, facts.activeContainers);
  return [
    gate('applications-stopped', 'administrator', running, [facts.managerSnapshot]),
    gate('containers-stopped', 'administrator', containers, facts.oldestSnapshots),
    gate('no-stray', 'administrator', facts.missingHandoffs),
    gate('confirmed-overlaps-gone', 'administrator', facts.confirmedContainers, facts.oldestSnapshots),
    gate('pallet-ready', 'pallet', facts.palletNotReady, facts.oldestSnapshots),
    ...coreflowRetired(facts.relay),
  ];
}

function coreflowRetired(relay: RelayFacts): IFleetCutoverGate[] {
  switch (relay.kind) {
    case 'undetermined':
      return [gate('coreflow-retired', 'administrator', one(relayUndetermined))];
    case 'none':
      return [gate('coreflow-retired', 'administrator', relay.labelled)];
    case 'classified': {
      const seen = relay.service === null ? nothing : one('the relay’s service is in the manager snapshot still');
      const unbound = relay.bound === null ? one('the relay was not identified before the switch') : nothing;
      const missing = join(unbound, seen, relay.labelled, relay.containers, relay.oldModeAccepted);
      const credential =
        relay.credential === null
          ? one('no relay is registered')
          : relay.credential.revoked
            ? nothing
            : one('the relay’s credential is not revoked');
      return [
        gate('coreflow-retired', 'administrator', missing, [record(relay.bound?.managerSnapshot)]),
        gate('coreflow-credential-revoked', 'administrator', credential),
      ];
    }
    default: {
      const unexpected: never = relay;
      throw new TypeError(`unexpected relay ${JSON.stringify(unexpected)}`);
    }
  }
}
