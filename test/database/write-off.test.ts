import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { fleetCutoverWriteOffRecord } from '../../src/contract/write-off.js';
import { sparkSwarmNodeContracts } from '../../src/contract/limits.js';
import type { MethodRequest } from '../../src/contract/methods.js';
import { type Reference, referenceOf } from '../../src/contract/schema.js';
import { type Cutover, cutover } from '../support/cutover.js';
import { referenceNamed } from '../support/handoff-set.js';
import { mutationId, startService, type TestService } from '../support/service.js';
import { volumeMount } from '../support/snapshots.js';

let service: TestService;
let bob: string;
let carol: string;
let operator: string;
let made = 0;

beforeAll(async () => {
  service = await startService({ logLevel: 'warn' });
  const issue = async (principalId: string, role: 'administrator' | 'operator') => {
    const issued = await service.done('issueAdministratorToken', { mutationId: mutationId(), principalId, role });
    return issued.secrets[0]!.secret;
  };
  bob = await issue('bob', 'administrator');
  carol = await issue('carol', 'administrator');
  operator = await issue('olga', 'operator');
});
afterAll(() => service.close());

async function at(phase: 'swarm' | 'draining' | 'switching', volumes = [2, 1, 0]): Promise<Cutover> {
  made += 1;
  const cut = await cutover(service, `wo-${made}`, { volumes, relay: false });
  await cut.bringTo(phase);
  return cut;
}

async function writeOff(
  cut: Cutover,
  node: number,
  proposal: Reference | null,
  token = service.token,
  over: Partial<MethodRequest<'writeOffNode'>> = {},
) {
  return service.call(
    'writeOffNode',
    {
      mutationId: mutationId(),
      clusterId: cut.clusterId,
      runtime: await cut.runtime(),
      nodeId: cut.nodeIds[node]!,
      proposal,
      reason: 'the building burned down',
      verified: 'two people were there',
      ...over,
    },
    token,
  );
}
async function writtenOff(cut: Cutover, node: number): Promise<void> {
  const proposed = await writeOff(cut, node, null);
  const confirmed = await writeOff(cut, node, referenceOf(proposed.body.writeOff), bob);
  expect([proposed.status, confirmed.status]).toEqual([200, 200]);
}
const said = ({ status, body }: { status: number; body: { code?: string; detail?: string } }) =>
  status === 200 ? 'done' : `${status} ${body.code}`;

describe('a node’s write-off', () => {
  it('takes two administrators: whoever proposed cannot confirm', async () => {
    const cut = await at('swarm');
    const proposed = await writeOff(cut, 2, null);
    expect(proposed.body.writeOff).toMatchObject({
      generation: 1,
      state: 'proposed',
      subject: { kind: 'node', nodeId: cut.nodeIds[2] },
      proposedBy: 'alice',
      confirmedBy: null,
    });
    const proposal = referenceOf(proposed.body.writeOff);
    const refused = await writeOff(cut, 2, proposal);
    expect([said(refused), refused.body.detail]).toEqual([
      '422 write-off-refused',
      'another administrator has to confirm it',
    ]);
    expect(said(await writeOff(cut, 2, proposal, operator))).toBe('403 role-refused');
    // A proposal alone changes nothing.
    expect((await cut.fleet.node(cut.nodeIds[2]!)).state).toBe('active');
    expect((await cut.report(2)).status).toBe(200);
    const confirmed = await writeOff(cut, 2, proposal, bob, { verified: 'saw the ashes' });
    expect(confirmed.body.writeOff).toMatchObject({
      generation: 2,
      state: 'confirmed',
      proposedBy: 'alice',
      confirmedBy: 'bob',
      reason: 'the building burned down',
      verified: 'saw the ashes',
      predecessor: proposal,
    });
    expect(fleetCutoverWriteOffRecord.validate(confirmed.body.writeOff)).toEqual([]);
    expect((await cut.fleet.node(cut.nodeIds[2]!)).state).toBe('written-off');
  });

  it('names the exact proposal, and of two who propose at once one is told that the other did', async () => {
    const cut = await at('swarm');
    for (let round = 0; round < 3; round += 1) {
      const answers = await Promise.all([
        writeOff(cut, round, null),
        writeOff(cut, round, null, bob),
        writeOff(cut, round, null, carol),
      ]);
      expect(answers.map(said).sort()).toEqual(['409 write-off-stale', '409 write-off-stale', 'done']);
      const { writeOff: proposed } = answers.find((each) => each.status === 200)!.body;
      for (const lost of answers.filter((each) => each.status !== 200)) {
        expect(lost.body).toMatchObject({ expectation: 'proposal', current: referenceOf(proposed) });
      }
    }
    const [proposed] = (await cut.explain()).writeOffs;
    const stale = [null, referenceNamed(proposed!.id), { ...referenceOf(proposed!), generation: 2 }];
    const node = cut.nodeIds.indexOf((proposed!.subject as { nodeId: string }).nodeId);
    for (const proposal of stale) expect(said(await writeOff(cut, node, proposal, bob))).toBe('409 write-off-stale');
    expect(said(await writeOff(cut, 0, null, service.token, { nodeId: 'nobody' }))).toBe('404 node-unknown');
    expect(said(await writeOff(cut, 0, null, service.token, { runtime: referenceNamed('rt-x') }))).toBe(
      '409 runtime-stale',
    );
  });

  it('is confirmed once, however many confirm at once', async () => {
    const cut = await at('swarm');
    for (let node = 0; node < 3; node += 1) {
      const proposal = referenceOf((await writeOff(cut, node, null)).body.writeOff);
      const answers = await Promise.all([bob, carol, bob].map((token) => writeOff(cut, node, proposal, token)));
      expect(answers.map(said).sort()).toEqual(['422 write-off-refused', '422 write-off-refused', 'done']);
    }
  });

  it('is for ever: nothing is taken of the node, and nobody takes it back', async () => {
    const cut = await at('draining');
    await cut.prepare();
    const nodeId = cut.nodeIds[0]!;
    const evidence = await cut.evidence(0, 0);
    await writtenOff(cut, 0);
    const { clusterId } = cut;
    expect(said(await cut.report(0))).toBe('403 node-written-off');
    expect(said(await cut.send(0, evidence))).toBe('403 node-written-off');
    const page = await fetch(service.url + sparkSwarmNodeContracts.fleetCutoverPreparedVolumeHandoffs.endpoint, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        nodeId,
        nodeToken: cut.fleet.token(nodeId),
        protocol: { major: 32, minor: 15 },
        aggregate: null,
        pageIndex: 0,
      }),
    });
    expect([page.status, ((await page.json()) as { code: string }).code]).toEqual([403, 'node-written-off']);

    const mutation = () => ({ mutationId: mutationId(), clusterId, nodeId });
    const refused = await Promise.all([
      service.call('rotateNodeCredential', { ...mutation(), kind: 'node-token' }),
      service.call('releaseNodeQuarantine', mutation()),
      service.call('setCorestorePublicKey', { ...mutation(), corestorePublicKey: 'a'.repeat(64) }),
      service.call('confirmNodeRejoin', { ...mutation(), swarmNodeId: 'sn-else' }),
      service.call('registerNode', { ...mutation(), corestorePublicKey: null }),
    ]);
    expect(refused.map(said)).toEqual([...Array<string>(4).fill('403 node-written-off'), '409 node-exists']);
    await service.call('revokeNode', mutation());
    expect((await cut.fleet.node(nodeId)).state).toBe('written-off');
    const targets = await cut.accept();
    expect([said(targets), targets.body.entries]).toEqual([
      '422 target-set-refused',
      [{ list: 'nodeIds', index: 0, code: 'node-unknown' }],
    ]);
    const [confirmed] = (await cut.explain()).writeOffs;
    for (const proposal of [null, referenceOf(confirmed!)]) {
      expect(said(await writeOff(cut, 0, proposal, bob))).toMatch(/^4\d\d write-off-(refused|stale)$/);
    }
    for (const statement of ["update control.write_offs set state = 'proposed'", 'delete from control.write_offs']) {
      await expect(service.database.owner.query(statement)).rejects.toMatchObject({ code: '23001' });
    }
  });

  it('takes the node out of gates and coverage', async () => {
    const cut = await at('draining');
    await cut.prepare();
    await cut.hold(0, 0);
    await cut.hold(1, 0);
    await cut.report(0);
    await cut.report(1);
    // The third node is gone: neither observed nor covered.
    expect((await cut.unmet()).map((gate) => `${gate.code} ${gate.missingCount}`)).toEqual([
      'targets-observed 1',
      'coverage-complete 1',
    ]);
    expect((await cut.explain()).coverage).toMatchObject({ total: 3, covered: 2, targetNodes: 3 });
    await writtenOff(cut, 2);
    expect(await cut.unmet()).toEqual([]);
    expect((await cut.explain()).coverage).toMatchObject({ total: 2, covered: 2, remaining: 0, targetNodes: 2 });
    expect((await cut.advance('switching')).status).toBe(200);
    // Of its tasks and containers nothing is asked any more, either.
    cut.stopEverything();
    await cut.report(0);
    await cut.report(1);
    expect(await cut.unmet()).toEqual([]);
    expect((await cut.advance('pallet')).status).toBe(200);
  });

  it('in switching lets the applications’ last tasks and containers of the node go', async () => {
    const cut = await at('switching');
    cut.stopEverything();
    // The second node burned: Swarm believes its task to run.
    cut.world.tasks = cut.world.tasks.map((task) =>
      task.serviceId === 'app-1' ? { ...task, state: 'running', desiredState: 'shutdown' } : task,
    );
    await cut.report(0);
    await cut.report(2);
    const codes = (await cut.unmet()).map((gate) => gate.code);
    expect(codes).toEqual(
      expect.arrayContaining(['targets-observed', 'applications-stopped', 'containers-stopped', 'pallet-ready']),
    );
    await writtenOff(cut, 1);
    expect(await cut.unmet()).toEqual([]);
    expect((await cut.advance('pallet')).status).toBe(200);
  });

  it('lets entries go that nobody prepared; prepared ones stay and are shown as written off', async () => {
    const cut = await at('draining');
    await cut.prepare();
    const [app] = cut.world.nodes[0]!.containers;
    cut.world.nodes[0]!.containers[0] = { ...app!, mounts: [...app!.mounts, volumeMount('late', '/late')] };
    await cut.report(0);
    const states = async () =>
      (await cut.fleet.entries()).map((each) => `${cut.nodeIds.indexOf(each.nodeId)} ${each.mountPath} ${each.state}`);
    expect((await states()).sort()).toEqual([
      '0 /data/00 prepared',
      '0 /data/01 prepared',
      '0 /late missing',
      '1 /data/00 prepared',
    ]);
    const before = await cut.aggregate();
    await writtenOff(cut, 0);
    expect((await states()).filter((line) => line.includes('/late'))).toEqual([]);
    const { entries } = await cut.explain({ kind: 'node', nodeId: cut.nodeIds[0]! });
    expect(entries.map((each) => `${each.mountPath} ${each.state}`).sort()).toEqual([
      '/data/00 written-off',
      '/data/01 written-off',
    ]);
    // It grants nothing: no handoff changed, and the aggregate is the same.
    expect(await cut.aggregate()).toEqual(before);
    const state = await cut.fleet.state();
    expect([state.missingCount, state.surplusCount, state.behind]).toEqual([0, 0, false]);
  });
});

describe('a volume’s write-off', () => {
  async function volumeOff(
    cut: Cutover,
    key: { nodeId: string; serviceId: string; mountIdentityDigest: Reference['digest'] },
    proposal: Reference | null,
    token = service.token,
  ) {
    const { nodeId, serviceId, mountIdentityDigest } = key;
    return service.call(
      'writeOffVolume',
      {
        mutationId: mutationId(),
        clusterId: cut.clusterId,
        runtime: await cut.runtime(),
        nodeId,
        serviceId,
        mountIdentityDigest,
        proposal,
        reason: 'the disk is dead',
        verified: 'the lab says so',
      },
      token,
    );
  }

  it('lets exactly its entry go where it is not prepared', async () => {
    const cut = await at('draining');
    const entries = await cut.fleet.entries();
    const lost = entries.find((each) => each.nodeId === cut.nodeIds[0] && each.mountPath === '/data/01')!;
    const proposed = await volumeOff(cut, lost, null);
    expect(said(await volumeOff(cut, lost, referenceOf(proposed.body.writeOff)))).toBe('422 write-off-refused');
    expect((await cut.fleet.entries()).length).toBe(3);
    expect(said(await volumeOff(cut, lost, referenceOf(proposed.body.writeOff), bob))).toBe('done');
    const left = (await cut.fleet.entries()).map((each) => each.id);
    expect(left).toEqual(entries.map((each) => each.id).filter((id) => id !== lost.id));
    // The node goes on as ever, and its next report brings the entry not back.
    cut.world.nodes[0]!.palletReady = true;
    expect((await cut.report(0)).status).toBe(200);
    expect((await cut.fleet.entries()).map((each) => each.id)).toEqual(left);
    await cut.readyFor('switching');
    expect((await cut.advance('switching')).status).toBe(200);
  });

  it('keeps a prepared entry, shown as written off, and another one of the same node is untouched', async () => {
    const cut = await at('draining');
    await cut.prepare();
    const lost = (await cut.fleet.entries()).find((each) => each.nodeId === cut.nodeIds[0])!;
    const proposed = await volumeOff(cut, lost, null);
    await volumeOff(cut, lost, referenceOf(proposed.body.writeOff), bob);
    const { entries, writeOffs } = await cut.explain({ kind: 'node', nodeId: cut.nodeIds[0]! });
    expect(entries.map((each) => [each.id === lost.id, each.state])).toEqual(
      expect.arrayContaining([
        [true, 'written-off'],
        [false, 'prepared'],
      ]),
    );
    expect(writeOffs).toMatchObject([{ state: 'confirmed', subject: { kind: 'volume', nodeId: cut.nodeIds[0] } }]);
    const listed = await cut.fleet.entries();
    expect(listed.filter((each) => each.state === 'written-off').map((each) => each.id)).toEqual([lost.id]);
    expect(listed.filter((each) => each.state === 'prepared')).toHaveLength(2);
  });

  it('takes its entry out of the ready-made mutations of a list that is gone on with', async () => {
    const cut = await at('draining');
    const { clusterId } = cut;
    const page = (cursor: string | null, limit: number) =>
      service.done('listFleetCutoverRequiredVolumeHandoffs', { clusterId, cursor, limit });
    const first = await page(null, 1);
    const [, lost, other] = await cut.fleet.entries();
    const proposed = await volumeOff(cut, lost!, null);
    // A proposal is none yet.
    expect((await page(first.nextCursor, 32)).entries.map((each) => each.state)).toEqual(['missing', 'missing']);
    expect(said(await volumeOff(cut, lost!, referenceOf(proposed.body.writeOff), bob))).toBe('done');
    // At the derivation of its first page it is required, and nobody would take it.
    const next = await page(first.nextCursor, 32);
    expect(next.derivation).toEqual(first.derivation);
    expect(next.entries.map((each) => [each.id, each.state])).toEqual([
      [lost!.id, 'written-off'],
      [other!.id, 'missing'],
    ]);
    expect(next.mutations.flat().map((each) => [each.nodeId, each.mountIdentityDigest])).toEqual([
      [other!.nodeId, other!.mountIdentityDigest],
    ]);
    await writtenOff(cut, 0);
    const [entry, ...rest] = (await page(first.nextCursor, 32)).entries.filter(
      ({ nodeId }) => nodeId === cut.nodeIds[0],
    );
    expect([entry?.state, rest]).toEqual(['written-off', []]);
  });

  it('of what was never required is refused, and node and volume are written off apart', async () => {
    const cut = await at('swarm');
    const [entry] = await cut.fleet.entries();
    expect(said(await volumeOff(cut, { ...entry!, serviceId: 'sv-nobody' }, null))).toBe('404 record-unknown');
    expect(said(await volumeOff(cut, { ...entry!, nodeId: 'nobody' }, null))).toBe('404 node-unknown');
    await volumeOff(cut, entry!, null);
    await writeOff(cut, 0, null);
    const { writeOffs } = await cut.explain();
    expect(writeOffs.map((each) => each.subject.kind).sort()).toEqual(['node', 'volume']);
    const { rows } = await service.database.owner.query<{ line: string }>(
      "select state || ' ' || reason || ' ' || proposed_by as line from operator.write_offs where cluster_id = $1 order by 1",
      [cut.clusterId],
    );
    expect(rows.map((row) => row.line)).toEqual([
      'proposed the building burned down alice',
      'proposed the disk is dead alice',
    ]);
  });
});
