/** Somebody edits the database past the service: what is read is refused, not served, and `verify` names the row. */
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { buildFaultFleet, type FaultFleet, prepareAllKeys, prepareBody, upsertOf } from '../support/fault-fleet.js';
import {
  type AnswerBody,
  openRawClient,
  type RawAnswer,
  type RawClient,
  type Reference,
  referenceIn,
} from '../support/oracle-http.js';
import { readPage, readWholeRevision } from '../support/oracle-pages.js';
import { startService, type TestService } from '../support/service.js';
import { verify } from '../../src/features/verify/verify.js';
import { isRefused } from '../../src/refusal.js';

let service: TestService;
let client: RawClient;
let fleet: FaultFleet;
let head: Reference;
let serial = 0;

beforeAll(async () => {
  service = await startService({ logLevel: 'silent' });
  client = openRawClient(service.url, service.token);
});
// Each on a fleet of its own, of which nothing was read yet.
beforeEach(async () => {
  serial += 1;
  fleet = await buildFaultFleet(client, `rot-${serial}`, { nodes: 1, volumesPerNode: 40 });
  head = await prepareAllKeys(client, fleet);
});
afterAll(async () => {
  await client.close();
  await service.close();
});

/** As the tables' owner, past the triggers. */
async function edit(statement: string, ...values: unknown[]): Promise<void> {
  const owner = await service.database.owner.connect();
  try {
    await owner.query('set session_replication_role = replica');
    const { rowCount } = await owner.query(statement, [fleet.clusterId, ...values]);
    expect(rowCount).toBe(1);
  } finally {
    await owner.query('reset session_replication_role');
    owner.release();
  }
}

const corrupt = (answer: RawAnswer): unknown[] => [answer.status, answer.body?.code];
const refused = [500, 'record-corrupt'];
const sparkPage = (pageIndex: number): Promise<RawAnswer> => readPage(client, fleet.nodes[0]!, head, pageIndex);
const ownerPage = (pageIndex: number): Promise<RawAnswer> =>
  client.owner('readFleetCutoverVolumeHandoffPage', { clusterId: fleet.clusterId, aggregate: head, pageIndex });

/** Tables of the rows that `verify` names, with the part of their keys that is asked for. */
async function named(...columns: string[]): Promise<unknown[][]> {
  const report = await verify(service.deps, { clusterId: fleet.clusterId, remembered: [] });
  if (isRefused(report)) throw new Error(report.problem.code);
  return report.findings.map(({ table, key }) => [table, ...columns.map((column) => key[column])]);
}

async function firstEntry(): Promise<AnswerBody> {
  const answer = await ownerPage(0);
  return answer.body.page.handoffs[0];
}

const readHandoff = (entry: AnswerBody): Promise<RawAnswer> =>
  client.owner('readFleetCutoverVolumeHandoff', {
    clusterId: fleet.clusterId,
    nodeId: entry.nodeId,
    id: entry.id,
    generation: null,
  });

it('verifies as clean what nobody has edited', async () => {
  expect(await named()).toEqual([]);
});

describe('a stored page', () => {
  it.each([
    ['a flipped bit', 60, 0x01],
    ['a byte that is no UTF-8', 200, 0x80],
    ['a flipped bit at its end', -2, 0x04],
  ])('with %s is not served, others are', async (_what, at, bits) => {
    const { rows } = await service.database.owner.query<{ bytes: Buffer }>(
      'select bytes from control.handoff_pages where cluster_id = $1 and page_index = 1',
      [fleet.clusterId],
    );
    const bytes = Buffer.from(rows[0]!.bytes);
    const position = at < 0 ? bytes.length + at : at;
    bytes[position] = bytes[position]! ^ bits;
    await edit('update control.handoff_pages set bytes = $2 where cluster_id = $1 and page_index = 1', bytes);
    expect(corrupt(await sparkPage(1))).toEqual(refused);
    expect(corrupt(await ownerPage(1))).toEqual(refused);
    expect((await sparkPage(0)).status).toBe(200);
    await expect(readWholeRevision(client, fleet.nodes[0]!)).rejects.toThrow('page read: 500');
    expect(await named('page_index')).toEqual([['handoff_pages', 1]]);
    // Nothing is built on it either: replacing a handoff there would have to copy what stands beside it.
    const { page } = (await ownerPage(0)).body;
    const first = fleet.keys.slice(32).map((key) => upsertOf(key, 5))[0]!;
    const change = await client.owner(
      'prepareFleetCutoverVolumeHandoffs',
      prepareBody(fleet, { expectedAggregate: head, upserts: [first] }),
    );
    expect(page.handoffs).toHaveLength(32);
    expect(change.status).toBe(500);
    const state = await client.done('readFleetCutoverState', { clusterId: fleet.clusterId });
    expect(referenceIn(state.aggregate)).toEqual(head);
  });

  it('that was deleted is not served', async () => {
    await edit('delete from control.handoff_pages where cluster_id = $1 and page_index = 1');
    expect((await sparkPage(1)).status).not.toBe(200);
    expect(corrupt(await ownerPage(1))).toEqual(refused);
    expect(await named('page_index')).toContainEqual(['handoff_pages', 1]);
  });
});

describe('a handoff', () => {
  it('with an edited record is not served', async () => {
    const entry = await firstEntry();
    await edit(
      `update control.handoff_revisions set record = replace(record, '/data/', '/date/') where cluster_id = $1 and handoff_id = $2`,
      entry.id,
    );
    expect(corrupt(await sparkPage(0))).toEqual(refused);
    expect(corrupt(await readHandoff(entry))).toEqual(refused);
    expect(await named('handoff_id')).toEqual([['handoff_revisions', entry.id]]);
  });

  it('with a record that is no JSON any more is not served', async () => {
    const entry = await firstEntry();
    await edit(
      `update control.handoff_revisions set record = '{' || record where cluster_id = $1 and handoff_id = $2`,
      entry.id,
    );
    expect(corrupt(await sparkPage(0))).toEqual(refused);
    expect(corrupt(await readHandoff(entry))).toEqual(refused);
    expect(await named('handoff_id')).toEqual([['handoff_revisions', entry.id]]);
  });

  it('with another digest, too, is not served in its page', async () => {
    const entry = await firstEntry();
    await edit(
      `update control.handoff_revisions set digest = 'sha256:' || repeat('0', 64) where cluster_id = $1 and handoff_id = $2`,
      entry.id,
    );
    expect(corrupt(await sparkPage(0))).toEqual(refused);
    expect(corrupt(await readHandoff(entry))).toEqual(refused);
    expect(await named('handoff_id')).toEqual([['handoff_revisions', entry.id]]);
  });

  it('whose row was deleted is missed', async () => {
    const entry = await firstEntry();
    await edit('delete from control.handoff_revisions where cluster_id = $1 and handoff_id = $2', entry.id);
    expect(corrupt(await sparkPage(0))).toEqual(refused);
    expect((await readHandoff(entry)).status).not.toBe(200);
    expect(await named('handoff_id')).toContainEqual(['handoff_revisions', entry.id]);
  });
});

describe('an aggregate’s header', () => {
  it('with an edited record is not served', async () => {
    await edit(
      `update control.aggregate_revisions set record = replace(record, '"requiredCount":40', '"requiredCount":41')
        where cluster_id = $1 and generation = $2`,
      head.generation,
    );
    expect(corrupt(await sparkPage(0))).toEqual(refused);
    const pinned = { clusterId: fleet.clusterId, aggregate: head };
    expect(corrupt(await client.owner('readFleetCutoverVolumeHandoffAggregate', pinned))).toEqual(refused);
    expect(corrupt(await ownerPage(0))).toEqual(refused);
    expect(await named('generation')).toEqual([['aggregate_revisions', head.generation]]);
  });

  it('that was deleted is missed', async () => {
    await edit('delete from control.aggregate_revisions where cluster_id = $1 and generation = $2', head.generation);
    expect((await sparkPage(0)).status).not.toBe(200);
    expect(
      (await client.owner('readFleetCutoverVolumeHandoffAggregate', { clusterId: fleet.clusterId, aggregate: null }))
        .status,
    ).not.toBe(200);
  });
});

describe('what an owner reads', () => {
  const state = () => client.owner('readFleetCutoverState', { clusterId: fleet.clusterId });
  const list = (method: string) => client.owner(method, { clusterId: fleet.clusterId, cursor: null, limit: 100 });
  const pinless = (method: string, pin: string) => client.owner(method, { clusterId: fleet.clusterId, [pin]: null });
  const explain = (subject: object) => client.owner('explainFleetCutover', { clusterId: fleet.clusterId, subject });

  it.each<[string, string, string, () => Promise<RawAnswer>]>([
    ['the aggregate', 'aggregate_revisions', `'"requiredCount":40', '"requiredCount":41'`, state],
    ['the runtime', 'runtime_revisions', `'"phase":"swarm"', '"phase":"pallet"'`, state],
    ['the runtime', 'runtime_revisions', `'"phase":"swarm"', '"phase":"pallet"'`, () => explain({ kind: 'cluster' })],
    ['the derivation', 'derivation_revisions', `'"requiredCount":40', '"requiredCount":41'`, state],
    [
      'the scope',
      'scope_revisions',
      `'"class":"application"', '"class":"excluded"'`,
      () => pinless('readFleetCutoverScope', 'scope'),
    ],
    [
      'the target set',
      'target_set_revisions',
      `'"nodeIds":["', '"nodeIds":["x'`,
      () => pinless('readFleetCutoverTargetSet', 'targetSet'),
    ],
    [
      'the manager’s snapshot',
      'manager_snapshots',
      `'"availability":"active"', '"availability":"drain"'`,
      () => pinless('readFleetCutoverManagerSnapshot', 'snapshot'),
    ],
    [
      'a node’s snapshot',
      'local_snapshots',
      `'"state":"running"', '"state":"exited"'`,
      () => list('listFleetCutoverUncoveredVolumes'),
    ],
  ])('does not serve %s of an edited row of %s', async (_what, table, values, read) => {
    expect((await read()).status).toBe(200);
    const of = `control.${table} where cluster_id = $1`;
    await edit(
      `update control.${table} set record = replace(record, ${values})
        where cluster_id = $1 and generation = (select max(generation) from ${of})`,
    );
    expect(corrupt(await read())).toEqual(refused);
    expect((await named()).flat()).toEqual([table]);
  });

  it('does not serve a text that is no JSON any more', async () => {
    await edit(
      `update control.aggregate_revisions set record = '{' || record where cluster_id = $1 and generation = $2`,
      head.generation,
    );
    expect(corrupt(await state())).toEqual(refused);
  });

  it('does not serve blockers and write-offs of edited rows', async () => {
    const { clusterId, nodes } = fleet;
    const { runtime } = await client.done('readFleetCutoverState', { clusterId });
    await service.done('writeOffNode', {
      mutationId: `m-${clusterId}`,
      clusterId,
      nodeId: nodes[0]!.nodeId,
      runtime: referenceIn(runtime) as never,
      proposal: null,
      reason: 'the building burned down',
      verified: 'somebody was there',
    });
    expect((await explain({ kind: 'cluster' })).status).toBe(200);
    await edit(`update control.write_offs set record = replace(record, 'burned', 'turned') where cluster_id = $1`);
    expect(corrupt(await explain({ kind: 'cluster' }))).toEqual(refused);
    await edit(`update control.write_offs set record = replace(record, 'turned', 'burned') where cluster_id = $1`);
    const { rows } = await service.database.owner.query<{ generation: string }>(
      'select generation from control.derivation_heads where cluster_id = $1',
      [clusterId],
    );
    await edit(
      `insert into control.blockers (cluster_id, blocker_id, since, code, part, record)
        values ($1, 'bl-added', $2, 'scope-missing', '', '{"code":"scope-missing","detail":"","id":"bl-added"}')`,
      rows[0]!.generation,
    );
    expect(corrupt(await explain({ kind: 'cluster' }))).toEqual(refused);
    expect(corrupt(await list('listFleetCutoverBlockers'))).toEqual(refused);
  });
});

describe('an audit row', () => {
  it('with an edited result is not replayed', async () => {
    const body = prepareBody(fleet, { expectedAggregate: head, upserts: [upsertOf(fleet.keys[0]!, 9)] });
    await client.done('prepareFleetCutoverVolumeHandoffs', body);
    await edit(
      `update control.audit_rows set result = replace(result, '"revised"', '"created"') where cluster_id = $1 and mutation_id = $2`,
      body.mutationId,
    );
    const replay = await client.owner('prepareFleetCutoverVolumeHandoffs', body);
    expect([replay.status, replay.body.aggregate]).toEqual([500, undefined]);
    expect(await named('chain_id')).toEqual([['audit_rows', fleet.clusterId]]);
  });

  it('that was cut off with the chain’s head is missed by whoever remembers it', async () => {
    const body = prepareBody(fleet, { expectedAggregate: head, upserts: [upsertOf(fleet.keys[0]!, 10)] });
    const { audit } = await client.done('prepareFleetCutoverVolumeHandoffs', body);
    const { clusterId } = fleet;
    await edit('delete from control.audit_rows where chain_id = $1 and seq = $2', audit.seq);
    await edit(
      `update control.audit_heads as head set seq = last.seq, digest = last.chain_digest
         from control.audit_rows as last
        where head.chain_id = $1 and last.chain_id = $1 and last.seq = $2`,
      audit.seq - 1,
    );
    // A chain alone can't show it.
    expect(await named('seq')).not.toContainEqual(['audit_rows', audit.seq]);
    const report = await verify(service.deps, { clusterId, remembered: [audit] });
    if (isRefused(report)) throw new Error(report.problem.code);
    expect(report.findings).toContainEqual(expect.objectContaining({ key: { chain_id: clusterId, seq: audit.seq } }));
  });
});
