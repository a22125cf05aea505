/** Owner rows: clusters, nodes, services, specs, credentials; records and requests of the `fleet` namespace. */
import { type Static, Type } from '@sinclair/typebox';
import { MountPath } from './storage-claim.js';
import { BearerSecret } from './observation.js';
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

export const roles = ['administrator', 'operator'] as const;
export type TRole = (typeof roles)[number];

/** A bearer as an administrator or operator sends it: `fc.<credential id>.<43 characters>`. */
export const AdministratorToken = Type.String({
  pattern: '^fc\\.[A-Za-z0-9][A-Za-z0-9_:-]{0,127}\\.[A-Za-z0-9_-]{43}$',
  maxLength: 176,
});

export const FleetCluster = closed({
  clusterId: Identifier,
  organizationId: Identifier,
  controllerId: Identifier,
  controllerEpoch: PositiveInteger,
  runtimeNamespace: Identifier,
  /** Bound when the first inventory is admitted. */
  swarmId: nullable(Identifier),
  /** Server-created; changes when a cluster is restored from a backup. */
  clusterLife: Identifier,
});
export type IFleetCluster = Static<typeof FleetCluster>;

export const credentialKinds = [
  'administrator',
  'node-token',
  'node-session',
  'coreflow-relay',
  'ingress-launcher',
] as const;

/** State of one credential without its secret or hash. */
export const CredentialState = closed({
  credentialId: Identifier,
  kind: oneOf(...credentialKinds),
  /** Principal or node that it belongs to. */
  subjectId: Identifier,
  role: nullable(oneOf(...roles)),
  newestGeneration: PositiveInteger,
  /** The last generation that was used; null before the first use. */
  usedGeneration: nullable(PositiveInteger),
  revoked: Type.Boolean(),
});
export type ICredentialState = Static<typeof CredentialState>;

export const FleetNode = closed({
  nodeId: Identifier,
  swarmNodeId: nullable(Identifier),
  /** Another swarm node id that the node reported and that waits for confirmation. */
  reportedSwarmNodeId: nullable(Identifier),
  tokenGeneration: PositiveInteger,
  sessionCredentialGeneration: PositiveInteger,
  corestorePublicKey: nullable(Type.String({ pattern: '^[0-9a-f]{64}$' })),
  corestorePublicKeyGeneration: NaturalInteger,
  state: oneOf('active', 'quarantined', 'revoked', 'written-off'),
  /** Why it is quarantined; null otherwise. */
  quarantineReason: nullable(DockerText),
  lastReport: nullable(
    closed({
      reporterSessionId: Identifier,
      observationSequence: PositiveInteger,
      state: oneOf('member', 'inactive', 'unknown'),
      /** Unix ms on the database's clock, for people. */
      receivedAt: NaturalInteger,
    }),
  ),
  localSnapshot: nullable(FleetCutoverAcceptedEvidenceReference),
  /** Reason of a newer incomplete local snapshot; null where the latest was complete. */
  localSnapshotIncomplete: nullable(DockerName),
});
export type IFleetNode = Static<typeof FleetNode>;

export const FleetService = closed({
  serviceId: Identifier,
  name: DockerName,
  state: oneOf('live', 'retired'),
  spec: nullable(FleetCutoverAcceptedEvidenceReference),
});
export type IFleetService = Static<typeof FleetService>;

const specContent = {
  imageDigest: Digest,
  mounts: Type.Array(closed({ mountPath: MountPath, readOnly: Type.Boolean() }), { maxItems: 32 }),
  secretInputs: Type.Array(closed({ name: Identifier, secretId: Identifier, version: PositiveInteger }), {
    maxItems: 64,
  }),
  publishedPorts: Type.Array(
    closed({
      protocol: oneOf('tcp', 'udp'),
      port: Type.Integer({ minimum: 1, maximum: 65_535 }),
      targetPort: Type.Integer({ minimum: 1, maximum: 65_535 }),
    }),
    { maxItems: 64 },
  ),
  /** Nodes that may run it; empty means any target node. */
  placement: Type.Array(Identifier, { maxItems: 4096 }),
};
export const ClusterServiceSpecContent = closed(specContent);
export type IClusterServiceSpecContent = Static<typeof ClusterServiceSpecContent>;

/** One revision of a service's exact-cluster spec. Whether it is held or released is a fact beside it. */
export const ClusterServiceSpec = closed({
  id: Identifier,
  generation: PositiveInteger,
  digest: Digest,
  clusterId: Identifier,
  serviceId: Identifier,
  ...specContent,
  predecessor: nullable(FleetCutoverAcceptedEvidenceReference),
});
export type IClusterServiceSpec = Static<typeof ClusterServiceSpec>;
export const clusterServiceSpecRecord = defineRecord('IClusterServiceSpec', ClusterServiceSpec, { sealed: true });

/** A credential's secret, shown once. */
export const IssuedSecret = closed({
  credentialId: Identifier,
  kind: oneOf(...credentialKinds),
  /** Principal, node or relay that it belongs to. */
  subjectId: Identifier,
  generation: PositiveInteger,
  secret: Type.Union([AdministratorToken, BearerSecret]),
});
export type IIssuedSecret = Static<typeof IssuedSecret>;
