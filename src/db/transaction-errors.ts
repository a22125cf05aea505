import { DatabaseError } from 'pg';

/** The connection was lost, or none could be had, before COMMIT was sent: nothing was applied. */
export class TransactionLostError extends Error {
  override readonly name = 'TransactionLostError';
  readonly transaction: string;

  constructor(transaction: string, cause: unknown) {
    super(`${transaction}: the database connection was lost, nothing was applied`, { cause });
    this.transaction = transaction;
  }
}

/**
 * The work can't be answered although it was, or may have been, applied. `unknown`: the connection was lost after COMMIT
 * was sent. `committed`: COMMIT was confirmed, but what came with it could not be read. The caller learns the result by
 * sending the same mutation again.
 */
export class CommitUnknownError extends Error {
  override readonly name = 'CommitUnknownError';
  readonly transaction: string;
  readonly outcome: 'unknown' | 'committed';

  constructor(transaction: string, outcome: 'unknown' | 'committed', cause: unknown) {
    const what =
      outcome === 'unknown' ? 'it is not known whether COMMIT was applied' : 'committed, but without an answer';
    super(`${transaction}: ${what}`, { cause });
    this.transaction = transaction;
    this.outcome = outcome;
  }
}

/** Every attempt met a serialization failure, a deadlock or the same audit row: nothing was applied, later it may be. */
export class TransactionContendedError extends Error {
  override readonly name = 'TransactionContendedError';
  readonly transaction: string;
  readonly attempts: number;

  constructor(transaction: string, attempts: number, cause: unknown) {
    super(`${transaction}: given up after ${attempts} attempts that collided with others, nothing was applied`, {
      cause,
    });
    this.transaction = transaction;
    this.attempts = attempts;
  }
}

/** A statement gave another number of rows than its caller relies on. */
export class CardinalityError extends Error {
  override readonly name = 'CardinalityError';

  constructor(statement: string, expected: string, rows: number) {
    super(`${statement}: expected ${expected}, got ${rows} rows`);
  }
}

/**
 * Whether the same work may succeed when it is done again from the start: serialization failure, deadlock, a mutation id
 * that somebody else has just recorded (the repetition finds it and replays), or a prepared statement that a migration
 * has outdated.
 */
export function isRetryable(error: unknown): boolean {
  if (!(error instanceof DatabaseError)) return false;
  if (error.code === '40001' || error.code === '40P01') return true;
  const collides = error.constraint === 'audit_row_mutation' || error.constraint === 'nodes_swarm_node';
  return (error.code === '23505' && collides) || isOutdatedPlan(error);
}

/** "cached plan must not change result type": only a connection that has not prepared the statement can run it. */
export function isOutdatedPlan(error: unknown): boolean {
  return error instanceof DatabaseError && error.code === '0A000' && error.routine === 'RevalidateCachedQuery';
}

/**
 * Whether the server ended the session with this error. The severity is translated into the server's language, so the
 * codes are looked at, too: shutdown, crash, dropped database, idle timeouts, transaction timeout.
 */
export function endsSession(error: unknown): boolean {
  if (!(error instanceof DatabaseError)) return false;
  if (error.severity === 'FATAL' || error.severity === 'PANIC') return true;
  return error.code !== undefined && SESSION_END.has(error.code);
}

const SESSION_END = new Set(['57P01', '57P02', '57P03', '57P04', '57P05', '25P03', '25P04']);
