/** The only SQL that writes scopes and target sets. */
import { sql } from 'kysely';
import { canonicalizeStrictJson } from '../../contract/canonical-json.js';
import type { IFleetCutoverScope, IFleetCutoverTargetSet } from '../../contract/scope.js';
import { qb } from '../../db/query.js';
import type { Tx } from '../../db/transaction.js';

export function insertScopeHeads(tx: Tx, clusterId: string): Promise<unknown> {
  return Promise.all([
    tx.run(
      sql`insert into control.scope_heads (cluster_id, generation, state) values (${clusterId}, 0, 'absent')`.compile(
        qb,
      ),
    ),
    tx.run(sql`insert into control.target_set_heads (cluster_id, generation) values (${clusterId}, 0)`.compile(qb)),
  ]);
}

export type Swap = 'swapped' | 'stale';

/** Writes the next revision where the head is still the one before. The head must be locked. */
export async function swapScope(tx: Tx, scope: IFleetCutoverScope): Promise<Swap> {
  const { clusterId, generation, digest, state, predecessor } = scope;
  const [changed] = await Promise.all([
    tx.run(
      sql`
        update control.scope_heads set generation = ${generation}, digest = ${digest}, state = ${state}
        where cluster_id = ${clusterId} and generation = ${generation - 1}
          and digest is not distinct from ${predecessor?.digest ?? null}`.compile(qb),
    ),
    tx.run(
      sql`
        insert into control.scope_revisions (cluster_id, generation, digest, record)
        values (${clusterId}, ${generation}, ${digest}, ${canonicalizeStrictJson(scope)})`.compile(qb),
    ),
  ]);
  return changed === 1 ? 'swapped' : 'stale';
}

export async function swapTargetSet(tx: Tx, targetSet: IFleetCutoverTargetSet): Promise<Swap> {
  const { clusterId, generation, digest, predecessor } = targetSet;
  const [changed] = await Promise.all([
    tx.run(
      sql`
        update control.target_set_heads set generation = ${generation}, digest = ${digest}
        where cluster_id = ${clusterId} and generation = ${generation - 1}
          and digest is not distinct from ${predecessor?.digest ?? null}`.compile(qb),
    ),
    tx.run(
      sql`
        insert into control.target_set_revisions (cluster_id, generation, digest, record)
        values (${clusterId}, ${generation}, ${digest}, ${canonicalizeStrictJson(targetSet)})`.compile(qb),
    ),
    tx.run(
      sql`
        insert into control.target_set_nodes (cluster_id, generation, node_id)
        select ${clusterId}, ${generation}::bigint, node_id from unnest(${targetSet.nodeIds}::text[]) as target (node_id)`.compile(
        qb,
      ),
    ),
  ]);
  return changed === 1 ? 'swapped' : 'stale';
}
