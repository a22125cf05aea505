import { randomBytes } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import type { TestProject } from 'vitest/node';
import { systemClock } from '../../src/clock.js';
import { connectionConfig, parseDatabaseUrl } from '../../src/db/connection.js';
import { migrate } from '../../src/db/migrate.js';
import { onDatabase, onLogin } from './database-url.js';
import { openTestServer, type TestServer } from './test-server.js';

/** What the workers need to clone the template; strings only, as it is sent to other processes. */
export interface TestServerInfo {
  /** The administrator, on a database that always exists. */
  readonly adminUrl: string;
  /** The service's login, on the template. */
  readonly serviceUrl: string;
  readonly template: string;
  /** Every database of this run begins with it. */
  readonly prefix: string;
}

declare module 'vitest' {
  interface ProvidedContext {
    testServer: TestServerInfo;
  }
}

const MIGRATIONS = join(import.meta.dirname, '..', '..', 'migrations');

/** Starts or finds the server, migrates the template, and gives the function that leaves nothing behind. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const started = performance.now();
  const prefix = `fleet_cutover_test_${randomBytes(4).toString('hex')}`;
  const server = await openTestServer();
  const finish = cleanAtEnd(server, prefix);
  try {
    project.provide('testServer', await prepare(server, prefix));
    console.log(`test databases: ${server.description} (${Math.round(performance.now() - started)} ms)`);
  } catch (error) {
    await finish();
    throw error;
  }
  return finish;
}

/**
 * A signal ends Vitest without the teardown, and at once, so what can be done then is done without waiting. What is left,
 * the next run removes.
 */
function cleanAtEnd(server: TestServer, prefix: string): () => Promise<void> {
  const onSignal = (signal: NodeJS.Signals): void => {
    server.stopNow();
    process.kill(process.pid, signal);
  };
  process.once('SIGINT', onSignal);
  process.once('SIGTERM', onSignal);
  return async () => {
    await clean(server, prefix);
    process.removeListener('SIGINT', onSignal);
    process.removeListener('SIGTERM', onSignal);
  };
}

async function prepare(server: TestServer, prefix: string): Promise<TestServerInfo> {
  const template = `${prefix}_template`;
  const password = randomBytes(16).toString('hex');
  const serviceUrl = onLogin(onDatabase(server.adminUrl, template), prefix, password);
  await administer(server, async (admin) => {
    await admin.query(`create role ${prefix} login password '${password}'`);
    await admin.query(`create database ${template} template template0`);
  });
  if (await hasMigrations()) {
    const ownerUrl = onDatabase(server.adminUrl, template);
    await migrate({ ownerUrl, serviceUrl, directory: MIGRATIONS, clock: systemClock });
  }
  // Only an unused database can be cloned.
  await administer(server, (admin) => admin.query(`alter database ${template} allow_connections false`));
  return { adminUrl: server.adminUrl.reveal(), serviceUrl: serviceUrl.reveal(), template, prefix };
}

async function hasMigrations(): Promise<boolean> {
  const names = await readdir(MIGRATIONS).catch(() => []);
  return names.some((name) => name.endsWith('.sql'));
}

/** Drops what this run has made, on a server that goes on living; a server of its own is stopped. */
async function clean(server: TestServer, prefix: string): Promise<void> {
  try {
    await administer(server, (admin) => dropAll(admin, prefix));
  } finally {
    await server.stop();
  }
}

async function dropAll(admin: pg.Client, prefix: string): Promise<void> {
  const { rows } = await admin.query<{ name: string }>(
    'select datname as name from pg_database where starts_with(datname, $1)',
    [prefix],
  );
  for (const { name } of rows) await admin.query(`drop database ${name} with (force)`);
  await admin.query(`drop role if exists ${prefix}`);
}

async function administer(server: TestServer, work: (admin: pg.Client) => Promise<unknown>): Promise<void> {
  const admin = new pg.Client(connectionConfig(parseDatabaseUrl(server.adminUrl)));
  await admin.connect();
  try {
    await work(admin);
  } finally {
    await admin.end();
  }
}
