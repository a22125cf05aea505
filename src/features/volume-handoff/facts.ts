/** Derivation and aggregate for other features. */
import { sql } from 'kysely';
import { present } from '../../db/present.js';
import { qb } from '../../db/query.js';
import type { ReadTx } from '../../db/transaction.js';
import { readScopeHead, readTargetSetHead } from '../scope/facts.js';
import type { PreparedMounts } from '../scope/strays.js';
import type { Reference } from '../../contract/schema.js';
import { type AggregateHead, aggregateReference } from './aggregate.js';
import { readAggregateHead } from './rows.js';

export { readDerivationHead } from './derivation-rows.js';
export { referenceOfHead as derivationReference } from './steps.js';

/** Those of the services of ours of which entries are required now, the released ones left out. */
export async function servicesWithEntries(
  tx: ReadTx,
  clusterId: string,
  serviceIds: readonly string[],
  released: readonly { nodeId: string; serviceId: string; mountIdentityDigest: string }[],
): Promise<Set<string>> {
  const rows = await tx.rows(
    sql<{ id: string }>`
      select distinct service_id as id from control.required_entries
      where cluster_id = ${clusterId} and until is null and service_id = any(${[...serviceIds]}::text[])
        and (node_id, service_id, mount_identity_digest) not in (
          select * from unnest(${released.map((each) => each.nodeId)}::text[], ${released.map((each) => each.serviceId)}::text[],
            ${released.map((each) => each.mountIdentityDigest)}::text[]))`.compile(qb),
  );
  return new Set(rows.map((row) => row.id));
}

/** What is prepared and required, by owner; see `scope/strays.ts`. */
export async function preparedMounts(tx: ReadTx, clusterId: string): Promise<PreparedMounts> {
  const rows = await tx.rows(
    sql<{ nodeId: string; serviceId: string; mountIdentityDigest: string; target: string }>`
      select entry.node_id as "nodeId", entry.service_id as "serviceId",
        entry.mount_identity_digest as "mountIdentityDigest", entry.mount_path as target
      from control.required_entries entry
      join control.handoff_heads head on head.cluster_id = entry.cluster_id and head.node_id = entry.node_id
        and head.handoff_id = entry.handoff_id and not head.removed
      where entry.cluster_id = ${clusterId} and entry.until is null`.compile(qb),
  );
  return {
    targets: new Set(rows.map((row) => `${row.serviceId}\0${row.target}`)),
    keys: new Set(rows.map((row) => `${row.nodeId}\0${row.serviceId}\0${row.mountIdentityDigest}`)),
  };
}

/** Current blockers by code, in code order. */
export function blockerSummary(tx: ReadTx, clusterId: string): Promise<{ code: string; count: number }[]> {
  return tx.rows(
    sql<{ code: string; count: number }>`
      select code, count(*) as count from control.blockers
      where cluster_id = ${clusterId} and until is null group by code order by code collate "C"`.compile(qb),
  );
}

export async function verdictCounts(
  tx: ReadTx,
  clusterId: string,
): Promise<{ live: number; notStarted: number; stopped: number; unknown: number }> {
  const rows = await tx.rows(
    sql<{ verdict: string; count: number }>`
      select verdict, count(*) as count from control.task_verdicts where cluster_id = ${clusterId} group by verdict`.compile(
      qb,
    ),
  );
  const count = (verdict: string) => rows.find((row) => row.verdict === verdict)?.count ?? 0;
  return {
    live: count('live'),
    notStarted: count('not-started'),
    stopped: count('stopped'),
    unknown: count('unknown'),
  };
}

/**
 * Whether keys, blockers, scope or targets differ from what the aggregate was derived from. A newer snapshot, or a change
 * that was undone since, does not. Costs what changed since then.
 */
export async function isBehind(tx: ReadTx, clusterId: string, head: AggregateHead): Promise<boolean> {
  if (head.generation === 0) return false;
  const [scopeHead, targetSetHead, { differs }] = await Promise.all([
    readScopeHead(tx, clusterId),
    readTargetSetHead(tx, clusterId),
    tx.one(
      sql<{ differs: boolean }>`
        select exists (
          select from control.required_entries entry
          where entry.cluster_id = ${clusterId} and (entry.since > ${head.derivationGeneration} or entry.until > ${head.derivationGeneration})
          group by entry.node_id, entry.handoff_id
          having bool_or(entry.since <= ${head.derivationGeneration}) <> bool_or(entry.until is null)
        ) or exists (
          select from control.blockers blocker
          where blocker.cluster_id = ${clusterId} and (blocker.since > ${head.derivationGeneration} or blocker.until > ${head.derivationGeneration})
          group by blocker.blocker_id
          having bool_or(blocker.since <= ${head.derivationGeneration}) <> bool_or(blocker.until is null)
        ) as differs`.compile(qb),
    ),
  ]);
  return (
    differs ||
    present(scopeHead).generation !== head.scopeGeneration ||
    present(targetSetHead).generation !== head.targetSetGeneration
  );
}

/** Whether the key was ever required. */
export async function requiredEntryExists(
  tx: ReadTx,
  clusterId: string,
  nodeId: string,
  handoffId: string,
): Promise<boolean> {
  const { found } = await tx.one(
    sql<{ found: boolean }>`
      select exists (select from control.required_entries
        where cluster_id = ${clusterId} and node_id = ${nodeId} and handoff_id = ${handoffId}) as found`.compile(qb),
  );
  return found;
}

export { handoffRecords, pageAt } from './rows.js';
export { readPage } from './page.js';
export { CorruptPageError } from './publish.js';

/** The head of the aggregate if it is complete, in one look-up; null otherwise. */
export async function currentAggregate(
  tx: ReadTx,
  clusterId: string,
  clusterLife: string,
): Promise<{ readonly reference: Reference; readonly pageCount: number } | null> {
  const head = present(await readAggregateHead(tx, clusterId));
  const reference = aggregateReference(clusterLife, head);
  return reference === null || head.state !== 'complete' ? null : { reference, pageCount: head.pageCount };
}

/** The aggregate's head as it is, with its reference. */
export async function aggregateFacts(
  tx: ReadTx,
  clusterId: string,
  clusterLife: string,
): Promise<{ readonly head: AggregateHead; readonly reference: Reference | null }> {
  const head = present(await readAggregateHead(tx, clusterId));
  return { head, reference: aggregateReference(clusterLife, head) };
}
