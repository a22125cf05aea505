/** Waiting for the next change of a cluster, as administrators (by method) and agents (by endpoint) do. */
import { type Static, Type } from '@sinclair/typebox';
import { BearerSecret } from './observation.js';
import { ProtocolOffer } from './protocol.js';
import { defineRecord } from './record.js';
import { fleetCutoverPhases } from './runtime.js';
import { closed, FleetCutoverAcceptedEvidenceReference, Identifier, nullable, oneOf } from './schema.js';

/** `cursor` is that of the last answer, or null; the answer comes with the next change, or after `timeoutMs`. */
export const watchRequest = {
  cursor: nullable(Type.String({ maxLength: 512 })),
  timeoutMs: Type.Integer({ minimum: 0, maximum: 60_000 }),
};

export const watchAnswer = {
  cursor: Type.String(),
  /** The cursor was of another life of the database: read everything again. */
  reset: Type.Boolean(),
  changed: Type.Array(oneOf('runtime', 'aggregate', 'derivation', 'coverage')),
  runtime: FleetCutoverAcceptedEvidenceReference,
  phase: oneOf(...fleetCutoverPhases),
  aggregate: nullable(FleetCutoverAcceptedEvidenceReference),
};

export const SparkWatchFleetCutoverRequest = closed({
  nodeId: Identifier,
  nodeToken: BearerSecret,
  protocol: ProtocolOffer,
  ...watchRequest,
});
export type ISparkWatchFleetCutoverRequest = Static<typeof SparkWatchFleetCutoverRequest>;
export const sparkWatchFleetCutoverRequestRecord = defineRecord(
  'ISparkWatchFleetCutoverRequest',
  SparkWatchFleetCutoverRequest,
);
export const validateSparkWatchFleetCutoverRequest = sparkWatchFleetCutoverRequestRecord.validate;

export const SparkWatchFleetCutoverResponse = closed({ ...watchAnswer, nodeId: Identifier, protocol: ProtocolOffer });
export type ISparkWatchFleetCutoverResponse = Static<typeof SparkWatchFleetCutoverResponse>;
export const sparkWatchFleetCutoverResponseRecord = defineRecord(
  'ISparkWatchFleetCutoverResponse',
  SparkWatchFleetCutoverResponse,
);
export const validateSparkWatchFleetCutoverResponse = sparkWatchFleetCutoverResponseRecord.validate;
