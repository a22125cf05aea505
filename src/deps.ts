import type { Clock } from './clock.js';
import type { TransactionDeps } from './db/transaction.js';
import type { Random } from './random.js';

/** What every operation gets passed in: the database with its hooks, the time, and randomness. Built once, at the entry. */
export interface Deps extends TransactionDeps {
  readonly clock: Clock;
  readonly random: Random;
}
