import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { connectionConfig, parseDatabaseUrl } from '../connection.js';
import type { Secret } from '../../secret.js';
import { EmbeddedError, errorCode } from './error.js';
import { processIsAlive } from './process.js';

/**
 * A session on the server that holds our claims as advisory locks. The database ends them with the session, so a killed
 * process leaves none. Every user holds `USERS` shared; the one service also holds `INSTANCE`.
 */
export interface Claim {
  readonly client: pg.Client;
  /** True: nobody else uses the server, and nobody can begin to. */
  becomeOnlyUser(): Promise<boolean>;
  /** From now on the end of the session is no loss. */
  expectEnd(): void;
  close(): Promise<void>;
}

/** Advisory locks of the database `postgres`, where only the embedded server's own claims are. */
const INSTANCE = 1;
const USERS = 2;

const SERVICE_NAME = 'fleet-cutover service ';

/** How long the server may take to notice that the holder was killed. */
const RELEASE_TIMEOUT_MS = 5_000;

/**
 * Takes the claims. Undefined: the server is on its way down, or goes down just now; look again. Throws `embedded-in-use`
 * where another service holds it.
 */
export async function claimServer(
  url: Secret,
  role: 'service' | 'attached',
  onLost: (error: Error) => void,
): Promise<Claim | undefined> {
  const applicationName = role === 'service' ? `${SERVICE_NAME}${process.pid}` : `fleet-cutover command ${process.pid}`;
  const client = new pg.Client({
    ...connectionConfig(parseDatabaseUrl(url)),
    application_name: applicationName,
    connectionTimeoutMillis: 10_000,
  });
  let endIsExpected = true;
  const expectEnd = (): void => {
    endIsExpected = true;
  };
  client.on('error', (error) => {
    if (!endIsExpected) onLost(error);
  });
  const close = (): Promise<void> => {
    expectEnd();
    return client.end();
  };
  try {
    await client.connect();
    if (!(await tryLock(client, 'pg_try_advisory_lock_shared', USERS))) {
      await close();
      return undefined;
    }
    if (role === 'service') await lockInstance(client);
  } catch (error) {
    await close();
    if (isGoing(error)) return undefined;
    throw error;
  }
  endIsExpected = false;
  return { client, close, expectEnd, becomeOnlyUser: () => tryLock(client, 'pg_try_advisory_lock', USERS) };
}

async function lockInstance(client: pg.Client): Promise<void> {
  const deadline = Date.now() + RELEASE_TIMEOUT_MS;
  while (!(await tryLock(client, 'pg_try_advisory_lock', INSTANCE))) {
    const holderPid = await instanceHolder(client);
    const mayEnd = holderPid === undefined || !(await processIsAlive(holderPid));
    if (!mayEnd || Date.now() > deadline) {
      const holder = holderPid === undefined ? 'another service' : `another service, process ${holderPid}`;
      throw new EmbeddedError(
        'embedded-in-use',
        `the embedded Postgres is in use by ${holder}. Stop it first, or set another EMBEDDED_DATA_DIR`,
        { holderPid },
      );
    }
    await sleep(10);
  }
}

async function tryLock(
  client: pg.Client,
  how: 'pg_try_advisory_lock' | 'pg_try_advisory_lock_shared',
  key: number,
): Promise<boolean> {
  const { rows } = await client.query<{ taken: boolean }>(`select ${how}($1) as taken`, [key]);
  return rows[0]?.taken === true;
}

async function instanceHolder(client: pg.Client): Promise<number | undefined> {
  const { rows } = await client.query<{ name: string }>(
    `select a.application_name as name
       from pg_locks l join pg_stat_activity a using (pid)
      where l.locktype = 'advisory' and l.granted and l.classid = 0 and l.objid = $1 and l.objsubid = 1
        and l.database = (select oid from pg_database where datname = current_database())`,
    [INSTANCE],
  );
  const pid = Number(rows[0]?.name.slice(SERVICE_NAME.length));
  return Number.isInteger(pid) && pid > 0 ? pid : undefined;
}

/** Shutting down, not accepting any more, or gone between our look and our call. */
function isGoing(error: unknown): boolean {
  const code = errorCode(error);
  if (code !== undefined)
    return ['57P01', '57P02', '57P03', 'ECONNREFUSED', 'ENOENT', 'ECONNRESET', 'EPIPE'].includes(code);
  return error instanceof Error && error.message.startsWith('Connection terminated');
}
