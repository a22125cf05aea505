/** The cluster's runtime record: which phase of the cutover it is in. */
import type { Static } from '@sinclair/typebox';
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

export const FleetCutoverRuntime = closed({
  id: Identifier,
  generation: PositiveInteger,
  digest: Digest,
  clusterId: Identifier,
  phase: oneOf(...fleetCutoverPhases),
  predecessor: nullable(FleetCutoverAcceptedEvidenceReference),
});
export type IFleetCutoverRuntime = Static<typeof FleetCutoverRuntime>;

export const fleetCutoverRuntimeRecord = defineRecord('IFleetCutoverRuntime', FleetCutoverRuntime, { sealed: true });
export const snapshotFleetCutoverRuntime = fleetCutoverRuntimeRecord.snapshot;
export const validateFleetCutoverRuntime = async (value: unknown): Promise<string[]> =>
  fleetCutoverRuntimeRecord.validate(value);
