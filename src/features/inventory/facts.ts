/** Accepted evidence for other features. */
import { sql } from 'kysely';
import type { IObservedSpecMount, TSwarmTaskState } from '../../contract/observation.js';
import { localSnapshotId, managerSnapshotId } from '../../contract/record-id.js';
import type { Reference } from '../../contract/schema.js';
import { qb } from '../../db/query.js';
import type { ReadTx } from '../../db/transaction.js';

export { roleOf } from './rows.js';

export interface EvidenceHead {
  readonly generation: number;
  readonly digest: Reference['digest'];
}

/** The latest accepted manager snapshot; undefined where none was, or there is no such cluster. */
export async function managerSnapshotHead(
  tx: ReadTx,
  clusterId: string,
): Promise<(EvidenceHead & { incomplete: string | null }) | undefined> {
  const head = await tx.maybe(
    sql<{ generation: number; digest: Reference['digest'] | null; incomplete: string | null }>`
      select generation, digest, incomplete from control.manager_snapshot_heads where cluster_id = ${clusterId}`.compile(
      qb,
    ),
  );
  return head === undefined || head.digest === null ? undefined : { ...head, digest: head.digest };
}

/** Reason of a newer incomplete manager snapshot, also where none was ever accepted. */
export async function managerIncomplete(tx: ReadTx, clusterId: string): Promise<string | null> {
  const head = await tx.one(
    sql<{ incomplete: string | null }>`
      select incomplete from control.manager_snapshot_heads where cluster_id = ${clusterId}`.compile(qb),
  );
  return head.incomplete;
}

export function managerSnapshot(
  tx: ReadTx,
  clusterId: string,
  generation: number,
): Promise<{ digest: Reference['digest']; swarmId: string; record: string } | undefined> {
  return tx.maybe(
    sql<{ digest: Reference['digest']; swarmId: string; record: string }>`
      select digest, swarm_id as "swarmId", record from control.manager_snapshots
      where cluster_id = ${clusterId} and generation = ${generation}`.compile(qb),
  );
}

export function managerSnapshotReference(clusterLife: string, head: EvidenceHead): Reference {
  return { id: managerSnapshotId(clusterLife), generation: head.generation, digest: head.digest };
}

export function localSnapshotReference(clusterLife: string, nodeId: string, head: EvidenceHead): Reference {
  return { id: localSnapshotId(clusterLife, nodeId), generation: head.generation, digest: head.digest };
}

/** A node of the cluster as the derivation needs it, with its latest accepted local snapshot's canonical JSON. */
export interface NodeEvidence {
  readonly nodeId: string;
  readonly swarmNodeId: string | null;
  readonly swarmState: string | null;
  readonly incomplete: string | null;
  readonly snapshot: string | null;
}

export function nodeEvidence(tx: ReadTx, clusterId: string, nodeId: string): Promise<NodeEvidence> {
  return tx.one(
    sql<NodeEvidence>`
      select node.node_id as "nodeId", node.swarm_node_id as "swarmNodeId", swarm.state as "swarmState",
        node.local_incomplete as incomplete, snapshot.record as snapshot
      from control.nodes node
      left join control.observed_swarm_nodes swarm on swarm.cluster_id = node.cluster_id and swarm.swarm_node_id = node.swarm_node_id
      left join control.local_snapshots snapshot
        on snapshot.cluster_id = node.cluster_id and snapshot.node_id = node.node_id and snapshot.generation = node.local_generation
      where node.cluster_id = ${clusterId} and node.node_id = ${nodeId}`.compile(qb),
  );
}

export interface ObservedTask {
  readonly swarmTaskId: string;
  readonly swarmServiceId: string;
  readonly swarmNodeId: string | null;
  readonly state: TSwarmTaskState;
  readonly containerId: string | null;
}

const taskColumns = sql`task.swarm_task_id as "swarmTaskId", task.swarm_service_id as "swarmServiceId",
  task.swarm_node_id as "swarmNodeId", task.state, task.container_id as "containerId"`;

/** Tasks of a node in the latest accepted manager snapshot, also under swarm node ids that it had before it rejoined. */
export function tasksOfNode(
  tx: ReadTx,
  clusterId: string,
  nodeId: string,
): Promise<(ObservedTask & { former: boolean })[]> {
  return tx.rows(
    sql<ObservedTask & { former: boolean }>`
      select ${taskColumns}, node.swarm_node_id is distinct from task.swarm_node_id as former
      from control.node_swarm_ids known
      join control.observed_tasks task on task.cluster_id = known.cluster_id and task.swarm_node_id = known.swarm_node_id
      join control.nodes node on node.cluster_id = known.cluster_id and node.node_id = known.node_id
      where known.cluster_id = ${clusterId} and known.node_id = ${nodeId}`.compile(qb),
  );
}

/** Tasks on no swarm node, or on one that no node of the fleet is bound to. */
export function tasksOfNobody(
  tx: ReadTx,
  clusterId: string,
): Promise<(ObservedTask & { swarmState: string | null })[]> {
  return tx.rows(
    sql<ObservedTask & { swarmState: string | null }>`
      select ${taskColumns}, swarm.state as "swarmState" from control.observed_tasks task
      left join control.observed_swarm_nodes swarm
        on swarm.cluster_id = task.cluster_id and swarm.swarm_node_id = task.swarm_node_id
      where task.cluster_id = ${clusterId} and not exists (
        select from control.node_swarm_ids known where known.cluster_id = task.cluster_id and known.swarm_node_id = task.swarm_node_id)`.compile(
      qb,
    ),
  );
}

export function observedServices(
  tx: ReadTx,
  clusterId: string,
): Promise<{ swarmServiceId: string; name: string; mounts: IObservedSpecMount[] }[]> {
  return tx.rows(
    sql<{ swarmServiceId: string; name: string; mounts: IObservedSpecMount[] }>`
      select swarm_service_id as "swarmServiceId", name, mounts from control.observed_services
      where cluster_id = ${clusterId} order by swarm_service_id`.compile(qb),
  );
}

/** Fleet nodes that are, or were, these swarm nodes. */
export async function nodesOfSwarmNodes(
  tx: ReadTx,
  clusterId: string,
  swarmNodeIds: readonly string[],
): Promise<string[]> {
  const rows = await tx.rows(
    sql<{ nodeId: string }>`
      select node_id as "nodeId" from control.node_swarm_ids
      where cluster_id = ${clusterId} and swarm_node_id = any(${swarmNodeIds}::text[])`.compile(qb),
  );
  return rows.map((row) => row.nodeId);
}

/** All nodes of the cluster that have or need a derivation, in byte order. */
export async function allNodes(tx: ReadTx, clusterId: string): Promise<string[]> {
  const rows = await tx.rows(
    sql<{
      nodeId: string;
    }>`select node_id as "nodeId" from control.nodes where cluster_id = ${clusterId} order by node_id`.compile(qb),
  );
  return rows.map((row) => row.nodeId);
}
