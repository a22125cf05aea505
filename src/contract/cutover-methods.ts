/** Methods of the `fleetcutover` namespace, under the source's names where it gives them. */
import { type Static, Type } from '@sinclair/typebox';
import {
  FleetCutoverBlocker,
  FleetCutoverDerivation,
  FleetCutoverRequiredEntry,
  FleetCutoverTaskVerdict,
  FleetCutoverUncoveredVolume,
  taskVerdicts,
} from './derivation.js';
import { CredentialState } from './fleet.js';
import {
  FleetCutoverPreparedVolumeHandoffAggregate,
  FleetCutoverPreparedVolumeHandoffIntent,
  FleetCutoverPreparedVolumeHandoffPage,
} from './handoff.js';
import { FleetCutoverCoverage, FleetCutoverGate } from './gate.js';
import { FleetCutoverIngressDesignation, ingressPreparation } from './ingress.js';
import { fleetCutoverContract } from './limits.js';
import { mutation, query } from './method.js';
import { FleetCutoverManagerSnapshot } from './observation.js';
import { fleetCutoverPhases, FleetCutoverRuntime } from './runtime.js';
import {
  closed,
  Digest,
  FleetCutoverAcceptedEvidenceReference,
  Identifier,
  NaturalInteger,
  nullable,
  oneOf,
  Reason,
} from './schema.js';
import { FleetCutoverScope, FleetCutoverTargetSet, ScopeStatement } from './scope.js';
import { RuntimeStorageFilesystemRequest } from './storage-claim.js';
import { watchAnswer, watchRequest } from './watch.js';
import { FleetCutoverWriteOff } from './write-off.js';

const Reference = FleetCutoverAcceptedEvidenceReference;
const maximumEntries = fleetCutoverContract.maximumPreparedVolumeHandoffMutationEntries;

/** What an administrator may say about one handoff; everything else is derived from owner rows. */
export const HandoffUpsert = closed({
  nodeId: Identifier,
  serviceId: Identifier,
  mountIdentityDigest: Digest,
  request: RuntimeStorageFilesystemRequest,
});
export type IHandoffUpsert = Static<typeof HandoffUpsert>;

export const HandoffRemoval = closed({ nodeId: Identifier, serviceId: Identifier, mountIdentityDigest: Digest });
export type IHandoffRemoval = Static<typeof HandoffRemoval>;

const HandoffOutcome = closed({
  nodeId: Identifier,
  id: Identifier,
  change: oneOf('created', 'revised', 'unchanged', 'removed'),
  /** The handoff's reference; of a removed one the last it had. */
  reference: Reference,
});
export type IHandoffOutcome = Static<typeof HandoffOutcome>;

/** A cursor names the last item shown: a volume's name has up to 4,096 characters, each up to six bytes of JSON. */
const Page = {
  cursor: nullable(Type.String({ maxLength: 40_960 })),
  limit: Type.Integer({ minimum: 1, maximum: 1024 }),
};

export const BlockerCount = closed({ code: Type.String(), count: NaturalInteger });
const BlockerSummary = Type.Array(BlockerCount);

export const cutoverMethods = {
  classifyFleetCutoverScope: mutation(
    'fleetcutover',
    'classifyFleetCutoverScope',
    'Admits an inventory and classifies every swarm service of it',
    {
      clusterId: Identifier,
      runtime: Reference,
      inventory: Reference,
      expectedScope: nullable(Reference),
      statement: ScopeStatement,
    },
    {
      scope: Reference,
      state: oneOf('incomplete', 'complete'),
      unclassified: Type.Array(Identifier),
      requiredCount: NaturalInteger,
      blockers: BlockerSummary,
    },
    8_388_608,
  ),
  acceptFleetCutoverTargetSet: mutation(
    'fleetcutover',
    'acceptFleetCutoverTargetSet',
    'Names the nodes that will run Pallet',
    {
      clusterId: Identifier,
      runtime: Reference,
      expectedTargetSet: nullable(Reference),
      nodeIds: Type.Array(Identifier, { minItems: 1, maxItems: 4096 }),
    },
    { targetSet: FleetCutoverTargetSet, blockers: BlockerSummary },
    1_048_576,
  ),
  prepareFleetCutoverVolumeHandoffs: mutation(
    'fleetcutover',
    'prepareFleetCutoverVolumeHandoffs',
    'Upserts and removes prepared volume handoffs, 1..32 together',
    {
      clusterId: Identifier,
      runtime: Reference,
      scope: Reference,
      expectedAggregate: nullable(Reference),
      upserts: Type.Array(HandoffUpsert, { maxItems: maximumEntries }),
      removals: Type.Array(HandoffRemoval, { maxItems: maximumEntries }),
    },
    { aggregate: FleetCutoverPreparedVolumeHandoffAggregate, handoffs: Type.Array(HandoffOutcome) },
    262_144,
  ),
  rederiveFleetCutoverVolumeHandoffs: mutation(
    'fleetcutover',
    'rederiveFleetCutoverVolumeHandoffs',
    'Makes the aggregate’s next revision from current evidence; changes no handoff',
    { clusterId: Identifier, runtime: Reference, scope: Reference, expectedAggregate: nullable(Reference) },
    { aggregate: FleetCutoverPreparedVolumeHandoffAggregate },
  ),
  advanceFleetCutoverPhase: mutation(
    'fleetcutover',
    'advanceFleetCutoverPhase',
    'Moves the cluster to the next phase, if every gate is met in this very transaction',
    { clusterId: Identifier, runtime: Reference, to: oneOf(...fleetCutoverPhases) },
    { runtime: FleetCutoverRuntime, gates: Type.Array(FleetCutoverGate) },
  ),
  revokeFleetCutoverCoreflowCredential: mutation(
    'fleetcutover',
    'revokeFleetCutoverCoreflowCredential',
    'Revokes the relay’s credential for good',
    { clusterId: Identifier, runtime: Reference },
    { credentialId: Identifier, generation: Type.Integer({ minimum: 1 }) },
  ),
  writeOffNode: mutation(
    'fleetcutover',
    'writeOffNode',
    'Declares a node destroyed: one administrator proposes, another confirms the proposal',
    {
      clusterId: Identifier,
      runtime: Reference,
      nodeId: Identifier,
      proposal: nullable(Reference),
      reason: Reason,
      verified: Reason,
    },
    { writeOff: FleetCutoverWriteOff },
  ),
  writeOffVolume: mutation(
    'fleetcutover',
    'writeOffVolume',
    'Declares a volume lost: one administrator proposes, another confirms the proposal',
    {
      clusterId: Identifier,
      runtime: Reference,
      nodeId: Identifier,
      serviceId: Identifier,
      mountIdentityDigest: Digest,
      proposal: nullable(Reference),
      reason: Reason,
      verified: Reason,
    },
    { writeOff: FleetCutoverWriteOff },
  ),
  prepareFleetCutoverIngress: mutation(
    'fleetcutover',
    'prepareFleetCutoverIngress',
    'Designates the new ingress, or rotates its launcher credential; shows no secret',
    ingressPreparation,
    { designation: FleetCutoverIngressDesignation, spec: Reference },
  ),
  revokeFleetCutoverIngressCredential: mutation(
    'fleetcutover',
    'revokeFleetCutoverIngressCredential',
    'Ends all generations of the designated launcher’s credential at once; the next rotation issues another',
    { clusterId: Identifier, runtime: Reference, expectedDesignation: Reference },
    { credential: CredentialState },
  ),
  readFleetCutoverIngressDesignation: query(
    'fleetcutover',
    'readFleetCutoverIngressDesignation',
    'The ingress designation, current or pinned',
    { clusterId: Identifier, designation: nullable(Reference) },
    closed({ designation: FleetCutoverIngressDesignation, current: Type.Boolean() }),
  ),
  explainFleetCutover: query(
    'fleetcutover',
    'explainFleetCutover',
    'Why the phase does not advance: every gate, what is missing, on what evidence, and who acts next',
    {
      clusterId: Identifier,
      subject: Type.Union([
        closed({ kind: Type.Literal('cluster') }),
        closed({ kind: Type.Literal('node'), nodeId: Identifier }),
        closed({ kind: Type.Literal('service'), serviceId: Identifier }),
        closed({ kind: Type.Literal('handoff'), nodeId: Identifier, id: Identifier }),
      ]),
    },
    closed({
      runtime: FleetCutoverRuntime,
      next: nullable(oneOf(...fleetCutoverPhases)),
      /** Gates of the next phase; those that name the subject where one was asked for. */
      gates: Type.Array(FleetCutoverGate),
      coverage: FleetCutoverCoverage,
      verdicts: Type.Array(FleetCutoverTaskVerdict, { maxItems: 100 }),
      blockers: Type.Array(FleetCutoverBlocker, { maxItems: 100 }),
      entries: Type.Array(FleetCutoverRequiredEntry, { maxItems: 100 }),
      writeOffs: Type.Array(FleetCutoverWriteOff),
    }),
  ),
  watchFleetCutover: query(
    'fleetcutover',
    'watchFleetCutover',
    'Waits for the next change of phase, aggregate, derivation or coverage',
    { clusterId: Identifier, ...watchRequest },
    closed(watchAnswer),
  ),
  readFleetCutoverState: query(
    'fleetcutover',
    'readFleetCutoverState',
    'All current references and counts of a cluster in one consistent answer',
    { clusterId: Identifier },
    closed({
      runtime: FleetCutoverRuntime,
      managerSnapshot: nullable(Reference),
      scope: nullable(Reference),
      scopeState: nullable(oneOf('incomplete', 'complete')),
      targetSet: nullable(Reference),
      derivation: FleetCutoverDerivation,
      aggregate: nullable(FleetCutoverPreparedVolumeHandoffAggregate),
      /** Keys, blockers, scope or targets differ from what the aggregate was derived from. */
      behind: Type.Boolean(),
      missingCount: NaturalInteger,
      surplusCount: NaturalInteger,
      verdicts: closed({
        live: NaturalInteger,
        notStarted: NaturalInteger,
        stopped: NaturalInteger,
        unknown: NaturalInteger,
      }),
      blockers: BlockerSummary,
    }),
  ),
  readFleetCutoverScope: query(
    'fleetcutover',
    'readFleetCutoverScope',
    'The scope, current or pinned',
    { clusterId: Identifier, scope: nullable(Reference) },
    closed({ scope: FleetCutoverScope }),
  ),
  readFleetCutoverTargetSet: query(
    'fleetcutover',
    'readFleetCutoverTargetSet',
    'The target set, current or pinned',
    { clusterId: Identifier, targetSet: nullable(Reference) },
    closed({ targetSet: FleetCutoverTargetSet }),
  ),
  readFleetCutoverManagerSnapshot: query(
    'fleetcutover',
    'readFleetCutoverManagerSnapshot',
    'The latest accepted manager snapshot, or a pinned one',
    { clusterId: Identifier, snapshot: nullable(Reference) },
    closed({ reference: Reference, snapshot: FleetCutoverManagerSnapshot }),
  ),
  listFleetCutoverRequiredVolumeHandoffs: query(
    'fleetcutover',
    'listFleetCutoverRequiredVolumeHandoffs',
    'Required against prepared, in page order at one pinned derivation and aggregate',
    { clusterId: Identifier, ...Page },
    closed({
      derivation: Reference,
      aggregate: nullable(Reference),
      entries: Type.Array(FleetCutoverRequiredEntry),
      nextCursor: nullable(Type.String()),
      /** The missing, unblocked entries of this page as ready-made sorted mutations of at most 32 upserts. */
      mutations: Type.Array(Type.Array(HandoffUpsert)),
    }),
  ),
  listFleetCutoverBlockers: query(
    'fleetcutover',
    'listFleetCutoverBlockers',
    'Blockers at one pinned derivation, each with its reason',
    { clusterId: Identifier, ...Page },
    closed({ derivation: Reference, blockers: Type.Array(FleetCutoverBlocker), nextCursor: nullable(Type.String()) }),
  ),
  listFleetCutoverTaskVerdicts: query(
    'fleetcutover',
    'listFleetCutoverTaskVerdicts',
    'Verdicts of the tasks in the latest accepted manager snapshot, in task order',
    { clusterId: Identifier, verdict: nullable(oneOf(...taskVerdicts)), ...Page },
    closed({
      managerSnapshot: nullable(Reference),
      verdicts: Type.Array(FleetCutoverTaskVerdict),
      nextCursor: nullable(Type.String()),
    }),
  ),
  listFleetCutoverUncoveredVolumes: query(
    'fleetcutover',
    'listFleetCutoverUncoveredVolumes',
    'Volumes of the nodes that no required entry covers, for information',
    { clusterId: Identifier, ...Page },
    closed({ volumes: Type.Array(FleetCutoverUncoveredVolume), nextCursor: nullable(Type.String()) }),
  ),
  readFleetCutoverVolumeHandoffAggregate: query(
    'fleetcutover',
    'readFleetCutoverVolumeHandoffAggregate',
    'The aggregate’s header, current or pinned',
    { clusterId: Identifier, aggregate: nullable(Reference) },
    closed({ aggregate: nullable(FleetCutoverPreparedVolumeHandoffAggregate), behind: Type.Boolean() }),
  ),
  readFleetCutoverVolumeHandoffPage: query(
    'fleetcutover',
    'readFleetCutoverVolumeHandoffPage',
    'One page of a pinned complete aggregate',
    { clusterId: Identifier, aggregate: Reference, pageIndex: NaturalInteger },
    closed({ page: FleetCutoverPreparedVolumeHandoffPage }),
  ),
  readFleetCutoverVolumeHandoff: query(
    'fleetcutover',
    'readFleetCutoverVolumeHandoff',
    'One handoff, current or of one generation',
    { clusterId: Identifier, nodeId: Identifier, id: Identifier, generation: nullable(Type.Integer({ minimum: 1 })) },
    closed({ handoff: FleetCutoverPreparedVolumeHandoffIntent, current: Type.Boolean() }),
  ),
} as const;
