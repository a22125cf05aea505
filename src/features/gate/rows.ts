/** The only SQL that writes retirements, and what they are assembled from. */
import { sql } from 'kysely';
import type { IFleetCutoverCoreflowRetirementEvidence } from '../../contract/coreflow.js';
import type { IFleetCutoverCompleteLocalNodeSnapshot } from '../../contract/observation.js';
import { localSnapshotId } from '../../contract/record-id.js';
import type { Reference } from '../../contract/schema.js';
import { qb } from '../../db/query.js';
import type { ReadTx, Tx } from '../../db/transaction.js';
import type { Cluster } from '../fleet/facts.js';

export function insertRetirement(
  tx: Tx,
  evidence: IFleetCutoverCoreflowRetirementEvidence,
  record: string,
): Promise<number> {
  const { clusterId, generation, digest } = evidence;
  return tx.run(
    sql`
      insert into control.coreflow_retirements (cluster_id, generation, digest, record)
      values (${clusterId}, ${generation}, ${digest}, ${record})`.compile(qb),
  );
}

/** The newest retirement's evidence; undefined before the first. */
export async function newestRetirement(
  tx: ReadTx,
  clusterId: string,
): Promise<IFleetCutoverCoreflowRetirementEvidence | undefined> {
  const row = await tx.maybe(
    sql<{ record: string }>`
      select record from control.coreflow_retirements
      where cluster_id = ${clusterId} order by generation desc limit 1`.compile(qb),
  );
  return row === undefined ? undefined : (JSON.parse(row.record) as IFleetCutoverCoreflowRetirementEvidence);
}

/** The latest accepted local snapshot of the relay's node, and what its Spark says of itself there. */
export async function retirementSnapshots(
  tx: ReadTx,
  cluster: Cluster,
  nodeId: string,
): Promise<{ reference: Reference; spark: IFleetCutoverCompleteLocalNodeSnapshot['spark'] }> {
  const row = await tx.one(
    sql<{ generation: number; digest: Reference['digest']; record: string }>`
      select snapshot.generation, snapshot.digest, snapshot.record from control.nodes node
      join control.local_snapshots snapshot on snapshot.cluster_id = node.cluster_id and snapshot.node_id = node.node_id
        and snapshot.generation = node.local_generation
      where node.cluster_id = ${cluster.clusterId} and node.node_id = ${nodeId}`.compile(qb),
  );
  const snapshot = JSON.parse(row.record) as IFleetCutoverCompleteLocalNodeSnapshot;
  return {
    reference: { id: localSnapshotId(cluster.clusterLife, nodeId), generation: row.generation, digest: row.digest },
    spark: snapshot.spark,
  };
}

/** The cluster's registered relay, revoked or not. */
export function relayCredential(
  tx: ReadTx,
  clusterId: string,
): Promise<{ credentialId: string; generation: number; revoked: boolean } | undefined> {
  return tx.maybe(
    sql<{ credentialId: string; generation: number; revoked: boolean }>`
      select credential_id as "credentialId", newest_generation as generation, revoked from control.credentials
      where cluster_id = ${clusterId} and kind = 'coreflow-relay'`.compile(qb),
  );
}
