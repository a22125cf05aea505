/** Rows that exist only so that a node is found by one look-up: members of target sets, and swarm nodes that nodes ever were. */
import { sql } from 'kysely';
import { fleetCutoverTargetSetRecord } from '../../contract/scope.js';
import { qb } from '../../db/query.js';
import { compareRows } from './observed-rows.js';
import { readCanonical, type StoredRecord } from './sealed-record.js';
import { pagesOf, type Verification, type VerifiedCluster } from './verification.js';

const targetSetsPerPage = 8;
const rowsPerPage = 500;

/** The target sets themselves must have been looked at before. */
export async function verifyTargetSetNodes(verification: Verification, { clusterId }: VerifiedCluster): Promise<void> {
  const { tx, findings } = verification;
  const isBroken = (generation: number) => findings.has('target_set_revisions', { cluster_id: clusterId, generation });
  const pages = pagesOf<StoredRecord>((last) =>
    tx.rows(
      sql<StoredRecord>`
        select generation, digest, record from control.target_set_revisions
        where cluster_id = ${clusterId} and generation > ${last?.generation ?? 0}
        order by generation limit ${targetSetsPerPage}`.compile(qb),
    ),
  );
  for await (const revisions of pages) {
    for (const { generation, record } of revisions) {
      const value = isBroken(generation) ? undefined : readCanonical(record);
      if (!fleetCutoverTargetSetRecord.is(value)) continue;
      const stored = await tx.rows(
        sql<{ nodeId: string }>`
          select node_id as "nodeId" from control.target_set_nodes
          where cluster_id = ${clusterId} and generation = ${generation}`.compile(qb),
      );
      compareRows(
        verification,
        'target_set_nodes',
        new Map(value.nodeIds.map((nodeId) => [nodeId, ''])),
        new Map(stored.map(({ nodeId }) => [nodeId, ''])),
        (nodeId) => ({ cluster_id: clusterId, generation, node_id: nodeId }),
        `the record of target set ${generation} says otherwise`,
      );
      verification.advance(stored.length);
    }
  }
  const lost = await tx.rows(
    sql<{ generation: number; nodeId: string }>`
      select generation, node_id as "nodeId" from control.target_set_nodes target
      where cluster_id = ${clusterId} and not exists (
        select from control.target_set_revisions revision
        where revision.cluster_id = target.cluster_id and revision.generation = target.generation)
      order by generation, node_id limit ${rowsPerPage}`.compile(qb),
  );
  for (const { generation, nodeId } of lost) {
    if (isBroken(generation)) continue;
    const key = { cluster_id: clusterId, generation, node_id: nodeId };
    findings.add('target_set_nodes', key, 'the row should not be there', `there is no target set ${generation}`);
  }
}

interface SwarmNodeRow {
  readonly nodeId: string;
  readonly swarmNodeId: string;
  /** Node that the swarm node is said to be. */
  readonly rememberedAs: string | null;
}

export async function verifyNodeSwarmIds(
  { tx, findings }: Verification,
  { clusterId }: VerifiedCluster,
): Promise<void> {
  const pages = pagesOf<SwarmNodeRow>((last) =>
    tx.rows(
      sql<SwarmNodeRow>`
        select node.node_id as "nodeId", node.swarm_node_id as "swarmNodeId", known.node_id as "rememberedAs"
        from control.nodes node
        left join control.node_swarm_ids known
          on known.cluster_id = node.cluster_id and known.swarm_node_id = node.swarm_node_id
        where node.cluster_id = ${clusterId} and node.swarm_node_id is not null and node.node_id > ${last?.nodeId ?? ''}
        order by node.node_id limit ${rowsPerPage}`.compile(qb),
    ),
  );
  for await (const rows of pages) {
    for (const { nodeId, swarmNodeId, rememberedAs } of rows) {
      if (rememberedAs === nodeId) continue;
      const what = rememberedAs === null ? 'the row is missing' : 'the row was changed';
      const key = { cluster_id: clusterId, swarm_node_id: swarmNodeId };
      findings.add('node_swarm_ids', key, what, `the node ${nodeId} is this swarm node`);
    }
  }
  const lost = await tx.rows(
    sql<{ swarmNodeId: string; nodeId: string }>`
      select swarm_node_id as "swarmNodeId", node_id as "nodeId" from control.node_swarm_ids known
      where cluster_id = ${clusterId} and not exists (
        select from control.nodes node where node.cluster_id = known.cluster_id and node.node_id = known.node_id)
      order by swarm_node_id limit ${rowsPerPage}`.compile(qb),
  );
  for (const { swarmNodeId, nodeId } of lost) {
    const key = { cluster_id: clusterId, swarm_node_id: swarmNodeId };
    findings.add('node_swarm_ids', key, 'the row should not be there', `there is no node ${nodeId}`);
  }
}

/** Every swarm node that a node is or was; one that another node is now belongs to that one, whatever its row says. */
export async function swarmNodesOf({ tx }: Verification, clusterId: string, nodeId: string): Promise<string[]> {
  const rows = await tx.rows(
    sql<{ id: string }>`
      select known.swarm_node_id as id from control.node_swarm_ids known
      where known.cluster_id = ${clusterId} and known.node_id = ${nodeId} and not exists (
        select from control.nodes other where other.cluster_id = known.cluster_id
          and other.swarm_node_id = known.swarm_node_id and other.node_id <> known.node_id)
      union
      select swarm_node_id from control.nodes
      where cluster_id = ${clusterId} and node_id = ${nodeId} and swarm_node_id is not null`.compile(qb),
  );
  return rows.map((row) => row.id);
}
