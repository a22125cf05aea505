import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  fleetCutoverCoreflowRetirementEvidenceRecord,
  type IFleetCutoverCoreflowRetirementEvidence,
} from '../../src/contract/coreflow.js';
import { referenceOf } from '../../src/contract/schema.js';
import { type Cutover, cutover, relayContainer } from '../support/cutover.js';
import { mutationId, startService, type TestService } from '../support/service.js';
import { swarmService } from '../support/snapshots.js';

let service: TestService;
let made = 0;
beforeAll(async () => {
  service = await startService({ logLevel: 'warn' });
});
afterAll(() => service.close());

async function at(phase: 'swarm' | 'draining' | 'switching', relay = true): Promise<Cutover> {
  made += 1;
  const cut = await cutover(service, `cf-${made}`, { relay });
  await cut.bringTo(phase);
  return cut;
}
const unmet = async (cut: Cutover) => (await cut.unmet()).map((gate) => gate.code);

describe('the relay', () => {
  it('is identified by exactly one running container of its service, under the runtime being left', async () => {
    const cut = await at('draining');
    await cut.readyFor('switching');
    expect(await unmet(cut)).toEqual([]);
    const [home, away] = [cut.world.nodes[0]!, cut.world.nodes[2]!];
    const others = home.containers.filter((each) => each.swarmServiceId !== 'relay');

    away.containers = [relayContainer('relay.2')];
    await cut.report(2);
    expect(await cut.unmet()).toMatchObject([
      {
        code: 'coreflow-identified',
        acts: 'administrator',
        missingCount: 2,
        missing: [
          { nodeId: cut.nodeIds[0], swarmServiceId: 'relay', detail: 'container relay.1 of the relay is running' },
          { nodeId: cut.nodeIds[2], swarmServiceId: 'relay', detail: 'container relay.2 of the relay is running' },
        ],
      },
    ]);
    away.containers = [];
    await cut.report(2);

    for (const state of ['exited', 'paused', 'created', 'dead'] as const) {
      home.containers = [...others, { ...relayContainer(), state }];
      await cut.report(0);
      expect(await cut.unmet()).toMatchObject([{ code: 'coreflow-identified', acts: 'spark', missingCount: 1 }]);
    }
    // An ended container of an earlier task beside the running one is no second relay.
    home.containers = [...others, relayContainer(), { ...relayContainer('relay.0'), state: 'exited' }];
    await cut.report(0);
    expect(await unmet(cut)).toEqual([]);

    cut.world.services = cut.world.services.filter((each) => each.id !== 'relay');
    await cut.report(0);
    expect(await cut.unmet()).toMatchObject([{ code: 'coreflow-identified', acts: 'administrator' }]);
    cut.world.services.push(swarmService('relay', { specVersion: 9 }));
    await cut.report(0);
    const advanced = await cut.advance('switching');
    expect(advanced.body.runtime.gate!.coreflowRelay).toMatchObject({
      swarmServiceId: 'relay',
      specVersion: 9,
      nodeId: cut.nodeIds[0],
      containerId: 'c-relay.1',
      imageDigest: `sha256:${'a'.repeat(64)}`,
      managerSnapshot: (await cut.fleet.state()).managerSnapshot,
      localSnapshot: (await cut.fleet.node(cut.nodeIds[0]!)).localSnapshot,
    });
  });

  it('on a node outside the targets is identified by what that node reports under the same runtime', async () => {
    made += 1;
    const cut = await cutover(service, `cf-${made}`, { volumes: [0, 2, 1] });
    await cut.accept(cut.nodeIds.slice(1));
    await cut.bringTo('draining');
    await cut.prepare();
    const manager = await cut.manager();
    await cut.fleet.reported(cut.nodeIds[0]!, { manager });
    for (const node of [1, 2]) {
      await cut.report(node);
      await cut.hold(node, 0);
    }
    // Its local snapshot is of the phase before: the relay may have moved since.
    expect(await unmet(cut)).toEqual(['coreflow-identified']);
    await cut.report(0);
    expect(await unmet(cut)).toEqual([]);
    expect((await cut.advance('switching')).status).toBe(200);
    // And its Spark, too, must refuse the old mode, since the retirement rests on it.
    await cut.readyFor('pallet');
    cut.world.nodes[0]!.oldModeRefused = false;
    await cut.report(0);
    expect(await cut.unmet()).toMatchObject([
      {
        code: 'coreflow-retired',
        missing: [{ nodeId: cut.nodeIds[0], detail: 'Spark does not refuse the old mode' }],
      },
    ]);
    cut.world.nodes[0]!.oldModeRefused = true;
    await cut.report(0);
    expect((await cut.advance('pallet')).status).toBe(200);
  });

  it('that is said not to be there must not be labelled anywhere', async () => {
    const cut = await at('draining', false);
    await cut.readyFor('switching');
    cut.world.services.push(
      swarmService('hidden', { labels: [{ key: 'serve.zone.role', value: 'coreflow' }], name: 'hidden-relay' }),
    );
    const services = [
      ...cut.statement.services,
      { swarmServiceId: 'hidden', class: 'excluded' as const, serviceId: null, reason: 'not ours', mounts: [] },
    ];
    await cut.report(0);
    await cut.classify({ ...cut.statement, services });
    await cut.prepare();
    await cut.holdAll();
    expect(await cut.unmet()).toMatchObject([
      {
        code: 'coreflow-identified',
        missingCount: 1,
        missing: [
          {
            swarmServiceId: 'hidden',
            detail: expect.stringContaining('service hidden-relay is labelled coreflow although') as string,
          },
        ],
      },
    ]);
    cut.world.services = cut.world.services.map((each) => (each.id === 'hidden' ? { ...each, labels: [] } : each));
    await cut.report(0);
    expect((await cut.advance('switching')).body.runtime.gate).toMatchObject({ coreflowRelay: null });
    await cut.readyFor('pallet');
    const pallet = await cut.advance('pallet');
    expect(pallet.body.runtime.gate).toMatchObject({ coreflowRelay: null, coreflowRetirement: null });
  });
});

describe('the retirement', () => {
  it('is assembled from accepted evidence alone, sealed and kept', async () => {
    const cut = await at('switching');
    const { runtime: switching } = await cut.explain();
    await cut.readyFor('pallet');
    const pallet = await cut.advance('pallet');
    const reference = pallet.body.runtime.gate!.coreflowRetirement!;
    const { rows } = await service.database.owner.query<{ record: string }>(
      'select record from control.coreflow_retirements where cluster_id = $1',
      [cut.clusterId],
    );
    expect(rows).toHaveLength(1);
    const evidence = JSON.parse(rows[0]!.record) as IFleetCutoverCoreflowRetirementEvidence;
    expect(fleetCutoverCoreflowRetirementEvidenceRecord.validate(evidence)).toEqual([]);
    expect(referenceOf(evidence)).toEqual(reference);
    const local = await cut.local(0);
    const { credentials } = await service.done('listCredentials', {
      clusterId: cut.clusterId,
      cursor: null,
      limit: 99,
    });
    const relay = credentials.find((each) => each.kind === 'coreflow-relay')!;
    expect(evidence).toMatchObject({
      generation: 1,
      clusterId: cut.clusterId,
      relay: switching.gate!.coreflowRelay,
      managerSnapshot: (await cut.fleet.state()).managerSnapshot,
      localSnapshot: (await cut.fleet.node(cut.nodeIds[0]!)).localSnapshot,
      spark: local.spark,
      credential: { credentialId: relay.credentialId, generation: relay.newestGeneration },
      predecessor: null,
    });
    for (const statement of [
      "update control.coreflow_retirements set record = '{}'",
      'delete from control.coreflow_retirements',
    ]) {
      await expect(service.database.owner.query(statement)).rejects.toMatchObject({ code: '23001' });
    }
  });

  it('is void again while the relay is seen again, in any state, on any node', async () => {
    const cut = await at('switching');
    await cut.readyFor('pallet');
    expect(await unmet(cut)).toEqual([]);
    for (const node of [0, 2]) {
      const { containers } = cut.world.nodes[node]!;
      for (const state of ['running', 'created', 'exited', 'dead'] as const) {
        cut.world.nodes[node]!.containers = [...containers, { ...relayContainer(), state }];
        await cut.report(node);
        expect(await cut.unmet()).toMatchObject([
          {
            code: 'coreflow-retired',
            missing: [{ nodeId: cut.nodeIds[node], detail: `container relay.1 of the relay is ${state}` }],
          },
        ]);
      }
      cut.world.nodes[node]!.containers = containers;
      await cut.report(node);
      expect(await unmet(cut)).toEqual([]);
    }
    // The service is back, at zero: it may be started at any time.
    cut.world.services.push(swarmService('relay', { replicas: 0 }));
    await cut.report(0);
    expect(await unmet(cut)).toEqual(['coreflow-retired']);
    cut.world.services.pop();
    await cut.report(0);
    expect((await cut.advance('pallet')).status).toBe(200);
  });

  it('needs every target’s Spark to refuse the old mode', async () => {
    const cut = await at('switching');
    await cut.readyFor('pallet');
    cut.world.nodes[1]!.oldModeRefused = false;
    cut.world.nodes[2]!.oldModeRefused = false;
    await cut.reportAll();
    expect(await cut.unmet()).toMatchObject([{ code: 'coreflow-retired', missingCount: 2 }]);
  });
});

describe('the relay’s credential', () => {
  const register = (cut: Cutover, swarmServiceId = 'relay') =>
    service.call('registerCoreflowRelay', { mutationId: mutationId(), clusterId: cut.clusterId, swarmServiceId });

  it('must be revoked before pallet, and no other gate asks for it', async () => {
    const cut = await at('switching');
    cut.stopEverything();
    await cut.reportAll();
    expect(await cut.unmet()).toMatchObject([
      {
        code: 'coreflow-credential-revoked',
        acts: 'administrator',
        missing: [{ detail: 'the relay’s credential is not revoked' }],
      },
    ]);
    const revoked = await cut.revokeRelay();
    expect(revoked.body).toMatchObject({ generation: 1, replayed: false, current: true });
    expect(await unmet(cut)).toEqual([]);
  });

  it('is revoked for good: the cluster gets no other', async () => {
    const cut = await at('draining');
    const again = await register(cut);
    expect(again.body).toMatchObject({ credential: { newestGeneration: 2 } });
    const id = mutationId();
    const body = { mutationId: id, clusterId: cut.clusterId, runtime: await cut.runtime() };
    const revoked = await service.done('revokeFleetCutoverCoreflowCredential', body);
    expect(revoked).toMatchObject({ credentialId: again.body.credential.credentialId, generation: 2 });
    for (const name of ['relay', 'another']) {
      const refused = await register(cut, name);
      expect([refused.status, refused.body.code, refused.body.detail]).toEqual([
        422,
        'fleet-refused',
        'The cluster’s relay credential is revoked for good',
      ]);
    }
    expect(await service.done('revokeFleetCutoverCoreflowCredential', body)).toEqual({ ...revoked, replayed: true });
    expect((await cut.revokeRelay()).body).toMatchObject({ generation: 2 });
    await expect(
      service.database.owner
        .query("select revoked from control.credentials where cluster_id = $1 and kind = 'coreflow-relay'", [
          cut.clusterId,
        ])
        .then(({ rows }) => rows as unknown),
    ).resolves.toEqual([{ revoked: true }]);
  });

  it('of a cluster without a relay is unknown, and names the current runtime', async () => {
    const none = await at('swarm', false);
    const unknown = await none.revokeRelay();
    expect([unknown.status, unknown.body.code]).toEqual([404, 'relay-unknown']);
    const cut = await at('draining');
    const stale = await service.call('revokeFleetCutoverCoreflowCredential', {
      mutationId: mutationId(),
      clusterId: cut.clusterId,
      runtime: cut.fleet.runtime,
    });
    expect([stale.status, stale.body.code]).toEqual([409, 'runtime-stale']);
  });
});
