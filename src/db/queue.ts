/**
 * Row locks are not fair: sharers that keep coming overtake whoever waits for the row alone, so that a report waited for
 * seconds while administrators went on preparing (measured: up to 5 s behind six writers). Advisory locks queue in
 * order, so whoever locks such a row passes its queue before. The queue protects nothing by itself.
 */
import { sql } from 'kysely';
import { qb } from './query.js';
import type { Tx } from './transaction.js';

/** Seeds keep the queues' keys apart from each other and from other advisory locks of the database. */
const seeds = { derivation: 7_003_003, runtime: 7_003_004 } as const;

/**
 * Send it right before the row's lock, and do not await it: the lock behind it fails with it. (An `async` function around both
 * would be a promise of its own, which nobody handles where the caller awaits something else first.)
 */
export function queueFor(
  tx: Tx,
  row: keyof typeof seeds,
  clusterId: string,
  mode: 'shared' | 'alone',
): Promise<number> {
  const key = sql`hashtextextended(${clusterId}, ${seeds[row]})`;
  const lock = mode === 'shared' ? sql`pg_advisory_xact_lock_shared(${key})` : sql`pg_advisory_xact_lock(${key})`;
  return tx.run(sql`select ${lock}`.compile(qb));
}
