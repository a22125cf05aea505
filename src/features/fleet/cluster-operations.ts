import type { MethodRequest, MethodResponse } from '../../contract/methods.js';
import type { Refused } from '../../contract/problems.js';
import type { IFleetCutoverRuntime } from '../../contract/runtime.js';
import { read, type Tx } from '../../db/transaction.js';
import type { Deps } from '../../deps.js';
import { newIdentifier } from '../../random.js';
import { isRefused } from '../../refusal.js';
import { mutate } from '../audit/mutation.js';
import { openChain } from '../audit/rows.js';
import type { AdministratorActor } from '../auth/actor.js';
import { lockOrganization } from '../auth/facts.js';
import { type Cluster, clusterOf } from './facts.js';
import { refuseClusterId, refuseMutation } from './fleet.js';
import { fleetCluster } from './response.js';
import { clustersOf, insertCluster } from './rows.js';

/** What features further down put into a new cluster; the composition root brings it. */
export interface NewClusterParts {
  /** The record with which the cluster's cutover begins. */
  readonly firstRuntime: (cluster: Cluster) => IFleetCutoverRuntime;
  /** Write the first rows of each feature, in feature order. They may send statements without awaiting them. */
  readonly initializers: readonly ((tx: Tx, cluster: Cluster, runtime: IFleetCutoverRuntime) => unknown)[];
}

export function createCluster(
  parts: NewClusterParts,
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'createCluster'>,
): Promise<MethodResponse<'createCluster'> | Refused> {
  return mutate(deps, actor, input, {
    method: 'createCluster',
    clusterId: input.clusterId,
    lock: (tx) => lockOrganization(tx, actor.organizationId),
    apply: async (tx) => {
      const refused = refuseClusterId(input.clusterId);
      if (refused) return refused;
      const cluster = newCluster(deps, actor, input);
      const inserted = await Promise.all([insertCluster(tx, cluster), openChain(tx, cluster.clusterId)]);
      if (inserted.includes(0)) return refuseMutation('cluster-exists');
      const runtime = parts.firstRuntime(cluster);
      await Promise.all(parts.initializers.map((initialize) => initialize(tx, cluster, runtime)));
      return { result: { cluster: fleetCluster(cluster), runtime } };
    },
    // The runtime advances only after an inventory was admitted, which binds the cluster to its swarm.
    isCurrent: async (tx, recorded) => {
      const cluster = await clusterOf(tx, actor.organizationId, input.clusterId);
      if (isRefused(cluster)) return false;
      return cluster.clusterLife === recorded.cluster.clusterLife && cluster.swarmId === recorded.cluster.swarmId;
    },
  });
}

function newCluster(deps: Deps, actor: AdministratorActor, input: MethodRequest<'createCluster'>): Cluster {
  return {
    clusterId: input.clusterId,
    organizationId: actor.organizationId,
    controllerId: input.controllerId,
    controllerEpoch: 1,
    runtimeNamespace: input.runtimeNamespace,
    swarmId: null,
    clusterLife: newIdentifier(deps.random, 'cl'),
  };
}

export function listClusters(deps: Deps, actor: AdministratorActor): Promise<MethodResponse<'listClusters'>> {
  return read(deps, 'listClusters', async (tx) => {
    const clusters = await clustersOf(tx, actor.organizationId);
    return { clusters: clusters.map(fleetCluster) };
  });
}

export function readCluster(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'readCluster'>,
): Promise<MethodResponse<'readCluster'> | Refused> {
  return read(deps, 'readCluster', async (tx) => {
    const cluster = await clusterOf(tx, actor.organizationId, input.clusterId);
    return isRefused(cluster) ? cluster : { cluster: fleetCluster(cluster) };
  });
}
