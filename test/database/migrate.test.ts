import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { migrate, type MigrateResult } from '../../src/db/migrate.js';
import type { Secret } from '../../src/secret.js';
import { onLogin } from '../support/database-url.js';
import { createEmptyDatabase, type TestDatabase } from '../support/database.js';

const AT = new Date('2026-01-02T03:04:05.678Z');
const clock = { now: () => AT };

const FIRST = `
create table control.first (n bigint);
do $$ begin
  if exists (select from pg_roles where rolname = 'fleet_cutover_service') then
    grant usage on schema control to fleet_cutover_service;
    grant select on control.first to fleet_cutover_service;
  end if;
end $$;`;

let database: TestDatabase;
let directory: string;

beforeEach(async () => {
  database = await createEmptyDatabase();
  directory = await mkdtemp(join(tmpdir(), 'fleet-cutover-migrations-'));
  await put('001_first.sql', FIRST);
});

afterEach(async () => {
  await database.drop();
  await rm(directory, { recursive: true });
});

function put(name: string, sql: string): Promise<void> {
  return writeFile(join(directory, name), sql);
}

function run(
  urls: { ownerUrl: Secret; serviceUrl?: Secret } = database,
  lockTimeoutMs = 10_000,
): Promise<MigrateResult> {
  return migrate({ ownerUrl: urls.ownerUrl, serviceUrl: urls.serviceUrl, directory, clock, lockTimeoutMs });
}

async function migrations(): Promise<unknown[]> {
  const { rows } = await database.owner.query(
    'select number, name, applied_at from control.migrations order by number',
  );
  return rows;
}

async function tables(): Promise<string[]> {
  const { rows } = await database.owner.query<{ name: string }>(
    `select tablename as name from pg_tables where schemaname = 'control' order by 1`,
  );
  return rows.map((row) => row.name);
}

describe('applying', () => {
  it('applies what is pending, in order, and records it with the given time', async () => {
    await put('002_second.sql', 'create table second (n bigint); insert into first values (1);');
    await put('README.md', 'not a migration');
    expect((await run()).applied).toEqual([1, 2]);
    expect(await migrations()).toEqual([
      { number: 1, name: '001_first', applied_at: AT },
      { number: 2, name: '002_second', applied_at: AT },
    ]);
    await put('003_third.sql', 'alter table first add column more text');
    expect((await run()).applied).toEqual([3]);
    expect((await run()).applied).toEqual([]);
  });

  it('applies all or nothing', async () => {
    await put('002_second.sql', 'create table second (n bigint);');
    await put('003_broken.sql', '-- a comment\nselect 1;\nselect absent from second;');
    await expect(run()).rejects.toMatchObject({
      code: 'migration-failed',
      message: expect.stringMatching(/003_broken, line 3, failed: column "absent" does not exist/),
    });
    expect(await tables()).toEqual([]);
  });

  it('lets one of several at once do it, and the others find it done', async () => {
    const results = await Promise.all([run(), run(), run(), run()]);
    expect(results.map((result) => result.applied.length).sort()).toEqual([0, 0, 0, 1]);
  });

  it('refuses a file that would end the transaction', async () => {
    await put('002_second.sql', 'create table second (n bigint);\ncommit;');
    await expect(run()).rejects.toMatchObject({ code: 'migration-failed' });
    expect(await tables()).toEqual([]);
  });

  it('knows a file again whose line ends a checkout has changed', async () => {
    await run();
    await put('001_first.sql', FIRST.replaceAll('\n', '\r\n'));
    expect((await run()).applied).toEqual([]);
  });
});

describe('refusing', () => {
  it.each([
    ['an edited file', 'migration-edited', () => put('001_first.sql', `${FIRST} `)],
    ['a jump in the numbers', 'migration-gap', () => put('003_third.sql', 'select 1')],
    ['two files of one number', 'migration-gap', () => put('001_other.sql', 'select 1')],
    ['another kind of name', 'migration-name', () => put('second.sql', 'select 1')],
    ['a database newer than the program', 'database-newer', () => rm(join(directory, '001_first.sql'))],
  ])('%s', async (_what, code, change) => {
    await run();
    await change();
    await expect(run()).rejects.toMatchObject({ code });
    expect(await migrations()).toHaveLength(1);
  });

  it('says database-newer before anything else about its rows', async () => {
    await put('002_second.sql', 'select 2');
    await run();
    await rm(join(directory, '002_second.sql'));
    await put('001_first.sql', 'select 1');
    await expect(run()).rejects.toMatchObject({ code: 'database-newer' });
  });

  it('waits for another migration no longer than the lock timeout', async () => {
    const other = await database.owner.connect();
    await other.query('begin; select pg_advisory_xact_lock(7003001)');
    await expect(run(database, 200)).rejects.toMatchObject({ code: 'migration-locked' });
    await other.query('rollback');
    other.release();
    expect((await run()).applied).toEqual([1]);
  });
});

describe('separation', () => {
  it('is full where the service logs in as another than the owner', async () => {
    expect((await run()).separation).toBe('full');
    expect((await database.db.pool.query('select * from first')).rows).toEqual([]);
    await expect(database.db.pool.query('insert into first values (1)')).rejects.toMatchObject({ code: '42501' });
  });

  it('is reduced where one login does it all', async () => {
    expect((await run({ ownerUrl: database.ownerUrl })).separation).toBe('reduced');
    expect((await run({ ownerUrl: database.ownerUrl, serviceUrl: database.ownerUrl })).separation).toBe('reduced');
  });

  it('says so when the service could not use the tables', async () => {
    await put('001_first.sql', 'create table control.first (n bigint)');
    await expect(run()).rejects.toMatchObject({ code: 'grants-missing' });
    expect(await tables()).toEqual([]);
  });

  it('works for an owner that may neither make roles nor schemas of other databases', async () => {
    const login = `fleet_cutover_test_${randomBytes(4).toString('hex')}`;
    const { rows } = await database.owner.query<{ name: string }>('select current_database() as name');
    await database.owner.query(`create role ${login} login password 'owner'`);
    await database.owner.query(`grant create on database ${rows[0]?.name} to ${login}`);
    try {
      const ownerUrl = onLogin(database.ownerUrl, login, 'owner');
      // Here the group roles exist, and the service's login is a member of its own already.
      await run({ ownerUrl: database.ownerUrl });
      await database.owner.query('drop schema control cascade');
      expect(await run({ ownerUrl })).toEqual({ applied: [1], separation: 'reduced' });
      await database.owner.query('drop schema control cascade');
      const stranger = onLogin(database.serviceUrl, 'no_such_login', 'x');
      await expect(run({ ownerUrl, serviceUrl: stranger })).rejects.toMatchObject({ code: 'grants-missing' });
    } finally {
      await database.owner.query(`drop owned by ${login}`);
      await database.owner.query(`drop role ${login}`);
    }
  });
});
