/** A part's share of the run's time: a slow machine makes it leave something out, and the run says what. */
import type { Tally } from './tally.js';

export class Deadline {
  readonly #tally: Tally;
  readonly #at: number;
  readonly #from = Date.now();

  /** `at`: Unix ms. */
  constructor(tally: Tally, at: number) {
    this.#tally = tally;
    this.#at = at;
  }

  /** Unix ms. */
  get at(): number {
    return this.#at;
  }

  isOver(): boolean {
    return Date.now() >= this.#at;
  }

  /** Which part of the time is used up, 0 to 1 and more. */
  get used(): number {
    return (Date.now() - this.#from) / (this.#at - this.#from);
  }

  /** A run that has not done everything is not clean. */
  leaveOut(what: string): void {
    this.#tally.wrong.push(`there was no time left for: ${what}`);
  }
}
