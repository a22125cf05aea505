/** A process that sends prepared requests over kept connections, one at a time each, and counts the answers. */
import { readFile } from 'node:fs/promises';
import { connect } from 'node:net';

export interface LoadOrder {
  readonly host: string;
  readonly port: number;
  readonly path: string;
  /** File with a JSON array of request bodies. */
  readonly bodies: string;
  readonly connections: number;
  /** Before counting. */
  readonly warmUpMs: number;
  readonly measureMs: number;
}

export interface LoadResult {
  readonly answers: number;
  readonly bytes: number;
  readonly failures: number;
  readonly ms: number;
}

process.on('message', (order: LoadOrder) => {
  void load(order).then((result) => process.send?.(result));
});
process.send?.({});

async function load(order: LoadOrder): Promise<LoadResult> {
  const bodies = JSON.parse(await readFile(order.bodies, 'utf8')) as string[];
  const requests = bodies.map((body) => Buffer.from(requestText(order, body)));
  let next = 0;
  let counting = false;
  const result = { answers: 0, bytes: 0, failures: 0 };
  const sockets = Array.from({ length: order.connections }, () => {
    const socket = connect({ host: order.host, port: order.port, noDelay: true });
    const send = () => socket.write(requests[next++ % requests.length]!);
    const reader = new AnswerReader((ok, bytes) => {
      if (counting) {
        result.answers += 1;
        result.bytes += bytes;
        if (!ok) result.failures += 1;
      }
      send();
    });
    socket.on('connect', send);
    socket.on('data', (chunk) => reader.take(chunk));
    socket.on('error', () => (result.failures += 1));
    return socket;
  });
  await sleep(order.warmUpMs);
  counting = true;
  const started = performance.now();
  await sleep(order.measureMs);
  counting = false;
  const ms = performance.now() - started;
  for (const socket of sockets) socket.destroy();
  return { ...result, ms };
}

function requestText(order: LoadOrder, body: string): string {
  return [
    `POST ${order.path} HTTP/1.1`,
    `host: ${order.host}:${order.port}`,
    'content-type: application/json',
    `content-length: ${Buffer.byteLength(body)}`,
    '',
    body,
  ].join('\r\n');
}

/** Reads answers that say their `content-length`. */
class AnswerReader {
  readonly #onAnswer: (ok: boolean, bytes: number) => void;
  #head = '';
  #left = -1;
  #length = 0;
  #ok = false;

  constructor(onAnswer: (ok: boolean, bytes: number) => void) {
    this.#onAnswer = onAnswer;
  }

  take(chunk: Buffer): void {
    let body = chunk.length;
    if (this.#left < 0) {
      this.#head += chunk.toString('latin1');
      const end = this.#head.indexOf('\r\n\r\n');
      if (end < 0) return;
      this.#ok = this.#head.startsWith('HTTP/1.1 200');
      this.#length = Number(/\r\ncontent-length: *(\d+)/i.exec(this.#head)?.[1]);
      this.#left = this.#length;
      body = this.#head.length - end - 4;
      this.#head = '';
    }
    this.#left -= body;
    if (this.#left > 0) return;
    this.#left = -1;
    this.#onAnswer(this.#ok, this.#length);
  }
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
