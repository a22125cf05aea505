/**
 * Every column of every row kind that evidence consists of, edited alone, is named by `verify`, unless the list below says
 * that nothing determines it. One edit at a time in one database; the row is put back after each.
 */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { evidenceTables, type EvidenceTable } from '../../src/features/evidence/tables.js';
import { verify, type VerifyReport } from '../../src/features/verify/verify.js';
import { isRefused } from '../../src/refusal.js';
import { type IngressStage, ingressStage, writeOffByTwo } from '../support/pallet-phase.js';
import { startService, type TestService } from '../support/service.js';

const cluster = 'pal';

/** What nothing determines, so that an edit of it alone may pass; each with its reason. */
const undetermined: Readonly<Record<string, string>> = {
  'credentials.credential_id': 'of a node’s credential: random, and told by no audit row before its first rotation',
  'credentials.used_generation': 'moved by whoever presents a bearer',
  'nodes.reported_swarm_node_id': 'claimed by a refused report, which nobody keeps',
  'nodes.reported_state': 'the receipt does not repeat it; only what it rules out is found',
  'nodes.corestore_public_key': 'of an imported node: its request is kept as a digest',
  'nodes.local_runtime_generation': 'null: when a snapshot came, only the receipt of a last report with one tells',
  'manager_snapshot_heads.node_id': 'which manager reported last, of those that are nodes of the cluster',
  'manager_snapshot_heads.runtime_generation': 'null: as with a node’s local snapshot',
  'manager_snapshots.node_id': 'which manager reported it, of those that are nodes of the cluster',
  'reporter_sessions.request_digest': 'digest of a report that nobody keeps',
  'sealed_secrets.key_id':
    'what is sealed is in no evidence, and is sealed anew under another key without an audit row',
};

/** Edits that are found, but where another row is named: the one that the edited one should fit, or that it says is missing. */
const namedElsewhere: Readonly<Record<string, string>> = {
  'clusters.swarm_id': 'scope_revisions',
  'audit_heads.seq': 'audit_rows',
  'nodes.swarm_node_id': 'node_swarm_ids',
  'nodes.reporter_session_id': 'reporter_sessions',
  'nodes.observation_sequence': 'reporter_sessions',
  'reporter_sessions.receipt': 'coverage',
  'service_spec_heads.spec_id': 'service_spec_revisions',
  'service_spec_heads.generation': 'service_spec_revisions',
  'runtime_heads.generation': 'runtime_revisions',
  'scope_heads.generation': 'scope_revisions',
  'target_set_heads.generation': 'target_set_revisions',
  'manager_snapshot_heads.generation': 'manager_snapshots',
  'manager_snapshot_heads.incomplete': 'blockers',
  'derivation_heads.generation': 'derivation_revisions',
  'required_entries.since': 'derivation_revisions',
  'blockers.until': 'derivation_revisions',
  'ingress_designation_heads.generation': 'ingress_designation_revisions',
};

let service: TestService;
let stage: IngressStage;

beforeAll(async () => {
  service = await startService();
  stage = await ingressStage(service, cluster);
  await stage.prepared();
  await stage.cut.holdAll(2);
  await writeOffByTwo(service, stage, stage.cut.nodeIds[1]!);
}, 120_000);
afterAll(() => service.close());

async function verified(): Promise<VerifyReport> {
  const report = await verify(service.deps, { clusterId: cluster, remembered: [] });
  if (isRefused(report)) throw new Error(report.problem.code);
  return report;
}

type Row = Record<string, string | null>;

const texts = (columns: readonly string[]) => columns.map((column) => `${column}::text as ${column}`).join(', ');

/** All columns of the table, as text. */
async function columnsOf(table: string): Promise<{ name: string; type: string }[]> {
  const { rows } = await service.database.owner.query<{ name: string; type: string }>(
    `select attname as name, format_type(coalesce(nullif(typbasetype, 0), atttypid), atttypmod) as type
     from pg_attribute join pg_type on pg_type.oid = atttypid
     where attrelid = ('control.' || $1)::regclass and attnum > 0 and not attisdropped`,
    [table],
  );
  return rows;
}

/** The last row in key order: of a chain its newest part. */
async function lastRow(table: EvidenceTable, columns: readonly string[]): Promise<Row | undefined> {
  const { rows } = await service.database.owner.query<Row>(
    `select ${texts(columns)} from control.${table.name} source where ${table.owner} = $1
     order by ${table.key.map((column) => `source.${column} desc`).join(', ')} limit 1`,
    [cluster],
  );
  return rows[0];
}

function edited(value: string | null, type: string): string {
  if (type === 'boolean') return value === 'true' ? 'false' : 'true';
  if (type === 'bigint' || type === 'integer') return String(Number(value ?? 0) + 1);
  if (type === 'bytea') return `${(value ?? '\\x00').slice(0, -1)}${value?.endsWith('0') === true ? '1' : '0'}`;
  if (type.startsWith('bit')) return `${value![0] === '1' ? '0' : '1'}${value!.slice(1)}`;
  if (type === 'jsonb') return value!.startsWith('[') ? '[{}]' : '{}';
  if (value?.startsWith('sha256:') === true) return `sha256:${'e'.repeat(64)}`;
  // A record stays JSON, so that it is read and not merely refused.
  if (value?.startsWith('{') === true)
    return value.includes('"generation":')
      ? value.replace('"generation":', '"generation":1')
      : value.replace('"detail":"', '"detail":"x');
  return `${value ?? ''}x`;
}

/** False: the table refuses such a row, which is found where evidence is loaded. */
async function replace(table: string, key: readonly string[], from: Row, to: Row): Promise<boolean> {
  const client = await service.database.owner.connect();
  try {
    await client.query('begin');
    await client.query('set local session_replication_role = replica');
    const names = Object.keys(to);
    const same = key.map((column, index) => `${column}::text = $${names.length + index + 1}`).join(' and ');
    const types = new Map((await columnsOf(table)).map(({ name, type }) => [name, type]));
    const values = names.map((name, index) => `${name} = $${index + 1}::text::${types.get(name)!}`).join(', ');
    const { rowCount } = await client.query(`update control.${table} set ${values} where ${same}`, [
      ...names.map((name) => to[name]),
      ...key.map((column) => from[column]),
    ]);
    expect(rowCount).toBe(1);
    await client.query('commit');
    return true;
  } catch (error) {
    await client.query('rollback');
    if (/^23/.test(String((error as { code?: string }).code))) return false;
    throw error;
  } finally {
    client.release();
  }
}

test('each column of each table, edited alone, is named', async () => {
  const whole = await verified();
  expect(whole.findings).toEqual([]);
  expect(whole.skipped).toEqual([]);
  const unnoticed: string[] = [];
  const empty: string[] = [];
  let edits = 0;
  for (const table of evidenceTables) {
    const columns = await columnsOf(table.name);
    const row = await lastRow(
      table,
      columns.map(({ name }) => name),
    );
    if (row === undefined) {
      empty.push(table.name);
      continue;
    }
    for (const { name, type } of columns.filter((each) => table.columns.includes(each.name))) {
      const column = `${table.name}.${name}`;
      // A row of another cluster is a row that is gone, which other tests look at.
      if (name === table.owner || column in undetermined) continue;
      const changed = { ...row, [name]: edited(row[name] ?? null, type) };
      expect(changed[name], column).not.toBe(row[name]);
      if (!(await replace(table.name, table.key, row, changed))) continue;
      const { findings } = await verified();
      edits += 1;
      if (!findings.some((finding) => finding.table === (namedElsewhere[column] ?? table.name))) {
        const others = [...new Set(findings.map((finding) => finding.table))].join(', ');
        unnoticed.push(`${column}: ${row[name]?.slice(0, 40)} → ${changed[name]!.slice(0, 40)}; named: ${others}`);
      }
      expect(await replace(table.name, table.key, changed, row)).toBe(true);
    }
  }
  expect(unnoticed).toEqual([]);
  expect(empty).toEqual([]);
  expect(edits).toBeGreaterThan(150);
  expect((await verified()).findings).toEqual([]);
}, 300_000);

test('what is listed as undetermined is a column of evidence', () => {
  const columns = evidenceTables.flatMap(({ name, columns: own }) => own.map((column) => `${name}.${column}`));
  expect(Object.keys(undetermined).filter((column) => !columns.includes(column))).toEqual([]);
});

test.each(['coverage', 'reporter_sessions', 'volumes', 'node_gate_facts', 'node_swarm_ids'])(
  'a row of %s that is gone, and one that nobody made',
  async (name) => {
    const table = evidenceTables.find((each) => each.name === name)!;
    const columns = (await columnsOf(name)).map((each) => each.name);
    const row = (await lastRow(table, columns))!;
    const { owner } = service.database;
    const key = Object.fromEntries(table.key.map((column) => [column, row[column]]));
    const same = table.key.map((column, index) => `${column}::text = $${index + 1}`).join(' and ');
    const copied = table.key.at(-1)!;
    const list = columns.join(', ');
    const run = async (...statements: [string, unknown[]][]) => {
      const client = await owner.connect();
      try {
        await client.query('begin');
        await client.query('set local session_replication_role = replica');
        for (const [text, values] of statements) await client.query(text, values);
        await client.query('commit');
      } finally {
        client.release();
      }
    };
    const values = Object.values(key);
    const added = columns.map((column) => (column === copied ? `${column} || 'z'` : column)).join(', ');
    await run([`insert into control.${name} (${list}) select ${added} from control.${name} where ${same}`, values]);
    expect((await verified()).findings).toContainEqual(
      expect.objectContaining({ table: name, key: { ...key, [copied]: `${row[copied]}z` } }),
    );
    const otherKey = [...values.slice(0, -1), `${row[copied]}z`];
    await run(
      [`delete from control.${name} where ${same}`, otherKey],
      [
        `create table public.copied as select * from control.${name} where ${same}`.replaceAll(
          /\$(\d+)/g,
          (_, at: string) => `'${String(values[Number(at) - 1])}'`,
        ),
        [],
      ],
      [`delete from control.${name} where ${same}`, values],
    );
    expect((await verified()).findings).toContainEqual(expect.objectContaining({ table: name, key }));
    await run([`insert into control.${name} select * from public.copied`, []], ['drop table public.copied', []]);
    expect((await verified()).findings).toEqual([]);
  },
);
