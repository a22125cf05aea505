/** Owner rows for other features: reads, and the locks that they must hold. */
import { sql } from 'kysely';
import { refuse, type Refused } from '../../contract/problems.js';
import { qb } from '../../db/query.js';
import type { ReadTx, Tx } from '../../db/transaction.js';

export interface Cluster {
  readonly clusterId: string;
  readonly organizationId: string;
  readonly controllerId: string;
  readonly controllerEpoch: number;
  readonly runtimeNamespace: string;
  /** Null until the first inventory is admitted. */
  readonly swarmId: string | null;
  readonly clusterLife: string;
}

/** Of `control.clusters cluster`: a {@link Cluster}. */
export const clusterColumns = sql`
  cluster.cluster_id as "clusterId", cluster.organization_id as "organizationId", cluster.controller_id as "controllerId",
  cluster.controller_epoch as "controllerEpoch", cluster.runtime_namespace as "runtimeNamespace",
  cluster.swarm_id as "swarmId", cluster.cluster_life as "clusterLife"`;

const selectCluster = (organizationId: string, clusterId: string) => sql<Cluster>`
  select ${clusterColumns} from control.clusters cluster
   where cluster.cluster_id = ${clusterId} and cluster.organization_id = ${organizationId}`;

/** The cluster, if it is the organization's; else refused with `cluster-unknown`, whether it exists or not. */
export async function clusterOf(tx: ReadTx, organizationId: string, clusterId: string): Promise<Cluster | Refused> {
  return known(await tx.maybe(selectCluster(organizationId, clusterId).compile(qb)));
}

/**
 * As {@link clusterOf}, and locks the row against everybody else who changes the cluster's owner rows as a whole. Rows
 * that refer to the cluster may still be written.
 */
export async function lockClusterOf(tx: Tx, organizationId: string, clusterId: string): Promise<Cluster | Refused> {
  return known(await tx.maybe(sql<Cluster>`${selectCluster(organizationId, clusterId)} for no key update`.compile(qb)));
}

function known(cluster: Cluster | undefined): Cluster | Refused {
  return cluster ?? refuse('cluster-unknown');
}

/** The cluster of an authenticated node; it exists. */
export function clusterOfNode(tx: ReadTx, actor: { organizationId: string; clusterId: string }): Promise<Cluster> {
  return tx.one(selectCluster(actor.organizationId, actor.clusterId).compile(qb));
}

export interface NodeFacts {
  readonly nodeId: string;
  readonly clusterId: string;
  readonly state: 'active' | 'quarantined' | 'revoked' | 'written-off';
  readonly quarantineReason: string | null;
  readonly swarmNodeId: string | null;
  readonly reportedSwarmNodeId: string | null;
  readonly corestorePublicKey: string | null;
}

const nodeColumns = sql`node.node_id as "nodeId", node.cluster_id as "clusterId", node.state,
  node.quarantine_reason as "quarantineReason", node.swarm_node_id as "swarmNodeId",
  node.reported_swarm_node_id as "reportedSwarmNodeId", node.corestore_public_key as "corestorePublicKey"`;

/** Those of the ids that are nodes of the cluster, in byte order. */
export function findNodes(tx: ReadTx, clusterId: string, nodeIds: readonly string[]): Promise<NodeFacts[]> {
  return tx.rows(
    sql<NodeFacts>`
      select ${nodeColumns} from control.nodes as node
       where node.cluster_id = ${clusterId} and node.node_id = any(${[...nodeIds]}::text[]) order by node.node_id`.compile(
      qb,
    ),
  );
}

/** Those of the ids that are nodes of any cluster: a node id is unique over all. */
export function findNodesAnywhere(tx: ReadTx, nodeIds: readonly string[]): Promise<NodeFacts[]> {
  return tx.rows(
    sql<NodeFacts>`
      select ${nodeColumns} from control.nodes as node where node.node_id = any(${[...nodeIds]}::text[])`.compile(qb),
  );
}

/** Locks a node's row, if it is one of the organization's cluster. */
export function lockNode(
  tx: Tx,
  organizationId: string,
  clusterId: string,
  nodeId: string,
): Promise<NodeFacts | undefined> {
  return tx.maybe(
    sql<NodeFacts>`
      select ${nodeColumns} from control.nodes as node join control.clusters as cluster using (cluster_id)
       where cluster.organization_id = ${organizationId} and cluster_id = ${clusterId} and node.node_id = ${nodeId}
         for update of node`.compile(qb),
  );
}

export interface ServiceFacts {
  readonly serviceId: string;
  readonly name: string;
  readonly state: 'live' | 'retired';
}

/** Those of the ids that are services of the organization, retired ones too, in byte order. */
export function findServices(
  tx: ReadTx,
  organizationId: string,
  serviceIds: readonly string[],
): Promise<ServiceFacts[]> {
  return tx.rows(selectServices(organizationId, serviceIds).compile(qb));
}

/** As {@link findServices}, and none of them can be retired before this transaction ends. */
export function shareServices(tx: Tx, organizationId: string, serviceIds: readonly string[]): Promise<ServiceFacts[]> {
  return tx.rows(sql<ServiceFacts>`${selectServices(organizationId, serviceIds)} for share`.compile(qb));
}

/** Those of the ids that are live services of the organization, in byte order. */
export async function liveServices(
  tx: ReadTx,
  organizationId: string,
  serviceIds: readonly string[],
): Promise<ServiceFacts[]> {
  return (await findServices(tx, organizationId, serviceIds)).filter((service) => service.state === 'live');
}

function selectServices(organizationId: string, serviceIds: readonly string[]) {
  return sql<ServiceFacts>`
    select service_id as "serviceId", name, state from control.services
     where organization_id = ${organizationId} and service_id = any(${[...serviceIds]}::text[]) order by service_id`;
}
