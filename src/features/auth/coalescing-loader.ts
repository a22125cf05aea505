/** Keys of one query at most; more wait for the next one. */
const MAXIMUM_KEYS = 512;

/** Queries under way at once: while the database works on one, the answers of the other are worked off. */
const MAXIMUM_QUERIES = 2;

/** Fewer keys are not worth a second query: they wait for the first one's answer, but not for long, which may never come. */
const MINIMUM_KEYS_OF_SECOND = 16;
const MAXIMUM_WAIT_MS = 5;

interface Waiter<V> {
  resolve(value: V | undefined): void;
  reject(error: unknown): void;
}

/**
 * Looks keys up in shared queries. While queries are under way, later keys gather for the next one: so the answer to a key
 * always comes from a query that started after its `load` was called, and nothing is ever kept for later. Under load this
 * costs one query per round trip, not one per request.
 */
export class CoalescingLoader<V> {
  readonly #query: (keys: string[]) => Promise<ReadonlyMap<string, V>>;
  #waiting = new Map<string, Waiter<V>[]>();
  #underWay = 0;
  #patience: NodeJS.Timeout | undefined;

  /** `query` gives what there is for the distinct keys; a key that is absent resolves to undefined. */
  constructor(query: (keys: string[]) => Promise<ReadonlyMap<string, V>>) {
    this.#query = query;
  }

  load(key: string): Promise<V | undefined> {
    return new Promise((resolve, reject) => {
      const waiters = this.#waiting.get(key);
      if (waiters) waiters.push({ resolve, reject });
      else this.#waiting.set(key, [{ resolve, reject }]);
      this.#start();
    });
  }

  #start(): void {
    if (this.#waiting.size === 0 || this.#underWay >= MAXIMUM_QUERIES) return;
    if (this.#isWorthwhile(this.#underWay)) this.#begin();
    else if (this.#patience === undefined) {
      this.#patience = setTimeout(() => this.#waitNoLonger(), MAXIMUM_WAIT_MS);
    }
  }

  #waitNoLonger(): void {
    this.#patience = undefined;
    if (this.#waiting.size > 0 && this.#underWay < MAXIMUM_QUERIES) this.#begin();
  }

  #isWorthwhile(others: number): boolean {
    return others === 0 || this.#waiting.size >= MINIMUM_KEYS_OF_SECOND;
  }

  #begin(): void {
    this.#underWay += 1;
    // What arrives in the same turn of the event loop travels along.
    setImmediate(() => void this.#run());
  }

  async #run(): Promise<void> {
    while (this.#waiting.size > 0) {
      const batch = this.#takeBatch();
      try {
        const found = await this.#query([...batch.keys()]);
        for (const [key, waiters] of batch) for (const waiter of waiters) waiter.resolve(found.get(key));
      } catch (error) {
        for (const waiters of batch.values()) for (const waiter of waiters) waiter.reject(error);
      }
      if (!this.#isWorthwhile(this.#underWay - 1)) break;
    }
    this.#underWay -= 1;
    this.#start();
  }

  #takeBatch(): Map<string, Waiter<V>[]> {
    if (this.#waiting.size <= MAXIMUM_KEYS) {
      const all = this.#waiting;
      this.#waiting = new Map();
      return all;
    }
    const batch = new Map([...this.#waiting].slice(0, MAXIMUM_KEYS));
    for (const key of batch.keys()) this.#waiting.delete(key);
    return batch;
  }
}
