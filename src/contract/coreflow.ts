/** The legacy relay: who it was, and that it is gone for good. Assembled by Cloudly from accepted evidence only. */
import { type Static, Type } from '@sinclair/typebox';
import { defineRecord } from './record.js';
import {
  closed,
  Digest,
  FleetCutoverAcceptedEvidenceReference,
  Identifier,
  NaturalInteger,
  nullable,
  PositiveInteger,
} from './schema.js';

/** Exactly one live container of the service that the scope classes `coreflow`. */
export const FleetCutoverCoreflowRelay = closed({
  swarmServiceId: Identifier,
  specVersion: NaturalInteger,
  specDigest: Digest,
  nodeId: Identifier,
  containerId: Identifier,
  imageDigest: nullable(Digest),
  managerSnapshot: FleetCutoverAcceptedEvidenceReference,
  localSnapshot: FleetCutoverAcceptedEvidenceReference,
});
export type IFleetCutoverCoreflowRelay = Static<typeof FleetCutoverCoreflowRelay>;

export const FleetCutoverCoreflowRetirementEvidence = closed({
  id: Identifier,
  generation: PositiveInteger,
  digest: Digest,
  clusterId: Identifier,
  /** Who it was before the switch. */
  relay: FleetCutoverCoreflowRelay,
  /** The manager snapshot that does not have the service any more. */
  managerSnapshot: FleetCutoverAcceptedEvidenceReference,
  /** The relay's node, whose snapshot has no container of it, and whose Spark refuses the old mode; null where it is written off. */
  localSnapshot: nullable(FleetCutoverAcceptedEvidenceReference),
  spark: nullable(
    closed({
      bundleDigest: Digest,
      unitDigest: Digest,
      configurationDigest: Digest,
      oldModeRefused: Type.Literal(true),
    }),
  ),
  /** The confirmed write-off of the relay's node, which nothing can be read from any more; null where it reports. */
  writeOff: nullable(FleetCutoverAcceptedEvidenceReference),
  /** Its credential, revoked for good at this generation. */
  credential: closed({ credentialId: Identifier, generation: PositiveInteger }),
  predecessor: nullable(FleetCutoverAcceptedEvidenceReference),
});
export type IFleetCutoverCoreflowRetirementEvidence = Static<typeof FleetCutoverCoreflowRetirementEvidence>;
export const fleetCutoverCoreflowRetirementEvidenceRecord = defineRecord(
  'IFleetCutoverCoreflowRetirementEvidence',
  FleetCutoverCoreflowRetirementEvidence,
  {
    sealed: true,
    rules: ({ localSnapshot, spark, writeOff }) => {
      const reported = localSnapshot !== null && spark !== null;
      const lost = writeOff !== null && localSnapshot === null && spark === null;
      return (reported && writeOff === null) || lost
        ? []
        : ['rests either on a report of the relay’s node or on its write-off'];
    },
  },
);
export const validateFleetCutoverCoreflowRetirementEvidence = async (value: unknown): Promise<string[]> =>
  fleetCutoverCoreflowRetirementEvidenceRecord.validate(value);
