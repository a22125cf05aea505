import { refuse, type Refused } from '../contract/problems.js';

/** Bodies over this many bytes are processed two at a time, so that parsing them can't take all memory and processors. */
const LARGE_BYTES = 65_536;
const MAXIMUM_AT_ONCE = 2;

/** Large bodies that wait, each held in memory; the next one is told to come back. */
const MAXIMUM_WAITING = 64;

/** Admits large bodies in the order in which they were complete. A slow sender holds no place: it is not here yet. */
export class LargeBodyGate {
  #inside = 0;
  readonly #waiting: (() => void)[] = [];

  /** Does the work once there is room for a body of this size; refused with `unavailable` where too many wait. */
  pass<T>(bytes: number, work: () => Promise<T>): Promise<T | Refused> {
    return bytes <= LARGE_BYTES ? work() : this.#inTurn(work);
  }

  async #inTurn<T>(work: () => Promise<T>): Promise<T | Refused> {
    if (this.#inside >= MAXIMUM_AT_ONCE) {
      if (this.#waiting.length >= MAXIMUM_WAITING) return refuse('unavailable', { retrySafe: true });
      await new Promise<void>((admit) => this.#waiting.push(admit));
    } else {
      this.#inside += 1;
    }
    try {
      return await work();
    } finally {
      const next = this.#waiting.shift();
      // The place goes straight to the next one.
      if (next === undefined) this.#inside -= 1;
      else next();
    }
  }
}
