/** The only SQL that writes aggregates, handoffs, volumes and pages. */
import { type RawBuilder, sql } from 'kysely';
import { canonicalizeStrictJson } from '../../contract/canonical-json.js';
import type { IHandoffRemoval } from '../../contract/cutover-methods.js';
import type {
  IFleetCutoverPreparedVolumeHandoffAggregate,
  IFleetCutoverPreparedVolumeHandoffPageEntry,
} from '../../contract/handoff.js';
import type { Reference } from '../../contract/schema.js';
import { qb } from '../../db/query.js';
import type { ReadTx, Tx } from '../../db/transaction.js';
import { insertVolumes } from '../fleet/volumes.js';
import type { AggregateHead, Counts } from './aggregate.js';
import type { RequiredEntry } from './derive-node.js';
import type { HandoffWrite, KeyFacts } from './handoff.js';
import type { PageContent } from './page.js';

type Digest = Reference['digest'];

// Aggregate ---------------------------------------------------------------------------------------------------------

export function insertAggregateHead(tx: Tx, clusterId: string): Promise<number> {
  return tx.run(
    sql`
      insert into control.aggregate_heads (cluster_id, generation, state, prepared_count, matched_count, page_count,
        derivation_generation, scope_generation, target_set_generation, complete_generation)
      values (${clusterId}, 0, 'absent', 0, 0, 0, 0, 0, 0, 0)`.compile(qb),
  );
}

/** Of `control.aggregate_heads head`: an {@link AggregateHead}. */
export const aggregateColumns = sql`
  head.generation, head.digest, head.state, head.prepared_count as "preparedCount", head.matched_count as "matchedCount",
  head.page_count as "pageCount", head.derivation_generation as "derivationGeneration",
  head.scope_generation as "scopeGeneration", head.target_set_generation as "targetSetGeneration",
  head.complete_generation as "completeGeneration"`;

const selectAggregate = (clusterId: string) => sql<AggregateHead>`
  select ${aggregateColumns} from control.aggregate_heads head where head.cluster_id = ${clusterId}`;

/** Undefined where there is no such cluster. */
export const readAggregateHead = (tx: ReadTx, clusterId: string) => tx.maybe(selectAggregate(clusterId).compile(qb));

/**
 * Locks the head `for update` where it is the expected one. A stale expectation locks nothing and waits for nobody: only
 * a head that matches is waited for, and it is compared again after the wait.
 */
export function lockExpectedAggregate(
  tx: Tx,
  clusterId: string,
  expected: Reference | null,
): Promise<AggregateHead | undefined> {
  return tx.maybe(
    sql<AggregateHead>`${selectAggregate(clusterId)} and generation = ${expected?.generation ?? 0}
      and digest is not distinct from ${expected?.digest ?? null} for update`.compile(qb),
  );
}

/** Moves `matched_count` after keys came or went. The derivation row is locked, so no mutation is under way. */
export function adjustMatched(tx: Tx, clusterId: string, delta: number): Promise<number> {
  return tx.run(
    sql`update control.aggregate_heads set matched_count = matched_count + ${delta} where cluster_id = ${clusterId}`.compile(
      qb,
    ),
  );
}

/** How many of the entries are prepared. */
export async function countPrepared(tx: ReadTx, clusterId: string, entries: readonly RequiredEntry[]): Promise<number> {
  if (entries.length === 0) return 0;
  const { count } = await tx.one(
    sql<{ count: number }>`
      select count(*) as count
      from unnest(${entries.map((entry) => entry.nodeId)}::text[], ${entries.map((entry) => entry.handoffId)}::text[])
        as wanted (node_id, handoff_id)
      join lateral (
        select from control.handoff_heads head
        where head.cluster_id = ${clusterId} and head.node_id = wanted.node_id and head.handoff_id = wanted.handoff_id
          and not head.removed limit 1
      ) head on true`.compile(qb),
  );
  return count;
}

/** Which of a node's handoffs are prepared. */
export async function preparedIds(
  tx: ReadTx,
  clusterId: string,
  nodeId: string,
  handoffIds: readonly string[],
): Promise<string[]> {
  const rows = await tx.rows(
    sql<{ id: string }>`
      select handoff_id as id from control.handoff_heads
      where cluster_id = ${clusterId} and node_id = ${nodeId} and not removed and handoff_id = any(${[...handoffIds]}::text[])`.compile(
      qb,
    ),
  );
  return rows.map((row) => row.id);
}

export interface AggregateWrite {
  readonly aggregate: IFleetCutoverPreparedVolumeHandoffAggregate;
  readonly counts: Counts;
  readonly before: AggregateHead;
}

/** `swap as (update …), revision as (insert …)`: both take effect only where the head is still the one before. */
export function swapAggregateCte({ aggregate, counts, before }: AggregateWrite): RawBuilder<unknown> {
  const { clusterId, generation, digest, state } = aggregate;
  return sql`
    swap as (
      update control.aggregate_heads set generation = ${generation}, digest = ${digest}, state = ${state},
        prepared_count = ${counts.preparedCount}, matched_count = ${counts.matchedCount}, page_count = ${aggregate.pageCount},
        derivation_generation = ${aggregate.derivation.generation}, scope_generation = ${aggregate.scope.generation},
        target_set_generation = ${aggregate.targetSet?.generation ?? 0},
        complete_generation = ${state === 'complete' ? generation : before.completeGeneration}
      where cluster_id = ${clusterId} and generation = ${before.generation} and digest is not distinct from ${before.digest}
      returning cluster_id
    ), revision as (
      insert into control.aggregate_revisions (cluster_id, generation, digest, state, record)
      select cluster_id, ${generation}::bigint, ${digest}, ${state}, ${canonicalizeStrictJson(aggregate)} from swap
    )`;
}

export function aggregateRevision(
  tx: ReadTx,
  clusterId: string,
  generation: number,
): Promise<{ digest: Digest; state: string; record: string } | undefined> {
  return tx.maybe(
    sql<{ digest: Digest; state: string; record: string }>`
      select digest, state, record from control.aggregate_revisions
      where cluster_id = ${clusterId} and generation = ${generation}`.compile(qb),
  );
}

// Handoffs ----------------------------------------------------------------------------------------------------------

/**
 * What the owner rows say about keys, in their order: one statement for the whole request. Each table is looked up key by
 * key (`limit 1` keeps the planner from joining): before the first ANALYZE it takes all rows of a cluster for a few.
 */
export function keyFacts(tx: Tx, clusterId: string, keys: readonly IHandoffRemoval[]): Promise<KeyFacts[]> {
  return tx.rows(
    sql<KeyFacts>`
      select entry.handoff_id as "handoffId", coalesce(entry.required, false) as required,
        entry.source_digest as "sourceDigest", entry.target_digest as "targetDigest", entry.mount_path as "mountPath",
        exists (select from control.write_offs lost where lost.cluster_id = ${clusterId} and lost.node_id = wanted.node_id
          and lost.state = 'confirmed' and (lost.handoff_id is null or lost.handoff_id = entry.handoff_id)) as "writtenOff",
        coalesce(blocker.codes, '{}') as blockers, head.generation, head.digest, head.claim_digest as "claimDigest",
        head.request_digest as "requestDigest", head.removed,
        node.local_generation as "localGeneration", node.local_digest as "localDigest", service.state as "serviceState"
      from unnest(${keys.map((key) => key.nodeId)}::text[], ${keys.map((key) => key.serviceId)}::text[],
        ${keys.map((key) => key.mountIdentityDigest)}::text[]) with ordinality
        as wanted (node_id, service_id, mount_identity_digest, ordinal)
      left join lateral (
        select handoff_id, until is null as required, source_digest, target_digest, mount_path
        from control.required_entries entry
        where entry.cluster_id = ${clusterId}
          and entry.node_id || ' ' || entry.service_id || ' ' || entry.mount_identity_digest
            = wanted.node_id || ' ' || wanted.service_id || ' ' || wanted.mount_identity_digest
        order by since desc limit 1
      ) entry on true
      left join lateral (
        select generation, digest, claim_digest, request_digest, removed from control.handoff_heads head
        where head.cluster_id = ${clusterId} and head.node_id = wanted.node_id and head.handoff_id = entry.handoff_id limit 1
      ) head on true
      left join lateral (
        select array_agg(distinct blocker.code) as codes from control.blockers blocker
        where blocker.cluster_id = ${clusterId} and blocker.node_id = wanted.node_id and blocker.handoff_id = entry.handoff_id
          and blocker.until is null
      ) blocker on true
      left join (
        select node_id, local_generation, local_digest from control.nodes node
        where node.cluster_id = ${clusterId} and node.node_id = any(${[...new Set(keys.map((key) => key.nodeId))]}::text[])
      ) node on node.node_id = wanted.node_id
      left join lateral (
        select state from control.services service where service.service_id = wanted.service_id limit 1
      ) service on true
      order by wanted.ordinal`.compile(qb),
  );
}

/**
 * `heads as (…), revisions as (…), new_volumes as (…)`: the rows of one aggregate generation's changes. `guard` is
 * appended to each source of rows: `sql\`, swap\`` makes them depend on the swap in the same statement.
 */
export function handoffsCte(
  clusterId: string,
  aggregateGeneration: number,
  writes: readonly HandoffWrite[],
  guard: RawBuilder<unknown>,
): RawBuilder<unknown> {
  const column = <K extends keyof HandoffWrite>(key: K) => writes.map((write) => write[key]);
  // Canonical JSON has no line feed. As an array's elements the records would be escaped, which cost more than all their digests.
  const records = writes.map((write) => write.record ?? '').join('\n');
  return sql`
    change as (
      select node_id, handoff_id, generation, digest, claim_digest, request_digest, nullif(line, '') as record
      from unnest(${column('nodeId')}::text[], ${column('id')}::text[], ${column('generation')}::bigint[],
        ${column('digest')}::text[], ${column('claimDigest')}::text[], ${column('requestDigest')}::text[],
        string_to_array(${records}::text, E'\\n'))
        as change (node_id, handoff_id, generation, digest, claim_digest, request_digest, line)${guard}
    ), heads as (
      insert into control.handoff_heads as known
        (cluster_id, node_id, handoff_id, generation, digest, claim_digest, request_digest, removed)
      select ${clusterId}, node_id, handoff_id, generation, digest, claim_digest, request_digest, record is null from change
      on conflict on constraint handoff_heads_key do update set generation = excluded.generation, digest = excluded.digest,
        claim_digest = excluded.claim_digest, request_digest = excluded.request_digest, removed = excluded.removed
    ), revisions as (
      insert into control.handoff_revisions
        (cluster_id, node_id, handoff_id, aggregate_generation, generation, digest, record)
      select ${clusterId}, node_id, handoff_id, ${aggregateGeneration}::bigint, generation, digest, record from change
    ), new_volumes as (
      ${insertVolumes(
        clusterId,
        writes.flatMap((write) => write.newVolume ?? []),
        guard,
      )}
    )`;
}

export interface PageOrderKey {
  readonly nodeId: string;
  readonly id: string;
}

/**
 * Makes the transaction's further reads in page order follow the index. Before the table's first ANALYZE, Postgres takes the handoffs
 * behind a key for a few, and sorts all of them for each batch (measured, 4,096 of 32,768: 28 ms instead of 2).
 */
export function readInPageOrder(tx: Tx): Promise<unknown> {
  return tx.rows(sql`select set_config('enable_sort', 'off', true)`.compile(qb));
}

/** Prepared handoffs from a key on (inclusive), in page order. */
export function handoffsFrom(
  tx: ReadTx,
  clusterId: string,
  from: PageOrderKey,
  inclusive: boolean,
  limit: number,
): Promise<IFleetCutoverPreparedVolumeHandoffPageEntry[]> {
  const comparison = inclusive ? sql`>=` : sql`>`;
  return tx.rows(
    sql<IFleetCutoverPreparedVolumeHandoffPageEntry>`
      select node_id as "nodeId", handoff_id as id, generation, digest from control.handoff_heads
      where cluster_id = ${clusterId} and not removed and (node_id, handoff_id) ${comparison} (${from.nodeId}, ${from.id})
      order by node_id, handoff_id limit ${limit}`.compile(qb),
  );
}

/** Full handoffs of one node, canonical JSON, in the order of the references. */
export function handoffRecords(
  tx: ReadTx,
  clusterId: string,
  nodeId: string,
  references: readonly { readonly id: string; readonly generation: number }[],
): Promise<{ id: string; digest: Digest; record: string }[]> {
  return tx.rows(
    sql<{ id: string; digest: Digest; record: string }>`
      select wanted.handoff_id as id, revision.digest, revision.record
      from unnest(${references.map((each) => each.id)}::text[], ${references.map((each) => each.generation)}::bigint[])
        with ordinality as wanted (handoff_id, generation, ordinal)
      join lateral (
        select digest, record from control.handoff_revisions revision
        where revision.cluster_id = ${clusterId} and revision.node_id = ${nodeId} and revision.handoff_id = wanted.handoff_id
          and revision.generation = wanted.generation and revision.record is not null limit 1
      ) revision on true
      order by wanted.ordinal`.compile(qb),
  );
}

// Pages -------------------------------------------------------------------------------------------------------------

/** The first key in page order that changed after a complete generation; undefined where none did. */
export function firstChangeAfter(tx: ReadTx, clusterId: string, generation: number): Promise<PageOrderKey | undefined> {
  return tx.maybe(
    sql<PageOrderKey>`
      with changed as materialized (
        select node_id, handoff_id from control.handoff_revisions
        where cluster_id = ${clusterId} and aggregate_generation > ${generation}
      )
      select node_id as "nodeId", handoff_id as id from changed order by node_id, handoff_id limit 1`.compile(qb),
  );
}

/** The page of the newest complete layout that holds, or would hold, a key. */
export async function pageOfKey(tx: ReadTx, clusterId: string, key: PageOrderKey): Promise<number> {
  const row = await tx.maybe(
    sql<{ pageIndex: number }>`
      select page_index as "pageIndex" from control.page_heads
      where cluster_id = ${clusterId} and (first_node_id, first_handoff_id) <= (${key.nodeId}, ${key.id})
      order by first_node_id desc, first_handoff_id desc limit 1`.compile(qb),
  );
  return row?.pageIndex ?? 0;
}

/** {@link pageOfKey} for many keys, in their order. */
export async function pagesOfKeys(tx: ReadTx, clusterId: string, keys: readonly PageOrderKey[]): Promise<number[]> {
  const rows = await tx.rows(
    sql<{ pageIndex: number }>`
      select coalesce(head.page_index, 0) as "pageIndex"
      from unnest(${keys.map((key) => key.nodeId)}::text[], ${keys.map((key) => key.id)}::text[]) with ordinality
        as wanted (node_id, handoff_id, ordinal)
      left join lateral (
        select page_index from control.page_heads
        where cluster_id = ${clusterId} and (first_node_id, first_handoff_id) <= (wanted.node_id, wanted.handoff_id)
        order by first_node_id desc, first_handoff_id desc limit 1
      ) head on true
      order by wanted.ordinal`.compile(qb),
  );
  return rows.map((row) => row.pageIndex);
}

/** Content digests of the newest complete layout, in page order: one text of up to 300 KB, which is read fastest. */
export async function pageContentDigests(tx: ReadTx, clusterId: string): Promise<Digest[]> {
  const { digests } = await tx.one(
    sql<{ digests: string | null }>`
      select string_agg(content_digest, ',' order by page_index) as digests
      from control.page_heads where cluster_id = ${clusterId}`.compile(qb),
  );
  return digests === null ? [] : (digests.split(',') as Digest[]);
}

export function pageHeads(
  tx: ReadTx,
  clusterId: string,
): Promise<{ pageIndex: number; contentDigest: Digest; nodeId: string; id: string }[]> {
  return tx.rows(
    sql<{ pageIndex: number; contentDigest: Digest; nodeId: string; id: string }>`
      select page_index as "pageIndex", content_digest as "contentDigest", first_node_id as "nodeId", first_handoff_id as id
      from control.page_heads where cluster_id = ${clusterId} order by page_index`.compile(qb),
  );
}

/** Stored bytes of a page as a pinned generation saw it. They may be no UTF-8 any more: then their digest tells. */
export async function pageAt(
  tx: ReadTx,
  clusterId: string,
  pageIndex: number,
  generation: number,
): Promise<{ contentDigest: Digest; tail: string } | undefined> {
  const row = await tx.maybe(
    sql<{ contentDigest: Digest; bytes: Buffer }>`
      select content_digest as "contentDigest", bytes from control.handoff_pages
      where cluster_id = ${clusterId} and page_index = ${pageIndex} and since_generation <= ${generation}
      order by since_generation desc limit 1`.compile(qb),
  );
  return row === undefined ? undefined : { contentDigest: row.contentDigest, tail: row.bytes.toString('utf8') };
}

/** {@link pageAt} for many pages, in no order. */
export function pagesAt(
  tx: ReadTx,
  clusterId: string,
  pageIndexes: readonly number[],
  generation: number,
): Promise<{ pageIndex: number; contentDigest: Digest; tail: string }[]> {
  return tx.rows(
    sql<{ pageIndex: number; contentDigest: Digest; tail: string }>`
      select wanted.page_index as "pageIndex", page.content_digest as "contentDigest", convert_from(page.bytes, 'UTF8') as tail
      from unnest(${pageIndexes}::integer[]) as wanted (page_index)
      join lateral (
        select content_digest, bytes from control.handoff_pages
        where cluster_id = ${clusterId} and page_index = wanted.page_index and since_generation <= ${generation}
        order by since_generation desc limit 1
      ) page on true`.compile(qb),
  );
}

export function insertPages(tx: Tx, clusterId: string, since: number, pages: readonly PageContent[]): Promise<number> {
  return tx.run(
    sql`
      with page as (
        select * from unnest(${pages.map((page) => page.pageIndex)}::integer[], ${pages.map((page) => page.contentDigest)}::text[],
          ${pages.map((page) => page.tail)}::text[], ${pages.map((page) => page.first.nodeId)}::text[],
          ${pages.map((page) => page.first.id)}::text[]) as page (page_index, content_digest, tail, first_node_id, first_handoff_id)
      ), stored as (
        insert into control.handoff_pages (cluster_id, page_index, since_generation, content_digest, bytes)
        select ${clusterId}, page_index, ${since}::bigint, content_digest, convert_to(tail, 'UTF8') from page
      )
      insert into control.page_heads (cluster_id, page_index, content_digest, first_node_id, first_handoff_id)
      select ${clusterId}, page_index, content_digest, first_node_id, first_handoff_id from page
      on conflict on constraint page_heads_key do update set content_digest = excluded.content_digest,
        first_node_id = excluded.first_node_id, first_handoff_id = excluded.first_handoff_id`.compile(qb),
  );
}

export function dropPageHeadsFrom(tx: Tx, clusterId: string, pageIndex: number): Promise<number> {
  return tx.run(
    sql`delete from control.page_heads where cluster_id = ${clusterId} and page_index >= ${pageIndex}`.compile(qb),
  );
}
