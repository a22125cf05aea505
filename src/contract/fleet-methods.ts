/** Methods of the `fleet` namespace. */
import { Type } from '@sinclair/typebox';
import {
  ClusterServiceSpec,
  ClusterServiceSpecContent,
  CredentialState,
  FleetCluster,
  FleetNode,
  FleetService,
  IssuedSecret,
  roles,
} from './fleet.js';
import { mutation, query } from './method.js';
import { FleetCutoverRuntime } from './runtime.js';
import {
  closed,
  DockerName,
  FleetCutoverAcceptedEvidenceReference,
  Identifier,
  nullable,
  oneOf,
  PositiveInteger,
} from './schema.js';

const CorestorePublicKey = Type.String({ pattern: '^[0-9a-f]{64}$' });

export const NodeRegistration = closed({ nodeId: Identifier, corestorePublicKey: nullable(CorestorePublicKey) });
const ServiceRegistration = closed({ name: DockerName });
const SpecRegistration = closed({ serviceName: DockerName, spec: ClusterServiceSpecContent });

/** Secrets appear only in the first answer, never in a replay. */
const Secrets = Type.Array(IssuedSecret);

export const fleetMethods = {
  createCluster: mutation(
    'fleet',
    'createCluster',
    'Creates a cluster with its runtime record in phase swarm',
    { clusterId: Identifier, controllerId: Identifier, runtimeNamespace: Identifier },
    { cluster: FleetCluster, runtime: FleetCutoverRuntime },
  ),
  importFleet: mutation(
    'fleet',
    'importFleet',
    'Makes nodes, services and specs of one document exist; what is there already and equal stays',
    {
      clusterId: Identifier,
      nodes: Type.Array(NodeRegistration, { maxItems: 4096 }),
      services: Type.Array(ServiceRegistration, { maxItems: 4096 }),
      specs: Type.Array(SpecRegistration, { maxItems: 4096 }),
    },
    {
      nodes: Type.Array(closed({ nodeId: Identifier, created: Type.Boolean() })),
      services: Type.Array(closed({ name: DockerName, serviceId: Identifier, created: Type.Boolean() })),
      specs: Type.Array(
        closed({ serviceId: Identifier, spec: FleetCutoverAcceptedEvidenceReference, created: Type.Boolean() }),
      ),
      /** Node tokens and session credentials of the created nodes. */
      secrets: Secrets,
    },
    4_194_304,
  ),
  registerNode: mutation(
    'fleet',
    'registerNode',
    'Registers a node and issues its Spark token and its session credential',
    { clusterId: Identifier, nodeId: Identifier, corestorePublicKey: nullable(CorestorePublicKey) },
    { node: FleetNode, secrets: Secrets },
  ),
  rotateNodeCredential: mutation(
    'fleet',
    'rotateNodeCredential',
    'Issues the next generation of a node’s Spark token or session credential',
    { clusterId: Identifier, nodeId: Identifier, kind: oneOf('node-token', 'node-session') },
    { credential: CredentialState, secrets: Secrets },
  ),
  revokeNode: mutation(
    'fleet',
    'revokeNode',
    'Ends all generations of a node’s credentials and its sessions at once',
    { clusterId: Identifier, nodeId: Identifier },
    { node: FleetNode },
  ),
  releaseNodeQuarantine: mutation(
    'fleet',
    'releaseNodeQuarantine',
    'Releases a quarantined node; its credentials are rotated',
    { clusterId: Identifier, nodeId: Identifier },
    { node: FleetNode, secrets: Secrets },
  ),
  confirmNodeRejoin: mutation(
    'fleet',
    'confirmNodeRejoin',
    'Binds the node to the new swarm node id that it reported',
    { clusterId: Identifier, nodeId: Identifier, swarmNodeId: Identifier },
    { node: FleetNode },
  ),
  setCorestorePublicKey: mutation(
    'fleet',
    'setCorestorePublicKey',
    'Sets the Ed25519 key with which the node’s Corestore signs',
    { clusterId: Identifier, nodeId: Identifier, corestorePublicKey: CorestorePublicKey },
    { node: FleetNode },
  ),
  createService: mutation(
    'fleet',
    'createService',
    'Creates a live service of the organization',
    { name: DockerName },
    { service: FleetService },
  ),
  retireService: mutation(
    'fleet',
    'retireService',
    'Retires a service for good',
    { serviceId: Identifier },
    { service: FleetService },
  ),
  putServiceSpec: mutation(
    'fleet',
    'putServiceSpec',
    'Writes the next held revision of a service’s exact-cluster spec',
    {
      clusterId: Identifier,
      serviceId: Identifier,
      expectedSpec: nullable(FleetCutoverAcceptedEvidenceReference),
      spec: ClusterServiceSpecContent,
    },
    { spec: ClusterServiceSpec },
  ),
  registerCoreflowRelay: mutation(
    'fleet',
    'registerCoreflowRelay',
    'Names the swarm service of the legacy relay and issues its credential',
    { clusterId: Identifier, swarmServiceId: Identifier },
    { credential: CredentialState, secrets: Secrets },
  ),
  issueAdministratorToken: mutation(
    'fleet',
    'issueAdministratorToken',
    'Issues a token for a principal of the organization',
    { principalId: Identifier, role: oneOf(...roles) },
    { credential: CredentialState, secrets: Secrets },
  ),
  rotateAdministratorToken: mutation(
    'fleet',
    'rotateAdministratorToken',
    'Issues the next generation of a token; the last used one works until the new one is used',
    { credentialId: Identifier },
    { credential: CredentialState, secrets: Secrets },
  ),
  revokeAdministratorToken: mutation(
    'fleet',
    'revokeAdministratorToken',
    'Ends all generations of a token at once; refused for the organization’s last administrator token',
    { credentialId: Identifier },
    { credential: CredentialState },
  ),
  listCredentials: query(
    'fleet',
    'listCredentials',
    'States of all credentials of the organization, without secrets',
    {
      clusterId: nullable(Identifier),
      cursor: nullable(Identifier),
      limit: Type.Integer({ minimum: 1, maximum: 1000 }),
    },
    closed({ credentials: Type.Array(CredentialState), nextCursor: nullable(Identifier) }),
  ),
  listClusters: query(
    'fleet',
    'listClusters',
    'The organization’s clusters',
    {},
    closed({ clusters: Type.Array(FleetCluster) }),
  ),
  readCluster: query(
    'fleet',
    'readCluster',
    'One cluster',
    { clusterId: Identifier },
    closed({ cluster: FleetCluster }),
  ),
  listNodes: query(
    'fleet',
    'listNodes',
    'Nodes of a cluster with their latest report, both sides of a clone included',
    { clusterId: Identifier, cursor: nullable(Identifier), limit: Type.Integer({ minimum: 1, maximum: 1000 }) },
    closed({ nodes: Type.Array(FleetNode), nextCursor: nullable(Identifier) }),
  ),
  listServices: query(
    'fleet',
    'listServices',
    'Services of the organization, with their spec in the cluster',
    { clusterId: Identifier, cursor: nullable(Identifier), limit: Type.Integer({ minimum: 1, maximum: 1000 }) },
    closed({ services: Type.Array(FleetService), nextCursor: nullable(Identifier) }),
  ),
  readServiceSpec: query(
    'fleet',
    'readServiceSpec',
    'A service’s spec, current or of one generation',
    { clusterId: Identifier, serviceId: Identifier, generation: nullable(PositiveInteger) },
    closed({ spec: ClusterServiceSpec, state: oneOf('held', 'released') }),
  ),
} as const;
