/** Break-glass: what only people can know. Two administrators, two steps; it grants no volume. */
import { type Static, Type } from '@sinclair/typebox';
import { defineRecord } from './record.js';
import {
  closed,
  Digest,
  FleetCutoverAcceptedEvidenceReference,
  Identifier,
  nullable,
  oneOf,
  PositiveInteger,
  Reason,
} from './schema.js';

export const WriteOffSubject = Type.Union([
  closed({ kind: Type.Literal('node'), nodeId: Identifier }),
  closed({ kind: Type.Literal('volume'), nodeId: Identifier, serviceId: Identifier, mountIdentityDigest: Digest }),
]);
export type TWriteOffSubject = Static<typeof WriteOffSubject>;

/** Generation 1 is the proposal, generation 2 the confirmation by another administrator. */
export const FleetCutoverWriteOff = closed({
  id: Identifier,
  generation: PositiveInteger,
  digest: Digest,
  clusterId: Identifier,
  subject: WriteOffSubject,
  state: oneOf('proposed', 'confirmed'),
  reason: Reason,
  /** What was verified, and how. */
  verified: Reason,
  proposedBy: Identifier,
  confirmedBy: nullable(Identifier),
  predecessor: nullable(FleetCutoverAcceptedEvidenceReference),
});
export type IFleetCutoverWriteOff = Static<typeof FleetCutoverWriteOff>;
export const fleetCutoverWriteOffRecord = defineRecord('IFleetCutoverWriteOff', FleetCutoverWriteOff, { sealed: true });
