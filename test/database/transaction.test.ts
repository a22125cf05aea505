import { sql, type CompiledQuery } from 'kysely';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { openPool, UnsafeIntegerError, type Db } from '../../src/db/pool.js';
import { qb } from '../../src/db/query.js';
import { MAXIMUM_NAMED, statementName } from '../../src/db/statement.js';
import {
  CardinalityError,
  CommitUnknownError,
  TransactionContendedError,
  TransactionLostError,
  inTransaction,
  query,
  read,
  type TransactionDeps,
  type TransactionOutcome,
} from '../../src/db/transaction.js';
import { openCuttingProxy, type CuttingProxy } from '../support/cutting-proxy.js';
import { createEmptyDatabase, type TestDatabase } from '../support/database.js';

let database: TestDatabase;
let deps: TransactionDeps;
let unhandled: unknown[];
const collect = (reason: unknown): void => void unhandled.push(reason);

beforeAll(async () => {
  database = await createEmptyDatabase();
  deps = { db: database.db };
  await database.owner.query(`
    create schema control;
    create table control.probe (id integer constraint probe_key primary key, n bigint not null default 0);
    create table control.probe_child (
      id integer constraint probe_child_parent references control.probe deferrable initially deferred);
    create table control.probe_audit (id integer constraint audit_row_mutation primary key);
    grant all on control.probe, control.probe_child, control.probe_audit to public;
    grant usage on schema control to public;`);
});

afterAll(() => database.drop());

beforeEach(async () => {
  await database.owner.query('truncate control.probe, control.probe_child, control.probe_audit');
  unhandled = [];
  process.on('unhandledRejection', collect);
});

afterEach(async () => {
  await new Promise((resolve) => setImmediate(resolve));
  process.removeListener('unhandledRejection', collect);
  expect(unhandled).toEqual([]);
  await database.db.pool.query('select 1');
  // A backend notices the end of its connection a moment later.
  await expect.poll(openTransactions).toBe(0);
});

async function openTransactions(): Promise<number> {
  const { rows } = await database.owner.query<{ n: number }>(
    `select count(*)::int as n from pg_stat_activity
      where datname = current_database() and state like 'idle in transaction%'`,
  );
  return rows[0]?.n ?? 0;
}

function build<R = unknown>(strings: TemplateStringsArray, ...values: unknown[]): CompiledQuery<R> {
  return sql<R>(strings, ...values).compile(qb);
}

const insert = (id: number, n = 0): CompiledQuery<{ id: number }> =>
  build<{ id: number }>`insert into probe (id, n) values (${id}, ${n}) returning id`;

async function ids(): Promise<number[]> {
  const { rows } = await database.owner.query<{ id: number }>('select id from control.probe order by id');
  return rows.map((row) => row.id);
}

describe('committing', () => {
  it('runs unawaited statements in the order of the calls and commits them', async () => {
    const result = await inTransaction(deps, 'order', async (tx) => {
      const first = tx.run(insert(1));
      const second = tx.run(build`update probe set n = n + 1`);
      const third = tx.one<{ n: number }>(build`select n from probe`);
      return [await third, await second, await first];
    });
    expect(result).toEqual([{ n: 1 }, 1, 1]);
    expect(await ids()).toEqual([1]);
  });

  it('gives the rows of the statement that COMMIT travels with', async () => {
    const rows = await inTransaction(deps, 'last', async (tx) => {
      void tx.run(insert(1));
      return tx.commitWith(insert(2));
    });
    expect(rows).toEqual([{ id: 2 }]);
    expect(await ids()).toEqual([1, 2]);
  });

  it('waits for a commit that the work did not wait for', async () => {
    await inTransaction(deps, 'floating', async (tx) => void tx.commitWith(insert(1)));
    expect(await ids()).toEqual([1]);
  });

  it('sends nothing for a work without statements', async () => {
    const { pool } = database.db;
    const client = await pool.connect();
    const before = client.getTransactionStatus();
    client.release();
    expect(await inTransaction(deps, 'nothing', async () => 'value')).toBe('value');
    expect(before).toBe('I');
  });

  it('accepts no statement after the end', async () => {
    let leaked: Parameters<Parameters<typeof inTransaction>[2]>[0] | undefined;
    await inTransaction(deps, 'leak', async (tx) => {
      leaked = tx;
      await tx.commitWith(insert(1));
      await expect(tx.rows(insert(2))).rejects.toThrow('the transaction has ended');
      await expect(tx.commitWith(insert(2))).rejects.toThrow('the transaction has ended');
    });
    await expect(leaked?.rows(insert(3))).rejects.toThrow('the transaction has ended');
    expect(await ids()).toEqual([1]);
  });

  it('lets many at once share the pool', async () => {
    await Promise.all(Array.from({ length: 60 }, (_, id) => inTransaction(deps, 'many', (tx) => tx.run(insert(id)))));
    expect(await ids()).toHaveLength(60);
  });
});

describe('refusing', () => {
  const refused = { kind: 'refused', problem: { code: 'test' } } as const;

  it('rolls back and passes the refusal on', async () => {
    const value = await inTransaction(deps, 'refuse', async (tx) => {
      void tx.run(insert(1));
      return refused;
    });
    expect(value).toBe(refused);
    expect(await ids()).toEqual([]);
  });

  it('passes on a refusal that the rows of the last statement led to', async () => {
    const value = await inTransaction(deps, 'stale', async (tx) => {
      const rows = await tx.commitWith(build`update probe set n = 1 where id = 99 returning id`);
      return rows.length === 0 ? refused : 'swapped';
    });
    expect(value).toBe(refused);
  });

  it('may be made of an expected violation', async () => {
    await inTransaction(deps, 'first', (tx) => tx.run(insert(1)));
    const value = await inTransaction(deps, 'second', async (tx) => {
      try {
        return await tx.run(insert(1));
      } catch (error) {
        expect(error).toMatchObject({ code: '23505', constraint: 'probe_key' });
        return refused;
      }
    });
    expect(value).toBe(refused);
  });
});

describe('failing', () => {
  it('gives the first error to all that follow, and applies nothing', async () => {
    const work = inTransaction(deps, 'first error', async (tx) => {
      void tx.run(insert(1));
      const failing = tx.run(build`select 1 / 0`);
      const following = tx.run(insert(2));
      const results = await Promise.allSettled([failing, following, tx.run(insert(3))]);
      return results.map((result) => (result as PromiseRejectedResult).reason.code);
    });
    await expect(work).rejects.toMatchObject({ code: '22012' });
    expect(await ids()).toEqual([]);
  });

  it('does not commit when an unawaited statement failed', async () => {
    const work = inTransaction(deps, 'unawaited', async (tx) => {
      void tx.run(insert(1));
      void tx.run(build`select 1 / 0`);
      return 'looks fine';
    });
    await expect(work).rejects.toMatchObject({ code: '22012' });
    expect(await ids()).toEqual([]);
  });

  it('does not commit when the work swallowed an error', async () => {
    const work = inTransaction(deps, 'swallowed', async (tx) => {
      await tx.run(build`select 1 / 0`).catch(() => 0);
      return 'looks fine';
    });
    await expect(work).rejects.toMatchObject({ code: '22012' });
  });

  it('takes the tag ROLLBACK for what it is', async () => {
    const work = inTransaction(deps, 'tag', async (tx) => {
      void tx.run(build`select 1 / 0`);
      return tx.commitWith(insert(1));
    });
    await expect(work).rejects.toMatchObject({ code: '22012' });
    const swallowed = inTransaction(deps, 'tag', async (tx) => {
      await tx.commitWith(build`select 1 / 0`).catch(() => []);
      return 'looks fine';
    });
    await expect(swallowed).rejects.toMatchObject({ code: '22012' });
    expect(await ids()).toEqual([]);
  });

  it('reports what only COMMIT finds', async () => {
    const child = build`insert into probe_child values (77)`;
    const late = inTransaction(deps, 'deferred', (tx) => tx.run(child));
    await expect(late).rejects.toMatchObject({ constraint: 'probe_child_parent' });
    const withLast = inTransaction(deps, 'deferred', (tx) => tx.commitWith(child));
    await expect(withLast).rejects.toMatchObject({ constraint: 'probe_child_parent' });
    expect((await database.owner.query('select from control.probe_child')).rowCount).toBe(0);
  });

  it('rolls back when the work throws, with statements still under way', async () => {
    const work = inTransaction(deps, 'throws', async (tx) => {
      void tx.run(insert(1));
      void tx.run(build`select pg_sleep(0.05)`);
      throw new Error('domain');
    });
    await expect(work).rejects.toThrow('domain');
    expect(await ids()).toEqual([]);
  });

  it('demands the number of rows that was relied on, awaited or not', async () => {
    await inTransaction(deps, 'rows', async (tx) => {
      void tx.run(insert(1));
      expect(await tx.maybe(build`select id from probe where id = 9`)).toBeUndefined();
      expect(await tx.maybe(build`select id from probe where id = 1`)).toEqual({ id: 1 });
    });
    const none = inTransaction(deps, 'none', async (tx) => {
      void tx.run(insert(2));
      void tx.one(build`select id from probe where id = 9`);
    });
    await expect(none).rejects.toThrow(CardinalityError);
    const two = inTransaction(deps, 'two', async (tx) => {
      void tx.run(insert(3));
      await tx.maybe(build`select id from probe`);
    });
    await expect(two).rejects.toThrow('two:2: expected at most one, got 2 rows');
    expect(await ids()).toEqual([1]);
  });

  it.each([
    ['undefined', undefined],
    ['NaN', Number.NaN],
    ['an instance of a class', new Map()],
    ['an invalid date', new Date('nonsense')],
    ['a bigint inside of JSON', { n: 1n }],
  ])('refuses the parameter: %s', async (_what, value) => {
    const work = inTransaction(deps, 'parameter', async (tx) => {
      void tx.run(insert(1));
      return tx.commitWith(build`select ${value}`);
    });
    await expect(work).rejects.toThrow("parameter $1 can't be sent");
    expect(await ids()).toEqual([]);
  });

  it('carries bytes, moments, arrays, JSON and large integers', async () => {
    const at = new Date('2026-01-02T03:04:05.678Z');
    const row = await read(deps, 'values', (tx) =>
      tx.one(build`select ${new Uint8Array([0, 255])}::bytea as bytes, ${at}::timestamptz as at,
        ${['a"', '\\b', null]}::text[] as texts, ${[new Uint8Array([1])]}::bytea[] as blobs, ${{ a: [1] }}::jsonb as json,
        ${2n ** 63n - 1n}::text as big, ${[1, 2]}::int8[] as numbers, date '2026-01-02' as day`),
    );
    expect(row).toEqual({
      bytes: Buffer.from([0, 255]),
      at,
      texts: ['a"', '\\b', null],
      blobs: [Buffer.from([1])],
      json: { a: [1] },
      big: '9223372036854775807',
      numbers: [1, 2],
      day: '2026-01-02',
    });
  });

  it('refuses an int8 that a number would round', async () => {
    const unsafe = build`select 9007199254740993::int8 as n`;
    await expect(query(database.db, unsafe)).rejects.toThrow(UnsafeIntegerError);
    const work = inTransaction(deps, 'unsafe', async (tx) => {
      void tx.run(insert(1));
      await tx.rows(unsafe);
    });
    await expect(work).rejects.toThrow(UnsafeIntegerError);
    expect(await ids()).toEqual([]);
  });

  it('says that it is committed when only the answer can’t be read', async () => {
    const work = inTransaction(deps, 'unreadable', async (tx) => {
      void tx.run(insert(1));
      return tx.commitWith(build`select 9007199254740993::int8 as n`);
    });
    await expect(work).rejects.toMatchObject({ name: 'CommitUnknownError', outcome: 'committed' });
    const after = inTransaction(deps, 'after', async (tx) => {
      await tx.commitWith(insert(2));
      throw new Error('too late');
    });
    await expect(after).rejects.toMatchObject({ name: 'CommitUnknownError', outcome: 'committed' });
    expect(await ids()).toEqual([1, 2]);
  });
});

describe('retrying', () => {
  it('resolves a deadlock', async () => {
    await inTransaction(deps, 'seed', (tx) => tx.run(build`insert into probe values (1), (2)`));
    const bump = (id: number): CompiledQuery => build`update probe set n = n + 1 where id = ${id}`;
    let attempts = 0;
    let met = 0;
    let release: () => void = () => {};
    const bothHold = new Promise<void>((resolve) => (release = resolve));
    const move = (from: number, to: number): Promise<number> =>
      inTransaction(deps, 'deadlock', async (tx) => {
        attempts += 1;
        await tx.run(bump(from));
        if (++met === 2) release();
        await bothHold;
        return tx.run(bump(to));
      });
    await Promise.all([move(1, 2), move(2, 1)]);
    expect(attempts).toBeGreaterThan(2);
    expect((await database.owner.query('select n::int from control.probe')).rows).toEqual([{ n: 2 }, { n: 2 }]);
  });

  it('repeats after another recorded the same mutation, and only then', async () => {
    await database.owner.query('insert into control.probe_audit values (1)');
    let attempts = 0;
    const value = await inTransaction(deps, 'audit', async (tx) => {
      attempts += 1;
      if (attempts > 1) return 'replayed';
      return tx.commitWith(build`insert into probe_audit values (1)`);
    });
    expect([value, attempts]).toEqual(['replayed', 2]);
  });

  it('gives up after five repetitions', async () => {
    let attempts = 0;
    const work = inTransaction(deps, 'contended', async (tx) => {
      attempts += 1;
      void tx.run(insert(1));
      // Unawaited, and the work says something else: what decides about the repetition still counts.
      void tx.run(build`do $$ begin raise exception using errcode = '40001'; end $$`);
      throw new Error('misled');
    });
    await expect(work).rejects.toThrow(TransactionContendedError);
    expect(attempts).toBe(6);
    expect(await ids()).toEqual([]);
  });

  it('prepares a statement anew that a migration has outdated', async () => {
    const single = openPool({ url: database.serviceUrl, size: 1, statementTimeoutMs: 5_000, lockTimeoutMs: 5_000 });
    const all = build`select * from probe`;
    for (let i = 0; i < 3; i += 1) await inTransaction({ db: single }, 'plan', (tx) => tx.rows(all));
    expect(statementName(all.sql)).toBeDefined();
    await database.owner.query('alter table control.probe add column more text');
    expect(await inTransaction({ db: single }, 'plan', (tx) => tx.rows(all))).toEqual([]);
    await database.owner.query('alter table control.probe drop column more');
    await single.close();
  });
});

describe('losing the connection', () => {
  let proxy: CuttingProxy;
  let db: Db;

  beforeEach(async () => {
    proxy = await openCuttingProxy(database.serviceUrl);
    db = openPool({ url: proxy.url, size: 2, statementTimeoutMs: 5_000, lockTimeoutMs: 5_000 });
  });

  afterEach(async () => {
    await db.close();
    await proxy.close();
  });

  it('says that nothing is applied when COMMIT was not sent', async () => {
    proxy.cut('pg_sleep', 'before');
    const work = inTransaction({ db }, 'lost', async (tx) => {
      await tx.run(insert(1));
      await tx.run(build`select pg_sleep(0)`);
    });
    await expect(work).rejects.toThrow(TransactionLostError);
    await expect(inTransaction({ db }, 'next', (tx) => tx.run(insert(2)))).resolves.toBe(1);
    expect(await ids()).toEqual([2]);
  });

  it.each([
    ['applied', 'after', [1]],
    ['not applied', 'before', []],
  ] as const)('says that the outcome is unknown after COMMIT was sent: %s', async (_what, when, expected) => {
    proxy.cut('COMMIT\0', when);
    const work = inTransaction({ db }, 'unknown', async (tx) => {
      await tx.commitWith(insert(1)).catch(() => []);
      return 'looks fine';
    });
    await expect(work).rejects.toMatchObject({ name: 'CommitUnknownError', outcome: 'unknown' });
    expect(await ids()).toEqual(expected);
    proxy.cut('COMMIT\0', 'before');
    await expect(inTransaction({ db }, 'plain', (tx) => tx.run(insert(5)))).rejects.toThrow(CommitUnknownError);
  });

  it('knows that COMMIT had no effect when the server ended the session before it', async () => {
    const work = inTransaction(deps, 'fatal', async (tx) => {
      void tx.run(insert(1));
      void tx.run(build`select pg_terminate_backend(pg_backend_pid())`);
      return tx.commitWith(insert(2));
    });
    await expect(work).rejects.toThrow(TransactionLostError);
    expect(await ids()).toEqual([]);
  });

  it('survives sessions that are ended in use and idle', async () => {
    const end = `select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and usename = $1 and pid <> pg_backend_pid()`;
    const { user } = database.db.pool.options;
    const work = inTransaction(deps, 'ended', async (tx) => {
      await tx.run(insert(1));
      await database.owner.query(end, [user]);
      // Until the event has arrived, and then the next call finds the connection broken.
      await new Promise((resolve) => setTimeout(resolve, 50));
      return tx.run(insert(2));
    });
    await expect(work).rejects.toThrow(TransactionLostError);
    await database.db.pool.query('select 1');
    await database.owner.query(end, [user]);
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(await query(database.db, build`select 1 as one`)).toEqual([{ one: 1 }]);
    expect(await ids()).toEqual([]);
  });

  it('says the same where no connection can be had', async () => {
    await proxy.close();
    await expect(inTransaction({ db }, 'down', (tx) => tx.run(insert(1)))).rejects.toThrow(TransactionLostError);
    await expect(query(db, build`select 1`)).rejects.toThrow(TransactionLostError);
    proxy = await openCuttingProxy(database.serviceUrl);
  });
});

describe('reading', () => {
  it('sees one moment', async () => {
    const count = build<{ n: number }>`select count(*) as n from probe`;
    const counts = await read(deps, 'moment', async (tx) => {
      const before = await tx.one(count);
      await inTransaction(deps, 'meanwhile', (other) => other.run(insert(1)));
      return [before.n, (await tx.one(count)).n];
    });
    expect(counts).toEqual([0, 0]);
    expect(await query(database.db, count)).toEqual([{ n: 1 }]);
  });

  it('refuses to write', async () => {
    await expect(read(deps, 'write', (tx) => tx.rows(insert(1)))).rejects.toMatchObject({ code: '25006' });
  });

  it('pins the session’s settings', async () => {
    const rows = await query(
      database.db,
      build`select current_setting('search_path') as path, current_setting('statement_timeout') as statement,
        current_setting('lock_timeout') as lock, current_setting('timezone') as zone`,
    );
    expect(rows).toEqual([{ path: 'control,pg_catalog', statement: '15s', lock: '5s', zone: 'UTC' }]);
  });
});

describe('hooks', () => {
  it('names the points at which a fault can be put', async () => {
    const points: string[] = [];
    const faults = { at: (point: string) => void points.push(point) };
    await inTransaction({ ...deps, faults }, 'a', async (tx) => {
      await tx.run(insert(1));
      await tx.commitWith(insert(2));
    });
    await inTransaction({ ...deps, faults }, 'b', (tx) => tx.run(insert(3)));
    expect(points).toEqual(['a:1', 'a:2', 'a:commit', 'a:committed', 'b:1', 'b:commit', 'b:committed']);
  });

  it.each([
    ['f:1', 'fault', []],
    ['f:2', 'fault', []],
    ['f:commit', 'fault', []],
    ['f:committed', 'committed, but without an answer', [1, 2]],
  ])('a fault at %s', async (point, message, expected) => {
    const faults = {
      at: (name: string) => {
        if (name === point) throw new Error('fault');
      },
    };
    const work = inTransaction({ ...deps, faults }, 'f', async (tx) => {
      void tx.run(insert(1));
      return tx.commitWith(insert(2));
    });
    await expect(work).rejects.toThrow(message);
    expect(await ids()).toEqual(expected);
  });

  it('reports each transaction once', async () => {
    const seen: [string, TransactionOutcome, number][] = [];
    const watched: TransactionDeps = {
      ...deps,
      onTransaction: (name, outcome, attempts, ms) => {
        expect(ms).toBeGreaterThanOrEqual(0);
        seen.push([name, outcome, attempts]);
      },
    };
    await inTransaction(watched, 'a', (tx) => tx.run(insert(1)));
    await inTransaction(watched, 'b', async () => ({ kind: 'refused' }));
    await inTransaction(watched, 'c', (tx) => tx.run(insert(1))).catch(() => {});
    const ended = build`select pg_terminate_backend(pg_backend_pid())`;
    await inTransaction(watched, 'd', (tx) => tx.run(ended)).catch(() => {});
    expect(seen).toEqual([
      ['a', 'committed', 1],
      ['b', 'refused', 1],
      ['c', 'failed', 1],
      ['d', 'lost', 1],
    ]);
  });
});

describe('statement names', () => {
  it('begin with the second use, fit the protocol and are bounded', () => {
    const text = 'select 1 as named';
    expect(statementName(text)).toBeUndefined();
    const name = statementName(text);
    expect(name).toMatch(/^[A-Za-z0-9_-]{43}$/);
    expect(statementName(text)).toBe(name);
    const named = new Set<string>();
    for (let i = 0; i < 2 * MAXIMUM_NAMED; i += 1) {
      statementName(`select ${i}`);
      named.add(statementName(`select ${i}`) ?? '');
    }
    named.delete('');
    expect(named.size).toBeLessThan(MAXIMUM_NAMED);
    expect(statementName(text)).toBe(name);
  });

  it('refuses more parameters than the protocol counts', async () => {
    const many = { sql: 'select 1', parameters: new Array<number>(65_536).fill(1) } as unknown as CompiledQuery;
    await expect(query(database.db, many)).rejects.toThrow('65536 parameters');
  });

  it('keeps the password out of what is printed', () => {
    const { password } = new URL(database.serviceUrl.reveal());
    const { inspect } = process.getBuiltinModule('node:util');
    expect(inspect(database.db, { depth: 10, showHidden: false })).not.toContain(password);
    expect(JSON.stringify(database.db.pool.options)).not.toContain(password);
    expect(pg.DatabaseError).toBeDefined();
  });
});
