/**
 * The derivation record: which required set and blockers held when. A new revision is made only when keys, blockers,
 * scope or targets change; newer evidence alone makes none.
 */
import { type Static, Type } from '@sinclair/typebox';
import { defineRecord } from './record.js';
import {
  closed,
  Digest,
  DockerName,
  DockerText,
  FleetCutoverAcceptedEvidenceReference,
  Identifier,
  NaturalInteger,
  nullable,
  oneOf,
  PositiveInteger,
} from './schema.js';

export const FleetCutoverDerivation = closed({
  id: Identifier,
  generation: PositiveInteger,
  digest: Digest,
  clusterId: Identifier,
  scope: nullable(FleetCutoverAcceptedEvidenceReference),
  targetSet: nullable(FleetCutoverAcceptedEvidenceReference),
  requiredCount: NaturalInteger,
  blockerCount: NaturalInteger,
  predecessor: nullable(FleetCutoverAcceptedEvidenceReference),
  /** Bare digest over the sorted keys and blockers that came and went. */
  changeDigest: Digest,
});
export type IFleetCutoverDerivation = Static<typeof FleetCutoverDerivation>;
export const fleetCutoverDerivationRecord = defineRecord('IFleetCutoverDerivation', FleetCutoverDerivation, {
  sealed: true,
});

/** Every reason that keeps a required set from being complete. */
export const blockerCodes = [
  'scope-missing',
  'service-unclassified',
  'coreflow-undetermined',
  'node-unobserved',
  'node-not-targeted',
  'snapshot-incomplete',
  'task-unknown',
  'task-limit',
  'mount-limit',
  'entry-limit',
  'source-empty',
  'target-invalid',
  'driver-unclassified',
  'ingress-persistent-mount',
  'overlap-keys',
  'overlap-container',
  'read-only-uncovered',
  'volume-unmounted',
] as const;
export type TBlockerCode = (typeof blockerCodes)[number];

/**
 * One blocker. `id` is derived from its content. `entry` names the required entry that it blocks, if it is about one;
 * fields that say nothing for a code are null.
 */
export const FleetCutoverBlocker = closed({
  id: Identifier,
  code: oneOf(...blockerCodes),
  nodeId: nullable(Identifier),
  swarmServiceId: nullable(Identifier),
  swarmTaskId: nullable(Identifier),
  containerName: nullable(DockerName),
  target: nullable(DockerText),
  volumeName: nullable(DockerText),
  entry: nullable(closed({ nodeId: Identifier, serviceId: Identifier, mountIdentityDigest: Digest })),
  /** For people: what is wrong, in one sentence. */
  detail: Type.String({ maxLength: 1024 }),
});
export type IFleetCutoverBlocker = Static<typeof FleetCutoverBlocker>;

export const taskVerdicts = ['live', 'not-started', 'stopped', 'unknown'] as const;
export type TTaskVerdict = (typeof taskVerdicts)[number];

export const FleetCutoverTaskVerdict = closed({
  swarmTaskId: Identifier,
  swarmServiceId: Identifier,
  /** The fleet node that the task's swarm node is; null where there is none. */
  nodeId: nullable(Identifier),
  verdict: oneOf(...taskVerdicts),
  reason: DockerName,
});
export type IFleetCutoverTaskVerdict = Static<typeof FleetCutoverTaskVerdict>;

/** One required entry in a list, in page order. */
export const FleetCutoverRequiredEntry = closed({
  /** The handoff's id, known before anything is prepared. */
  id: Identifier,
  nodeId: Identifier,
  serviceId: Identifier,
  swarmServiceId: Identifier,
  serviceName: DockerName,
  mountIdentityDigest: Digest,
  /** Docker's destination: the request's mountPath must equal it. */
  mountPath: DockerText,
  volumeName: nullable(DockerText),
  state: oneOf('missing', 'prepared', 'surplus', 'written-off'),
  /** The prepared handoff; null where it is missing. */
  handoff: nullable(FleetCutoverAcceptedEvidenceReference),
  blockers: Type.Array(oneOf(...blockerCodes)),
});
export type IFleetCutoverRequiredEntry = Static<typeof FleetCutoverRequiredEntry>;

/** A node's volume that no required entry covers, for information. */
export const FleetCutoverUncoveredVolume = closed({
  nodeId: Identifier,
  volumeName: DockerText,
  driver: DockerName,
  /** `dormant`: matches an application's spec mount; `orphan`: matches nothing; `mounted`: some container mounts it. */
  kind: oneOf('dormant', 'orphan', 'mounted'),
});
export type IFleetCutoverUncoveredVolume = Static<typeof FleetCutoverUncoveredVolume>;
