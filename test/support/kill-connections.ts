/** Ways to lose the database at an exact point, from inside the hook that names the point. */
import { Worker } from 'node:worker_threads';
import type pg from 'pg';
import { connectionConfig, parseDatabaseUrl } from '../../src/db/connection.js';
import type { Db } from '../../src/db/pool.js';
import type { Secret } from '../../src/secret.js';

/** What pg keeps of its clients; only a fault test looks inside. */
interface PooledClient extends pg.PoolClient {
  readonly processID: number;
  readonly connection: pg.PoolClient['connection'] & { readonly stream: { destroy(): void } };
}

function clientsOf(db: Db): PooledClient[] {
  return (db.pool as unknown as { _clients: PooledClient[] })._clients;
}

/** Cuts the way to the server: what was sent may arrive, no answer does. */
export function cutConnections(db: Db): void {
  for (const client of clientsOf(db)) client.connection.stream.destroy();
}

export interface Terminator {
  /** Ends the pool's sessions on the server, and returns only when they have ended. */
  terminate(db: Db): void;
  close(): Promise<void>;
}

/** In a thread of its own: the hook is synchronous, and waits for it without turning its own event loop. */
export function openTerminator(ownerUrl: Secret): Terminator {
  const shared = new SharedArrayBuffer(8);
  const flags = new Int32Array(shared);
  const worker = new Worker(PROGRAM, {
    eval: true,
    workerData: { shared, config: connectionConfig(parseDatabaseUrl(ownerUrl)) },
  });
  return {
    terminate: (db) => {
      Atomics.store(flags, 0, 0);
      worker.postMessage(clientsOf(db).map((client) => client.processID));
      if (Atomics.wait(flags, 0, 0, 10_000) === 'timed-out') throw new Error('the sessions did not end');
    },
    close: async () => {
      await worker.terminate();
    },
  };
}

const PROGRAM = `
const { parentPort, workerData } = require('node:worker_threads');
const { Client } = require('pg');
const flags = new Int32Array(workerData.shared);
const client = new Client(workerData.config);
client.on('error', () => {});
const ready = client.connect();
parentPort.on('message', async (pids) => {
  await ready;
  // Its own way of waiting looks every 100 ms.
  await client.query('select pg_terminate_backend(pid) from unnest($1::int[]) as pid', [pids]);
  const alive = 'select from pg_stat_activity where pid = any($1::int[])';
  while ((await client.query(alive, [pids])).rowCount > 0) await new Promise((resolve) => setTimeout(resolve, 1));
  Atomics.store(flags, 0, 1);
  Atomics.notify(flags, 0);
});
`;
