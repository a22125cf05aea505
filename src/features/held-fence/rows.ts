/** The only SQL that writes held fences and coverage. */
import { sql } from 'kysely';
import { canonicalizeStrictJson } from '../../contract/canonical-json.js';
import type { TFleetCutoverVolumeFence } from '../../contract/held-fence.js';
import { qb } from '../../db/query.js';
import type { Tx } from '../../db/transaction.js';
import type { KnownFence } from './evidence.js';

export function knownFences(
  tx: Tx,
  clusterId: string,
  nodeId: string,
  handoffIds: readonly string[],
): Promise<KnownFence[]> {
  return tx.rows(
    sql<KnownFence>`
      select handoff_id as "handoffId", fence_id as "fenceId", generation, digest from control.held_fences
      where cluster_id = ${clusterId} and node_id = ${nodeId} and handoff_id = any(${[...handoffIds]}::text[])`.compile(
      qb,
    ),
  );
}

export function writeFences(
  tx: Tx,
  clusterId: string,
  nodeId: string,
  fences: readonly TFleetCutoverVolumeFence[],
): Promise<number> {
  return tx.run(
    sql`
      insert into control.held_fences as known
        (cluster_id, node_id, handoff_id, fence_id, generation, digest, handoff_generation, record)
      select ${clusterId}, ${nodeId}, * from unnest(${fences.map((fence) => fence.handoff.id)}::text[],
        ${fences.map((fence) => fence.id)}::text[], ${fences.map((fence) => fence.generation)}::bigint[],
        ${fences.map((fence) => fence.digest)}::text[], ${fences.map((fence) => fence.handoff.generation)}::bigint[],
        ${fences.map((fence) => canonicalizeStrictJson(fence))}::text[])
      on conflict on constraint held_fences_key do update set fence_id = excluded.fence_id, generation = excluded.generation,
        digest = excluded.digest, handoff_generation = excluded.handoff_generation, record = excluded.record
        where known.digest is distinct from excluded.digest`.compile(qb),
  );
}

export interface CoveredPage {
  readonly aggregateGeneration: number;
  readonly pageIndex: number;
  /** Whether the node has entries on the page. */
  readonly held: boolean;
  /** Unix minute. */
  readonly minute: number;
}

/**
 * Sets the page's bit in the node's row; a newer aggregate begins a new row content. One row is written whatever the
 * fleet's size. Gives how many pages are covered now.
 */
export async function coverPage(tx: Tx, clusterId: string, nodeId: string, page: CoveredPage): Promise<number> {
  const { aggregateGeneration, pageIndex, held, minute } = page;
  const row = await tx.maybe(
    sql<{ covered: number }>`
      insert into control.coverage as known
        (cluster_id, node_id, aggregate_generation, covered, covered_pages, held_pages, version, minute, minute_covered)
      values (${clusterId}, ${nodeId}, ${aggregateGeneration}, 1, set_bit(0::bit(4096), ${pageIndex}::integer, 1),
        set_bit(0::bit(4096), ${pageIndex}::integer, ${held ? 1 : 0}), nextval('control.coverage_versions'), ${minute}, 1)
      on conflict on constraint coverage_key do update set
        aggregate_generation = excluded.aggregate_generation,
        covered = case when known.aggregate_generation < excluded.aggregate_generation then 1
          else known.covered + 1 - get_bit(known.covered_pages, ${pageIndex}::integer) end,
        covered_pages = case when known.aggregate_generation < excluded.aggregate_generation then excluded.covered_pages
          else set_bit(known.covered_pages, ${pageIndex}::integer, 1) end,
        held_pages = case when known.aggregate_generation < excluded.aggregate_generation then excluded.held_pages
          else known.held_pages | excluded.held_pages end,
        version = excluded.version,
        minute = excluded.minute,
        minute_covered = case when known.minute = excluded.minute then known.minute_covered else 0 end
          + case when known.aggregate_generation < excluded.aggregate_generation then 1
            else 1 - get_bit(known.covered_pages, ${pageIndex}::integer) end
      where known.aggregate_generation <= excluded.aggregate_generation
      returning covered`.compile(qb),
  );
  return row?.covered ?? 0;
}

/** A new reporter session has proved no hold yet: pages on which the node has entries are to be reported again. */
export function voidHeldPages(tx: Tx, clusterId: string, nodeId: string): Promise<number> {
  return tx.run(
    sql`
      update control.coverage set covered_pages = covered_pages & ~held_pages,
        covered = bit_count(covered_pages & ~held_pages), held_pages = 0::bit(4096), version = nextval('control.coverage_versions')
      where cluster_id = ${clusterId} and node_id = ${nodeId} and bit_count(held_pages) > 0`.compile(qb),
  );
}

/** Takes one page back that was covered for this aggregate generation. */
export function uncoverPage(
  tx: Tx,
  clusterId: string,
  nodeId: string,
  aggregateGeneration: number,
  pageIndex: number,
): Promise<number> {
  return tx.run(
    sql`
      update control.coverage set covered_pages = set_bit(covered_pages, ${pageIndex}::integer, 0),
        held_pages = set_bit(held_pages, ${pageIndex}::integer, 0), covered = covered - 1,
        version = nextval('control.coverage_versions')
      where cluster_id = ${clusterId} and node_id = ${nodeId} and aggregate_generation = ${aggregateGeneration}
        and get_bit(covered_pages, ${pageIndex}::integer) = 1`.compile(qb),
  );
}
