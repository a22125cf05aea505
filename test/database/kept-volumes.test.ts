import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { IFleetCutoverGate } from '../../src/contract/gate.js';
import type { IFleetCutoverRequiredEntry } from '../../src/contract/derivation.js';
import { referenceOf } from '../../src/contract/schema.js';
import { anonymousVolume, type Cutover, cutover, keeper } from '../support/cutover.js';
import { mutationId, startService, type TestService } from '../support/service.js';
import { container, taskContainer, volumeMount } from '../support/snapshots.js';

let service: TestService;
let bob: string;
let made = 0;
beforeAll(async () => {
  service = await startService({ logLevel: 'warn' });
  const issued = await service.done('issueAdministratorToken', {
    mutationId: mutationId(),
    principalId: 'bob',
    role: 'administrator',
  });
  bob = issued.secrets[0]!.secret;
});
afterAll(() => service.close());

/** Everything is there but what a test takes away. */
async function readyFor(phase: 'switching' | 'pallet'): Promise<Cutover> {
  made += 1;
  const cut = await cutover(service, `kv-${made}`, { kept: true });
  await cut.bringTo(phase === 'switching' ? 'draining' : 'switching');
  await cut.readyFor(phase);
  expect(await cut.unmet()).toEqual([]);
  return cut;
}

const shown = (gates: readonly IFleetCutoverGate[]) =>
  gates.map(({ code, missingCount, missing, acts }) => [code, missingCount, missing[0]?.detail, acts]);
const unkept = [
  'anonymous-volumes-kept',
  1,
  `anonymous volume ${anonymousVolume} at /data/anonymous goes with its service: create a container outside Swarm that mounts ` +
    'it, or copy it to a named volume and release the entry',
  'administrator',
];
const gone = (volume: string, path: string) => [
  'volumes-present',
  1,
  `volume ${volume} at ${path} is not on the node any more: write it off, or before switching release the entry`,
  'administrator',
];

function withoutKeeper(cut: Cutover): Promise<unknown> {
  const [node] = cut.world.nodes;
  node!.containers = node!.containers.filter((each) => each.id !== keeper().id);
  return cut.report(0);
}
function withKeeper(cut: Cutover): Promise<unknown> {
  cut.world.nodes[0]!.containers.push(keeper());
  return cut.report(0);
}

describe('an anonymous volume on the way to switching', () => {
  it('holds the phase back until something keeps it, and again when that goes', async () => {
    const cut = await readyFor('switching');
    for (const _time of [1, 2]) {
      await withoutKeeper(cut);
      const unmet = await cut.unmet();
      expect(shown(unmet)).toEqual([unkept]);
      expect(unmet[0]!.missing).toMatchObject([{ nodeId: cut.nodeIds[0], swarmServiceId: 'app-0' }]);
      expect(unmet[0]!.evidence).toHaveLength(3);
      expect((await cut.advance('switching')).body).toMatchObject({ code: 'gate-unmet', detail: unkept[0] });
      await withKeeper(cut);
      expect(await cut.unmet()).toEqual([]);
    }
    // A keeper that is there and not confirmed blocks the entry instead; a bind keeps nothing.
    cut.world.nodes[0]!.containers.push(container('other', { mounts: [volumeMount(anonymousVolume, '/other')] }));
    await withoutKeeper(cut);
    expect((await cut.unmet()).map(({ code }) => code)).toEqual(['no-blocker', 'aggregate-current']);
    cut.world.nodes[0]!.containers.pop();
    await withKeeper(cut);
    expect((await cut.advance('switching')).body.gates!.map(({ code }) => code)).toContain('anonymous-volumes-kept');
  });

  it('is asked of the service and the node that have it, and of nobody else', async () => {
    const cut = await readyFor('switching');
    await withoutKeeper(cut);
    const codes = async (subject: Parameters<Cutover['explain']>[0]) =>
      (await cut.explain(subject)).gates.map(({ code, missingCount }) => [code, missingCount]);
    const [own, other] = [0, 1].map((node) => cut.fleet.owner(`${cut.clusterId}-app-${node}`)) as [string, string];
    expect(await codes({ kind: 'node', nodeId: cut.nodeIds[0]! })).toEqual([[unkept[0], 1]]);
    expect(await codes({ kind: 'service', serviceId: own })).toEqual([[unkept[0], 1]]);
    expect(await codes({ kind: 'node', nodeId: cut.nodeIds[1]! })).toEqual([]);
    expect(await codes({ kind: 'service', serviceId: other })).toEqual([]);
  });

  it('needs no keeper once its entry is released, as after a copy', async () => {
    const cut = await readyFor('switching');
    await withoutKeeper(cut);
    const { nodeId, serviceId, mountIdentityDigest } = await entryOf(cut, anonymousVolume);
    const key = { nodeId, serviceId, mountIdentityDigest };
    const released = { ...cut.statement, releasedEntries: [{ ...key, reason: 'its data is copied' }] };
    expect((await cut.classify(released)).status).toBe(200);
    const state = await cut.fleet.state();
    await service.done('prepareFleetCutoverVolumeHandoffs', {
      mutationId: mutationId(),
      clusterId: cut.clusterId,
      runtime: await cut.runtime(),
      scope: state.scope!,
      expectedAggregate: referenceOf(state.aggregate!),
      upserts: [],
      removals: [key],
    });
    await cut.holdAll();
    expect(await cut.unmet()).toEqual([]);
  });

  it('that is gone before is not waved through, whatever is said to keep it', async () => {
    const cut = await readyFor('switching');
    const [node] = cut.world.nodes;
    node!.containers = node!.containers.map((each) => ({
      ...each,
      mounts: each.mounts.filter(({ name }) => name !== anonymousVolume),
    }));
    node!.volumes = node!.volumes.filter((name) => name !== anonymousVolume);
    await cut.report(0);
    expect(shown(await cut.unmet())).toEqual([gone(anonymousVolume, '/data/anonymous')]);
  });
});

describe('a node that was derived before anybody looked at volumes', () => {
  it('meets neither gate until it is derived again', async () => {
    const cut = await readyFor('switching');
    await service.database.owner.query(
      `update control.node_gate_facts set unkept_volumes = null, vanished_volumes = null, detail = detail - 'unkept' - 'vanished'
       where cluster_id = $1 and node_id = $2`,
      [cut.clusterId, cut.nodeIds[1]],
    );
    const unjudged = (code: string) => [code, 1, 'its volumes were not judged yet', 'administrator'];
    expect(shown(await cut.unmet())).toEqual([unjudged('volumes-present'), unjudged('anonymous-volumes-kept')]);
    // Reports that change nothing derive nothing.
    await cut.report(1);
    expect(await cut.unmet()).toHaveLength(2);
    await cut.classify();
    await cut.prepare();
    await cut.holdAll();
    expect(await cut.unmet()).toEqual([]);
  });
});

describe('in switching', () => {
  it('the service goes, its volume stays, its keeper goes: the phase advances', async () => {
    const cut = await readyFor('switching');
    expect((await cut.advance('switching')).status).toBe(200);
    await cut.revokeRelay();
    await cut.reportAll();
    const codes = async () => (await cut.unmet()).map(({ code }) => code);
    const running = await codes();
    expect(running).toContain('applications-stopped');
    expect(running).toContain('confirmed-overlaps-gone');
    expect(running).not.toContain('anonymous-volumes-kept');
    // Too early: Swarm has the containers still, and would delete the volume with them.
    await withoutKeeper(cut);
    expect(await codes()).toContain('anonymous-volumes-kept');
    await withKeeper(cut);

    cut.removeContainers('app-0');
    await cut.reportAll();
    expect(cut.world.nodes[0]!.volumes).toContain(anonymousVolume);
    const stopped = await codes();
    expect(stopped).toContain('confirmed-overlaps-gone');
    expect(stopped).not.toContain('volumes-present');
    cut.stopEverything();
    await withoutKeeper(cut);
    await cut.reportAll();
    expect(await codes()).toEqual([]);
    const advanced = await cut.advance('pallet');
    expect(advanced.status).toBe(200);
    expect(advanced.body.gates!.map(({ code }) => code)).toEqual(
      expect.arrayContaining(['volumes-present', 'anonymous-volumes-kept']),
    );
  });

  it('a stray that is anonymous needs a keeper, too', async () => {
    const cut = await readyFor('pallet');
    const stray = 'c'.repeat(64);
    cut.world.nodes[1]!.containers.push(
      taskContainer('app-1', [volumeMount(stray, '/stray')], { ordinal: 2, state: 'exited' }),
    );
    await cut.report(1);
    expect((await cut.unmet()).map(({ code }) => code)).toEqual([
      'aggregate-complete',
      'aggregate-current',
      'anonymous-volumes-kept',
      'no-stray',
    ]);
  });

  it.each([
    ['anonymous', anonymousVolume, '/data/anonymous'],
    ['named', 'v01', '/data/01'],
  ])(
    'a volume that is gone, and was %s, keeps the phase where it is until it is written off',
    async (_kind, name, path) => {
      const cut = await readyFor('pallet');
      const [node] = cut.world.nodes;
      node!.containers = node!.containers.filter((each) => each.swarmServiceId !== 'app-0');
      node!.volumes = node!.volumes.filter((each) => each !== name);
      await cut.report(0);
      const unmet = await cut.unmet();
      expect(shown(unmet)).toEqual([gone(name, path)]);
      expect(unmet[0]!.missing).toMatchObject([{ nodeId: cut.nodeIds[0], swarmServiceId: 'app-0' }]);
      expect((await cut.advance('pallet')).body).toMatchObject({ code: 'gate-unmet', detail: 'volumes-present' });

      const { nodeId, serviceId, mountIdentityDigest } = await entryOf(cut, name);
      const writeOff = {
        clusterId: cut.clusterId,
        runtime: await cut.runtime(),
        nodeId,
        serviceId,
        mountIdentityDigest,
        reason: 'somebody removed it',
        verified: 'the directory is not there',
      };
      const proposed = await service.done('writeOffVolume', { ...writeOff, mutationId: mutationId(), proposal: null });
      expect(shown(await cut.unmet())).toEqual([gone(name, path)]);
      const proposal = referenceOf(proposed.writeOff);
      await service.done('writeOffVolume', { ...writeOff, mutationId: mutationId(), proposal }, bob);
      expect(await cut.unmet()).toEqual([]);
      expect((await cut.advance('pallet')).status).toBe(200);
    },
  );
});

async function entryOf(cut: Cutover, volumeName: string): Promise<IFleetCutoverRequiredEntry> {
  const { entries } = await cut.explain({ kind: 'node', nodeId: cut.nodeIds[0]! });
  return entries.find((entry) => entry.volumeName === volumeName)!;
}
