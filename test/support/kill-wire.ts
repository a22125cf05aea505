/**
 * A way to the database that breaks at an exact statement of a transaction, whichever process or thread sends it. Beside
 * the service's own hook it reaches what runs in threads with connections of their own.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, createServer, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseDatabaseUrl } from '../../src/db/connection.js';
import { Secret } from '../../src/secret.js';

export interface Wire {
  readonly url: Secret;
  /** The texts of the statements of the one transaction that writes while `work` is done, BEGIN and COMMIT too. */
  record(work: () => Promise<unknown>): Promise<string[]>;
  /**
   * The next writing transaction never gets its statement of this index to the server; with `answer`, the server gets it,
   * and its answer comes to nobody. Then the connection breaks, and `fault` is done.
   */
  arm(index: number, answer: boolean, fault?: () => void): void;
  /** Whether that has happened. */
  disarm(): boolean;
  close(): Promise<void>;
}

interface Trap {
  readonly index: number;
  readonly answer: boolean;
  readonly fault: () => void;
}

const BEGIN = 'BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE';

/** Listens on a Unix socket of its own, in front of the server that the URL names. */
export async function openWire(target: Secret): Promise<Wire> {
  const directory = await mkdtemp(join(tmpdir(), 'fleet-cutover-wire-'));
  const address = parseDatabaseUrl(target);
  const sockets = new Set<Socket>();
  let recorded: string[] | undefined;
  let trap: Trap | undefined;
  let hit = false;
  const proxy = createServer((client) => {
    const server = address.host.startsWith('/')
      ? connect(join(address.host, `.s.PGSQL.${address.port}`))
      : connect(address.port, address.host);
    for (const socket of [client, server]) {
      sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => [client, server].forEach((each) => each.destroy()));
    }
    const statements = new StatementReader();
    /** Of the transaction that is open here. */
    let index = -1;
    let deaf = false;
    const spring = (sprung: Trap): void => {
      trap = undefined;
      hit = true;
      client.destroy();
      sprung.fault();
    };
    client.on('data', (chunk: Buffer) => {
      for (const { bytes, text } of statements.read(chunk)) {
        if (client.destroyed) return;
        if (text !== null) {
          index = text === BEGIN ? 0 : index < 0 ? -1 : index + 1;
          if (index >= 0) recorded?.push(text);
          if (trap !== undefined && trap.index === index) {
            if (!trap.answer) return spring(trap);
            deaf = true;
          }
          if (text === 'COMMIT' || text === 'ROLLBACK') index = -1;
        }
        server.write(bytes);
      }
    });
    server.on('data', (chunk: Buffer) => {
      if (!deaf) return client.write(chunk);
      return trap === undefined ? undefined : spring(trap);
    });
  });
  await new Promise<void>((resolve) => proxy.listen(join(directory, '.s.PGSQL.5432'), resolve));
  const url = new URL(target.reveal());
  url.host = encodeURIComponent(directory);
  url.port = '';
  return {
    url: new Secret(url.href),
    record: async (work) => {
      recorded = [];
      try {
        await work();
        return recorded;
      } finally {
        recorded = undefined;
      }
    },
    arm: (index, answer, fault = () => {}) => {
      hit = false;
      trap = { index, answer, fault };
    },
    disarm: () => {
      trap = undefined;
      return hit;
    },
    close: async () => {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => proxy.close(resolve));
      await rm(directory, { recursive: true });
    },
  };
}

interface Piece {
  readonly bytes: Buffer;
  /** Of a message that begins a statement. */
  readonly text: string | null;
}

/** Takes the frontend's messages apart: a statement begins with Parse, with Query, or with Bind of what was parsed before. */
class StatementReader {
  #rest = Buffer.alloc(0);
  #started = false;
  #parsed = false;
  readonly #names = new Map<string, string>();

  read(chunk: Buffer): Piece[] {
    this.#rest = Buffer.concat([this.#rest, chunk]);
    const pieces: Piece[] = [];
    for (;;) {
      // The first message has no type.
      const head = this.#started ? 1 : 0;
      if (this.#rest.length < head + 4) return pieces;
      const length = head + this.#rest.readInt32BE(head);
      if (this.#rest.length < length) return pieces;
      const bytes = this.#rest.subarray(0, length);
      this.#rest = this.#rest.subarray(length);
      pieces.push({ bytes, text: this.#started ? this.#textOf(bytes) : null });
      this.#started = true;
    }
  }

  #textOf(message: Buffer): string | null {
    const type = String.fromCharCode(message[0]!);
    const [first = '', second = ''] = message.subarray(5).toString('latin1').split('\0', 2);
    if (type === 'Q') return first;
    if (type === 'P') {
      this.#parsed = true;
      this.#names.set(first, second);
      return second;
    }
    // Bind names the portal and the statement; right behind its Parse it begins nothing.
    if (type === 'B' && !this.#parsed) return this.#names.get(second) ?? '';
    if (type === 'S') this.#parsed = false;
    return null;
  }
}
