import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { type Db, isBroken } from './pool.js';
import { OpenTransaction, type BeginStatement, type FaultHook } from './open-transaction.js';
import { toQueryConfig, type Statement } from './statement.js';
import { TransactionContendedError, TransactionLostError, endsSession, isRetryable } from './transaction-errors.js';

export type { FaultHook } from './open-transaction.js';
export type { Refused } from '../contract/problems.js';
export * from './transaction-errors.js';

/**
 * One open READ COMMITTED transaction. Statements may be sent without awaiting those before: they travel together and are
 * executed in the order of the calls. The first error is the error of all that follow it, and an unawaited one is still
 * noticed: such a transaction never commits. Await what the decision depends on before committing.
 */
export interface Tx extends ReadTx {
  /** Runs a statement; gives the number of rows that it affected. */
  run(query: Statement<unknown>): Promise<number>;
  /**
   * Sends the last statement and COMMIT in one round trip. Resolves to its rows once the server has confirmed COMMIT; the
   * transaction takes no more statements. A COMMIT that the server answers with ROLLBACK rejects with the first error.
   */
  commitWith<R>(query: Statement<R>): Promise<R[]>;
}

/** One open read-only transaction: every statement sees the same moment. */
export interface ReadTx {
  readonly name: string;
  rows<R>(query: Statement<R>): Promise<R[]>;
  /** Throws `CardinalityError` unless there is exactly one row. */
  one<R>(query: Statement<R>): Promise<R>;
  /** Throws `CardinalityError` where there is more than one row. */
  maybe<R>(query: Statement<R>): Promise<R | undefined>;
}

/** How a transaction ended, for metrics. */
export type TransactionOutcome = 'committed' | 'refused' | 'failed' | 'contended' | 'lost' | 'unknown';

export interface TransactionDeps {
  readonly db: Db;
  /** For fault tests: called before each statement, before COMMIT and after its confirmation. */
  readonly faults?: FaultHook | undefined;
  /** Called once per transaction, with the duration of all its attempts in milliseconds. It must not throw. */
  readonly onTransaction?:
    ((name: string, outcome: TransactionOutcome, attempts: number, ms: number) => void) | undefined;
}

/** So the work is done at most six times. */
const MAXIMUM_RETRIES = 5;

/**
 * Does `work` in one READ COMMITTED transaction and gives its value. A value whose `kind` is `refused` rolls back;
 * every other one commits, unless `commitWith` did already (a refusal after `commitWith`, whose statement then changed
 * nothing, is passed on as it is). BEGIN travels with the first statement, so no statements cost no round trip.
 *
 * Collisions (see `isRetryable`) are retried: `work` may run several times and must have no other effects.
 *
 * Throws `TransactionLostError` (not applied), `TransactionContendedError` (not applied), `CommitUnknownError`, or the
 * error of the statement or of `work` (not applied).
 */
export function inTransaction<T>(deps: TransactionDeps, name: string, work: (tx: Tx) => Promise<T>): Promise<T> {
  return withRetries(deps, name, 'BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE', work);
}

/** Does `work` in one read-only REPEATABLE READ transaction: a consistent picture. Errors are those of {@link inTransaction}. */
export function read<T>(deps: TransactionDeps, name: string, work: (tx: ReadTx) => Promise<T>): Promise<T> {
  return withRetries(deps, name, 'BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY', work);
}

/**
 * Runs one statement that reads, without a transaction around it, in one round trip. For what writes, use
 * {@link inTransaction}: here a lost connection says nothing about what was applied. Throws `TransactionLostError`
 * where there is no connection.
 */
export async function query<R>(db: Db, statement: Statement<R>): Promise<R[]> {
  const config = toQueryConfig(statement);
  const client = await checkout(db.lookups, 'query');
  try {
    const { rows } = await client.query<R & pg.QueryResultRow>(config);
    client.release(isBroken(client));
    return rows;
  } catch (error) {
    const broken = isBroken(client) || endsSession(error);
    client.release(broken);
    throw broken ? new TransactionLostError('query', error) : error;
  }
}

async function withRetries<T>(
  deps: TransactionDeps,
  name: string,
  begin: BeginStatement,
  work: (tx: Tx) => Promise<T>,
): Promise<T> {
  const started = performance.now();
  for (let attempt = 1; ; attempt += 1) {
    const report = (outcome: TransactionOutcome): void =>
      deps.onTransaction?.(name, outcome, attempt, performance.now() - started);
    try {
      const value = await attemptOnce(deps, name, begin, work);
      report(isRefused(value) ? 'refused' : 'committed');
      return value;
    } catch (error) {
      if (!isRetryable(error)) {
        report(failureOutcome(error));
        throw error;
      }
      if (attempt > MAXIMUM_RETRIES) {
        report('contended');
        throw new TransactionContendedError(name, attempt, error);
      }
    }
    await sleep(backoffMs(attempt));
  }
}

async function attemptOnce<T>(
  deps: TransactionDeps,
  name: string,
  begin: BeginStatement,
  work: (tx: Tx) => Promise<T>,
): Promise<T> {
  const client = await checkout(deps.db.pool, name);
  const transaction = new OpenTransaction(client, name, begin, deps.faults);
  try {
    return await transaction.complete(work, isRefused);
  } finally {
    client.release(!transaction.leaveClient());
  }
}

async function checkout(pool: pg.Pool, name: string): Promise<pg.PoolClient> {
  try {
    return await pool.connect();
  } catch (cause) {
    throw new TransactionLostError(name, cause);
  }
}

function isRefused(value: unknown): boolean {
  return typeof value === 'object' && value !== null && 'kind' in value && value.kind === 'refused';
}

function failureOutcome(error: unknown): TransactionOutcome {
  const name = error instanceof Error ? error.name : '';
  if (name === 'TransactionLostError') return 'lost';
  return name === 'CommitUnknownError' ? 'unknown' : 'failed';
}

/** Full jitter, 4 ms doubling to 64 ms: those that collided must not meet again. Nothing that is recorded depends on it. */
function backoffMs(attempt: number): number {
  return Math.random() * 2 ** (attempt + 1);
}
