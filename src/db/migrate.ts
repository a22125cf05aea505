import pg from 'pg';
import type { Clock } from '../clock.js';
import type { Secret } from '../secret.js';
import { connectionConfig, parseDatabaseUrl } from './connection.js';
import { MigrationError } from './migration-error.js';
import { readMigrations, type MigrationFile } from './migration-files.js';
import { canUseSchema, isSeparated, prepareRoles } from './roles.js';

export { MigrationError, type MigrationErrorCode } from './migration-error.js';

export interface MigrateOptions {
  /** The login that owns the tables. */
  readonly ownerUrl: Secret;
  /** The login of the service. Absent, or the owner's own: separation is reduced. */
  readonly serviceUrl?: Secret | undefined;
  /** Of the numbered SQL files. */
  readonly directory: string;
  readonly clock: Clock;
  /** For the advisory lock and for every table lock that a migration needs; 10,000 by default. */
  readonly lockTimeoutMs?: number;
}

export interface MigrateResult {
  /** Numbers of the files that were applied now, ascending. */
  readonly applied: number[];
  /**
   * `full`: the service's login is a member of `fleet_cutover_service` and is not the owner, so what is immutable is
   * revoked from it. `reduced`: only the triggers refuse such changes; readiness says so.
   */
  readonly separation: 'full' | 'reduced';
}

/** Advisory locks are per database, so all migrators of one database, and nobody else, meet at this number. */
const MIGRATION_LOCK = 7_003_001;

/** A migration that waits for a table lock makes everybody else wait behind it, so it gives up. */
const LOCK_TIMEOUT_MS = 10_000;

/**
 * Brings a database to this program's schema: all pending files in one transaction, under an advisory lock. Files are
 * forward only; grants in them are guarded by `if exists (select from pg_roles …)`, and the roles are made before.
 *
 * Throws {@link MigrationError}: `database-newer` (the database has migrations that this program does not know),
 * `migration-edited`, `migration-gap`, `migration-name`, `migration-locked`, `migration-failed`, `grants-missing`.
 */
export async function migrate(options: MigrateOptions): Promise<MigrateResult> {
  const files = await readMigrations(options.directory);
  const address = parseDatabaseUrl(options.ownerUrl);
  const login = options.serviceUrl && parseDatabaseUrl(options.serviceUrl).user;
  const serviceLogin = login === address.user ? undefined : login;
  const owner = new pg.Client({ ...connectionConfig(address), application_name: 'fleet-cutover migrate' });
  // The statement that is under way fails with the connection; nobody has to hear of it twice.
  owner.on('error', () => {});
  await owner.connect();
  try {
    await prepareRoles(owner, serviceLogin);
    const applied = await applyPending(owner, files, serviceLogin, options);
    const separated = serviceLogin !== undefined && (await isSeparated(owner, serviceLogin));
    return { applied, separation: separated ? 'full' : 'reduced' };
  } finally {
    await owner.end();
  }
}

async function applyPending(
  owner: pg.Client,
  files: readonly MigrationFile[],
  serviceLogin: string | undefined,
  options: MigrateOptions,
): Promise<number[]> {
  await owner.query('begin isolation level read committed');
  try {
    await takeLock(owner, options.lockTimeoutMs ?? LOCK_TIMEOUT_MS);
    await ensureTable(owner);
    const pending = pendingFiles(files, await readApplied(owner));
    for (const file of pending) await applyFile(owner, file, options.clock);
    if (files.length > 0 && serviceLogin !== undefined) await demandGrants(owner, serviceLogin);
    await owner.query('commit');
    return pending.map((file) => file.number);
  } catch (error) {
    // A lost connection has rolled back by itself; the error to tell is the first one.
    await owner.query('rollback').catch(() => {});
    throw error;
  }
}

async function takeLock(owner: pg.Client, timeoutMs: number): Promise<void> {
  await owner.query(`set local lock_timeout = ${timeoutMs}; set local statement_timeout = 0`);
  try {
    await owner.query('select pg_advisory_xact_lock($1)', [MIGRATION_LOCK]);
  } catch (error) {
    if (!(error instanceof pg.DatabaseError) || error.code !== '55P03') throw error;
    throw new MigrationError('migration-locked', `another migration is under way for more than ${timeoutMs} ms`, error);
  }
}

async function ensureTable(owner: pg.Client): Promise<void> {
  // Looked up first: `create schema if not exists` demands the right to make schemas even where there is nothing to make.
  const { rows } = await owner.query<{ present: boolean }>(
    `select to_regclass('control.migrations') is not null as present`,
  );
  if (rows[0]?.present === true) return;
  await owner.query(`
    create schema if not exists control;
    create table control.migrations (
      number integer constraint migrations_key primary key constraint migrations_number check (number > 0),
      name text collate "C" not null,
      sha256 text collate "C" not null constraint migrations_sha256 check (sha256 ~ '^[0-9a-f]{64}$'),
      applied_at timestamptz not null
    )`);
}

interface AppliedRow {
  readonly number: number;
  readonly name: string;
  readonly sha256: string;
}

async function readApplied(owner: pg.Client): Promise<AppliedRow[]> {
  const { rows } = await owner.query<AppliedRow>('select number, name, sha256 from control.migrations order by number');
  return rows;
}

/** What is still to be applied, if all that was applied is what the files say. */
function pendingFiles(files: readonly MigrationFile[], applied: readonly AppliedRow[]): readonly MigrationFile[] {
  const newest = applied.at(-1);
  if (newest !== undefined && newest.number > files.length) {
    throw new MigrationError(
      'database-newer',
      `the database has migration ${newest.name}, this program knows ${files.length}: start a newer version of the program`,
    );
  }
  applied.forEach((row, index) => {
    if (row.number !== index + 1) {
      throw new MigrationError('migration-gap', `the database lacks migration ${index + 1}, though it has ${row.name}`);
    }
    const file = files[index];
    if (file?.sha256 === row.sha256) return;
    throw new MigrationError(
      'migration-edited',
      `migration ${row.name} was changed after it was applied. Restore the file and write the change as a new migration`,
    );
  });
  return files.slice(applied.length);
}

/** At the beginning of a line; `begin` and `end` of a function's body are not followed by a semicolon, or are not listed. */
const TRANSACTION_CONTROL = /^\s*(?:begin|start|commit|rollback|abort)(?:\s+(?:work|transaction))?\s*;/im;

async function applyFile(owner: pg.Client, file: MigrationFile, clock: Clock): Promise<void> {
  try {
    if (TRANSACTION_CONTROL.test(file.sql)) throw new Error('the file controls the transaction that it runs in');
    const before = await transactionId(owner);
    await owner.query('set local search_path = control, pg_catalog');
    await owner.query(file.sql);
    if ((await transactionId(owner)) !== before) throw new Error('the file ends the transaction that it runs in');
    await owner.query('insert into control.migrations (number, name, sha256, applied_at) values ($1, $2, $3, $4)', [
      file.number,
      file.name,
      file.sha256,
      clock.now().toISOString(),
    ]);
  } catch (error) {
    const place = error instanceof pg.DatabaseError ? lineOf(file.sql, error.position) : '';
    const reason = error instanceof Error ? error.message : String(error);
    throw new MigrationError('migration-failed', `migration ${file.name}${place} failed: ${reason}`, error);
  }
}

async function transactionId(owner: pg.Client): Promise<string | undefined> {
  const { rows } = await owner.query<{ id: string }>('select pg_catalog.pg_current_xact_id()::text as id');
  return rows[0]?.id;
}

function lineOf(sql: string, position: string | undefined): string {
  return position === undefined ? '' : `, line ${sql.slice(0, Number(position)).split('\n').length},`;
}

/**
 * Grants are written for the group roles and skipped where those are missing. A service that logs in as somebody else
 * than the owner would then be refused by every table, so it is better told now.
 */
async function demandGrants(owner: pg.Client, serviceLogin: string): Promise<void> {
  if (await canUseSchema(owner, serviceLogin)) return;
  throw new MigrationError(
    'grants-missing',
    `the service's login "${serviceLogin}" may not use the schema control. Before the first migration let a superuser run: ` +
      'create role fleet_cutover_service; create role fleet_cutover_operator; ' +
      `grant fleet_cutover_service to "${serviceLogin}"; or give the service the owner's login`,
  );
}
