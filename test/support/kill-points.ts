/** The list of fault points: what a recording run passes, each then hit by one fault. */
import type { FaultHook } from '../../src/db/transaction.js';

/** Records the points of one run, or does something at one of them, once. */
export class PointHook implements FaultHook {
  #recorded: string[] | undefined;
  #armed: { readonly point: string; readonly fault: () => void } | undefined;
  #hit = false;

  at(point: string): void {
    this.#recorded?.push(point);
    if (this.#armed?.point !== point) return;
    const { fault } = this.#armed;
    this.#armed = undefined;
    this.#hit = true;
    fault();
  }

  /** The distinct points that the work passes, in order. */
  async record(work: () => Promise<unknown>): Promise<string[]> {
    this.#recorded = [];
    try {
      await work();
      return [...new Set(this.#recorded)];
    } finally {
      this.#recorded = undefined;
    }
  }

  /** Does `fault` when the point is passed next, and once only. */
  arm(point: string, fault: () => void): void {
    this.#hit = false;
    this.#armed = { point, fault };
  }

  /** Whether the armed point was passed. */
  disarm(): boolean {
    this.#armed = undefined;
    return this.#hit;
  }
}

/** Of transactions that belong to no single request. */
export function isBackgroundPoint(point: string): boolean {
  return point.startsWith('countRefusals:');
}
