/** All operations of the `fleet` namespace, with what the composition root brings of the features further down. */
import type { OwnerHandlers } from '../../http/owner-handlers.js';
import { createCluster, listClusters, type NewClusterParts, readCluster } from './cluster-operations.js';
import { importFleet } from './import-operation.js';
import {
  confirmNodeRejoin,
  listNodes,
  type NodeRebound,
  registerNode,
  releaseNodeQuarantine,
  revokeNode,
  rotateNodeCredential,
  setCorestorePublicKey,
} from './node-operations.js';
import {
  createService,
  listCredentials,
  listServices,
  putServiceSpec,
  readServiceSpec,
  registerCoreflowRelay,
  retireService,
} from './service-operations.js';

export interface FleetParts extends NewClusterParts {
  readonly rebound: readonly NodeRebound[];
}

export function createFleetOperations(parts: FleetParts) {
  return {
    createCluster: (deps, actor, input) => createCluster(parts, deps, actor, input),
    importFleet,
    registerNode,
    rotateNodeCredential,
    revokeNode,
    releaseNodeQuarantine,
    confirmNodeRejoin: (deps, actor, input) => confirmNodeRejoin(parts.rebound, deps, actor, input),
    setCorestorePublicKey,
    createService,
    retireService,
    putServiceSpec,
    registerCoreflowRelay,
    listCredentials,
    listClusters,
    readCluster,
    listNodes,
    listServices,
    readServiceSpec,
  } satisfies Partial<OwnerHandlers>;
}
