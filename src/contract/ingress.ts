/**
 * Ingress preparation: the designation of the new ingress and its request. Both state references and versions only; the
 * launcher's bearer, its hash and every other secret value have no place in them.
 */
import type { Static } from '@sinclair/typebox';
import { defineRecord } from './record.js';
import {
  closed,
  Digest,
  FleetCutoverAcceptedEvidenceReference,
  Identifier,
  nullable,
  PositiveInteger,
} from './schema.js';

/** Which version of a sealed secret is meant; never the secret. */
export const SecretVersionReference = closed({ secretId: Identifier, version: PositiveInteger });
export type ISecretVersionReference = Static<typeof SecretVersionReference>;

/** Name of the secret input under which a launcher's environment gets its bearer. */
export const launcherBearerInput = 'launcher-bearer';

/** The accepted designation. The spec cites the secret's version, the designation cites the resulting spec, never the reverse. */
export const FleetCutoverIngressDesignation = closed({
  id: Identifier,
  generation: PositiveInteger,
  digest: Digest,
  clusterId: Identifier,
  serviceId: Identifier,
  runtime: FleetCutoverAcceptedEvidenceReference,
  scope: FleetCutoverAcceptedEvidenceReference,
  targetSet: FleetCutoverAcceptedEvidenceReference,
  /** The held spec revision that cites the secret. */
  spec: FleetCutoverAcceptedEvidenceReference,
  credential: closed({ credentialId: Identifier, generation: PositiveInteger }),
  secret: SecretVersionReference,
  predecessor: nullable(FleetCutoverAcceptedEvidenceReference),
});
export type IFleetCutoverIngressDesignation = Static<typeof FleetCutoverIngressDesignation>;

export const fleetCutoverIngressDesignationRecord = defineRecord(
  'IFleetCutoverIngressDesignation',
  FleetCutoverIngressDesignation,
  {
    sealed: true,
    rules: (designation) => {
      const errors: string[] = [];
      const { predecessor, generation, id, credential, secret } = designation;
      const follows =
        predecessor === null ? generation === 1 : predecessor.id === id && predecessor.generation === generation - 1;
      if (!follows) errors.push('/predecessor must be the generation before');
      if (credential.generation !== secret.version) errors.push('/secret/version must be the credential’s generation');
      return errors;
    },
  },
);
export const snapshotFleetCutoverIngressDesignation = fleetCutoverIngressDesignationRecord.snapshot;
export const validateFleetCutoverIngressDesignation = async (value: unknown): Promise<string[]> =>
  fleetCutoverIngressDesignationRecord.validate(value);

export const ingressPreparation = {
  clusterId: Identifier,
  serviceId: Identifier,
  runtime: FleetCutoverAcceptedEvidenceReference,
  scope: FleetCutoverAcceptedEvidenceReference,
  targetSet: FleetCutoverAcceptedEvidenceReference,
  heldSpec: FleetCutoverAcceptedEvidenceReference,
  /** Null creates the first designation; the exact current one rotates its credential. */
  expectedDesignation: nullable(FleetCutoverAcceptedEvidenceReference),
};

/** The closed compare-and-swap body. */
export const FleetCutoverIngressPreparationRequest = closed({ mutationId: Identifier, ...ingressPreparation });
export type IFleetCutoverIngressPreparationRequest = Static<typeof FleetCutoverIngressPreparationRequest>;
export const fleetCutoverIngressPreparationRequestRecord = defineRecord(
  'IFleetCutoverIngressPreparationRequest',
  FleetCutoverIngressPreparationRequest,
);
/** Structure only: it cannot tell who asks, what is current, held or without ports, or whether another designation stands. */
export const snapshotFleetCutoverIngressPreparationRequest = fleetCutoverIngressPreparationRequestRecord.snapshot;
export const validateFleetCutoverIngressPreparationRequest = async (value: unknown): Promise<string[]> =>
  fleetCutoverIngressPreparationRequestRecord.validate(value);
