/** Coverage for other features. */
import { sql } from 'kysely';
import { qb } from '../../db/query.js';
import type { ReadTx } from '../../db/transaction.js';

export interface CoverageFacts {
  readonly covered: number;
  readonly completeNodes: number;
  readonly coveredLastMinute: number;
  /** First nodes that have not covered every page, and how many they are. */
  readonly shortNodes: number;
  readonly first: readonly { readonly nodeId: string; readonly covered: number }[];
}

/** Coverage of one aggregate generation by these nodes. Reads one small row per node. */
export async function coverageFacts(
  tx: ReadTx,
  clusterId: string,
  nodeIds: readonly string[],
  aggregate: { readonly generation: number; readonly pageCount: number },
  /** Unix minute. */
  minute: number,
  /** How many of the nodes that are short are named. */
  named = 10,
): Promise<CoverageFacts> {
  return tx.one(
    sql<CoverageFacts>`
      with node as (
        select target.node_id, coalesce(coverage.covered, 0) as covered,
          case when coverage.minute >= ${minute - 1} then coverage.minute_covered else 0 end as lately
        from unnest(${[...nodeIds]}::text[]) as target (node_id)
        left join control.coverage coverage on coverage.cluster_id = ${clusterId} and coverage.node_id = target.node_id
          and coverage.aggregate_generation = ${aggregate.generation}
      )
      select coalesce(sum(covered), 0)::bigint as covered, count(*) filter (where covered >= ${aggregate.pageCount}) as "completeNodes",
        coalesce(sum(lately), 0)::bigint as "coveredLastMinute", count(*) filter (where covered < ${aggregate.pageCount}) as "shortNodes",
        coalesce((select json_agg(json_build_object('nodeId', node_id, 'covered', covered)) from (
          select node_id, covered from node where covered < ${aggregate.pageCount} order by node_id limit ${named}) short), '[]') as first
      from node`.compile(qb),
  );
}

/** What a watcher compares: changes with every report that covers or voids a page. */
export async function coverageMark(tx: ReadTx, clusterId: string): Promise<string> {
  const row = await tx.one(
    sql<{ version: number; covered: number }>`
      select coalesce(max(version), 0)::bigint as version, coalesce(sum(covered), 0)::bigint as covered
      from control.coverage where cluster_id = ${clusterId}`.compile(qb),
  );
  return `${row.version}.${row.covered}`;
}
