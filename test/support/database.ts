import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { inject } from 'vitest';
import { connectionConfig, parseDatabaseUrl } from '../../src/db/connection.js';
import { openPool, type Db } from '../../src/db/pool.js';
import { Secret } from '../../src/secret.js';
import { onDatabase } from './database-url.js';
// Also brings the declaration of what `inject` gives.
import type { TestServerInfo } from './global-setup.js';

/** A database of its own, with all migrations. One per test file is the habit; a clone takes some 50 ms. */
export interface TestDatabase {
  /** The service's login. */
  readonly serviceUrl: Secret;
  /** The administrator, who owns the tables. */
  readonly ownerUrl: Secret;
  /** A pool of the service's login. */
  readonly db: Db;
  readonly owner: pg.Pool;
  /** Closes both pools and drops the database. */
  drop(): Promise<void>;
}

/** Of the administrator's database: of all workers, one clones at a time, since a database that is being copied is locked. */
const CLONE_LOCK = 7_003_002;

/** Clones the migrated template. */
export function createDatabase(): Promise<TestDatabase> {
  const server = inject('testServer');
  return createFrom(server, server.template);
}

/** A database without anything in it, for tests of the migrations themselves. */
export function createEmptyDatabase(): Promise<TestDatabase> {
  return createFrom(inject('testServer'), 'template0');
}

async function createFrom(server: TestServerInfo, template: string): Promise<TestDatabase> {
  const name = `${server.prefix}_${randomBytes(6).toString('hex')}`;
  const adminUrl = new Secret(server.adminUrl);
  await administer(adminUrl, async (admin) => {
    await admin.query('select pg_advisory_lock($1)', [CLONE_LOCK]);
    await admin.query(`create database ${name} template ${template}`);
  });
  const serviceUrl = onDatabase(new Secret(server.serviceUrl), name);
  const ownerUrl = onDatabase(adminUrl, name);
  const db = openPool({ url: serviceUrl, size: 8, statementTimeoutMs: 15_000, lockTimeoutMs: 5_000 });
  const owner = new pg.Pool({ ...connectionConfig(parseDatabaseUrl(ownerUrl)), max: 4 });
  owner.on('error', () => {});
  return {
    serviceUrl,
    ownerUrl,
    db,
    owner,
    drop: async () => {
      await Promise.all([db.close(), owner.end()]);
      await administer(adminUrl, (admin) => admin.query(`drop database if exists ${name} with (force)`));
    },
  };
}

async function administer(url: Secret, work: (admin: pg.Client) => Promise<unknown>): Promise<void> {
  const admin = new pg.Client(connectionConfig(parseDatabaseUrl(url)));
  await admin.connect();
  try {
    await work(admin);
  } finally {
    await admin.end();
  }
}
