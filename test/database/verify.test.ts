import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { canonicalizeStrictJson } from '../../src/contract/canonical-json.js';
import { digestDomain, sealRecord } from '../../src/contract/digest.js';
import type { TFleetCutoverVolumeFence } from '../../src/contract/held-fence.js';
import type { IFleetCutoverRuntime } from '../../src/contract/runtime.js';
import type { IFleetCutoverScopeStatement } from '../../src/contract/scope.js';
import { type Reference, referenceOf } from '../../src/contract/schema.js';
import type { Finding } from '../../src/features/verify/finding.js';
import { parseRememberedHead } from '../../src/features/verify/remembered-head.js';
import { verify, type VerifyReport } from '../../src/features/verify/verify.js';
import { isRefused } from '../../src/refusal.js';
import { type Cutover, cutover, sealFence } from '../support/cutover.js';
import { type IngressStage, ingressStage } from '../support/pallet-phase.js';
import { mutationId, someDigest, startService, type TestService } from '../support/service.js';
import { volumeMount as mountOf } from '../support/snapshots.js';
import {
  container,
  prepareKeys,
  type SyntheticFleet,
  syntheticFleet,
  upsertOf,
  volumeMount,
  volumesOf,
} from '../support/synthetic-fleet.js';

const cluster = 'fleet';

let service: TestService;
let fleet: SyntheticFleet;
let aggregate: Reference | null = null;

beforeAll(async () => {
  service = await startService();
  fleet = await syntheticFleet(service, { clusterId: cluster, nodes: 3, volumesPerNode: 40, services: 2 });
  await makeHistory();
});
afterAll(() => service.close());

/** Fills, completes, revises, removes, makes again, inserts, and goes through incomplete and blocked revisions. */
async function makeHistory(): Promise<void> {
  const [first, second, third] = fleet.nodes;
  const keys = fleet.keys();
  aggregate = await rederive();
  aggregate = await prepareKeys(service, fleet, aggregate, keys.slice(0, 64));
  aggregate = await prepareKeys(service, fleet, aggregate, keys.slice(64));
  aggregate = await mutateKeys(
    [keys[3]!, keys[50]!, keys[119]!].map((key) => upsertOf(key, 4096)),
    [],
  );
  aggregate = await mutateKeys([], [keys[10]!, keys[70]!]);
  aggregate = await mutateKeys([upsertOf(keys[10]!), upsertOf(keys[70]!, 8192)], []);
  // A new volume in the middle, one more that nobody mounts, and a container whose source overlaps.
  await fleet.report(second!.nodeId, { volumes: volumesOf(41, 2) });
  const known = new Set(keys.map((key) => key.id));
  aggregate = await mutateKeys(
    fleet
      .keys()
      .filter((key) => !known.has(key.id))
      .map((key) => upsertOf(key)),
    [],
  );
  await fleet.report(third!.nodeId, {
    volumes: volumesOf(40, 2),
    otherContainers: [container('backup', [volumeMount('v000001', '/backup')])],
  });
  aggregate = await rederive();
  await fleet.report(third!.nodeId, { volumes: volumesOf(40, 2) });
  aggregate = await rederive();
  // An entry stays although its container is gone.
  await fleet.report(first!.nodeId, { volumes: volumesOf(39, 2) });
  await fleet.report(second!.nodeId, {
    volumes: volumesOf(41, 2),
    otherContainers: [container('backup', [volumeMount('v000002', '/backup')])],
    looseVolumes: ['loose'],
  });
}

async function rederive(): Promise<Reference> {
  const { runtime, scope } = fleet;
  const answer = await service.done('rederiveFleetCutoverVolumeHandoffs', {
    mutationId: mutationId(),
    clusterId: cluster,
    runtime,
    scope,
    expectedAggregate: aggregate,
  });
  return referenceOf(answer.aggregate);
}

async function mutateKeys(
  upserts: ReturnType<typeof upsertOf>[],
  removed: ReturnType<SyntheticFleet['keys']>,
): Promise<Reference> {
  const { runtime, scope } = fleet;
  const removals = removed.map(({ nodeId, serviceId, mountIdentityDigest }) => ({
    nodeId,
    serviceId,
    mountIdentityDigest,
  }));
  const answer = await service.done('prepareFleetCutoverVolumeHandoffs', {
    mutationId: mutationId(),
    clusterId: cluster,
    runtime,
    scope,
    expectedAggregate: aggregate,
    upserts,
    removals,
  });
  return referenceOf(answer.aggregate);
}

async function verified(from: readonly string[] = [], clusterId: string | null = null): Promise<VerifyReport> {
  const report = await verify(service.deps, { clusterId, remembered: from.map((text) => parseRememberedHead(text)!) });
  if (isRefused(report)) throw new Error(report.problem.code);
  return report;
}

const rows = (findings: readonly Finding[]) => findings.map(({ table, key }) => ({ table, key }));

/** Changes rows behind the service, as who owns the tables can, and undoes it afterwards by a copy of the table. */
async function edit(table: string, statement: string, values: unknown[] = []): Promise<void> {
  const client = await service.database.owner.connect();
  try {
    await client.query('begin');
    await client.query('set local session_replication_role = replica');
    await client.query(`create table if not exists public.copy_${table} as table control.${table}`);
    const { rowCount } = await client.query(statement, values);
    await client.query('commit');
    copied.push(table);
    expect(rowCount).toBeGreaterThan(0);
  } catch (error) {
    await client.query('rollback');
    throw error;
  } finally {
    client.release();
  }
}

const copied: string[] = [];

afterEach(async () => {
  const client = await service.database.owner.connect();
  try {
    await client.query('begin');
    await client.query('set local session_replication_role = replica');
    for (const table of new Set(copied)) {
      await client.query(`delete from control.${table}`);
      await client.query(`insert into control.${table} select * from public.copy_${table}`);
      await client.query(`drop table public.copy_${table}`);
    }
    await client.query('commit');
    copied.length = 0;
  } finally {
    client.release();
  }
});

async function one<R extends object>(text: string, values: unknown[] = []): Promise<R> {
  const { rows: found } = await service.database.owner.query<R>(text, values);
  return found[0]!;
}

const atCluster = (more: Finding['key']) => ({ cluster_id: cluster, ...more });

test('a rich history is clean, whole and by cluster', async () => {
  const report = await verified();
  expect(report.findings).toEqual([]);
  expect(report).toMatchObject({ clean: true, clusters: [cluster], findingCount: 0, skipped: [] });
  expect(report.rows).toBeGreaterThan(300);
  expect((await verified([], cluster)).clean).toBe(true);
  expect(await verify(service.deps, { clusterId: 'nobody', remembered: [] })).toMatchObject({
    problem: { code: 'cluster-unknown' },
  });
});

test('the history has complete revisions whose pages differ, and blockers', async () => {
  const counts = await one<{ complete: string; pages: string; blockers: string }>(
    `select (select count(*) from control.aggregate_revisions where state = 'complete') as complete,
       (select count(*) from control.handoff_pages) as pages, (select count(*) from control.blockers where until is null) as blockers`,
  );
  expect(Number(counts.complete)).toBeGreaterThanOrEqual(4);
  expect(Number(counts.pages)).toBeGreaterThan(8);
  expect(Number(counts.blockers)).toBeGreaterThan(0);
});

describe('pages and handoffs', () => {
  test('a byte of a stored page', async () => {
    const page = await one<{ page_index: number; since_generation: number }>(
      'select page_index, since_generation::int from control.handoff_pages order by since_generation desc, page_index limit 1',
    );
    await edit(
      'handoff_pages',
      'update control.handoff_pages set bytes = set_byte(bytes, 200, get_byte(bytes, 200) # 1) where page_index = $1 and since_generation = $2',
      [page.page_index, page.since_generation],
    );
    expect(rows((await verified()).findings)).toEqual([{ table: 'handoff_pages', key: atCluster(page) }]);
  });

  test('a stored page that is gone, and one that nobody published', async () => {
    const page = await one<{ page_index: number; since_generation: number }>(
      'select page_index, since_generation::int from control.handoff_pages where page_index = 1 order by since_generation limit 1',
    );
    await edit('handoff_pages', 'delete from control.handoff_pages where page_index = $1 and since_generation = $2', [
      page.page_index,
      page.since_generation,
    ]);
    await edit(
      'handoff_pages',
      `insert into control.handoff_pages select cluster_id, page_index, 1, content_digest, bytes from control.handoff_pages where page_index = 0 order by since_generation limit 1`,
    );
    const added = { page_index: 0, since_generation: 1 };
    expect(rows((await verified()).findings)).toEqual(
      expect.arrayContaining([
        { table: 'handoff_pages', key: atCluster(page) },
        { table: 'handoff_pages', key: atCluster(added) },
      ]),
    );
    expect((await verified()).findings).toHaveLength(2);
  });

  test('a handoff’s record', async () => {
    const key = await one<Finding['key'] & { aggregate_generation: number }>(
      'select node_id, handoff_id, aggregate_generation::int from control.handoff_revisions where record is not null order by aggregate_generation, handoff_id offset 7 limit 1',
    );
    await edit(
      'handoff_revisions',
      `update control.handoff_revisions set record = replace(record, '"mountPath":"/data/', '"mountPath":"/date/') where handoff_id = $1 and aggregate_generation = $2`,
      [key['handoff_id'], key.aggregate_generation],
    );
    expect(rows((await verified()).findings)).toEqual([{ table: 'handoff_revisions', key: atCluster(key) }]);
  });

  test('a handoff’s digest', async () => {
    const key = await one<Finding['key'] & { aggregate_generation: number }>(
      'select node_id, handoff_id, aggregate_generation::int from control.handoff_revisions where record is not null order by aggregate_generation, handoff_id limit 1',
    );
    await edit(
      'handoff_revisions',
      'update control.handoff_revisions set digest = $3 where handoff_id = $1 and aggregate_generation = $2',
      [key['handoff_id'], key.aggregate_generation, someDigest('other')],
    );
    expect(rows((await verified()).findings)).toEqual([{ table: 'handoff_revisions', key: atCluster(key) }]);
  });

  test.each(['asc', 'desc'])('a handoff’s row that is gone, %s', async (order) => {
    const key = await one<Finding['key'] & { aggregate_generation: number }>(
      `select node_id, handoff_id, aggregate_generation::int from control.handoff_revisions order by aggregate_generation ${order}, handoff_id limit 1`,
    );
    await edit(
      'handoff_revisions',
      'delete from control.handoff_revisions where handoff_id = $1 and aggregate_generation = $2',
      [key['handoff_id'], key.aggregate_generation],
    );
    expect(rows((await verified()).findings)).toEqual([{ table: 'handoff_revisions', key: atCluster(key) }]);
  });

  test.each([
    'generation = generation + 1',
    "digest = 'sha256:' || repeat('0', 64)",
    'removed = not removed',
    "claim_digest = 'sha256:' || repeat('0', 64)",
  ])('a handoff’s head: %s', async (change) => {
    const key = await one<Finding['key']>(
      'select node_id, handoff_id from control.handoff_heads order by handoff_id offset 5 limit 1',
    );
    await edit('handoff_heads', `update control.handoff_heads set ${change} where handoff_id = $1`, [
      key['handoff_id'],
    ]);
    expect(rows((await verified()).findings)).toEqual([{ table: 'handoff_heads', key: atCluster(key) }]);
  });

  test('a handoff’s head that is gone', async () => {
    const key = await one<Finding['key']>(
      'select node_id, handoff_id from control.handoff_heads order by handoff_id limit 1',
    );
    await edit('handoff_heads', 'delete from control.handoff_heads where handoff_id = $1', [key['handoff_id']]);
    expect(rows((await verified()).findings)).toEqual([{ table: 'handoff_heads', key: atCluster(key) }]);
  });

  test('a page’s head', async () => {
    await edit('page_heads', 'update control.page_heads set content_digest = $1 where page_index = 2', [
      someDigest('other'),
    ]);
    expect(rows((await verified()).findings)).toEqual([{ table: 'page_heads', key: atCluster({ page_index: 2 }) }]);
  });

  test('a volume’s row', async () => {
    const key = await one<Finding['key']>(
      'select node_id, service_id, mount_identity_digest from control.volumes order by volume_id limit 1',
    );
    await edit(
      'volumes',
      `update control.volumes set volume_id = 'vo-other' where mount_identity_digest = $1 and node_id = $2`,
      [key['mount_identity_digest'], key['node_id']],
    );
    expect(rows((await verified()).findings)).toEqual([{ table: 'volumes', key: atCluster(key) }]);
  });
});

describe('the aggregate', () => {
  test.each([1, 4])('a revision’s record, generation %i', async (generation) => {
    await edit(
      'aggregate_revisions',
      `update control.aggregate_revisions set record = regexp_replace(record, '"requiredCount":\\d+', '"requiredCount":7') where generation = $1`,
      [generation],
    );
    expect(rows((await verified()).findings)).toEqual([
      { table: 'aggregate_revisions', key: atCluster({ generation }) },
    ]);
  });

  test('a revision that is gone', async () => {
    await edit('aggregate_revisions', 'delete from control.aggregate_revisions where generation = 3');
    expect(rows((await verified()).findings)).toEqual([
      { table: 'aggregate_revisions', key: atCluster({ generation: 3 }) },
    ]);
  });

  test.each([
    'prepared_count = prepared_count + 1',
    'matched_count = matched_count - 1',
    "digest = 'sha256:' || repeat('0', 64)",
    'page_count = page_count + 1',
  ])('the head: %s', async (change) => {
    await edit('aggregate_heads', `update control.aggregate_heads set ${change}`);
    const { findings } = await verified();
    expect(rows(findings)).toEqual([{ table: 'aggregate_heads', key: { cluster_id: cluster } }]);
  });
});

describe('the required set', () => {
  test.each(['still observed', 'not observed any more'])('an entry that is gone, %s', async (which) => {
    const key = await one<Finding['key']>(
      `select node_id, handoff_id, since::int from control.required_entries where (volume_name = 'v000039' and node_id = $2) = $1 order by node_id, handoff_id limit 1`,
      [which !== 'still observed', fleet.nodes[0]!.nodeId],
    );
    await edit('required_entries', 'delete from control.required_entries where handoff_id = $1', [key['handoff_id']]);
    const entry = { table: 'required_entries', key: atCluster(key) };
    // Its volume went with its container: what the gates need of the node says so of an entry that is not there now.
    const vanished = { table: 'node_gate_facts', key: atCluster({ node_id: fleet.nodes[0]!.nodeId }) };
    expect(rows((await verified()).findings)).toEqual(which === 'still observed' ? [entry] : [vanished, entry]);
  });

  test('an entry that was edited', async () => {
    const key = await one<Finding['key']>(
      'select node_id, handoff_id, since::int from control.required_entries order by handoff_id limit 1',
    );
    await edit(
      'required_entries',
      `update control.required_entries set mount_path = '/elsewhere' where handoff_id = $1`,
      [key['handoff_id']],
    );
    expect(rows((await verified()).findings)).toEqual([{ table: 'required_entries', key: atCluster(key) }]);
  });

  test('an entry that was closed', async () => {
    const key = await one<Finding['key']>(
      'select node_id, handoff_id from control.required_entries order by handoff_id limit 1',
    );
    const { generation: until } = await one<{ generation: number }>(
      'select generation::int from control.derivation_heads',
    );
    await edit('required_entries', 'update control.required_entries set until = $2 where handoff_id = $1', [
      key['handoff_id'],
      until,
    ]);
    expect(rows((await verified()).findings)).toEqual([
      { table: 'required_entries', key: atCluster({ ...key, until }) },
    ]);
  });

  test('a blocker that was added', async () => {
    const { generation: since } = await one<{ generation: number }>(
      'select generation::int from control.derivation_heads',
    );
    await edit(
      'blockers',
      `insert into control.blockers (cluster_id, blocker_id, since, code, part, record) values ($1, 'bl-added', $2, 'scope-missing', '', '{}')`,
      [cluster, since],
    );
    expect(rows((await verified()).findings)).toEqual([
      { table: 'blockers', key: atCluster({ blocker_id: 'bl-added', since }) },
    ]);
  });

  test('a blocker that is gone', async () => {
    const key = await one<Finding['key']>(
      'select blocker_id, since::int from control.blockers where until is null order by blocker_id limit 1',
    );
    await edit('blockers', 'delete from control.blockers where blocker_id = $1 and until is null', [key['blocker_id']]);
    expect(rows((await verified()).findings)).toEqual([{ table: 'blockers', key: atCluster(key) }]);
  });

  test.each(['required_count = required_count - 1', 'blocker_count = blocker_count + 1'])(
    'the head: %s',
    async (change) => {
      await edit('derivation_heads', `update control.derivation_heads set ${change}`);
      expect(rows((await verified()).findings)).toEqual([{ table: 'derivation_heads', key: { cluster_id: cluster } }]);
    },
  );

  test('a derivation’s record', async () => {
    await edit(
      'derivation_revisions',
      `update control.derivation_revisions set record = regexp_replace(record, '"requiredCount":\\d+', '"requiredCount":7') where generation = 3`,
    );
    expect(rows((await verified()).findings)).toEqual([
      { table: 'derivation_revisions', key: atCluster({ generation: 3 }) },
    ]);
  });

  test('a task’s verdict', async () => {
    const key = await one<Finding['key']>(
      'select swarm_task_id from control.task_verdicts order by swarm_task_id limit 1',
    );
    await edit('task_verdicts', `update control.task_verdicts set verdict = 'stopped' where swarm_task_id = $1`, [
      key['swarm_task_id'],
    ]);
    expect(rows((await verified()).findings)).toEqual([{ table: 'task_verdicts', key: atCluster(key) }]);
  });
});

describe('evidence and scope', () => {
  test('a node’s snapshot', async () => {
    const key = await one<Finding['key']>(
      'select node_id, generation::int from control.local_snapshots order by node_id, generation desc limit 1',
    );
    await edit(
      'local_snapshots',
      `update control.local_snapshots set record = replace(record, 'v000003', 'v000333') where node_id = $1 and generation = $2`,
      [key['node_id'], key['generation']],
    );
    const report = await verified();
    expect(rows(report.findings)).toEqual([{ table: 'local_snapshots', key: atCluster(key) }]);
    expect(report.skipped).toEqual([expect.stringContaining(String(key['node_id']))]);
  });

  test('the manager’s snapshot, and a row that was made of it', async () => {
    await edit(
      'manager_snapshots',
      `update control.manager_snapshots set record = replace(record, '"availability":"active"', '"availability":"drain"')`,
    );
    expect(rows((await verified()).findings)).toEqual([
      { table: 'manager_snapshots', key: atCluster({ generation: 1 }) },
    ]);
  });

  test('an observed task', async () => {
    const key = await one<Finding['key']>(
      'select swarm_task_id from control.observed_tasks order by swarm_task_id limit 1',
    );
    await edit('observed_tasks', `update control.observed_tasks set state = 'failed' where swarm_task_id = $1`, [
      key['swarm_task_id'],
    ]);
    expect(rows((await verified()).findings)).toEqual([{ table: 'observed_tasks', key: atCluster(key) }]);
  });

  test('a scope', async () => {
    await edit(
      'scope_revisions',
      `update control.scope_revisions set record = replace(record, '"class":"application"', '"class":"excluded"')`,
    );
    const report = await verified();
    expect(rows(report.findings)).toEqual([{ table: 'scope_revisions', key: atCluster({ generation: 1 }) }]);
    expect(report.skipped).toHaveLength(1);
  });

  test('a runtime that is gone', async () => {
    await edit('runtime_revisions', 'delete from control.runtime_revisions');
    expect(rows((await verified()).findings)).toEqual([
      { table: 'runtime_revisions', key: atCluster({ generation: 1 }) },
    ]);
  });

  test('a reporter’s receipt', async () => {
    const key = await one<Finding['key']>(
      'select node_id, reporter_session_id from control.reporter_sessions order by node_id limit 1',
    );
    await edit(
      'reporter_sessions',
      'update control.reporter_sessions set observation_sequence = observation_sequence + 1 where node_id = $1',
      [key['node_id']],
    );
    expect(rows((await verified()).findings)).toEqual([{ table: 'reporter_sessions', key: atCluster(key) }]);
  });

  test('a credential', async () => {
    const key = await one<Finding['key']>(
      'select credential_id from control.credentials where used_generation is not null order by credential_id limit 1',
    );
    await edit('credentials', `update control.credentials set used_hash = sha256('other') where credential_id = $1`, [
      key['credential_id'],
    ]);
    expect(rows((await verified()).findings)).toEqual([{ table: 'credentials', key }]);
  });
});

describe('audit', () => {
  const remembered = () =>
    one<{ seq: number; digest: string }>(
      `select seq::int, 'sha256:' || encode(digest, 'hex') as digest from control.audit_heads where chain_id = $1`,
      [cluster],
    );

  test.each([
    "principal_id = 'mallory'",
    "result = '{}'",
    "row_digest = sha256('other')",
    "chain_digest = sha256('other')",
  ])('a row: %s', async (change) => {
    await edit('audit_rows', `update control.audit_rows set ${change} where chain_id = $1 and seq = 4`, [cluster]);
    expect(rows((await verified()).findings)).toEqual([{ table: 'audit_rows', key: { chain_id: cluster, seq: 4 } }]);
  });

  test('a row that is gone', async () => {
    await edit('audit_rows', 'delete from control.audit_rows where chain_id = $1 and seq = 5', [cluster]);
    expect(rows((await verified()).findings)).toEqual([{ table: 'audit_rows', key: { chain_id: cluster, seq: 5 } }]);
  });

  test('a cut tail without its head, and with it only against what was written down', async () => {
    const { seq, digest } = await remembered();
    await edit('audit_rows', 'delete from control.audit_rows where chain_id = $1 and seq = $2', [cluster, seq]);
    expect(rows((await verified()).findings)).toEqual([{ table: 'audit_rows', key: { chain_id: cluster, seq } }]);
    await edit(
      'audit_heads',
      'update control.audit_heads head set seq = head.seq - 1, digest = (select chain_digest from control.audit_rows where chain_id = $1 and seq = head.seq - 1) where chain_id = $1',
      [cluster],
    );
    const lost = await verified([`${seq}:${digest}`]);
    expect(rows(lost.findings)).toContainEqual({ table: 'audit_rows', key: { chain_id: cluster, seq } });
  });

  test('what was written down holds on, for any chain, and a foreign digest does not', async () => {
    const { seq, digest } = await remembered();
    expect((await verified([`${seq}:${digest}`, `${cluster}:${seq}:${digest}`])).clean).toBe(true);
    await service.organization('later');
    expect((await verified([`${seq}:${digest}`])).clean).toBe(true);
    expect(rows((await verified([`${cluster}:3:${digest}`])).findings)).toEqual([
      { table: 'audit_rows', key: { chain_id: cluster, seq: 3 } },
    ]);
  });
});

test('classified anew and observed on, it stays clean', async () => {
  const statement: IFleetCutoverScopeStatement = {
    ...fleet.statement,
    releasedEntries: [{ ...keyOf(fleet.keys()[0]!), reason: 'not needed' }],
  } as IFleetCutoverScopeStatement;
  const snapshot = await service.done('readFleetCutoverManagerSnapshot', { clusterId: cluster, snapshot: null });
  await service.done('classifyFleetCutoverScope', {
    mutationId: mutationId(),
    clusterId: cluster,
    runtime: fleet.runtime,
    inventory: snapshot.reference,
    expectedScope: fleet.scope,
    statement,
  });
  await fleet.report(fleet.nodes[1]!.nodeId, { volumes: volumesOf(20, 2) });
  expect((await verified()).findings).toEqual([]);
});

/** The command in a process of its own; gives its exit code and what it printed. */
function command(
  args: readonly string[],
  databaseUrl: string,
): Promise<{ code: number | null; stdout: string; stderr: string }> {
  const main = join(import.meta.dirname, '..', '..', 'src', 'cli', 'main.ts');
  const env = { PATH: process.env['PATH'], DATABASE_URL: databaseUrl };
  return new Promise((resolve) => {
    execFile(process.execPath, ['--import', 'tsx', main, 'verify', ...args], { env }, (error, stdout, stderr) =>
      resolve({ code: error === null ? 0 : (error.code as unknown as number), stdout, stderr }),
    );
  });
}

test('the command says so with its exit code: clean, wrong, usage, could not', async () => {
  const url = service.database.serviceUrl.reveal();
  const [clean, usage, nobody, unreachable] = await Promise.all([
    command(['--json'], url),
    command(['--from', '7'], url),
    command(['--cluster', 'nobody'], url),
    command([], 'postgresql://nobody:wrong@127.0.0.1:1/none'),
  ]);
  expect(clean).toMatchObject({ code: 0, stderr: '' });
  expect(JSON.parse(clean.stdout)).toMatchObject({ clean: true, findings: [] });
  expect(usage).toMatchObject({ code: 2, stdout: '' });
  expect(nobody).toMatchObject({ code: 3, stdout: '' });
  expect(unreachable).toMatchObject({ code: 3, stdout: '' });
  await edit('audit_rows', `update control.audit_rows set principal_id = 'mallory' where chain_id = $1 and seq = 4`, [
    cluster,
  ]);
  const wrong = await command(['--cluster', cluster], url);
  expect(wrong).toMatchObject({ code: 1, stderr: '' });
  expect(wrong.stdout).toContain(
    `audit_rows chain_id=${cluster} seq=4: the row was changed (its facts have the digest sha256:`,
  );
}, 120_000);

type Key = Pick<ReturnType<SyntheticFleet['keys']>[number], 'nodeId' | 'serviceId' | 'mountIdentityDigest'>;

function keyOf({ nodeId, serviceId, mountIdentityDigest }: Key) {
  return { nodeId, serviceId, mountIdentityDigest };
}

describe('later phases', () => {
  const inPallet = 'pal';
  let stage: IngressStage;
  let bob: string;

  async function writeOff(cut: Cutover, subject: object): Promise<void> {
    const method = 'serviceId' in subject ? 'writeOffVolume' : 'writeOffNode';
    const request = async (proposal: Reference | null) =>
      ({
        mutationId: mutationId(),
        clusterId: cut.clusterId,
        runtime: await cut.runtime(),
        proposal,
        reason: 'the building burned down',
        verified: 'two people were there',
        ...subject,
      }) as never;
    const proposed = await service.done(method, await request(null));
    await service.done(method, await request(referenceOf(proposed.writeOff)), bob);
  }

  beforeAll(async () => {
    const issued = await service.done('issueAdministratorToken', {
      mutationId: mutationId(),
      principalId: 'bob',
      role: 'administrator',
    });
    bob = issued.secrets[0]!.secret;
    stage = await ingressStage(service, inPallet);
    await stage.prepared();
    await stage.prepared();
    await stage.cut.holdAll(2);
    const [entry] = await stage.cut.fleet.entries();
    const { nodeId, serviceId, mountIdentityDigest } = entry!;
    await writeOff(stage.cut, { nodeId, serviceId, mountIdentityDigest });
    await writeOff(stage.cut, { nodeId: stage.cut.nodeIds[1]! });
  }, 60_000);

  const found = async () => rows((await verified([], inPallet)).findings);
  const at = (more: Finding['key']) => ({ cluster_id: inPallet, ...more });
  const node = (index: number) => stage.cut.nodeIds[index]!;
  const here = `cluster_id = '${inPallet}'`;

  test('a cluster in pallet with an ingress, held fences and write-offs is clean', async () => {
    expect(await verified([], inPallet)).toMatchObject({ clean: true, findings: [], skipped: [] });
    const counts = await one<Record<string, string>>(
      `select (select count(*) from control.write_offs where ${here}) as "writeOffs",
         (select count(*) from control.coreflow_retirements where ${here}) as retirements,
         (select count(*) from control.ingress_designation_revisions where ${here}) as designations,
         (select count(*) from control.sealed_secrets where ${here}) as secrets,
         (select count(*) from control.held_fences where ${here}) as fences,
         (select count(*) from control.coverage where ${here} and bit_count(held_pages) > 0) as covered`,
    );
    expect(Object.fromEntries(Object.entries(counts).map(([name, count]) => [name, Number(count)]))).toEqual({
      writeOffs: 4,
      retirements: 1,
      designations: 2,
      secrets: 2,
      fences: 2,
      covered: 2,
    });
  });

  test('written off, released and rejoined before the switch, with a handoff that was removed, is clean', async () => {
    const cut = await cutover(service, 'early', { volumes: [2, 2, 1], relay: false });
    const clean = async () => expect(await verified([], 'early')).toMatchObject({ findings: [], skipped: [] });
    const ofNode = async (index: number) =>
      (await cut.fleet.entries()).filter((each) => each.nodeId === cut.nodeIds[index]);
    await cut.accept();
    await writeOff(cut, { nodeId: cut.nodeIds[2]! });
    expect(await ofNode(2)).toEqual([]);
    const anonymous = 'a'.repeat(64);
    const [container] = cut.world.nodes[0]!.containers;
    cut.world.nodes[0]!.containers = [
      { ...container!, mounts: [...container!.mounts, mountOf(anonymous, '/anonymous')] },
    ];
    await cut.report(0);
    const releasedAnonymousVolumes = [{ serviceId: cut.fleet.owner('early-app-0'), reason: 'caches' }];
    expect((await cut.classify({ ...cut.statement, releasedAnonymousVolumes })).status).toBe(200);
    await cut.prepare();
    const [lost] = await ofNode(1);
    await writeOff(cut, keyOf(lost!));
    await clean();

    // Nobody uses it any more: it stays because it is prepared, and then until its node is derived again.
    cut.world.nodes[0]!.containers = [];
    await cut.report(0);
    const released = (await ofNode(0)).find((each) => each.volumeName === anonymous)!;
    await clean();
    await service.done('prepareFleetCutoverVolumeHandoffs', {
      mutationId: mutationId(),
      clusterId: 'early',
      runtime: await cut.runtime(),
      scope: (await cut.fleet.state()).scope!,
      expectedAggregate: await cut.aggregate(),
      upserts: [],
      removals: [keyOf(released)],
    });
    expect(await ofNode(0)).toHaveLength(3);
    await clean();
    cut.world.nodes[0]!.palletReady = true;
    await cut.report(0);
    expect(await ofNode(0)).toHaveLength(2);
    await clean();

    const nodeId = cut.nodeIds[1]!;
    await cut.fleet.report(nodeId, { swarmNodeId: 'sn-new' });
    await service.done('confirmNodeRejoin', {
      mutationId: mutationId(),
      clusterId: 'early',
      nodeId,
      swarmNodeId: 'sn-new',
    });
    const { known } = await one<{ known: string }>(
      `select count(*) as known from control.node_swarm_ids where cluster_id = 'early' and node_id = $1`,
      [nodeId],
    );
    expect(Number(known)).toBe(2);
    await clean();
  });

  describe('write-offs', () => {
    const confirmed = () =>
      one<{ write_off_id: string; generation: number }>(
        `select write_off_id, generation::int from control.write_offs where ${here} and generation = 2 and handoff_id is null`,
      );

    test.each([
      `record = replace(record, 'burned', 'turned')`,
      `digest = 'sha256:' || repeat('0', 64)`,
      `node_id = '${inPallet}-n0'`,
      `handoff_id = 'vh-other'`,
    ])('a row: %s', async (change) => {
      const key = await confirmed();
      await edit('write_offs', `update control.write_offs set ${change} where write_off_id = $1 and generation = 2`, [
        key.write_off_id,
      ]);
      expect(await found()).toEqual([{ table: 'write_offs', key: at(key) }]);
    });

    test.each([1, 2])('a row that is gone, generation %i', async (generation) => {
      const { write_off_id } = await confirmed();
      await edit('write_offs', 'delete from control.write_offs where write_off_id = $1 and generation = $2', [
        write_off_id,
        generation,
      ]);
      const report = await verified([], inPallet);
      expect(rows(report.findings)).toEqual([{ table: 'write_offs', key: at({ write_off_id, generation }) }]);
      expect(report.skipped).toEqual([`derivation of node ${node(1)}: a write-off of it is broken`]);
    });

    test('one that nobody made', async () => {
      const { write_off_id } = await confirmed();
      await edit(
        'write_offs',
        `insert into control.write_offs select cluster_id, 'wo-other', generation, digest, state, node_id, handoff_id, record
         from control.write_offs where write_off_id = $1 and generation = 1`,
        [write_off_id],
      );
      expect(await found()).toEqual([{ table: 'write_offs', key: at({ write_off_id: 'wo-other', generation: 1 }) }]);
    });

    test.each([
      [1, 'active'],
      [0, 'written-off'],
    ])('the state of node %i: %s', async (index, state) => {
      await edit('nodes', 'update control.nodes set state = $2 where node_id = $1', [node(index), state]);
      expect(await found()).toEqual([{ table: 'nodes', key: at({ node_id: node(index) }) }]);
    });
  });

  describe('gates', () => {
    const retirement = { table: 'coreflow_retirements', key: at({ generation: 1 }) };

    test.each([
      `update control.coreflow_retirements set record = replace(record, '"oldModeRefused":true', '"oldModeRefused":false') where ${here}`,
      `update control.coreflow_retirements set digest = 'sha256:' || repeat('0', 64) where ${here}`,
      `delete from control.coreflow_retirements where ${here}`,
    ])('the relay’s retirement: %s', async (statement) => {
      await edit('coreflow_retirements', statement);
      expect(await found()).toEqual([retirement]);
    });

    test.each([
      ['runtime_revisions', `'"phase":"draining"', '"phase":"swarm"'`, 2],
      ['target_set_revisions', `'"nodeIds":["', '"nodeIds":["x'`, 1],
      ['manager_snapshots', `'"availability":"active"', '"availability":"drain"'`, 1],
    ])('a record of %s that somebody edited', async (table, change, generation) => {
      await edit(
        table,
        `update control.${table} set record = replace(record, ${change}) where ${here} and generation = $1`,
        [generation],
      );
      expect(await found()).toEqual([{ table, key: at({ generation }) }]);
    });

    test('a spec’s record that somebody edited', async () => {
      const key = { service_id: stage.serviceId, generation: 1 };
      await edit(
        'service_spec_revisions',
        `update control.service_spec_revisions set record = replace(record, '"publishedPorts":[]', '"publishedPorts":[{}]') where service_id = $1 and generation = 1`,
        [stage.serviceId],
      );
      expect(await found()).toEqual([{ table: 'service_spec_revisions', key: at(key) }]);
    });

    test('a retirement that nobody made', async () => {
      await edit(
        'coreflow_retirements',
        `insert into control.coreflow_retirements select cluster_id, 2, digest, record from control.coreflow_retirements where ${here}`,
      );
      expect(await found()).toEqual([{ ...retirement, key: at({ generation: 2 }) }]);
    });

    test('the relay’s credential that is not revoked any more', async () => {
      const key = await one<Finding['key']>(
        `select credential_id from control.credentials where ${here} and kind = 'coreflow-relay'`,
      );
      await edit('credentials', 'update control.credentials set revoked = false where credential_id = $1', [
        key['credential_id'],
      ]);
      expect(await found()).toEqual([{ table: 'credentials', key }]);
    });

    test.each(['scope', 'targetSet', 'derivation', 'managerSnapshot', 'aggregate', 'coreflowRetirement'] as const)(
      'a runtime, sealed anew, whose gate names no accepted %s',
      async (name) => {
        const { record } = await one<{ record: string }>(
          `select record from control.runtime_revisions where ${here} and generation = 4`,
        );
        const { digest: _digest, ...content } = JSON.parse(record) as IFleetCutoverRuntime;
        const gate = { ...content.gate!, [name]: { ...content.gate![name]!, digest: someDigest('other') } };
        const forged = sealRecord(digestDomain('IFleetCutoverRuntime'), { ...content, gate });
        await edit(
          'runtime_revisions',
          `update control.runtime_revisions set digest = $1, record = $2 where ${here} and generation = 4`,
          [forged.digest, canonicalizeStrictJson(forged)],
        );
        await edit('runtime_heads', `update control.runtime_heads set digest = $1 where ${here}`, [forged.digest]);
        expect(await found()).toContainEqual(
          name === 'coreflowRetirement' ? retirement : { table: 'runtime_revisions', key: at({ generation: 4 }) },
        );
      },
    );

    test.each([
      'pallet_ready = not pallet_ready',
      'active_containers = active_containers + 1',
      'unkept_volumes = unkept_volumes + 1',
      'vanished_volumes = null',
      'unkept_volumes = null, vanished_volumes = null',
      `detail = detail - 'unkept'`,
      `detail = detail - 'vanished', vanished_volumes = null`,
      `detail = detail || '{"relay": [{}]}'`,
      `detail = detail - 'unkept' - 'vanished' || '{"relay": [{}]}'`,
    ])('what gates need of a node: %s', async (change) => {
      await edit('node_gate_facts', `update control.node_gate_facts set ${change} where node_id = $1`, [node(0)]);
      expect(await found()).toEqual([{ table: 'node_gate_facts', key: at({ node_id: node(0) }) }]);
    });

    // Before their column was there, and by a program that does not know it.
    test.each([
      `unkept_volumes = null, vanished_volumes = null, detail = detail - 'unkept' - 'vanished'`,
      `unkept_volumes = unkept_volumes + 1, detail = detail - 'unkept' - 'vanished'`,
    ])('nothing, where volumes were not looked at when the node was derived: %s', async (change) => {
      await edit('node_gate_facts', `update control.node_gate_facts set ${change} where node_id = $1`, [node(0)]);
      expect(await found()).toEqual([]);
    });

    test('what gates need of a node that is gone', async () => {
      await edit('node_gate_facts', 'delete from control.node_gate_facts where node_id = $1', [node(0)]);
      expect(await found()).toEqual([{ table: 'node_gate_facts', key: at({ node_id: node(0) }) }]);
    });
  });

  describe('the ingress', () => {
    const designation = (generation: number) => ({ table: 'ingress_designation_revisions', key: at({ generation }) });

    test.each([`record = replace(record, '"version":1', '"version":2')`, `digest = 'sha256:' || repeat('0', 64)`])(
      'a designation: %s',
      async (change) => {
        await edit(
          'ingress_designation_revisions',
          `update control.ingress_designation_revisions set ${change} where ${here} and generation = 1`,
        );
        expect(await found()).toEqual([designation(1)]);
      },
    );

    test.each([1, 2])('a designation that is gone, generation %i', async (generation) => {
      await edit(
        'ingress_designation_revisions',
        `delete from control.ingress_designation_revisions where ${here} and generation = $1`,
        [generation],
      );
      expect(await found()).toEqual([designation(generation)]);
    });

    test.each([`service_id = 'sv-other'`, 'generation = 1', `digest = 'sha256:' || repeat('0', 64)`])(
      'the head: %s',
      async (change) => {
        await edit('ingress_designation_heads', `update control.ingress_designation_heads set ${change} where ${here}`);
        expect(await found()).toEqual([{ table: 'ingress_designation_heads', key: { cluster_id: inPallet } }]);
      },
    );

    test.each([
      `update control.sealed_secrets set service_id = 'sv-other' where ${here} and version = 1`,
      `update control.sealed_secrets set credential_id = 'cr-other' where ${here} and version = 1`,
      `delete from control.sealed_secrets where ${here} and version = 1`,
    ])('a sealed secret: %s', async (statement) => {
      const { secret_id } = await one<{ secret_id: string }>(
        `select secret_id from control.sealed_secrets where ${here} limit 1`,
      );
      await edit('sealed_secrets', statement);
      expect(await found()).toEqual([{ table: 'sealed_secrets', key: at({ secret_id, version: 1 }) }]);
    });

    test('a sealed secret that no designation names', async () => {
      await edit(
        'sealed_secrets',
        `insert into control.sealed_secrets select cluster_id, secret_id, 3, service_id, credential_id, key_id, nonce, ciphertext
         from control.sealed_secrets where ${here} and version = 2`,
      );
      expect(await found()).toEqual([
        { table: 'sealed_secrets', key: at({ secret_id: expect.any(String), version: 3 }) },
      ]);
    });
  });

  describe('held fences and coverage', () => {
    const fence = () =>
      one<{ node_id: string; handoff_id: string }>(
        `select node_id, handoff_id from control.held_fences where ${here} order by node_id limit 1`,
      );
    const coverage = () => ({ table: 'coverage', key: at({ node_id: node(0) }) });

    test.each([
      `update control.held_fences set record = replace(record, '"fenceStoreId":"fs-', '"fenceStoreId":"ft-') where handoff_id = $1`,
      'update control.held_fences set generation = generation + 1 where handoff_id = $1',
      `update control.held_fences set fence_id = 'vf-other' where handoff_id = $1`,
      `update control.held_fences set digest = 'sha256:' || repeat('0', 64) where handoff_id = $1`,
      'update control.held_fences set handoff_generation = handoff_generation + 1 where handoff_id = $1',
      'delete from control.held_fences where handoff_id = $1',
    ])('a fence: %s', async (statement) => {
      const key = await fence();
      await edit('held_fences', statement, [key.handoff_id]);
      expect(await found()).toEqual([{ table: 'held_fences', key: at(key) }]);
    });

    test('a fence, sealed anew, of a handoff that never was', async () => {
      const key = await fence();
      const { record } = await one<{ record: string }>('select record from control.held_fences where handoff_id = $1', [
        key.handoff_id,
      ]);
      const { digest: _digest, ...content } = JSON.parse(record) as TFleetCutoverVolumeFence;
      const forged = sealFence({ ...content, handoff: { ...content.handoff, digest: someDigest('other') } });
      await edit('held_fences', 'update control.held_fences set digest = $2, record = $3 where handoff_id = $1', [
        key.handoff_id,
        forged.digest,
        canonicalizeStrictJson(forged),
      ]);
      expect(await found()).toEqual([{ table: 'held_fences', key: at(key) }]);
    });

    test.each([
      'covered = covered + 1, covered_pages = set_bit(covered_pages, 4000, 1)',
      'held_pages = set_bit(held_pages, 4000, 1)',
      'held_pages = 0::bit(4096)',
      'covered = 0, covered_pages = 0::bit(4096)',
      'aggregate_generation = 99',
    ])('a node’s coverage: %s', async (change) => {
      await edit('coverage', `update control.coverage set ${change} where node_id = $1`, [node(0)]);
      expect(await found()).toEqual([coverage()]);
    });

    test('a count that is not that of the bits, where even the constraint is gone', async () => {
      const { owner } = service.database;
      await owner.query('alter table control.coverage drop constraint coverage_count');
      await edit('coverage', 'update control.coverage set covered = covered + 1 where node_id = $1', [node(0)]);
      expect(await found()).toEqual([coverage()]);
      await owner.query(
        'alter table control.coverage add constraint coverage_count check (covered = bit_count(covered_pages)) not valid',
      );
    });
  });

  describe('memberships', () => {
    test('a member of the target set that is gone, and one that was added', async () => {
      await edit('target_set_nodes', 'delete from control.target_set_nodes where node_id = $1', [node(0)]);
      await edit('target_set_nodes', `insert into control.target_set_nodes values ($1, 1, 'other'), ($1, 9, 'other')`, [
        inPallet,
      ]);
      expect(await found()).toEqual(
        [
          { generation: 1, node_id: node(0) },
          { generation: 1, node_id: 'other' },
          { generation: 9, node_id: 'other' },
        ].map((key) => ({ table: 'target_set_nodes', key: at(key) })),
      );
    });

    test.each([
      'delete from control.node_swarm_ids where swarm_node_id = $1',
      `update control.node_swarm_ids set node_id = '${inPallet}-n1' where swarm_node_id = $1`,
      `update control.node_swarm_ids set node_id = 'other' where swarm_node_id = $1`,
    ])('a node’s swarm node: %s', async (statement) => {
      const swarm_node_id = `sn-${node(0)}`;
      await edit('node_swarm_ids', statement, [swarm_node_id]);
      expect(await found()).toEqual([{ table: 'node_swarm_ids', key: at({ swarm_node_id }) }]);
    });
  });
});
