/** Held fences: each record with its columns, and the handoff that it binds. */
import { sql } from 'kysely';
import type { IFleetCutoverPreparedVolumeHandoffIntent } from '../../contract/handoff.js';
import { fleetCutoverVolumeFenceRecord } from '../../contract/held-fence.js';
import { qb } from '../../db/query.js';
import { judgeSealed, readCanonical, type StoredRecord } from './sealed-record.js';
import { pagesOf, type Verification, type VerifiedCluster } from './verification.js';

interface FenceRow extends StoredRecord {
  readonly nodeId: string;
  readonly handoffId: string;
  readonly fenceId: string;
  readonly handoffGeneration: number;
  /** Of that generation of the handoff; null where it has none. */
  readonly handoffDigest: string | null;
  readonly handoff: string | null;
}

const rowsPerPage = 256;

/** The handoffs must have been looked at before. */
export async function verifyHeldFences(verification: Verification, { clusterId }: VerifiedCluster): Promise<void> {
  const { tx, findings } = verification;
  const pages = pagesOf<FenceRow>((last) =>
    tx.rows(
      sql<FenceRow>`
        select held.node_id as "nodeId", held.handoff_id as "handoffId", held.fence_id as "fenceId", held.generation,
          held.digest, held.handoff_generation as "handoffGeneration", held.record, revision.digest as "handoffDigest",
          revision.record as handoff
        from control.held_fences held
        left join lateral (
          select digest, record from control.handoff_revisions revision
          where revision.cluster_id = held.cluster_id and revision.node_id = held.node_id
            and revision.handoff_id = held.handoff_id and revision.generation = held.handoff_generation
            and revision.record is not null limit 1) revision on true
        where held.cluster_id = ${clusterId} and (held.node_id, held.handoff_id) > (${last?.nodeId ?? ''}, ${last?.handoffId ?? ''})
        order by held.node_id, held.handoff_id limit ${rowsPerPage}`.compile(qb),
    ),
  );
  for await (const rows of pages) {
    for (const row of rows) {
      const key = { cluster_id: clusterId, node_id: row.nodeId, handoff_id: row.handoffId };
      // A handoff that is broken or gone was named by its own rows.
      const handoffIsBroken = findings.hasAny('handoff_revisions', key);
      const fault = fenceFault(clusterId, row, !handoffIsBroken);
      if (fault !== null) findings.add('held_fences', key, 'the row was changed', fault);
    }
    verification.advance(rows.length);
  }
}

function fenceFault(clusterId: string, row: FenceRow, withHandoff: boolean): string | null {
  const { value, fault } = judgeSealed(fleetCutoverVolumeFenceRecord, row);
  if (fault !== null || value === null) return fault ?? 'the record cannot be read';
  if (value.clusterId !== clusterId || value.nodeId !== row.nodeId) return `the record is of node ${value.nodeId}`;
  if (value.id !== row.fenceId) return `the record is the fence ${value.id}, the row ${row.fenceId}`;
  if (value.handoff.id !== row.handoffId || value.handoff.generation !== row.handoffGeneration)
    return `the record binds ${value.handoff.id} ${value.handoff.generation}, the row ${row.handoffGeneration}`;
  if (!withHandoff) return null;
  if (row.handoffDigest !== value.handoff.digest || row.handoff === null)
    return `the handoff has no generation ${value.handoff.generation} with ${value.handoff.digest}`;
  const handoff = readCanonical(row.handoff) as IFleetCutoverPreparedVolumeHandoffIntent;
  return handoff.volumeId === value.volumeId && handoff.observedMount.mountIdentityDigest === value.mountIdentityDigest
    ? null
    : 'the handoff is of another volume or mount';
}
