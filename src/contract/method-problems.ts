/**
 * Which refusals each method and endpoint may answer, beside what every one of them may. The description of the API tells
 * them; the service notes an answer with another one as its own fault (`http/bind.ts`), and the tests fail on that note.
 */
import type { sparkSwarmNodeContracts } from './limits.js';
import type { OwnerMethod } from './method.js';
import { methods, type TMethodName } from './methods.js';
import { problemCatalogue, type TProblemCode } from './problems.js';

type Codes = readonly TProblemCode[];

export type TSparkEndpointName = {
  [N in keyof typeof sparkSwarmNodeContracts]: (typeof sparkSwarmNodeContracts)[N] extends number ? never : N;
}[keyof typeof sparkSwarmNodeContracts];

/** Of whatever takes a body from somebody who has to show a credential. */
const ofEveryRequest: Codes = [
  'body-invalid-json',
  'body-schema',
  'credential-missing',
  'credential-refused',
  'request-timeout',
  'body-too-large',
  'media-type',
  'rate-limited',
  'internal',
  'unavailable',
];

/** Of every mutation: its id, and an answer of the database that was lost. */
const ofEveryMutation: Codes = ['mutation-id-reused', 'outcome-unknown'];

/** Of whatever an authenticated node sends. */
const ofEveryNode: Codes = ['node-revoked', 'node-written-off', 'protocol-unsupported'];

const ofWriteOff: Codes = [
  'cluster-unknown',
  'node-unknown',
  'record-unknown',
  'runtime-stale',
  'write-off-stale',
  'write-off-refused',
  'phase-refused',
];

const ownProblems: Readonly<Record<TMethodName, Codes>> = {
  createCluster: ['cluster-unknown', 'cluster-exists', 'fleet-refused'],
  importFleet: ['cluster-unknown', 'node-exists', 'fleet-refused'],
  registerNode: ['cluster-unknown', 'node-exists'],
  rotateNodeCredential: ['node-revoked', 'node-written-off', 'cluster-unknown', 'node-unknown', 'credential-unknown'],
  revokeNode: ['cluster-unknown', 'node-unknown'],
  releaseNodeQuarantine: ['node-revoked', 'node-written-off', 'cluster-unknown', 'node-unknown', 'quarantine-absent'],
  confirmNodeRejoin: [
    'node-revoked',
    'node-written-off',
    'cluster-unknown',
    'node-unknown',
    'swarm-node-taken',
    'rejoin-absent',
  ],
  setCorestorePublicKey: ['node-revoked', 'node-written-off', 'cluster-unknown', 'node-unknown'],
  createService: ['fleet-refused'],
  retireService: ['service-unknown'],
  putServiceSpec: ['cluster-unknown', 'service-unknown', 'spec-stale', 'spec-refused'],
  registerCoreflowRelay: ['cluster-unknown', 'fleet-refused'],
  issueAdministratorToken: ['principal-exists'],
  rotateAdministratorToken: ['credential-unknown'],
  revokeAdministratorToken: ['credential-unknown', 'last-administrator'],
  listCredentials: ['cluster-unknown'],
  listClusters: [],
  readCluster: ['cluster-unknown'],
  listNodes: ['cluster-unknown'],
  listServices: ['cluster-unknown'],
  readServiceSpec: ['cluster-unknown', 'service-unknown', 'record-unknown', 'record-corrupt'],
  classifyFleetCutoverScope: [
    'cluster-unknown',
    'runtime-stale',
    'scope-stale',
    'inventory-stale',
    'swarm-mismatch',
    'phase-refused',
    'scope-refused',
  ],
  acceptFleetCutoverTargetSet: [
    'cluster-unknown',
    'runtime-stale',
    'target-set-stale',
    'phase-refused',
    'target-set-refused',
  ],
  prepareFleetCutoverVolumeHandoffs: [
    'cluster-unknown',
    'runtime-stale',
    'scope-stale',
    'aggregate-stale',
    'phase-refused',
    'batch-refused',
  ],
  rederiveFleetCutoverVolumeHandoffs: [
    'cluster-unknown',
    'runtime-stale',
    'scope-stale',
    'aggregate-stale',
    'phase-refused',
  ],
  advanceFleetCutoverPhase: ['cluster-unknown', 'runtime-stale', 'gate-unmet', 'phase-order'],
  revokeFleetCutoverCoreflowCredential: ['cluster-unknown', 'relay-unknown', 'runtime-stale', 'phase-refused'],
  writeOffNode: ofWriteOff,
  writeOffVolume: ofWriteOff,
  prepareFleetCutoverIngress: [
    'cluster-unknown',
    'service-unknown',
    'runtime-stale',
    'scope-stale',
    'target-set-stale',
    'spec-stale',
    'designation-stale',
    'designation-other-service',
    'service-retired',
    'spec-not-held',
    'spec-refused',
    'ports-configured',
    'ports-observed',
    'ports-unknown',
    'sealing-unavailable',
    'phase-refused',
  ],
  revokeFleetCutoverIngressCredential: ['cluster-unknown', 'runtime-stale', 'designation-stale'],
  readFleetCutoverIngressDesignation: ['cluster-unknown', 'record-unknown', 'pin-unknown', 'record-corrupt'],
  explainFleetCutover: ['cluster-unknown', 'record-unknown'],
  watchFleetCutover: ['cluster-unknown'],
  readFleetCutoverState: ['cluster-unknown'],
  readFleetCutoverScope: ['cluster-unknown', 'record-unknown', 'pin-unknown'],
  readFleetCutoverTargetSet: ['cluster-unknown', 'record-unknown', 'pin-unknown'],
  readFleetCutoverManagerSnapshot: ['cluster-unknown', 'record-unknown', 'pin-unknown'],
  listFleetCutoverRequiredVolumeHandoffs: ['cluster-unknown', 'cursor-invalid'],
  listFleetCutoverBlockers: ['cluster-unknown', 'cursor-invalid'],
  listFleetCutoverTaskVerdicts: ['cluster-unknown', 'cursor-invalid'],
  listFleetCutoverUncoveredVolumes: ['cluster-unknown', 'cursor-invalid'],
  readFleetCutoverVolumeHandoffAggregate: ['cluster-unknown', 'pin-unknown', 'record-corrupt'],
  readFleetCutoverVolumeHandoffPage: ['cluster-unknown', 'page-unknown', 'pin-unknown', 'record-corrupt'],
  readFleetCutoverVolumeHandoff: ['cluster-unknown', 'record-unknown', 'record-corrupt'],
};

const ownSparkProblems: Readonly<Record<TSparkEndpointName, Codes>> = {
  swarmObservation: [
    'node-quarantined',
    'swarm-node-taken',
    'swarm-node-changed',
    'swarm-mismatch',
    'sequence-stale',
    'reporter-replaced',
  ],
  fleetCutoverPreparedVolumeHandoffs: ['page-unknown', 'pin-unknown', 'record-corrupt'],
  fleetCutoverWatch: ['cluster-unknown'],
};

const catalogueOrder = Object.keys(problemCatalogue) as TProblemCode[];

function together(...lists: readonly Codes[]): TProblemCode[] {
  const codes = new Set(lists.flat());
  return catalogueOrder.filter((code) => codes.has(code));
}

/** Every code that a method may be refused with, in the catalogue's order. */
export function problemsOfMethod(name: TMethodName): TProblemCode[] {
  const method: OwnerMethod = methods[name];
  return together(
    ofEveryRequest,
    method.caller === 'administrator' ? ['role-refused'] : [],
    method.mutation ? ofEveryMutation : [],
    ownProblems[name],
  );
}

/** Every code that an endpoint of Spark's may refuse with. */
export function problemsOfSparkEndpoint(name: TSparkEndpointName): TProblemCode[] {
  return together(ofEveryRequest, ofEveryNode, ownSparkProblems[name]);
}

/** What is no envelope, or names no method; the named method's own problems are in the envelope's answer. */
export const problemsOfEnvelope: Codes = together([
  'body-invalid-json',
  'body-schema',
  'request-timeout',
  'body-too-large',
  'media-type',
  'internal',
  'unavailable',
]);
