/** An embedded Postgres of its own, to be killed and started again. */
import { chmod, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { systemClock } from '../../src/clock.js';
import { connectionConfig, parseDatabaseUrl } from '../../src/db/connection.js';
import { type EmbeddedServer, startEmbedded } from '../../src/db/embedded.js';
import { migrate } from '../../src/db/migrate.js';
import { openPool } from '../../src/db/pool.js';
import { bootstrap } from '../../src/features/auth/host-operations.js';
import { systemRandom } from '../../src/random.js';
import { isRefused } from '../../src/refusal.js';
import type { Secret } from '../../src/secret.js';

const MIGRATIONS = join(import.meta.dirname, '..', '..', 'migrations');

export interface KillablePostgres {
  readonly ownerUrl: Secret;
  readonly serviceUrl: Secret;
  /** Ends the server's main process at once; may be called from a synchronous hook. */
  kill(): void;
  /** Starts it again after a kill: it recovers. */
  restart(): Promise<void>;
  /** An owner's pool that survives the kills. */
  readonly owner: pg.Pool;
  close(): Promise<void>;
}

/** A directory that the server's own user can enter. */
export async function makeDataDirectory(parent = tmpdir()): Promise<string> {
  const directory = await mkdtemp(join(parent, 'fleet-cutover-faults-'));
  await chmod(directory, 0o711);
  return directory;
}

/** Migrated and empty. */
export async function openKillablePostgres(): Promise<KillablePostgres> {
  const directory = await makeDataDirectory();
  const dataDirectory = join(directory, 'postgres');
  let server: EmbeddedServer = await startEmbedded({ dataDirectory });
  const { ownerUrl, serviceUrl } = server;
  await migrate({ ownerUrl, serviceUrl, directory: MIGRATIONS, clock: systemClock });
  const owner = new pg.Pool({ ...connectionConfig(parseDatabaseUrl(ownerUrl)), max: 2 });
  owner.on('error', () => {});
  owner.on('connect', (client) => client.on('error', () => {}));
  return {
    ownerUrl,
    serviceUrl,
    owner,
    kill: () => void process.kill(server.pid, 'SIGKILL'),
    restart: async () => {
      await server.stop().catch(() => {});
      server = await startEmbedded({ dataDirectory });
    },
    close: async () => {
      await owner.end();
      await server.stop();
      await rm(directory, { recursive: true, force: true });
    },
  };
}

/** The first administrator's token. */
export async function firstToken(serviceUrl: Secret): Promise<string> {
  const db = openPool({ url: serviceUrl, size: 1, statementTimeoutMs: 15_000, lockTimeoutMs: 5_000 });
  try {
    const issued = await bootstrap(
      { db, clock: systemClock, random: systemRandom },
      { organizationId: 'acme', principalId: 'ada', additional: false },
    );
    if (isRefused(issued)) throw new Error(issued.problem.code);
    return issued.token;
  } finally {
    await db.close();
  }
}

/** Main process of the server that works in a data directory; undefined where there is none. */
export async function postmasterPid(dataDirectory: string): Promise<number | undefined> {
  const text = await readFile(join(dataDirectory, 'server', 'cluster', 'postmaster.pid'), 'utf8').catch(() => '');
  const pid = Number.parseInt(text, 10);
  return pid > 1 ? pid : undefined;
}
