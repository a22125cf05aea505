import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { open, readFile, readlink, rename, link, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Binaries } from './binaries.js';
import { EmbeddedError, errorCode } from './error.js';
import type { Place } from './place.js';
import { processIsAlive, runToEnd, serverEnvironment } from './process.js';

/** A living server on our cluster, as its `postmaster.pid` describes it. */
export interface Postmaster {
  readonly pid: number;
  readonly status: 'starting' | 'ready' | 'stopping';
}

const POLL_MS = 5;

/** Recovery after a crash replays the log since the last checkpoint, which may take a while. */
const START_TIMEOUT_MS = 120_000;

/** A fast shutdown writes a checkpoint. */
const STOP_TIMEOUT_MS = 60_000;

/**
 * Command-line settings: they win over every file, so that a program of a newer version brings its own. Statements and the
 * values in error details are not logged, for they may hold secrets.
 */
function settings(place: Place): string[] {
  const values = {
    listen_addresses: '',
    unix_socket_directories: place.socket,
    unix_socket_permissions: '0700',
    max_connections: '100',
    max_wal_senders: '0',
    password_encryption: 'scram-sha-256',
    fsync: 'on',
    full_page_writes: 'on',
    synchronous_commit: 'on',
    jit: 'off',
    timezone: 'UTC',
    log_timezone: 'UTC',
    logging_collector: 'on',
    log_directory: place.log,
    log_filename: 'postgres-%a.log',
    log_file_mode: '0600',
    log_rotation_age: '1d',
    log_rotation_size: '0',
    log_truncate_on_rotation: 'on',
    log_error_verbosity: 'terse',
    log_min_error_statement: 'panic',
  };
  return Object.entries(values).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
}

/** Gives a server that is ready, started here unless one lives. `started` false: it was there. */
export async function ensurePostmaster(place: Place, binaries: Binaries): Promise<{ pid: number; started: boolean }> {
  const deadline = Date.now() + START_TIMEOUT_MS;
  let child: ChildProcess | undefined;
  while (Date.now() < deadline) {
    const found = await livingPostmaster(place);
    if (found?.status === 'ready') return { pid: found.pid, started: found.pid === child?.pid };
    const childRuns = child !== undefined && child.exitCode === null && child.signalCode === null;
    if (childRuns || found !== undefined) {
      await sleep(POLL_MS);
      continue;
    }
    if (child !== undefined) await demandAnotherTry(place);
    child = await spawnPostmaster(place, binaries);
  }
  throw new EmbeddedError(
    'embedded-start-failed',
    `the embedded Postgres was not ready in ${START_TIMEOUT_MS / 1_000} s`,
  );
}

async function spawnPostmaster(place: Place, binaries: Binaries): Promise<ChildProcess> {
  const output = await open(place.startLog, 'w', 0o600);
  try {
    // Detached: it must survive us, and the terminal's Ctrl-C is not meant for it.
    const child = spawn(binaries.postgres, ['-D', place.cluster, '-p', '5432', ...settings(place)], {
      cwd: place.cluster,
      env: serverEnvironment,
      detached: true,
      stdio: ['ignore', output.fd, output.fd],
      ...place.account,
    });
    await once(child, 'spawn');
    child.unref();
    return child;
  } catch (cause) {
    throw new EmbeddedError('embedded-start-failed', 'the embedded Postgres could not be executed', { cause });
  } finally {
    await output.close();
  }
}

/**
 * A server that ended at once may have lost a race: another process started one, or the children of one that was killed
 * are still ending. Then it is tried again; everything else is told.
 */
async function demandAnotherTry(place: Place): Promise<void> {
  const output = await readFile(place.startLog, 'utf8').catch(() => '');
  if (!/lock file|shared memory block|already exists|is in use/i.test(output)) {
    throw new EmbeddedError('embedded-start-failed', `the embedded Postgres ended at once:\n${output.slice(-2_000)}`);
  }
  await sleep(50);
}

/** The server that runs on our cluster, if any. A `postmaster.pid` that a crash left behind is removed. */
export async function livingPostmaster(place: Pick<Place, 'cluster'>): Promise<Postmaster | undefined> {
  const path = join(place.cluster, 'postmaster.pid');
  const text = await readFile(path, 'utf8').catch((error: unknown) => {
    if (errorCode(error) === 'ENOENT') return '';
    throw new EmbeddedError('embedded-unreachable', `${path} can't be read by this user`, { cause: error });
  });
  const lines = text.split('\n');
  const pid = Number.parseInt(lines[0] ?? '', 10);
  if (!(pid > 0)) return undefined;
  if (!(await processIsAlive(pid))) return undefined;
  if (!(await worksOn(pid, place.cluster))) {
    await removeStale(path, text);
    return undefined;
  }
  return { pid, status: statusOf(lines[7]) };
}

function statusOf(line: string | undefined): Postmaster['status'] {
  const word = line?.trim();
  return word === 'ready' ? 'ready' : word === 'stopping' ? 'stopping' : 'starting';
}

/**
 * Whether the process is a server on our cluster: it stands in that directory. After a reboot another process may have its
 * id, which Postgres itself can't tell apart and would refuse to start over.
 */
async function worksOn(pid: number, cluster: string): Promise<boolean> {
  if (process.platform !== 'linux') return isPostgres(pid);
  try {
    return (await readlink(`/proc/${pid}/cwd`)) === cluster;
  } catch (error) {
    return errorCode(error) !== 'ENOENT';
  }
}

/** The best that can be told without `/proc`. */
async function isPostgres(pid: number): Promise<boolean> {
  const { output } = await runToEnd('/bin/ps', ['-p', String(pid), '-o', 'comm='], {
    directory: '/',
    account: undefined,
  });
  return output.includes('postgres');
}

/** Takes the file away only if it is still the stale one: a server that has just started wrote another. */
async function removeStale(path: string, text: string): Promise<void> {
  const aside = `${path}.stale-${process.pid}`;
  try {
    await rename(path, aside);
    if ((await readFile(aside, 'utf8')) !== text) await link(aside, path);
    await rm(aside);
  } catch (error) {
    if (errorCode(error) !== 'ENOENT' && errorCode(error) !== 'EEXIST') throw error;
  }
}

/** Fast shutdown: open transactions are rolled back, a checkpoint is written. Resolves when the process has ended. */
export async function stopPostmaster(place: Place): Promise<void> {
  const running = await livingPostmaster(place);
  if (running === undefined) return;
  askToStop(running.pid);
  const deadline = Date.now() + STOP_TIMEOUT_MS;
  while (await processIsAlive(running.pid)) {
    if (Date.now() > deadline) {
      throw new EmbeddedError('embedded-stop-failed', `the embedded Postgres (pid ${running.pid}) does not stop`);
    }
    await sleep(POLL_MS);
  }
}

function askToStop(pid: number): void {
  try {
    process.kill(pid, 'SIGINT');
  } catch (error) {
    // It has ended since we looked.
    if (errorCode(error) !== 'ESRCH') throw error;
  }
}
