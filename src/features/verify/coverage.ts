/**
 * Coverage: each node's bits against the pages of the aggregate that they are of, and that what is held has its fences.
 *
 * 1. No bit stands beyond the aggregate's pages, and `covered` counts the bits.
 * 2. Held pages are exactly the covered ones on which the node has entries. A node's entries are neighbours in page order, so
 *    that its pages are one range: memory holds that range per node, whatever the aggregate's size.
 * 3. Every entry of the node on a held page has a fence of that generation of the handoff.
 */
import { sql } from 'kysely';
import { fleetCutoverPreparedVolumeHandoffAggregateRecord } from '../../contract/handoff.js';
import { qb } from '../../db/query.js';
import { readPage } from '../volume-handoff/page.js';
import { readCanonical } from './sealed-record.js';
import { pagesOf, type Verification, type VerifiedCluster } from './verification.js';

const pagesPerRead = 64;
const nodesPerPage = 200;

interface CoverageRow {
  readonly nodeId: string;
  readonly covered: number;
  /** A character per page. */
  readonly coveredPages: string;
  readonly heldPages: string;
  readonly known: boolean;
}

interface PageRange {
  readonly first: number;
  last: number;
}

/** Aggregates, handoffs, pages and fences must have been looked at before. */
export async function verifyCoverage(verification: Verification, { clusterId }: VerifiedCluster): Promise<void> {
  const generations = pagesOf<{ generation: number }>((last) =>
    verification.tx.rows(
      sql<{ generation: number }>`
        select distinct aggregate_generation as generation from control.coverage
        where cluster_id = ${clusterId} and aggregate_generation > ${last?.generation ?? -1}
        order by aggregate_generation limit ${nodesPerPage}`.compile(qb),
    ),
  );
  for await (const rows of generations)
    for (const { generation } of rows) await verifyGeneration(verification, clusterId, generation);
}

async function verifyGeneration(verification: Verification, clusterId: string, generation: number): Promise<void> {
  const { tx, findings, skipped } = verification;
  if (findings.hasAny('aggregate_revisions', { cluster_id: clusterId, generation })) {
    skipped.push(`coverage of aggregate generation ${generation}: its row is broken`);
    return;
  }
  const pageCount = await pageCountOf(verification, clusterId, generation);
  const ranges = pageCount === null ? null : await readRanges(verification, clusterId, generation, pageCount);
  const pages = pagesOf<CoverageRow>((last) =>
    tx.rows(
      sql<CoverageRow>`
        select coverage.node_id as "nodeId", coverage.covered, coverage.covered_pages::text as "coveredPages",
          coverage.held_pages::text as "heldPages", node.node_id is not null as known
        from control.coverage coverage
        left join control.nodes node on node.cluster_id = coverage.cluster_id and node.node_id = coverage.node_id
        where coverage.cluster_id = ${clusterId} and coverage.aggregate_generation = ${generation}
          and coverage.node_id > ${last?.nodeId ?? ''} order by coverage.node_id limit ${nodesPerPage}`.compile(qb),
    ),
  );
  for await (const rows of pages) {
    for (const row of rows) {
      const fault =
        pageCount === null
          ? `the aggregate has no complete generation ${generation}`
          : coverageFault(row, pageCount, ranges);
      if (fault === null) continue;
      findings.add('coverage', { cluster_id: clusterId, node_id: row.nodeId }, 'the row is wrong', fault);
    }
    verification.advance(rows.length);
  }
}

/** Null where there is no complete revision of this generation. */
async function pageCountOf({ tx }: Verification, clusterId: string, generation: number): Promise<number | null> {
  const row = await tx.maybe(
    sql<{ record: string }>`
      select record from control.aggregate_revisions
      where cluster_id = ${clusterId} and generation = ${generation} and state = 'complete'`.compile(qb),
  );
  const value = row === undefined ? undefined : readCanonical(row.record);
  return fleetCutoverPreparedVolumeHandoffAggregateRecord.is(value) ? value.pageCount : null;
}

function coverageFault(row: CoverageRow, pageCount: number, ranges: ReadonlyMap<string, PageRange> | null) {
  const { nodeId, covered, coveredPages, heldPages } = row;
  if (!row.known) return 'there is no such node';
  const beyond = Math.max(coveredPages.lastIndexOf('1'), heldPages.lastIndexOf('1'));
  if (beyond >= pageCount) return `it has page ${beyond}, the aggregate ${pageCount} pages`;
  const count = coveredPages.split('1').length - 1;
  if (count !== covered) return `${count} pages are covered, the row counts ${covered}`;
  if (ranges === null) return null;
  const { first, last } = ranges.get(nodeId) ?? { first: 0, last: -1 };
  for (let page = 0; page < pageCount; page += 1) {
    const held = coveredPages[page] === '1' && page >= first && page <= last;
    if (held === (heldPages[page] === '1')) continue;
    return held
      ? `page ${page} is covered and has entries of the node, but is not held`
      : `page ${page} is held, but is not covered or has no entry of the node`;
  }
  return null;
}

interface PageRow {
  readonly pageIndex: number;
  readonly contentDigest: string;
  readonly bytes: Buffer;
}

/** Each node's pages in this generation; null where a page is broken or gone. */
async function readRanges(
  verification: Verification,
  clusterId: string,
  generation: number,
  pageCount: number,
): Promise<ReadonlyMap<string, PageRange> | null> {
  const { tx, findings, skipped } = verification;
  const ranges = new Map<string, PageRange>();
  for (let from = 0; from < pageCount; from += pagesPerRead) {
    const to = Math.min(pageCount, from + pagesPerRead);
    const rows = await tx.rows(
      sql<PageRow>`
        select distinct on (page_index) page_index as "pageIndex", content_digest as "contentDigest", bytes
        from control.handoff_pages
        where cluster_id = ${clusterId} and page_index >= ${from} and page_index < ${to} and since_generation <= ${generation}
        order by page_index, since_generation desc`.compile(qb),
    );
    const entries: HeldEntry[] = [];
    for (const { pageIndex, contentDigest, bytes } of rows) {
      const broken = findings.hasAny('handoff_pages', { cluster_id: clusterId, page_index: pageIndex });
      for (const entry of broken ? [] : (readPage(bytes.toString(), contentDigest)?.handoffs ?? [])) {
        entries.push({ pageIndex, nodeId: entry.nodeId, id: entry.id, generation: entry.generation });
        const range = ranges.get(entry.nodeId);
        if (range === undefined) ranges.set(entry.nodeId, { first: pageIndex, last: pageIndex });
        else range.last = pageIndex;
      }
    }
    // A stored page has at least one entry.
    if (new Set(entries.map((entry) => entry.pageIndex)).size < to - from) {
      skipped.push(`held pages of aggregate generation ${generation}: a page of it is broken`);
      return null;
    }
    await compareFences(verification, clusterId, generation, entries);
  }
  return ranges;
}

interface HeldEntry {
  readonly pageIndex: number;
  readonly nodeId: string;
  readonly id: string;
  readonly generation: number;
}

/** Entries on pages that their node holds have a fence of that very generation. */
async function compareFences(
  { tx, findings }: Verification,
  clusterId: string,
  generation: number,
  entries: readonly HeldEntry[],
): Promise<void> {
  const wrong = await tx.rows(
    sql<{ nodeId: string; id: string; wanted: number; stored: number | null; pageIndex: number }>`
      select wanted.node_id as "nodeId", wanted.handoff_id as id, wanted.generation as wanted,
        held.handoff_generation as stored, wanted.page_index as "pageIndex"
      from unnest(${entries.map((entry) => entry.pageIndex)}::integer[], ${entries.map((entry) => entry.nodeId)}::text[],
        ${entries.map((entry) => entry.id)}::text[], ${entries.map((entry) => entry.generation)}::bigint[])
        as wanted (page_index, node_id, handoff_id, generation)
      join control.coverage coverage on coverage.cluster_id = ${clusterId} and coverage.node_id = wanted.node_id
        and coverage.aggregate_generation = ${generation} and get_bit(coverage.held_pages, wanted.page_index) = 1
      left join control.held_fences held on held.cluster_id = ${clusterId} and held.node_id = wanted.node_id
        and held.handoff_id = wanted.handoff_id
      where held.handoff_generation is distinct from wanted.generation`.compile(qb),
  );
  for (const { nodeId, id, wanted, stored, pageIndex } of wrong) {
    findings.add(
      'held_fences',
      { cluster_id: clusterId, node_id: nodeId, handoff_id: id },
      stored === null ? 'the row is missing' : 'the row was changed',
      `coverage says that the node holds page ${pageIndex}, which has generation ${wanted} of the handoff`,
    );
  }
}
