import { join } from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readFile } from 'node:fs/promises';
import { capturedSource } from '../../src/agents/docker/captured-source.js';
import { createSparkAgent } from '../../src/agents/spark/agent.js';
import { openSparkState } from '../../src/agents/spark/spark-state.js';
import { createSparkClient } from '../../src/client/spark-client.js';
import { systemClock } from '../../src/clock.js';
import { referenceOf } from '../../src/contract/schema.js';
import { systemRandom } from '../../src/random.js';
import { Secret } from '../../src/secret.js';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { gatesBothWays } from '../support/gate-view.js';
import { mutationId, someDigest, startService, type TestService } from '../support/service.js';

let service: TestService;
let directory: string;
const secrets: string[] = [];

beforeAll(async () => {
  service = await startService();
  directory = await mkdtemp(join(tmpdir(), 'fleet-cutover-views-'));
  const created = await service.done('createCluster', {
    mutationId: mutationId(),
    clusterId: 'c1',
    controllerId: 'k1',
    runtimeNamespace: 'ns',
  });
  const node = await service.done('registerNode', {
    mutationId: mutationId(),
    clusterId: 'c1',
    nodeId: 'manager',
    corestorePublicKey: null,
  });
  secrets.push(service.token, ...node.secrets.map((each) => each.secret));
  const { credentials } = await service.done('listCredentials', { clusterId: 'c1', cursor: null, limit: 100 });
  const token = node.secrets.find(
    (each) => credentials.find((credential) => credential.credentialId === each.credentialId)?.kind === 'node-token',
  );
  const client = createSparkClient({ url: service.url, nodeId: 'manager', nodeToken: new Secret(token!.secret) });
  const agent = createSparkAgent({
    client,
    source: capturedSource(join(import.meta.dirname, '..', 'fixtures', 'swarm', 'manager')),
    state: openSparkState(directory),
    facts: {
      pallet: null,
      spark: {
        bundleDigest: someDigest('b'),
        unitDigest: someDigest('u'),
        configurationDigest: someDigest('c'),
        oldModeRefused: true,
      },
    },
    clock: systemClock,
    random: systemRandom,
    log: () => {},
  });
  await agent.runOnce();
  await client.close();
  const { reference, snapshot } = await service.done('readFleetCutoverManagerSnapshot', {
    clusterId: 'c1',
    snapshot: null,
  });
  if (!snapshot.complete) throw new Error('the captured snapshot is complete');
  const owner = await service.done('createService', { mutationId: mutationId(), name: 'pg' });
  const primary = snapshot.services.find((each) => each.name === 'pg-primary')!;
  await service.done('classifyFleetCutoverScope', {
    mutationId: mutationId(),
    clusterId: 'c1',
    runtime: referenceOf(created.runtime),
    inventory: reference,
    expectedScope: null,
    statement: {
      services: [
        {
          swarmServiceId: primary.id,
          class: 'application',
          serviceId: owner.service.serviceId,
          reason: null,
          mounts: [],
        },
      ],
      coreflow: { state: 'undetermined' },
      overlapOwners: [],
      overlapConfirmations: [],
      dormantVolumes: [],
      releasedEntries: [],
      releasedAnonymousVolumes: [],
    },
  });
  // Refused once, to be counted.
  await service.call('createService', { mutationId: mutationId(), name: '' } as never);
});

afterAll(async () => {
  await service.close();
  await rm(directory, { recursive: true, force: true });
});

const select = async (sql: string) => (await service.database.owner.query<Record<string, unknown>>(sql)).rows;

it('clusters: how far each cluster is', async () => {
  expect(await select('select * from operator.clusters')).toMatchObject([
    {
      cluster_id: 'c1',
      phase: 'swarm',
      scope_state: 'incomplete',
      required_count: '1',
      prepared_count: '0',
      missing_count: '1',
      aggregate_state: 'absent',
    },
  ]);
});

it('nodes: what each reported last', async () => {
  expect(await select('select * from operator.nodes')).toMatchObject([
    {
      node_id: 'manager',
      state: 'active',
      swarm_node_id: '0s4tsfgrrzfr4ei0yqncs7igy',
      reported_state: 'member',
      local_snapshot_incomplete: null,
    },
  ]);
});

it('tasks: each with verdict and reason', async () => {
  const rows = await select(
    'select verdict, reason, count(*)::int as n from operator.tasks group by 1, 2 order by 1, 2',
  );
  expect(rows).toContainEqual({ verdict: 'unknown', reason: 'no-local-report', n: expect.any(Number) as number });
  expect(rows).toContainEqual({ verdict: 'not-started', reason: 'never-assigned', n: 2 });
  expect(await select("select service_name, verdict from operator.tasks where service_name = 'pg-primary'")).toEqual([
    { service_name: 'pg-primary', verdict: 'live' },
  ]);
});

it('required_volume_handoffs: what is missing or blocked', async () => {
  expect(
    await select(
      'select node_id, service_name, volume_name, mount_path, state, blockers from operator.required_volume_handoffs',
    ),
  ).toEqual([
    {
      node_id: 'manager',
      service_name: 'pg',
      volume_name: 'pgdata',
      mount_path: '/var/lib/postgresql/data',
      state: 'missing',
      blockers: ['overlap-container'],
    },
  ]);
});

it('surplus_volume_handoffs is empty where nothing is prepared', async () => {
  expect(await select('select * from operator.surplus_volume_handoffs')).toEqual([]);
});

it('blockers: each with its reason', async () => {
  const codes = (await select('select distinct code from operator.blockers order by code')).map((row) => row['code']);
  expect(codes).toEqual([
    'coreflow-undetermined',
    'node-not-targeted',
    'overlap-container',
    'service-unclassified',
    'task-unknown',
  ]);
});

it('aggregate_history is empty before the first revision', async () => {
  expect(await select('select * from operator.aggregate_history')).toEqual([]);
});

it('incomplete_snapshots is empty where all were whole', async () => {
  expect(await select('select * from operator.incomplete_snapshots')).toEqual([]);
});

it('credentials: states without hashes', async () => {
  const [row] = await select("select * from operator.credentials where kind = 'node-token'");
  expect(row).toMatchObject({ subject_id: 'manager', newest_generation: '1', used_generation: '1', revoked: false });
  expect(Object.keys(row!).filter((name) => name.includes('hash'))).toEqual([]);
});

it('audit: who changed what', async () => {
  expect(
    (await select("select method from operator.audit where cluster_id = 'c1' order by seq")).map(
      (row) => row['method'],
    ),
  ).toEqual(['createCluster', 'registerNode', 'classifyFleetCutoverScope']);
});

it('refusals: counted per principal, method and code', async () => {
  await expect
    .poll(() => select('select principal_id, method, code, count from operator.refusals'))
    .toContainEqual({ principal_id: 'alice', method: 'createService', code: 'body-schema', count: '1' });
});

it('every view has a comment, and a line in the README', async () => {
  const views = await select(`
    select relname as name, obj_description(oid, 'pg_class') as comment from pg_class
    where relnamespace = 'operator'::regnamespace and relkind = 'v' order by relname`);
  const readme = await readFile(join(import.meta.dirname, '..', '..', 'README.md'), 'utf8');
  for (const { name, comment } of views) {
    expect(comment, `operator.${String(name)} has a comment`).toBeTruthy();
    expect(readme, `the README has a line for operator.${String(name)}`).toContain(`operator.${String(name)}`);
  }
  expect(views.length).toBeGreaterThan(10);
});

it('gates: what each of the next phase misses', async () => {
  const { view, program } = await gatesBothWays(service, 'c1');
  expect(view).toEqual(program);
  expect(view).toContainEqual({ gate: 'targets-accepted', missing: 1 });
  expect(view).toContainEqual({ gate: 'targets-cover-entries', missing: 1 });
  expect(view.find(({ gate }) => gate === 'scope-complete')?.missing).toBeGreaterThan(1);
});

it('no view is made of a secret, a hash of one, or a record as a whole', async () => {
  const used = await select(`
    select view_name as view, table_schema as schema, table_name as table, column_name as column
    from information_schema.view_column_usage where view_schema = 'operator'`);
  expect(used.length).toBeGreaterThan(100);
  const sealed = /^(newest_hash|used_hash|nonce|ciphertext|cluster_life|receipt|result|bytes)$/;
  expect(used.filter(({ column }) => sealed.test(String(column)))).toEqual([]);
  const columns = await select(`
    select table_name as view, column_name as column from information_schema.columns where table_schema = 'operator'`);
  const shown = columns.map(({ view, column }) => `${String(view)}.${String(column)}`);
  expect(shown.filter((name) => /record|hash|token|bearer|cipher|nonce|password/.test(name))).toEqual([]);
});

describe('the role fleet_cutover_operator', () => {
  let client: pg.Client;
  beforeAll(async () => {
    client = new pg.Client({ connectionString: service.database.ownerUrl.reveal() });
    await client.connect();
    await client.query('set role fleet_cutover_operator');
  });
  afterAll(() => client.end());

  const names = async (sql: string) => (await select(sql)).map((row) => String(row['name']));
  /** Denied for want of a right, and for nothing else. */
  const isDenied = (sql: string) =>
    client.query(sql).then(
      () => 'done',
      (error: pg.DatabaseError) => (error.code === '42501' ? 'denied' : error.message),
    );

  it('reads every view, and finds no secret there', async () => {
    for (const name of await names("select viewname as name from pg_views where schemaname = 'operator'")) {
      const text = JSON.stringify((await client.query(`select * from operator.${name}`)).rows);
      for (const secret of secrets) expect(text, `operator.${name} shows no secret`).not.toContain(secret);
    }
    expect(
      await names(`
        select viewname || ' ' || what as name from pg_views, unnest(array['insert', 'update', 'delete', 'truncate', 'trigger']) what
        where schemaname = 'operator' and has_table_privilege('fleet_cutover_operator', format('operator.%I', viewname), what)`),
    ).toEqual([]);
    expect(await isDenied("insert into operator.refusals values ('p', 'm', 'c', now(), 'x', 1, 1)")).toBe('denied');
    expect(await isDenied('update operator.credentials set revoked = true')).toBe('denied');
  });

  it('reads no table, sequence or column of ours', async () => {
    const relations = await names(`
      select relname as name from pg_class where relnamespace = 'control'::regnamespace and relkind in ('r', 'S', 'v', 'm')`);
    expect(relations.length).toBeGreaterThan(35);
    for (const name of relations) expect(await isDenied(`select * from control.${name}`), name).toBe('denied');
    expect(
      await names(`
        select table_name || '.' || column_name as name from information_schema.columns where table_schema = 'control'
          and has_column_privilege('fleet_cutover_operator', format('control.%I', table_name), column_name, 'select')`),
    ).toEqual([]);
  });

  it('calls no function of ours and makes nothing', async () => {
    const routines = await names(`
      select proname || '(' || (select coalesce(string_agg('null', ', '), '') from generate_series(1, pronargs)) || ')' as name
      from pg_proc where pronamespace in ('control'::regnamespace, 'operator'::regnamespace)`);
    expect(routines.length).toBeGreaterThan(3);
    for (const call of routines) {
      expect(await isDenied(`select control.${call}`), call).toBe('denied');
      expect(await isDenied(`call control.${call}`), call).toBe('denied');
    }
    for (const schema of ['control', 'operator', 'public']) {
      expect(await isDenied(`create table ${schema}.mine (n bigint)`), schema).toBe('denied');
    }
  });
});
