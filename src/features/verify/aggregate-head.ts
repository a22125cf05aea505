import { sql } from 'kysely';
import { qb } from '../../db/query.js';
import type { ReplayedAggregate } from './aggregate.js';
import type { Verification, VerifiedCluster } from './verification.js';

interface HeadRow {
  readonly generation: number;
  readonly digest: string | null;
  readonly state: string;
  readonly preparedCount: number;
  readonly matchedCount: number;
  readonly pageCount: number;
  readonly derivationGeneration: number;
  readonly scopeGeneration: number;
  readonly targetSetGeneration: number;
  readonly completeGeneration: number;
}

/** The head against the newest revision, the handoffs that the revisions make, and the required set. */
export async function compareAggregateHead(
  { tx, findings }: Verification,
  { clusterId }: VerifiedCluster,
  { set, last, completeGeneration }: ReplayedAggregate,
  matchedCount: number,
): Promise<void> {
  const key = { cluster_id: clusterId };
  const head = await tx.maybe(
    sql<HeadRow>`
      select generation, digest, state, prepared_count as "preparedCount", matched_count as "matchedCount",
        page_count as "pageCount", derivation_generation as "derivationGeneration", scope_generation as "scopeGeneration",
        target_set_generation as "targetSetGeneration", complete_generation as "completeGeneration"
      from control.aggregate_heads where cluster_id = ${clusterId}`.compile(qb),
  );
  if (head === undefined) {
    findings.add('aggregate_heads', key, 'the head is missing', 'every cluster has one');
    return;
  }
  const newest = last?.generation ?? 0;
  const value = last?.value ?? null;
  for (let generation = newest + 1; generation <= Math.min(head.generation, newest + 100); generation += 1) {
    findings.add(
      'aggregate_revisions',
      { ...key, generation },
      'the row is missing',
      `the head names generation ${head.generation}`,
    );
  }
  const expected: Partial<HeadRow> = {
    preparedCount: set.size,
    matchedCount,
    completeGeneration,
    ...(head.generation > newest ? {} : { generation: newest, digest: last?.digest ?? null }),
    ...(value === null ? {} : fromRecord(value)),
  };
  const wrong = Object.entries(expected).filter(([name, value]) => head[name as keyof HeadRow] !== value);
  if (wrong.length === 0) return;
  const how = wrong.map(([name, value]) => `${name} should be ${value}, is ${head[name as keyof HeadRow]}`);
  findings.add('aggregate_heads', key, 'the head does not follow from the revisions', how.join('; '));
}

function fromRecord(value: NonNullable<NonNullable<ReplayedAggregate['last']>['value']>): Partial<HeadRow> {
  return {
    state: value.state,
    pageCount: value.pageCount,
    derivationGeneration: value.derivation.generation,
    scopeGeneration: value.scope.generation,
    targetSetGeneration: value.targetSet?.generation ?? 0,
  };
}
