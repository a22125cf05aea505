import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Docker from 'dockerode';
import { PostgreSqlContainer } from '@testcontainers/postgresql';
import { startEmbedded, stopUnusedEmbedded } from '../../src/db/embedded.js';
import { processIsAlive } from '../../src/db/embedded/process.js';
import { Secret } from '../../src/secret.js';

/** The Postgres server of one test run. */
export interface TestServer {
  /** What it is, to be printed. */
  readonly description: string;
  /** A login that may create databases and roles, on a database that always exists. */
  readonly adminUrl: Secret;
  stop(): Promise<void>;
  /** Begins to stop a server that would outlive this process; for the handlers of signals, which can't wait. */
  stopNow(): void;
}

const DIRECTORY_PREFIX = 'fleet-cutover-test-';

/** The oldest version that is supported. */
const IMAGE = 'postgres:15-alpine';

const PING_TIMEOUT_MS = 1_500;
const CONTAINER_TIMEOUT_MS = 120_000;

/** The server that `DATABASE_URL` names (an administrator's login), else one in a container, else the embedded one. */
export async function openTestServer(): Promise<TestServer> {
  const url = process.env['DATABASE_URL'];
  if (url)
    return { description: 'the server of DATABASE_URL', adminUrl: new Secret(url), stop: async () => {}, stopNow };
  return (await startContainer()) ?? (await startTemporary());
}

/** There is nothing that would outlive us. */
function stopNow(): void {}

/** Undefined without a Docker engine. */
export async function dockerEngine(): Promise<Docker | undefined> {
  try {
    const docker = new Docker({ timeout: PING_TIMEOUT_MS });
    await within(PING_TIMEOUT_MS, docker.ping());
    return docker;
  } catch {
    return undefined;
  }
}

async function startContainer(): Promise<TestServer | undefined> {
  if ((await dockerEngine()) === undefined) return undefined;
  const starting = new PostgreSqlContainer(IMAGE).start();
  try {
    const container = await within(CONTAINER_TIMEOUT_MS, starting);
    return {
      description: `${IMAGE} in a container`,
      adminUrl: new Secret(container.getConnectionUri()),
      stop: async () => void (await container.stop()),
      // Testcontainers' own reaper removes the container when this process is gone.
      stopNow,
    };
  } catch (error) {
    starting.then(
      (late) => late.stop(),
      () => {},
    );
    console.warn(`no test database in a container: ${error instanceof Error ? error.message : String(error)}`);
    return undefined;
  }
}

async function startTemporary(): Promise<TestServer> {
  await removeAbandoned();
  const directory = await mkdtemp(join(tmpdir(), `${DIRECTORY_PREFIX}${process.pid}-`));
  const server = await startEmbedded({ dataDirectory: directory });
  return {
    description: `the embedded server, in ${directory}`,
    adminUrl: server.ownerUrl,
    stop: async () => {
      await server.stop();
      await rm(directory, { recursive: true, force: true });
    },
    stopNow: () => void process.kill(server.pid, 'SIGINT'),
  };
}

/** Stops and removes what test runs that were killed have left. */
async function removeAbandoned(): Promise<void> {
  const names = (await readdir(tmpdir())).filter((name) => name.startsWith(DIRECTORY_PREFIX));
  for (const name of names) {
    const pid = Number(name.slice(DIRECTORY_PREFIX.length).split('-')[0]);
    if (!Number.isInteger(pid) || (await processIsAlive(pid))) continue;
    const directory = join(tmpdir(), name);
    try {
      await stopUnusedEmbedded(directory);
      await rm(directory, { recursive: true, force: true });
    } catch (error) {
      // Another user's, or another run is removing it just now.
      console.warn(`${directory} was left by an earlier run: ${String(error)}`);
    }
  }
}

async function within<T>(ms: number, work: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`no answer in ${ms} ms`)), ms);
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}
