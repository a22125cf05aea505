/** Scope and target set: what an administrator says about the admitted inventory, each a revisioned record. */
import { type Static, Type } from '@sinclair/typebox';
import { fleetCutoverContract } from './limits.js';
import { defineRecord } from './record.js';
import {
  closed,
  compareText,
  Digest,
  DockerName,
  DockerText,
  FleetCutoverAcceptedEvidenceReference,
  Identifier,
  nullable,
  oneOf,
  PositiveInteger,
  Reason,
} from './schema.js';

export const serviceClasses = ['application', 'ingress', 'coreflow', 'excluded'] as const;
export type TServiceClass = (typeof serviceClasses)[number];

/** Classes of a single mount, for which no entry is made. */
export const mountClasses = ['ephemeral', 'external', 'host-path', 'shared-read-only'] as const;
export type TMountClass = (typeof mountClasses)[number];

export const ScopeMount = closed({ target: DockerText, class: oneOf(...mountClasses), reason: Reason });
export const ScopeService = closed({
  swarmServiceId: Identifier,
  class: oneOf(...serviceClasses),
  /** The owner; for `application` and `ingress` only. */
  serviceId: nullable(Identifier),
  /** Required for `excluded`. */
  reason: nullable(Reason),
  mounts: Type.Array(ScopeMount, { maxItems: 256 }),
});
export type IFleetCutoverScopeService = Static<typeof ScopeService>;

const EntryKey = { nodeId: Identifier, serviceId: Identifier, mountIdentityDigest: Digest };

/** Names the one owner of overlapping sources; the other keys that it overlaps leave the required set. */
export const ScopeOverlapOwner = closed({ ...EntryKey, reason: Reason });
/** Confirms a container's mount that overlaps keys; one confirmation covers all keys under that mount. */
export const ScopeOverlapConfirmation = closed({
  nodeId: Identifier,
  /** The other side: a swarm service, or a container outside Swarm by its name. */
  mounter: Type.Union([
    closed({ kind: Type.Literal('service'), swarmServiceId: Identifier }),
    closed({ kind: Type.Literal('container'), name: DockerName }),
  ]),
  target: DockerText,
  reason: Reason,
});
export const ScopeDormantVolume = closed({ nodeId: Identifier, volumeName: DockerText, reason: Reason });
export const ScopeReleasedEntry = closed({ ...EntryKey, reason: Reason });
/** Lets go the entries of a service's old anonymous volumes: those of which only finished tasks' containers are left. */
export const ScopeReleasedAnonymousVolumes = closed({ serviceId: Identifier, reason: Reason });

export const ScopeCoreflow = Type.Union([
  closed({ state: Type.Literal('undetermined') }),
  closed({ state: Type.Literal('none'), reason: Reason }),
  closed({ state: Type.Literal('classified') }),
]);

const scopeContent = {
  services: Type.Array(ScopeService, { maxItems: 4096 }),
  coreflow: ScopeCoreflow,
  overlapOwners: Type.Array(ScopeOverlapOwner, { maxItems: 4096 }),
  overlapConfirmations: Type.Array(ScopeOverlapConfirmation, { maxItems: 4096 }),
  dormantVolumes: Type.Array(ScopeDormantVolume, { maxItems: 4096 }),
  releasedEntries: Type.Array(ScopeReleasedEntry, { maxItems: 4096 }),
  releasedAnonymousVolumes: Type.Array(ScopeReleasedAnonymousVolumes, { maxItems: 4096 }),
};

/** What an administrator states; the whole of it in every revision. */
export const ScopeStatement = closed(scopeContent);
export type IFleetCutoverScopeStatement = Static<typeof ScopeStatement>;

export const FleetCutoverScope = closed({
  id: Identifier,
  generation: PositiveInteger,
  digest: Digest,
  clusterId: Identifier,
  /** The accepted manager snapshot that is the admitted inventory. */
  inventory: FleetCutoverAcceptedEvidenceReference,
  swarmId: Identifier,
  ...scopeContent,
  /** Swarm services of the inventory without a class. */
  unclassified: Type.Array(Identifier, { maxItems: 4096 }),
  /** Complete when nothing is unclassified and Coreflow is determined. */
  state: oneOf('incomplete', 'complete'),
  predecessor: nullable(FleetCutoverAcceptedEvidenceReference),
});
export type IFleetCutoverScope = Static<typeof FleetCutoverScope>;

/** Sorts a statement's lists so that the same statement is the same content. */
export function normalizeScopeStatement(statement: IFleetCutoverScopeStatement): IFleetCutoverScopeStatement {
  const entryOrder = (left: Static<typeof ScopeReleasedEntry>, right: Static<typeof ScopeReleasedEntry>) =>
    compareText(left.nodeId, right.nodeId) ||
    compareText(left.serviceId, right.serviceId) ||
    compareText(left.mountIdentityDigest, right.mountIdentityDigest);
  return {
    services: statement.services
      .map((service) => ({ ...service, mounts: [...service.mounts].sort((a, b) => compareText(a.target, b.target)) }))
      .sort((a, b) => compareText(a.swarmServiceId, b.swarmServiceId)),
    coreflow: statement.coreflow,
    overlapOwners: [...statement.overlapOwners].sort(entryOrder),
    overlapConfirmations: [...statement.overlapConfirmations].sort(
      (a, b) =>
        compareText(a.nodeId, b.nodeId) ||
        compareText(a.mounter.kind, b.mounter.kind) ||
        compareText(mounterName(a.mounter), mounterName(b.mounter)) ||
        compareText(a.target, b.target),
    ),
    dormantVolumes: [...statement.dormantVolumes].sort(
      (a, b) => compareText(a.nodeId, b.nodeId) || compareText(a.volumeName, b.volumeName),
    ),
    releasedEntries: [...statement.releasedEntries].sort(entryOrder),
    releasedAnonymousVolumes: [...statement.releasedAnonymousVolumes].sort((a, b) =>
      compareText(a.serviceId, b.serviceId),
    ),
  };
}

export function mounterName(mounter: Static<typeof ScopeOverlapConfirmation>['mounter']): string {
  return mounter.kind === 'service' ? mounter.swarmServiceId : mounter.name;
}

export const fleetCutoverScopeRecord = defineRecord('IFleetCutoverScope', FleetCutoverScope, { sealed: true });
export const snapshotFleetCutoverScope = fleetCutoverScopeRecord.snapshot;
export const validateFleetCutoverScope = async (value: unknown): Promise<string[]> =>
  fleetCutoverScopeRecord.validate(value);

/** The nodes that will run Pallet. */
export const FleetCutoverTargetSet = closed({
  id: Identifier,
  generation: PositiveInteger,
  digest: Digest,
  clusterId: Identifier,
  nodeIds: Type.Array(Identifier, { minItems: 1, maxItems: fleetCutoverContract.maximumTasks, uniqueItems: true }),
  predecessor: nullable(FleetCutoverAcceptedEvidenceReference),
});
export type IFleetCutoverTargetSet = Static<typeof FleetCutoverTargetSet>;
export const fleetCutoverTargetSetRecord = defineRecord('IFleetCutoverTargetSet', FleetCutoverTargetSet, {
  sealed: true,
});
export const snapshotFleetCutoverTargetSet = fleetCutoverTargetSetRecord.snapshot;
export const validateFleetCutoverTargetSet = async (value: unknown): Promise<string[]> =>
  fleetCutoverTargetSetRecord.validate(value);
