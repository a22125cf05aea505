import { refuse, type Refused } from '../contract/problems.js';

/** Bodies over this many bytes are processed two at a time, so that parsing them can't take all memory and processors. */
export const LARGE_BODY_BYTES = 65_536;
const MAXIMUM_AT_ONCE = 2;

/** Large bodies that wait, each held in memory; the next one is told to come back. */
const MAXIMUM_WAITING = 64;

/**
 * Admits large bodies in the order in which they come. Only for authenticated senders: a stranger's body must take no place,
 * and a slow sender holds none, as it is not here yet.
 */
export class LargeBodyGate {
  #inside = 0;
  readonly #waiting: (() => void)[] = [];

  /**
   * Does the work once there is room for a body of this size; refused with `unavailable` where too many wait. The work is told
   * whether it had to wait: then what was known of the sender before may no longer hold.
   */
  pass<T>(bytes: number, work: (waited: boolean) => Promise<T>): Promise<T | Refused> {
    return bytes <= LARGE_BODY_BYTES ? work(false) : this.#inTurn(work);
  }

  async #inTurn<T>(work: (waited: boolean) => Promise<T>): Promise<T | Refused> {
    const waits = this.#inside >= MAXIMUM_AT_ONCE;
    if (waits) {
      if (this.#waiting.length >= MAXIMUM_WAITING) return refuse('unavailable', { retrySafe: true });
      await new Promise<void>((admit) => this.#waiting.push(admit));
    } else {
      this.#inside += 1;
    }
    try {
      return await work(waits);
    } finally {
      const next = this.#waiting.shift();
      // The place goes straight to the next one.
      if (next === undefined) this.#inside -= 1;
      else next();
    }
  }
}
