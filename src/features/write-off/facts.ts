/** Confirmed write-offs for other features. */
import { sql } from 'kysely';
import type { IFleetCutoverWriteOff } from '../../contract/write-off.js';
import { qb } from '../../db/query.js';
import type { ReadTx } from '../../db/transaction.js';
import { demandStored } from '../../stored-record.js';

/** Null where nothing of the node is written off. */
export async function writtenOffOfNode(
  tx: ReadTx,
  clusterId: string,
  nodeId: string,
): Promise<{ readonly node: boolean; readonly entries: ReadonlySet<string> } | null> {
  const rows = await tx.rows(
    sql<{ handoffId: string | null }>`
      select handoff_id as "handoffId" from control.write_offs
      where cluster_id = ${clusterId} and node_id = ${nodeId} and state = 'confirmed'`.compile(qb),
  );
  if (rows.length === 0) return null;
  return {
    node: rows.some((row) => row.handoffId === null),
    entries: new Set(rows.flatMap((row) => row.handoffId ?? [])),
  };
}

/** The newest revision of one write-off. */
export async function findWriteOff(
  tx: ReadTx,
  clusterId: string,
  id: string,
): Promise<IFleetCutoverWriteOff | undefined> {
  const row = await tx.maybe(
    sql<{ record: string }>`
      select record from control.write_offs where cluster_id = ${clusterId} and write_off_id = ${id}
      order by generation desc limit 1`.compile(qb),
  );
  return row === undefined ? undefined : (JSON.parse(row.record) as IFleetCutoverWriteOff);
}

/** The newest revision of every write-off of the cluster, proposals too. Throws `CorruptRecordError`. */
export async function listWriteOffs(tx: ReadTx, clusterId: string): Promise<IFleetCutoverWriteOff[]> {
  const rows = await tx.rows(
    sql<{ generation: number; digest: string; record: string }>`
      select distinct on (write_off_id) generation, digest, record from control.write_offs
      where cluster_id = ${clusterId} order by write_off_id, generation desc`.compile(qb),
  );
  return rows.map((row) => demandStored<IFleetCutoverWriteOff>('IFleetCutoverWriteOff', row.record, row));
}
