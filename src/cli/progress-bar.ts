/** One line on stderr that is drawn over and over. */
import type { CommandHost } from './command-host.js';
import { printable } from './terminal-text.js';

const width = 30;
/** Milliseconds between two drawings. */
const interval = 100;

export class ProgressBar {
  readonly #host: CommandHost;
  readonly #visible: boolean;
  #drawn = 0;

  /** Nobody looks at it where stderr is no terminal, or where the output is for programs. */
  constructor(host: CommandHost, asJson: boolean) {
    this.#host = host;
    this.#visible = process.stderr.isTTY === true && !asJson;
  }

  show(done: number, total: number, what: string): void {
    const now = performance.now();
    if (!this.#visible || now - this.#drawn < interval) return;
    this.#drawn = now;
    const share = Math.min(1, done / Math.max(1, total));
    const bar = '#'.repeat(Math.round(share * width)).padEnd(width, '.');
    this.#host.stderr(`\r\u001b[K[${bar}] ${Math.floor(share * 100)} % ${printable(what)}`);
  }

  end(): void {
    if (this.#drawn > 0) this.#host.stderr('\r\u001b[K');
  }
}
