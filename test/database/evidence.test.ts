import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { promisify } from 'node:util';
import { gunzip, gzip } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { canonicalizeStrictJson } from '../../src/contract/canonical-json.js';
import { digestDomain, sealRecord } from '../../src/contract/digest.js';
import type { IFleetCutoverRuntime } from '../../src/contract/runtime.js';
import { processIsAlive } from '../../src/db/embedded/process.js';
import { readLines, writeWhole } from '../../src/features/evidence/file.js';
import { exportEvidence } from '../../src/features/evidence/export.js';
import { evidenceTables, leftOutTables } from '../../src/features/evidence/tables.js';
import { type EmptyDatabase, type FileReport, verifyFile } from '../../src/features/evidence/verify-file.js';
import { parseRememberedHead } from '../../src/features/verify/remembered-head.js';
import { isRefused } from '../../src/refusal.js';
import { onMigratedDatabase } from '../../src/temporary-database.js';
import { createDatabase, type TestDatabase } from '../support/database.js';
import { exportedText, forge, type ForgedRow, linesOf, sealed } from '../support/forged-evidence.js';
import { type IngressStage, ingressStage, writeOffByTwo } from '../support/pallet-phase.js';
import { someDigest, startService, type TestService } from '../support/service.js';

const cluster = 'pal';
let service: TestService;
let stage: IngressStage;
let second: TestDatabase;
/** Of all files, and open until the end: emptied before each. */
let empty: EmptyDatabase;
let endUse: () => void;
let use: Promise<void>;
let text: string;
let directory: string;

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'fleet-cutover-evidence-'));
  // The server's user has to pass it where these tests run as root.
  await chmod(directory, 0o711);
  [service, second] = await Promise.all([startService(), createDatabase()]);
  await new Promise<void>((resolve, reject) => {
    use = onMigratedDatabase(second, (database) => {
      empty = database;
      resolve();
      return new Promise((end) => (endUse = end));
    });
    use.catch(reject);
  });
  stage = await ingressStage(service, cluster);
  await stage.prepared();
  await stage.prepared();
  await stage.cut.holdAll(2);
  await writeOffByTwo(service, stage, stage.cut.nodeIds[1]!);
  // Beside another cluster of the same organization, of which nothing may be in the file.
  await ingressStage(service, 'other');
  text = await exportedText(service.deps, cluster);
}, 120_000);
afterAll(async () => {
  endUse();
  await use;
  await Promise.all([service.close(), second.drop()]);
  await rm(directory, { recursive: true, force: true });
});

async function onDatabase<T>(work: (database: EmptyDatabase) => Promise<T>): Promise<T> {
  const deletes = evidenceTables.map(({ name }) => `delete from control.${name}`);
  await second.owner.query(`begin; set local session_replication_role = replica; ${deletes.join('; ')}; commit`);
  return work(empty);
}

const judged = (of: string, from: readonly string[] = []): Promise<FileReport> =>
  onDatabase((database) =>
    verifyFile(
      () => linesOf(of),
      database,
      from.map((each) => parseRememberedHead(each)!),
    ),
  );

const withoutTrailer = (of: string) => of.split('\n').slice(0, -2);
const header = () => JSON.parse(text.slice(0, text.indexOf('\n'))) as { auditHead: { seq: number; digest: string } };

test('every table and column of the private schema is evidence, or is left out for a reason', async () => {
  const { rows } = await service.database.owner.query<{ name: string; columns: string[] }>(
    `select table_name as name, array_agg(column_name::text order by column_name::text) as columns
      from information_schema.columns where table_schema = 'control' group by table_name`,
  );
  const known = new Map(evidenceTables.map((table) => [table.name, table]));
  expect(
    rows
      .filter(({ name }) => !known.has(name))
      .map(({ name }) => name)
      .sort(),
  ).toEqual(Object.keys(leftOutTables).sort());
  for (const { name, columns } of rows) {
    const table = known.get(name);
    if (table === undefined) continue;
    expect({ name, columns: [...table.columns, ...Object.keys(table.leftOut)].sort() }).toEqual({ name, columns });
  }
  expect(evidenceTables.flatMap((table) => table.columns).filter((column) => /hash|nonce|cipher/.test(column))).toEqual(
    [],
  );
});

describe('a file as it was written', () => {
  test('is clean, has rows of nearly every table, and none of another cluster', async () => {
    const report = await judged(text);
    expect(report).toMatchObject({ clean: true, findings: [], faults: [], skipped: [], clusters: [cluster] });
    expect(report.rows).toBeGreaterThan(70);
    const tables = new Set(
      withoutTrailer(text)
        .slice(1)
        .map((line) => (JSON.parse(line) as { table: string }).table),
    );
    expect(evidenceTables.map(({ name }) => name).filter((name) => !tables.has(name))).toEqual([]);
    expect(text).not.toContain('other-n0');
  });

  test('is the same bytes again, and in the database that it was loaded into, too', async () => {
    expect(await exportedText(service.deps, cluster)).toBe(text);
    const again = await onDatabase(async (database) => {
      await verifyFile(() => linesOf(text), database, []);
      return exportedText(database.deps, cluster);
    });
    expect(again).toBe(text);
  });

  test('contains the remembered head, and says where it contains another one', async () => {
    const { seq, digest } = header().auditHead;
    expect((await judged(text, [`${seq}:${digest}`, `${cluster}:${seq}:${digest}`])).clean).toBe(true);
    const other = await judged(text, [`3:${digest}`, `${seq + 1}:${digest}`]);
    expect(other.findings).toEqual([
      expect.objectContaining({ table: 'audit_rows', key: { chain_id: cluster, seq: 3 }, line: 5 }),
      expect.objectContaining({ table: 'audit_rows', key: { chain_id: cluster, seq: seq + 1 }, line: null }),
    ]);
    await expect(judged(text, [`other:3:${digest}`])).rejects.toThrow('it has the chain of cluster pal alone');
  });

  test('is of one moment, whatever is written while it is read', async () => {
    let lines = '';
    let changed = false;
    const exported = await exportEvidence(service.deps, cluster, async (chunks) => {
      for await (const chunk of chunks) {
        if (!changed) await stage.prepared();
        changed = true;
        lines += chunk;
      }
    });
    if (isRefused(exported)) throw new Error(exported.problem.code);
    expect(exported.auditHead).toEqual(header().auditHead);
    expect(await exportedText(service.deps, cluster)).not.toBe(lines);
    expect(await judged(lines)).toMatchObject({ clean: true, faults: [] });
  });

  test('is not made of a cluster that nobody knows', async () => {
    const refused = await exportEvidence(service.deps, 'nobody', () => Promise.reject(new Error('called')));
    expect(refused).toMatchObject({ problem: { code: 'cluster-unknown' } });
  });
});

/** The record with another value, sealed anew, so that row and record agree. */
function reseal(row: ForgedRow, type: string, change: (record: never) => object): ForgedRow {
  const { digest: _digest, ...content } = JSON.parse(row['record']!) as { digest: string };
  const record = sealRecord(digestDomain(type), { ...content, ...change(content as never) });
  return { ...row, digest: record.digest, record: canonicalizeStrictJson(record) };
}

const replaced = (column: string, from: string, to: string) => (row: ForgedRow) => {
  const value = row[column]!.replace(from, to);
  expect(value).not.toBe(row[column]);
  return { ...row, [column]: value };
};

describe('a row that a forger has edited, with counts and trailer made anew, is named', () => {
  const first = () => true;
  const cases: [string, string, (row: ForgedRow) => boolean, (row: ForgedRow) => ForgedRow | null, string[]][] = [
    [
      'a byte of a page',
      'handoff_pages',
      first,
      (row) => ({ ...row, bytes: flipped(row['bytes']!) }),
      ['page_index', 'since_generation'],
    ],
    [
      'a handoff’s record',
      'handoff_revisions',
      first,
      replaced('record', '"mountPath":"/data/', '"mountPath":"/date/'),
      ['node_id', 'handoff_id', 'aggregate_generation'],
    ],
    [
      'an aggregate’s header',
      'aggregate_revisions',
      first,
      replaced('record', '"requiredCount":2', '"requiredCount":7'),
      ['generation'],
    ],
    [
      'a derivation',
      'derivation_revisions',
      first,
      replaced('record', '"requiredCount":', '"requiredCount":1'),
      ['generation'],
    ],
    [
      'a required entry',
      'required_entries',
      first,
      replaced('mount_path', '/data', '/date'),
      ['node_id', 'handoff_id', 'since'],
    ],
    ['a required entry that is gone', 'required_entries', first, () => null, ['node_id', 'handoff_id', 'since']],
    [
      'a scope',
      'scope_revisions',
      first,
      replaced('record', '"class":"application"', '"class":"excluded"'),
      ['generation'],
    ],
    [
      'a node’s snapshot',
      'local_snapshots',
      (row) => row['generation'] === '2',
      replaced('record', '"state":"running"', '"state":"exited"'),
      ['node_id', 'generation'],
    ],
    [
      'a manager’s snapshot',
      'manager_snapshots',
      first,
      replaced('record', '"availability":"active"', '"availability":"drain"'),
      ['generation'],
    ],
    [
      'an audit row',
      'audit_rows',
      (row) => row['seq'] === '4',
      (row) => ({ ...row, principal_id: 'mallory' }),
      ['chain_id', 'seq'],
    ],
    ['an audit row that is gone', 'audit_rows', (row) => row['seq'] === '5', () => null, ['chain_id', 'seq']],
    [
      'a runtime whose gate names another scope',
      'runtime_revisions',
      (row) => row['generation'] === '4',
      (row) => reseal(row, 'IFleetCutoverRuntime', otherScope),
      ['generation'],
    ],
    ['coverage', 'coverage', first, (row) => ({ ...row, held_pages: '0'.repeat(4096) }), ['node_id']],
    [
      'a held fence',
      'held_fences',
      first,
      replaced('record', '"fenceStoreId":"fs-', '"fenceStoreId":"ft-'),
      ['node_id', 'handoff_id'],
    ],
    [
      'a designation',
      'ingress_designation_revisions',
      first,
      replaced('record', '"version":1', '"version":2'),
      ['generation'],
    ],
    [
      'a write-off',
      'write_offs',
      (row) => row['generation'] === '2',
      replaced('record', 'burned', 'turned'),
      ['write_off_id', 'generation'],
    ],
    [
      'the relay’s retirement',
      'coreflow_retirements',
      first,
      replaced('record', '"oldModeRefused":true', '"oldModeRefused":false'),
      ['generation'],
    ],
    ['a member of the target set', 'target_set_nodes', first, (row) => ({ ...row, node_id: '0' }), []],
    ['a state that no table stores', 'nodes', first, (row) => ({ ...row, state: 'retired' }), ['node_id']],
    [
      'a number that is none',
      'held_fences',
      first,
      (row) => ({ ...row, generation: 'one' }),
      ['node_id', 'handoff_id'],
    ],
  ];

  test.each(cases)('%s', async (_what, table, which, edit, columns) => {
    const forged = forge(text, table, which, edit);
    const report = await judged(forged.text);
    expect(report).toMatchObject({ clean: false, faults: [] });
    const key = Object.fromEntries(columns.map((column) => [column, String(forged.row[column])]));
    const named = report.findings.map((finding) => ({
      table: finding.table,
      key: Object.fromEntries(columns.map((column) => [column, String(finding.key[column])])),
      line: finding.line,
    }));
    const gone = edit({ ...forged.row }) === null;
    expect(named).toContainEqual({ table, key, line: gone ? null : forged.line });
    // What is sealed anew is wrong for its neighbours, too; every other edit is named alone.
    if (!/another scope|member/.test(_what)) expect(named).toHaveLength(1);
  });

  function flipped(hex: string): string {
    return `${hex.slice(0, 200)}${hex[200] === '6' ? '7' : '6'}${hex.slice(201)}`;
  }

  function otherScope({ gate }: IFleetCutoverRuntime): object {
    return { gate: { ...gate!, scope: { ...gate!.scope, digest: someDigest('other') } } };
  }
});

describe('a file that is not as it was written', () => {
  const faults = async (of: string) => (await judged(of)).faults.map(({ line, what }) => [line, what]);
  const count = () => text.split('\n').length - 1;

  test('edited without care: the trailer says so, and the row is named all the same', async () => {
    const line = withoutTrailer(text).findIndex((each) => each.includes('"table":"volumes"'));
    const report = await judged(
      text
        .split('\n')
        .map((each, at) => (at === line ? each.replace('vo-', 'vx-') : each))
        .join('\n'),
    );
    expect(report.faults).toMatchObject([{ line: count(), what: 'the lines are not those of the trailer' }]);
    expect(report.findings).toMatchObject([{ table: 'volumes', line: line + 1 }]);
  });

  test('cut behind a line, in a line and behind the header: nothing is taken for granted', async () => {
    const lines = withoutTrailer(text);
    expect(await faults(`${lines.join('\n')}\n`)).toEqual([[count(), 'the trailer is missing']]);
    expect(await faults(text.slice(0, -1))).toEqual([[count(), 'the line has no end']]);
    const cut = await judged(`${lines[0]}\n${lines[1]!.slice(0, 20)}`);
    expect(cut.faults.map(({ line, what }) => [line, what])).toEqual([
      [2, 'the line was changed'],
      [2, 'the line has no end'],
      [3, 'the trailer is missing'],
    ]);
    expect(cut).toMatchObject({ clean: false, rows: 0, skipped: ['all rows: the file is not whole'] });
  });

  test('lines that are none, twice, out of order, of another cluster, behind the trailer', async () => {
    const lines = withoutTrailer(text);
    const seal = (change: (lines: string[]) => void) => {
      const changed = [...lines];
      change(changed);
      return sealed(changed);
    };
    expect(await faults(seal((all) => ([all[3], all[4]] = [all[4]!, all[3]!])))).toEqual([
      [5, 'the line is out of order'],
    ]);
    const twice = await judged(seal((all) => all.splice(3, 0, all[3]!)));
    expect(twice.faults).toMatchObject([{ line: 5, what: 'the line is out of order' }]);
    expect(twice.findings).toMatchObject([
      { table: 'audit_rows', line: 4, how: expect.stringContaining('audit_rows_key') },
    ]);
    expect(await faults(`${text}${lines[3]}\n`)).toEqual([[count() + 1, 'the line should not be there']]);
    const other = (await exportedText(service.deps, 'other'))
      .split('\n')
      .find((line) => line.includes('"table":"nodes"'))!;
    const at = lines.findIndex((line) => line.includes('"table":"nodes"'));
    expect(await faults(seal((all) => all.splice(at, 0, other)))).toContainEqual([
      at + 1,
      'the row is of another cluster',
    ]);
    for (const wrong of [
      lines[3]!.replace('"row":', '"row": '),
      lines[3]!.replace('"at":', '"at":"1","at":'),
      lines[3]!.replace('"at":', '"__proto__":{},"at":'),
      lines[3]!.replace('"table":"audit_rows"', '"table":"services"'),
      lines[3]!.replace('"cluster_id":', '"cluster":'),
      '[]',
      'null',
      '"\ud800"',
    ]) {
      const edited = lines.map((line, index) => (index === 3 ? wrong : line));
      const found = await judged(`${edited.join('\n')}\n${text.split('\n').at(-2)}\n`);
      expect(found.faults[0]).toMatchObject({ line: 4, what: 'the line was changed' });
      expect(found.findings).toMatchObject([{ table: 'audit_rows', key: { seq: 2 }, line: null }]);
    }
  }, 120_000);

  test('a header that says something else', async () => {
    const [, ...rows] = withoutTrailer(text);
    const changed = (change: object) => sealed([canonicalizeStrictJson({ ...header(), ...change }), ...rows]);
    expect(await faults(changed({ clusterLife: 'cl-other' }))).toEqual([[1, 'the header is of another cluster']]);
    expect(await faults(changed({ auditHead: null }))).toEqual([[1, 'the header names another audit head']]);
    expect(await faults(changed({ more: 1 }))).toEqual([[1, 'the header was changed']]);
    expect(await faults(`${canonicalizeStrictJson({ ...header(), counts: {} })}\n`)).toEqual([
      [1, 'the header was changed'],
      [2, 'the trailer is missing'],
    ]);
    await expect(judged(changed({ version: 2 }))).rejects.toThrow('it is of version 2; this program reads version 1');
    await expect(judged(changed({ format: 'tar' }))).rejects.toThrow('no header of exported evidence');
    await expect(judged('')).rejects.toThrow('the file is empty');
  });

  test('on the disk: zipped, cut, damaged, with a line without end', async () => {
    const path = join(directory, 'file');
    const found = async (bytes: Buffer) => {
      await writeFile(path, bytes);
      return onDatabase((database) => verifyFile(() => readLines(path), database, []));
    };
    const zipped = await promisify(gzip)(text);
    expect(await found(zipped)).toMatchObject({ clean: true });
    expect(await found(Buffer.from(text))).toMatchObject({ clean: true });
    expect(await found(zipped.subarray(0, -300))).toMatchObject({
      clean: false,
      faults: [{ what: 'the file is damaged from here on' }],
    });
    const damaged = Buffer.from(zipped);
    damaged[damaged.length - 5]! ^= 1;
    expect(await found(damaged)).toMatchObject({
      clean: false,
      faults: [{ what: 'the file is damaged from here on' }],
    });
    const endless = await promisify(gzip)(
      Buffer.concat([Buffer.from(text.slice(0, text.indexOf('\n') + 1)), Buffer.alloc(40_000_000, 0x20)]),
    );
    await expect(found(endless)).rejects.toThrow('its line 2 has more than 33554432 bytes');
    // What repeats is zipped to a thousandth; rows that do are none of ours.
    const line = `{"row":{},"table":"volumes","x":"${'x'.repeat(100_000)}"}\n`;
    const bomb = Buffer.from(`${withoutTrailer(text)[0]}\n${line.repeat(700)}`);
    await expect(found(await promisify(gzip)(bomb))).rejects.toThrow('unzipped it is more than 200 times as large');
    expect(await found(bomb)).toMatchObject({ clean: false });
  });
});

describe('a file that was made against its reader', () => {
  const first = () => true;
  const quoted = 5_000_000;

  test('with rows or keys larger than any of ours is refused, not read on', async () => {
    const grown = (table: string, column: string, size: number) =>
      judged(forge(text, table, first, (row) => ({ ...row, [column]: 'x'.repeat(size) })).text);
    await expect(grown('volumes', 'volume_id', 300_000)).rejects.toThrow(
      /^its line \d+ has more than the 268435 bytes of a row of volumes$/,
    );
    await expect(grown('handoff_revisions', 'handoff_id', 1_025)).rejects.toThrow(
      /^its line \d+ has a handoff_id of more than 1024 bytes$/,
    );
    expect(await grown('handoff_revisions', 'handoff_id', 1_024)).toMatchObject({ clean: false });
  });

  test('with megabytes where a table wants a word: what is told of it stays short, and says which check', async () => {
    const big = 'x'.repeat(quoted);
    const state = 'x'.repeat(200_000);
    const report = await judged(forge(text, 'nodes', first, (row) => ({ ...row, state })).text);
    expect(report.findings).toMatchObject([
      { table: 'nodes', how: expect.stringMatching(/^Postgres refuses it with SQLSTATE 23514, constraint \w+$/) },
    ]);
    const digest = judged(forge(text, 'manager_snapshots', first, (row) => ({ ...row, digest: big })).text);
    await expect(digest).rejects.toThrow(/^its line \d+ has a digest of more than 1024 bytes$/);
    const lines = withoutTrailer(text);
    const named = await judged(
      [lines[0], `{"row":{},"table":"${big}"}`, `{"row":{"${big}":null},"table":"clusters"}`, ''].join('\n'),
    );
    expect(JSON.stringify(named.faults).length).toBeLessThan(2_000);
    expect(named.faults).toMatchObject([
      { line: 2, how: expect.stringContaining('no evidence is of table') },
      { line: 3 },
      { line: 4, what: 'the trailer is missing' },
    ]);
    await expect(judged(`${lines[0]!.replace('"version":1', `"version":"${big}"`)}\n`)).rejects.toThrow(
      /^it is of version "x{299}…; this program reads version 1$/,
    );
  });

  test('with a line of millions of values is told as changed before they are parsed', async () => {
    const values = `[${'{},'.repeat(1_000_000)}{}]`;
    const report = await judged(`${withoutTrailer(text)[0]}\n${values}\n`);
    expect(report.faults).toMatchObject([
      { line: 2, what: 'the line was changed', how: 'it is not canonical JSON' },
      { line: 3, what: 'the trailer is missing' },
    ]);
  });

  test('with more refused rows than are listed: the rest is not loaded, and not compared', async () => {
    const lines = withoutTrailer(text);
    const at = lines.findIndex((line) => line.includes('"table":"nodes"'));
    const { row } = JSON.parse(lines[at]!) as { row: ForgedRow };
    const many = Array.from({ length: 1_200 }, (_none, index) =>
      canonicalizeStrictJson({
        table: 'nodes',
        row: { ...row, node_id: `n-${String(index).padStart(4, '0')}`, state: 'retired' },
      }),
    );
    lines.splice(at, 1, ...many);
    const report = await judged(sealed(lines));
    expect(report).toMatchObject({ clean: false, rows: 0, skipped: [expect.stringContaining('more than 1000')] });
    expect(report.findings).toHaveLength(1_000);
    expect(report.findingCount).toBeGreaterThan(1_000);
    expect(report.findings[999]).toMatchObject({ table: 'nodes', line: at + 1_000 });
  }, 120_000);
});

test('of two that write one file at once, one is told that it exists, and its own is gone', async () => {
  const path = join(directory, 'raced');
  const filled: (() => void)[] = [];
  // Neither publishes before both have written.
  const write = (content: string) =>
    writeWhole(path, new AbortController().signal, async (file) => {
      await file.write(Readable.from([content]));
      await new Promise<void>((resolve) => {
        filled.push(resolve);
        if (filled.length === 2) for (const go of filled) go();
      });
      return { value: content, keep: true };
    });
  const ends = await Promise.allSettled([write('one'), write('two')]);
  const written = ends.flatMap((end) => (end.status === 'fulfilled' ? [end.value] : []));
  expect(written).toHaveLength(1);
  expect(ends.find((end) => end.status === 'rejected')).toMatchObject({ reason: { code: 'EEXIST' } });
  expect(await readFile(path, 'utf8')).toBe(written[0]);
  expect((await readdir(directory)).filter((name) => name.startsWith('raced'))).toEqual(['raced']);
});

test('no hash of a secret and no sealed byte is in it, though all are in the tables', async () => {
  const { rows } = await service.database.owner.query<{ newest: string; used: string | null }>(
    `select encode(newest_hash, 'hex') as newest, encode(used_hash, 'hex') as used from control.credentials
     union all select encode(ciphertext, 'hex'), encode(nonce, 'hex') from control.sealed_secrets`,
  );
  const bytes = [...new Set(rows.flatMap(({ newest, used }) => (used === null ? [newest] : [newest, used])))];
  expect(bytes.length).toBeGreaterThan(10);
  const spellings = (hex: string) => [hex, Buffer.from(hex, 'hex').toString('base64').slice(0, 15)];
  const found = (where: string) => bytes.filter((each) => spellings(each).some((spelling) => where.includes(spelling)));
  expect(found(text)).toEqual([]);
  // The search finds what is there: a hash that somebody writes into a row that is exported.
  const { rows: audit } = await service.database.owner.query<{ row: string }>(
    'select c::text as row from control.credentials c',
  );
  expect(found(audit.map(({ row }) => row).join('\n')).length).toBeGreaterThan(5);
  expect(
    found(
      forge(
        text,
        'nodes',
        () => true,
        (row) => ({ ...row, fence_store_id: bytes[0]! }),
      ).text,
    ),
  ).toEqual([bytes[0]]);
});

describe('the commands', () => {
  const main = join(import.meta.dirname, '..', '..', 'dist', 'cli', 'main.js');
  const environment = () => ({
    PATH: process.env['PATH'],
    DATABASE_URL: service.database.serviceUrl.reveal(),
    TMPDIR: directory,
  });
  function command(...args: string[]): Promise<{ code: number; stdout: string; stderr: string }> {
    return new Promise((resolve) => {
      execFile(process.execPath, [main, ...args], { env: environment() }, (error, stdout, stderr) =>
        resolve({ code: error === null ? 0 : (error.code as unknown as number), stdout, stderr }),
      );
    });
  }
  const servers = async () => (await readdir(directory)).filter((name) => name.startsWith('fleet-cutover-verify-'));

  test('write a file once, whole, for its owner alone, and judge it without a database', async () => {
    const path = join(directory, 'evidence.ndjson.gz');
    const written = await command('export', '--cluster', cluster, '--out', path, '--json');
    expect(written).toMatchObject({ code: 0, stderr: '' });
    const plain = (await promisify(gunzip)(await readFile(path))).toString();
    expect(plain).toBe(await exportedText(service.deps, cluster));
    const { digest, auditHead, rows } = JSON.parse(written.stdout) as { digest: string; rows: number } & ReturnType<
      typeof header
    >;
    expect(plain.split('\n').at(-2)).toContain(`"digest":"${digest}","lines":${rows + 1}`);
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    const [again, nobody, noPlace, clean, both, missing, wrong] = await Promise.all([
      command('export', '--cluster', cluster, '--out', path),
      command('export', '--cluster', 'nobody', '--out', join(directory, 'nobody')),
      command('export', '--cluster', cluster, '--out', join(directory, 'none', 'file')),
      command('verify', path, '--from', `${auditHead.seq}:${auditHead.digest}`),
      command('verify', path, '--cluster', cluster),
      command('verify', join(directory, 'missing')),
      writeFile(
        join(directory, 'forged'),
        forge(
          plain,
          'volumes',
          () => true,
          (row) => ({ ...row, volume_id: 'vo-other' }),
        ).text,
      ).then(() => command('verify', join(directory, 'forged'))),
    ]);
    expect(again).toMatchObject({ code: 2, stdout: '' });
    expect(nobody).toMatchObject({ code: 1, stdout: '' });
    expect(noPlace).toMatchObject({ code: 3, stdout: '' });
    expect(clean).toMatchObject({ code: 0, stderr: '' });
    expect(clean.stdout).toContain(
      `clean: the evidence of cluster ${cluster} is as it was written, with the digest ${digest}`,
    );
    expect(both).toMatchObject({ code: 2, stdout: '' });
    expect(missing).toMatchObject({ code: 3, stdout: '' });
    expect(missing.stderr).toContain('no such file');
    expect(wrong).toMatchObject({ code: 1, stderr: '' });
    expect(wrong.stdout).toMatch(/^line \d+: volumes cluster_id=pal .*: the row was changed/m);
    expect((await readdir(directory)).filter((name) => /^(nobody|none)|\.new-/.test(name))).toEqual([]);
    expect(await servers()).toEqual([]);
  }, 180_000);

  test('leave no server behind where somebody ends them', async () => {
    const path = join(directory, 'interrupted');
    await writeFile(path, text);
    const child = spawn(process.execPath, [main, 'verify', path], {
      env: environment(),
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    let said = '';
    child.stderr.on('data', (chunk: Buffer) => (said += chunk.toString()));
    while ((await servers()).length === 0) await new Promise((resolve) => setImmediate(resolve));
    child.kill('SIGTERM');
    expect(await once(child, 'exit')).toEqual([3, null]);
    expect(said).toContain('aborted');
    expect(await servers()).toEqual([]);
  }, 60_000);

  test.each([
    ['before there is one', () => Promise.resolve('begun')],
    ['while one is there', serverOf],
  ])(
    'leave no server and no directory behind where they are killed %s',
    async (_when, look) => {
      const path = join(directory, 'killed');
      await writeFile(path, text);
      const child = spawn(process.execPath, ['--import', 'tsx', main, 'verify', path], {
        env: environment(),
        stdio: 'ignore',
      });
      let name: string | undefined;
      let found: string | undefined;
      while (found === undefined) {
        [name] = await servers();
        if (name !== undefined) found = await look(join(directory, name));
        expect(child.exitCode).toBe(null);
      }
      child.kill('SIGKILL');
      expect(await once(child, 'exit')).toEqual([null, 'SIGKILL']);
      while ((await servers()).length > 0) await new Promise((resolve) => setImmediate(resolve));
      if (found !== 'begun') expect(await processIsAlive(Number(found))).toBe(false);
    },
    60_000,
  );

  /** The process id of the server that is ready. */
  async function serverOf(root: string): Promise<string | undefined> {
    const status = await readFile(join(root, 'server', 'cluster', 'postmaster.pid'), 'utf8').catch(() => '');
    return status.includes('ready') ? status.split('\n')[0] : undefined;
  }
});
