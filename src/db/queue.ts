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

type TQueue = keyof typeof seeds;

/**
 * Send it right before the row's lock, and do not await it: the lock behind it fails with it. (An `async` function around both
 * would be a promise of its own, which nobody handles where the caller awaits something else first.)
 */
export function queueFor(tx: Tx, row: TQueue, clusterId: string, mode: 'shared' | 'alone'): Promise<number> {
  const lock = mode === 'shared' ? sql`pg_advisory_xact_lock_shared` : sql`pg_advisory_xact_lock`;
  return tx.run(sql`select ${lock}(${queueKey(row, clusterId)})`.compile(qb));
}

/** Passes the queues for a share of the runtime and of the derivation, in this order, which is the order of their locks. */
export function queueForShares(tx: Tx, clusterId: string): Promise<number> {
  const share = (row: TQueue) => sql`pg_advisory_xact_lock_shared(${queueKey(row, clusterId)})`;
  return tx.run(sql`select ${share('runtime')}, ${share('derivation')}`.compile(qb));
}

const queueKey = (row: TQueue, clusterId: string) => sql`hashtextextended(${clusterId}, ${seeds[row]})`;
