import { sql } from 'kysely';
import { qb } from '../../db/query.js';
import type { PageHead } from './handoff-set.js';
import type { Verification } from './verification.js';

interface StoredHead {
  readonly pageIndex: number;
  readonly contentDigest: string;
  readonly nodeId: string;
  readonly id: string;
}

/** Page heads say where the newest complete layout stands: at most 4,096 rows. */
export async function comparePageHeads(
  { tx, findings }: Verification,
  clusterId: string,
  layout: readonly PageHead[],
): Promise<void> {
  const rows = await tx.rows(
    sql<StoredHead>`
      select page_index as "pageIndex", content_digest as "contentDigest", first_node_id as "nodeId", first_handoff_id as id
      from control.page_heads where cluster_id = ${clusterId} order by page_index`.compile(qb),
  );
  const keyOf = (pageIndex: number) => ({ cluster_id: clusterId, page_index: pageIndex });
  const stored = new Map(rows.map((row) => [row.pageIndex, row]));
  layout.forEach(({ contentDigest, first }, pageIndex) => {
    const row = stored.get(pageIndex);
    stored.delete(pageIndex);
    const expected = `${contentDigest}, which begins with ${first.nodeId} ${first.id}`;
    if (row === undefined)
      findings.add('page_heads', keyOf(pageIndex), 'the row is missing', `the newest complete layout has ${expected}`);
    else if (row.contentDigest !== contentDigest || row.nodeId !== first.nodeId || row.id !== first.id) {
      findings.add('page_heads', keyOf(pageIndex), 'the row was changed', `the newest complete layout has ${expected}`);
    }
  });
  for (const pageIndex of stored.keys()) {
    findings.add(
      'page_heads',
      keyOf(pageIndex),
      'the row should not be there',
      `the newest complete layout has ${layout.length} pages`,
    );
  }
}
