/** The runtime's swap, for the operation that has checked the gates. The database refuses every step but the next one, too. */
import { sql } from 'kysely';
import { canonicalizeStrictJson } from '../../contract/canonical-json.js';
import type { IFleetCutoverRuntime } from '../../contract/runtime.js';
import { qb } from '../../db/query.js';
import type { Tx } from '../../db/transaction.js';

export async function swapRuntime(tx: Tx, runtime: IFleetCutoverRuntime): Promise<'swapped' | 'stale'> {
  const { clusterId, generation, digest, phase, predecessor } = runtime;
  const [changed] = await Promise.all([
    tx.run(
      sql`
        update control.runtime_heads set generation = ${generation}, digest = ${digest}, phase = ${phase}
        where cluster_id = ${clusterId} and generation = ${generation - 1} and digest = ${predecessor?.digest ?? ''}`.compile(
        qb,
      ),
    ),
    tx.run(
      sql`
        insert into control.runtime_revisions (cluster_id, generation, digest, phase, record)
        values (${clusterId}, ${generation}, ${digest}, ${phase}, ${canonicalizeStrictJson(runtime)})`.compile(qb),
    ),
  ]);
  return changed === 1 ? 'swapped' : 'stale';
}
