/** How far long work is: what is said of it, and when. */
import type { CommandStreams } from '../output.js';

export interface Progress {
  readonly done: number;
  readonly total: number;
  /** Since the work began. */
  readonly ms: number;
}

const barWidth = 30;
/** Milliseconds between two drawings on a terminal, and between two lines elsewhere. */
const drawingMs = 100;
const lineMs = 5_000;

/** `1,024/4,096 25 %, 830/s, 4 s left`; rate and remaining time are left out while nothing is known of them. */
export function progressText({ done, total, ms }: Progress): string {
  const share = `${grouped(done)}/${grouped(total)} ${Math.floor(shareOf(done, total) * 100)} %`;
  if (done === 0 || ms <= 0) return share;
  const perSecond = (done / ms) * 1000;
  const left = Math.max(0, total - done) / perSecond;
  return `${share}, ${grouped(Math.round(perSecond))}/s${done >= total ? '' : `, ${durationText(left)} left`}`;
}

export function progressBar({ done, total }: Progress): string {
  return `[${'#'.repeat(Math.floor(shareOf(done, total) * barWidth)).padEnd(barWidth, '.')}]`;
}

/** Nothing of nothing is all of it. */
function shareOf(done: number, total: number): number {
  return total <= 0 ? 1 : Math.min(1, done / total);
}

/** `1,024`. */
export function grouped(count: number): string {
  return String(count).replace(/\B(?=(\d{3})+$)/g, ',');
}

/** Whole seconds, minutes or hours, rounded up: a promise that is kept. */
export function durationText(seconds: number): string {
  if (seconds <= 90) return `${Math.max(1, Math.ceil(seconds))} s`;
  if (seconds <= 5_400) return `${Math.ceil(seconds / 60)} min`;
  return `${Math.ceil(seconds / 3600)} h`;
}

/** A bar that is drawn over itself on a terminal; elsewhere a line now and then. */
export class ProgressLine {
  readonly #streams: CommandStreams;
  readonly #terminal: boolean;
  readonly #now: () => number;
  readonly #began: number;
  #saidAt = -Infinity;
  #drawn = false;

  constructor(streams: CommandStreams, terminal: boolean, now: () => number = () => performance.now()) {
    this.#streams = streams;
    this.#terminal = terminal;
    this.#now = now;
    this.#began = now();
  }

  show(done: number, total: number): void {
    const now = this.#now();
    if (now - this.#saidAt < (this.#terminal ? drawingMs : lineMs)) return;
    this.#saidAt = now;
    this.#say({ done, total, ms: now - this.#began });
  }

  /** A line of its own; the bar goes on below it. */
  note(text: string): void {
    this.#clear();
    this.#streams.stderr(`${text}\n`);
  }

  /** The last state, which stays. */
  end(done: number, total: number): void {
    this.#say({ done, total, ms: this.#now() - this.#began });
    if (this.#drawn) this.#streams.stderr('\n');
    this.#drawn = false;
  }

  /** Nothing more is said; what is drawn goes. */
  stop(): void {
    this.#clear();
  }

  #say(progress: Progress): void {
    if (!this.#terminal) {
      this.#streams.stderr(`${progressText(progress)}\n`);
      return;
    }
    this.#streams.stderr(`\r\u001b[K${progressBar(progress)} ${progressText(progress)}`);
    this.#drawn = true;
  }

  #clear(): void {
    if (this.#drawn) this.#streams.stderr('\r\u001b[K');
    this.#drawn = false;
  }
}
