/** The derivation's own revisions: their chain, what came and went with each, the counts, and the head. */
import { sql } from 'kysely';
import { fleetCutoverDerivationRecord, type IFleetCutoverDerivation } from '../../contract/derivation.js';
import { derivationId } from '../../contract/record-id.js';
import { qb } from '../../db/query.js';
import type { DerivationLedger, RevisionChange } from './derivation-ledger.js';
import { RevisionChain } from './revisions.js';
import type { StoredRecord } from './sealed-record.js';
import { pagesOf, type Verification, type VerifiedCluster } from './verification.js';

const revisionsPerPage = 32;

interface DerivationHeadRow {
  readonly generation: number;
  readonly digest: string;
  readonly requiredCount: number;
  readonly blockerCount: number;
}

export async function verifyDerivationRevisions(
  verification: Verification,
  cluster: VerifiedCluster,
  ledger: DerivationLedger,
): Promise<void> {
  const { tx, findings } = verification;
  const { clusterId } = cluster;
  const key = (generation: number) => ({ cluster_id: clusterId, generation });
  const chain = new RevisionChain<IFleetCutoverDerivation, StoredRecord>(verification, {
    table: 'derivation_revisions',
    record: fleetCutoverDerivationRecord,
    id: derivationId(cluster.clusterLife),
    key,
    contradiction: (value) => (value.clusterId === clusterId ? null : `the record is of cluster ${value.clusterId}`),
  });
  await findPreparedWithoutEntry(verification, clusterId, ledger);
  let required = 0;
  let blockers = 0;
  const pages = pagesOf<StoredRecord>((last) =>
    tx.rows(
      sql<StoredRecord>`
        select generation, digest, record from control.derivation_revisions
        where cluster_id = ${clusterId} and generation > ${last?.generation ?? 0}
        order by generation limit ${revisionsPerPage}`.compile(qb),
    ),
  );
  for await (const rows of pages) {
    const changes = await changesBetween(verification, clusterId, rows[0]!.generation, rows.at(-1)!.generation);
    for (const row of rows) {
      const value = chain.take(row);
      const stored = changes.get(row.generation) ?? nothing;
      const change = value === null ? stored : ledger.explain(row.generation, stored, value.changeDigest);
      if (change === undefined) {
        findings.add(
          'derivation_revisions',
          key(row.generation),
          'changeDigest is wrong',
          'required entries and blockers that came and went with it give another digest',
        );
      }
      const { entriesAdded, entriesRemoved, blockersAdded, blockersRemoved } = change ?? stored;
      required += entriesAdded.length - entriesRemoved.length;
      blockers += blockersAdded.length - blockersRemoved.length;
      if (
        value !== null &&
        change !== undefined &&
        (value.requiredCount !== required || value.blockerCount !== blockers)
      ) {
        findings.add(
          'derivation_revisions',
          key(row.generation),
          'requiredCount or blockerCount is wrong',
          `the rows make ${required} and ${blockers}, the record says ${value.requiredCount} and ${value.blockerCount}`,
        );
      }
      // A record that can't be explained still says where the next one begins.
      if (value !== null) [required, blockers] = [value.requiredCount, value.blockerCount];
    }
    verification.advance(rows.length);
  }
  ledger.finish();
  const head = await tx.maybe(
    sql<DerivationHeadRow>`
      select generation, digest, required_count as "requiredCount", blocker_count as "blockerCount"
      from control.derivation_heads where cluster_id = ${clusterId}`.compile(qb),
  );
  chain.end(head, 'derivation_heads', { cluster_id: clusterId });
  if (
    head !== undefined &&
    chain.last !== undefined &&
    (head.requiredCount !== required || head.blockerCount !== blockers)
  ) {
    findings.add(
      'derivation_heads',
      { cluster_id: clusterId },
      'required_count or blocker_count is wrong',
      `the revisions make ${required} and ${blockers}, the row has ${head.requiredCount} and ${head.blockerCount}`,
    );
  }
}

const nothing: RevisionChange = { entriesAdded: [], entriesRemoved: [], blockersAdded: [], blockersRemoved: [] };

/** Required entries and blockers by the revision they came or went with; both ends inclusive. */
async function changesBetween(
  { tx }: Verification,
  clusterId: string,
  from: number,
  to: number,
): Promise<ReadonlyMap<number, RevisionChange>> {
  const rows = await tx.rows(
    sql<{ generation: number; list: keyof RevisionChange; ids: string[] }>`
      select since as generation, 'entriesAdded' as list, array_agg(handoff_id::text) as ids from control.required_entries
        where cluster_id = ${clusterId} and since between ${from} and ${to} group by since
      union all select until, 'entriesRemoved', array_agg(handoff_id::text) from control.required_entries
        where cluster_id = ${clusterId} and until between ${from} and ${to} group by until
      union all select since, 'blockersAdded', array_agg(blocker_id::text) from control.blockers
        where cluster_id = ${clusterId} and since between ${from} and ${to} group by since
      union all select until, 'blockersRemoved', array_agg(blocker_id::text) from control.blockers
        where cluster_id = ${clusterId} and until between ${from} and ${to} group by until`.compile(qb),
  );
  const changes = new Map<number, RevisionChange>();
  for (const { generation, list, ids } of rows)
    changes.set(generation, { ...(changes.get(generation) ?? nothing), [list]: ids });
  return changes;
}

/** More would not be listed anyway. */
const maximumLost = 1_000;

async function findPreparedWithoutEntry(
  { tx }: Verification,
  clusterId: string,
  ledger: DerivationLedger,
): Promise<void> {
  const rows = await tx.rows(
    sql<{ nodeId: string; id: string }>`
      select head.node_id as "nodeId", head.handoff_id as id from control.handoff_heads head
      where head.cluster_id = ${clusterId} and not exists (
        select from control.required_entries entry
        where entry.cluster_id = head.cluster_id and entry.node_id = head.node_id and entry.handoff_id = head.handoff_id)
      order by head.node_id, head.handoff_id limit ${maximumLost}`.compile(qb),
  );
  for (const { nodeId, id } of rows) ledger.addPreparedWithoutEntry(nodeId, id);
}
