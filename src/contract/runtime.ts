/** The cluster's runtime record: which phase of the cutover it is in. */
import type { Static } from '@sinclair/typebox';
import { FleetCutoverCoreflowRelay } from './coreflow.js';
import { defineRecord } from './record.js';
import {
  closed,
  Digest,
  FleetCutoverAcceptedEvidenceReference,
  Identifier,
  nullable,
  oneOf,
  PositiveInteger,
} from './schema.js';

/** Forward only, in this order. */
export const fleetCutoverPhases = ['swarm', 'draining', 'switching', 'pallet'] as const;
export type TFleetCutoverPhase = (typeof fleetCutoverPhases)[number];

/** The accepted records that closed the gate to a phase. */
export const FleetCutoverGateEvidence = closed({
  scope: FleetCutoverAcceptedEvidenceReference,
  targetSet: FleetCutoverAcceptedEvidenceReference,
  derivation: FleetCutoverAcceptedEvidenceReference,
  managerSnapshot: FleetCutoverAcceptedEvidenceReference,
  /** Bare digest over the target nodes' `{ nodeId, generation, digest }` of local snapshots, in node order. */
  localSnapshotsDigest: Digest,
  /** Null on the way to `draining`. */
  aggregate: nullable(FleetCutoverAcceptedEvidenceReference),
  /** The live relay, on the way to `switching`; null where the scope says that there is none. */
  coreflowRelay: nullable(FleetCutoverCoreflowRelay),
  /** On the way to `pallet`; null where the scope says that there is none. */
  coreflowRetirement: nullable(FleetCutoverAcceptedEvidenceReference),
});
export type IFleetCutoverGateEvidence = Static<typeof FleetCutoverGateEvidence>;

export const FleetCutoverRuntime = closed({
  id: Identifier,
  generation: PositiveInteger,
  digest: Digest,
  clusterId: Identifier,
  phase: oneOf(...fleetCutoverPhases),
  /** What closed the gate to this phase; null for the first, `swarm`. */
  gate: nullable(FleetCutoverGateEvidence),
  predecessor: nullable(FleetCutoverAcceptedEvidenceReference),
});
export type IFleetCutoverRuntime = Static<typeof FleetCutoverRuntime>;

export const fleetCutoverRuntimeRecord = defineRecord('IFleetCutoverRuntime', FleetCutoverRuntime, { sealed: true });
export const snapshotFleetCutoverRuntime = fleetCutoverRuntimeRecord.snapshot;
export const validateFleetCutoverRuntime = async (value: unknown): Promise<string[]> =>
  fleetCutoverRuntimeRecord.validate(value);
