/** Required entries and blockers, closed ones too, against what they say of themselves. */
import { sql } from 'kysely';
import type { IFleetCutoverBlocker } from '../../contract/derivation.js';
import { observedMountOf } from '../../contract/mount.js';
import { handoffId } from '../../contract/record-id.js';
import { qb } from '../../db/query.js';
import { expectedBlockerId } from '../../stored-record.js';
import type { StoredEntry } from './derived-rows.js';
import { readCanonical } from './sealed-record.js';
import { pagesOf, type Verification, type VerifiedCluster } from './verification.js';

const rowsPerPage = 1_000;

export async function verifyDerivedRows(verification: Verification, cluster: VerifiedCluster): Promise<void> {
  await verifyEntries(verification, cluster);
  await verifyBlockers(verification, cluster);
}

async function verifyEntries(verification: Verification, { clusterId, clusterLife }: VerifiedCluster): Promise<void> {
  const { tx, findings } = verification;
  type Row = Pick<
    StoredEntry,
    | 'nodeId'
    | 'handoffId'
    | 'since'
    | 'serviceId'
    | 'sourceDigest'
    | 'targetDigest'
    | 'mountIdentityDigest'
    | 'source'
    | 'mountPath'
  >;
  const pages = pagesOf<Row>((last) =>
    tx.rows(
      sql<Row>`
        select node_id as "nodeId", handoff_id as "handoffId", since, service_id as "serviceId", source_digest as "sourceDigest",
          target_digest as "targetDigest", mount_identity_digest as "mountIdentityDigest", source, mount_path as "mountPath"
        from control.required_entries
        where cluster_id = ${clusterId} and (node_id, handoff_id, since)
          > (${last?.nodeId ?? ''}, ${last?.handoffId ?? ''}, ${last?.since ?? 0}::bigint)
        order by node_id, handoff_id, since limit ${rowsPerPage}`.compile(qb),
    ),
  );
  for await (const rows of pages) {
    for (const row of rows) {
      const { nodeId, serviceId, source, mountPath, since } = row;
      const mount = observedMountOf(source, mountPath);
      const id = handoffId(clusterLife, { nodeId, serviceId, mountIdentityDigest: mount.mountIdentityDigest });
      const same =
        id === row.handoffId &&
        mount.sourceDigest === row.sourceDigest &&
        mount.targetDigest === row.targetDigest &&
        mount.mountIdentityDigest === row.mountIdentityDigest;
      if (same) continue;
      const key = { cluster_id: clusterId, node_id: nodeId, handoff_id: row.handoffId, since };
      findings.add(
        'required_entries',
        key,
        'the row was changed',
        `node, service, source and path make the handoff ${id} with ${mount.mountIdentityDigest}`,
      );
    }
    verification.advance(rows.length);
  }
}

interface BlockerRow {
  readonly id: string;
  readonly since: number;
  readonly code: string;
  readonly part: string;
  readonly nodeId: string | null;
  readonly handoffId: string | null;
  readonly record: string;
}

async function verifyBlockers(verification: Verification, { clusterId, clusterLife }: VerifiedCluster): Promise<void> {
  const { tx, findings } = verification;
  const pages = pagesOf<BlockerRow>((last) =>
    tx.rows(
      sql<BlockerRow>`
        select blocker_id as id, since, code, part, node_id as "nodeId", handoff_id as "handoffId", record
        from control.blockers
        where cluster_id = ${clusterId} and (blocker_id, since) > (${last?.id ?? ''}, ${last?.since ?? 0}::bigint)
        order by blocker_id, since limit ${rowsPerPage}`.compile(qb),
    ),
  );
  for await (const rows of pages) {
    for (const row of rows) {
      const fault = blockerFault(clusterLife, row);
      if (fault !== null)
        findings.add(
          'blockers',
          { cluster_id: clusterId, blocker_id: row.id, since: row.since },
          'the row was changed',
          fault,
        );
    }
    verification.advance(rows.length);
  }
}

function blockerFault(clusterLife: string, row: BlockerRow): string | null {
  const value = readCanonical(row.record) as IFleetCutoverBlocker | undefined;
  if (value === undefined) return 'the record is not canonical JSON';
  const { id } = value;
  if (id !== row.id || value.code !== row.code || value.nodeId !== row.nodeId || row.part !== (value.nodeId ?? '')) {
    return 'the record has another id, code or node than the row';
  }
  const { entry } = value;
  const blocked = entry === null ? null : handoffId(clusterLife, entry);
  if (blocked !== row.handoffId)
    return `the record is of ${blocked ?? 'no handoff'}, the row of ${row.handoffId ?? 'none'}`;
  const expected = expectedBlockerId(value) ?? id;
  return expected === id ? null : `its content has the id ${expected}`;
}
