import type { TProblemCode } from '../../contract/problems.js';
import { inTransaction } from '../../db/transaction.js';
import type { Deps } from '../../deps.js';
import { organizationChainId } from './chain.js';
import { addRefusalCounts, type RefusalCount } from './rows.js';

/** One refusal after authentication. */
export interface CountedRefusal {
  readonly organizationId: string;
  readonly principalId: string;
  readonly method: string;
  readonly code: TProblemCode;
  /** The cluster that the request named; null where it names none. */
  readonly clusterId: string | null;
}

/** Different counts that wait at most, so that a database that is away costs no memory. */
const MAXIMUM_WAITING = 10_000;

/** Codes that are answered before it is known that the cluster is the caller's: they go to the organization's chain. */
const BEFORE_CLUSTER: ReadonlySet<TProblemCode> = new Set([
  'cluster-unknown',
  'role-refused',
  'body-schema',
  'body-invalid-json',
]);

/**
 * Counts refusals per principal, method, code and minute, with the chain's position (system rule 12). The reply does not
 * wait for it and does not fail with it. While one transaction is under way the next ones gather, so that losers of a
 * compare don't queue up at the row that counts them.
 */
export class RefusalCounter {
  readonly #deps: Deps;
  readonly #onFailure: (error: unknown) => void;
  #waiting = new Map<string, RefusalCount>();
  #writing: Promise<void> | undefined;

  constructor(deps: Deps, onFailure: (error: unknown) => void) {
    this.#deps = deps;
    this.#onFailure = onFailure;
  }

  count(refusal: CountedRefusal): void {
    this.#add({
      principalId: refusal.principalId,
      method: refusal.method,
      code: refusal.code,
      minute: beginOfMinute(this.#deps.clock.now()),
      chainId: chainOf(refusal),
      count: 1,
    });
    this.#writing ??= this.#write();
  }

  /** Resolves when all that was counted is written, or could not be. */
  async drain(): Promise<void> {
    if (this.#waiting.size > 0) this.#writing ??= this.#write();
    while (this.#writing !== undefined) await this.#writing;
  }

  #add(count: RefusalCount): void {
    const key = [count.principalId, count.method, count.code, count.minute.getTime(), count.chainId].join(' ');
    const known = this.#waiting.get(key);
    if (known === undefined && this.#waiting.size >= MAXIMUM_WAITING) return;
    this.#waiting.set(key, { ...count, count: count.count + (known?.count ?? 0) });
  }

  async #write(): Promise<void> {
    const counts = [...this.#waiting.values()];
    this.#waiting = new Map();
    try {
      await inTransaction(this.#deps, 'countRefusals', (tx) => addRefusalCounts(tx, counts));
      this.#writing = this.#waiting.size > 0 ? this.#write() : undefined;
    } catch (error) {
      // Kept for the next refusal to try again with; nothing is retried by itself while the database is away.
      for (const count of counts) this.#add(count);
      this.#writing = undefined;
      this.#onFailure(error);
    }
  }
}

function chainOf(refusal: CountedRefusal): string {
  if (refusal.clusterId === null || BEFORE_CLUSTER.has(refusal.code))
    return organizationChainId(refusal.organizationId);
  return refusal.clusterId;
}

function beginOfMinute(now: Date): Date {
  return new Date(Math.floor(now.getTime() / 60_000) * 60_000);
}
