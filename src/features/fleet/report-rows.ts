/** The reporter's side of the nodes table: locks and writes for whoever takes a report of a node. */
import { sql } from 'kysely';
import { qb } from '../../db/query.js';
import type { Tx } from '../../db/transaction.js';

export interface ReportingNode {
  readonly nodeId: string;
  readonly state: string;
  readonly swarmNodeId: string | null;
  readonly reportedSwarmNodeId: string | null;
  readonly reporterSessionId: string | null;
  readonly observationSequence: number | null;
  readonly localGeneration: number;
  readonly localDigest: string | null;
  readonly localIncomplete: string | null;
  readonly fenceStoreId: string | null;
  /** False: the node was derived by who did not look at its volumes. */
  readonly volumesJudged: boolean;
}

/**
 * Locks the node's row `for update`: one report of a node at a time. `volumesJudged` is not locked and may be older: then the
 * node is derived once too often, or with its next report.
 */
export function lockReportingNode(tx: Tx, clusterId: string, nodeId: string): Promise<ReportingNode> {
  return tx.one<ReportingNode>(
    sql<ReportingNode>`
      select node_id as "nodeId", state, swarm_node_id as "swarmNodeId", reported_swarm_node_id as "reportedSwarmNodeId",
        reporter_session_id as "reporterSessionId", observation_sequence as "observationSequence",
        local_generation as "localGeneration", local_digest as "localDigest", local_incomplete as "localIncomplete",
        fence_store_id as "fenceStoreId", coalesce((
          select facts.unkept_volumes is not null and facts.vanished_volumes is not null
            and facts.detail ?& array['unkept', 'vanished']
          from control.node_gate_facts facts where facts.cluster_id = nodes.cluster_id and facts.node_id = nodes.node_id
        ), true) as "volumesJudged"
      from control.nodes where cluster_id = ${clusterId} and node_id = ${nodeId} for update`.compile(qb),
  );
}

export interface NodeReport {
  readonly reporterSessionId: string;
  readonly observationSequence: number;
  readonly reportedState: string;
  /** Unix ms. */
  readonly receivedAt: number;
  readonly swarmNodeId: string | null;
  readonly localGeneration: number;
  readonly localDigest: string | null;
  /** Whether the report carried a complete local snapshot. */
  readonly localSeen: boolean;
  readonly localIncomplete: string | null;
  /** See `nodes.local_runtime_generation`; undefined leaves it as it is. */
  readonly localRuntimeGeneration: number | null | undefined;
  /** Pallet's fence store as the latest snapshot says; null where it says none. */
  readonly fenceStoreId: string | null;
}

export function writeNodeReport(tx: Tx, clusterId: string, nodeId: string, report: NodeReport): Promise<number> {
  return tx.run(
    sql`
      update control.nodes set reporter_session_id = ${report.reporterSessionId},
        observation_sequence = ${report.observationSequence}, reported_state = ${report.reportedState},
        received_at = ${report.receivedAt}, swarm_node_id = ${report.swarmNodeId}, reported_swarm_node_id = null,
        local_generation = ${report.localGeneration}, local_digest = ${report.localDigest},
        local_seen_at = case when ${report.localSeen} then ${report.receivedAt} else local_seen_at end,
        local_incomplete = ${report.localIncomplete},
        fence_store_id = ${report.fenceStoreId},
        local_runtime_generation = case when ${report.localRuntimeGeneration !== undefined}
          then ${report.localRuntimeGeneration ?? null}::bigint else local_runtime_generation end
      where cluster_id = ${clusterId} and node_id = ${nodeId}`.compile(qb),
  );
}

/** Remembers that the node is, or was, this swarm node. */
export function rememberSwarmNode(tx: Tx, clusterId: string, nodeId: string, swarmNodeId: string): Promise<number> {
  return tx.run(
    sql`
      insert into control.node_swarm_ids as known (cluster_id, swarm_node_id, node_id)
      values (${clusterId}, ${swarmNodeId}, ${nodeId})
      on conflict on constraint node_swarm_ids_key do update set node_id = excluded.node_id
        where known.node_id <> excluded.node_id`.compile(qb),
  );
}

/** Two live reporters of one node: nothing of it counts until an administrator releases it. */
export function quarantineNode(tx: Tx, clusterId: string, nodeId: string, reason: string): Promise<number> {
  return tx.run(
    sql`
      update control.nodes set state = 'quarantined', quarantine_reason = ${reason}
      where cluster_id = ${clusterId} and node_id = ${nodeId} and state = 'active'`.compile(qb),
  );
}

/** Keeps the swarm node id that a refused report claimed, so that both sides are shown. */
export function noteReportedSwarmNode(tx: Tx, clusterId: string, nodeId: string, swarmNodeId: string): Promise<number> {
  return tx.run(
    sql`
      update control.nodes set reported_swarm_node_id = ${swarmNodeId}
      where cluster_id = ${clusterId} and node_id = ${nodeId}`.compile(qb),
  );
}

/** Takes a swarm node id from a revoked node: its machine may be registered anew. Gives the nodes that had it. */
export async function takeFromRevoked(tx: Tx, clusterId: string, swarmNodeId: string): Promise<string[]> {
  const rows = await tx.rows(
    sql<{ nodeId: string }>`
      update control.nodes set swarm_node_id = null
      where cluster_id = ${clusterId} and swarm_node_id = ${swarmNodeId} and state = 'revoked'
      returning node_id as "nodeId"`.compile(qb),
  );
  return rows.map((row) => row.nodeId);
}

/** The node that is bound to a swarm node id; a revoked one holds nothing. */
export function swarmNodeHolder(
  tx: Tx,
  clusterId: string,
  swarmNodeId: string,
): Promise<{ nodeId: string } | undefined> {
  return tx.maybe(
    sql<{ nodeId: string }>`
      select node_id as "nodeId" from control.nodes
      where cluster_id = ${clusterId} and swarm_node_id = ${swarmNodeId} and state <> 'revoked'`.compile(qb),
  );
}

/** For ever: no report, session or grant of the node is taken any more. */
export function writeOffNodeRow(tx: Tx, clusterId: string, nodeId: string): Promise<number> {
  return tx.run(
    sql`
      update control.nodes set state = 'written-off', quarantine_reason = null
      where cluster_id = ${clusterId} and node_id = ${nodeId}`.compile(qb),
  );
}

/** Binds the cluster to the swarm whose inventory is admitted; a bound one is not changed. */
export function bindSwarm(tx: Tx, clusterId: string, swarmId: string): Promise<number> {
  return tx.run(
    sql`update control.clusters set swarm_id = ${swarmId} where cluster_id = ${clusterId} and swarm_id is null`.compile(
      qb,
    ),
  );
}
