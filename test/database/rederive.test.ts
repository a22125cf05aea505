import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { fleetCutoverPreparedVolumeHandoffAggregateRecord } from '../../src/contract/handoff.js';
import { sparkSwarmNodeContracts } from '../../src/contract/limits.js';
import type { MethodRequest } from '../../src/contract/methods.js';
import { supportedProtocol } from '../../src/contract/protocol.js';
import { type Reference, referenceOf } from '../../src/contract/schema.js';
import { independentBareDigest, independentRecordDigest } from '../support/independent-digest.js';
import { mutationId, someDigest, startService, type TestService } from '../support/service.js';
import {
  container,
  prepareKeys,
  sparkPost,
  type SyntheticFleet,
  syntheticFleet,
  upsertOf,
  volumeMount,
  volumesOf,
} from '../support/synthetic-fleet.js';
import { countRows, dumpTables } from '../support/table-dump.js';

let service: TestService;
beforeAll(async () => {
  service = await startService({ logLevel: 'warn' });
});
afterAll(() => service.close());

const method = 'rederiveFleetCutoverVolumeHandoffs';

function request(
  fleet: SyntheticFleet,
  expectedAggregate: Reference | null,
  more: object = {},
): MethodRequest<typeof method> {
  const { clusterId, runtime, scope } = fleet;
  return { mutationId: mutationId(), clusterId, runtime, scope, expectedAggregate, ...more };
}

const rederive = async (fleet: SyntheticFleet, expected: Reference | null) =>
  (await service.done(method, request(fleet, expected))).aggregate;

const stateOf = (fleet: SyntheticFleet) => service.done('readFleetCutoverState', { clusterId: fleet.clusterId });
const isBehind = async (fleet: SyntheticFleet) => {
  const read = { clusterId: fleet.clusterId, aggregate: null };
  const { behind } = await service.done('readFleetCutoverVolumeHandoffAggregate', read);
  const state = await stateOf(fleet);
  expect(state.behind).toBe(behind);
  return behind;
};

const sparkRead = async (fleet: SyntheticFleet, aggregate: Reference | null) => {
  const { nodeId, token } = fleet.nodes[0]!;
  const body = { nodeId, nodeToken: token, protocol: supportedProtocol, aggregate, pageIndex: 0 };
  return sparkPost<object>(service.url, sparkSwarmNodeContracts.fleetCutoverPreparedVolumeHandoffs.endpoint, body);
};

describe('the first revision', () => {
  it('is made without an entry, from whatever the derivation says', async () => {
    const fleet = await syntheticFleet(service, { nodes: 1, volumesPerNode: 3 });
    expect(
      await service.done('readFleetCutoverVolumeHandoffAggregate', { clusterId: fleet.clusterId, aggregate: null }),
    ).toEqual({
      aggregate: null,
      behind: false,
    });
    expect((await stateOf(fleet)).aggregate).toBeNull();
    const aggregate = await rederive(fleet, null);
    const state = await stateOf(fleet);
    expect(aggregate).toMatchObject({
      generation: 1,
      predecessor: null,
      state: 'incomplete',
      requiredCount: 3,
      actualCount: 0,
      pageCount: 0,
      setDigest: null,
      changeDigest: independentBareDigest([]),
      runtime: fleet.runtime,
      scope: fleet.scope,
      targetSet: fleet.targetSet,
      derivation: referenceOf(state.derivation),
    });
    expect(fleetCutoverPreparedVolumeHandoffAggregateRecord.validate(aggregate)).toEqual([]);
    expect(aggregate.digest).toBe(
      independentRecordDigest('fleet-cutover-prepared-volume-handoff-aggregate', aggregate),
    );
    expect(state).toMatchObject({ aggregate, behind: false, missingCount: 3, surplusCount: 0 });
  });

  it('of a fleet without volumes is complete with no page: Spark is told nothing, and coverage lacks nothing', async () => {
    const fleet = await syntheticFleet(service, { nodes: 2, volumesPerNode: 0 });
    const aggregate = await rederive(fleet, null);
    expect(aggregate).toMatchObject({
      state: 'complete',
      requiredCount: 0,
      actualCount: 0,
      pageCount: 0,
      setDigest: independentBareDigest([]),
    });
    expect(fleetCutoverPreparedVolumeHandoffAggregateRecord.validate(aggregate)).toEqual([]);
    const answer = await sparkRead(fleet, null);
    expect(answer.status).toBe(200);
    expect(answer.body).toEqual({
      aggregate: null,
      page: null,
      nodeHandoffs: [],
      nodeId: fleet.nodes[0]!.nodeId,
      protocol: supportedProtocol,
    });
    const pinned = await sparkRead(fleet, referenceOf(aggregate));
    expect([pinned.status, pinned.body.code]).toEqual([404, 'page-unknown']);
    expect(await stateOf(fleet)).toMatchObject({ missingCount: 0, surplusCount: 0, behind: false, blockers: [] });
    // The first volume that appears ends it.
    const { nodeId } = fleet.nodes[0]!;
    await fleet.report(nodeId, { volumes: volumesOf(1, 1) });
    expect(await isBehind(fleet)).toBe(true);
    const head = await prepareKeys(service, fleet, referenceOf(aggregate), fleet.keys());
    expect((await stateOf(fleet)).aggregate).toMatchObject({
      state: 'complete',
      pageCount: 1,
      generation: head!.generation,
    });
    expect((await sparkRead(fleet, null)).body).toMatchObject({ page: { pageIndex: 0 } });
  });
});

describe('behind', () => {
  let fleet: SyntheticFleet;
  let head: Reference;
  beforeAll(async () => {
    fleet = await syntheticFleet(service, { nodes: 2, volumesPerNode: 4 });
    head = (await prepareKeys(service, fleet, null, fleet.keys()))!;
  });

  const clear = async (state: 'complete' | 'incomplete') => {
    const aggregate = await rederive(fleet, head);
    head = referenceOf(aggregate);
    expect(aggregate.state).toBe(state);
    expect(await isBehind(fleet)).toBe(false);
    return aggregate;
  };
  const backup = () => container('backup', [volumeMount('v000000', '/backup')]);

  it('new evidence alone is not: the same keys in another snapshot', async () => {
    expect(await isBehind(fleet)).toBe(false);
    const { nodeId, content } = fleet.nodes[0]!;
    const before = await stateOf(fleet);
    await fleet.report(nodeId, { ...content, looseVolumes: ['old'], otherContainers: [container('tool', [])] });
    const manager = fleet.managerSnapshot();
    await fleet.observe(nodeId, {
      manager: { ...manager, services: manager.services.map((each) => ({ ...each, specVersion: 9 })) },
    });
    const after = await stateOf(fleet);
    expect(after.managerSnapshot!.generation).toBe(before.managerSnapshot!.generation + 1);
    expect(after).toMatchObject({ behind: false, aggregate: before.aggregate, derivation: before.derivation });
  });

  it('a blocker is; undone, it is not', async () => {
    const { nodeId, content } = fleet.nodes[0]!;
    const derivation = (await stateOf(fleet)).derivation.generation;
    await fleet.report(nodeId, { ...content, otherContainers: [backup()] });
    expect(await isBehind(fleet)).toBe(true);
    await fleet.report(nodeId, { ...content, otherContainers: [] });
    expect(await isBehind(fleet)).toBe(false);
    await fleet.report(nodeId, { ...content, otherContainers: [backup()] });
    expect(await isBehind(fleet)).toBe(true);
    await fleet.report(nodeId, { ...content, otherContainers: [] });
    expect(await isBehind(fleet)).toBe(false);
    expect((await stateOf(fleet)).derivation.generation).toBe(derivation + 4);
  });

  it('a blocker that was there at the revision, went and came back, is not', async () => {
    const { nodeId, content } = fleet.nodes[0]!;
    await fleet.report(nodeId, { ...content, otherContainers: [backup()] });
    await clear('incomplete');
    await fleet.report(nodeId, { ...content, otherContainers: [] });
    expect(await isBehind(fleet)).toBe(true);
    await fleet.report(nodeId, { ...content, otherContainers: [backup()] });
    expect(await isBehind(fleet)).toBe(false);
    await fleet.report(nodeId, { ...content, otherContainers: [] });
    await clear('complete');
  });

  it('a key is, while the head stays complete and is served; a rederivation says that it is incomplete', async () => {
    const complete = head;
    const { nodeId, content } = fleet.nodes[0]!;
    await fleet.report(nodeId, {
      ...content,
      volumes: [...content.volumes, ...volumesOf(1, fleet.services.length, 4)],
    });
    expect(await isBehind(fleet)).toBe(true);
    expect((await sparkRead(fleet, null)).body).toMatchObject({ aggregate: head });
    const aggregate = await clear('incomplete');
    expect(aggregate).toMatchObject({ requiredCount: 9, actualCount: 8 });
    expect((await sparkRead(fleet, null)).body).toMatchObject({ aggregate: null, page: null });
    expect((await sparkRead(fleet, complete)).status).toBe(200);
    const [late] = fleet.keys().filter((key) => key.mountPath === '/data/v000004');
    head = (await prepareKeys(service, fleet, head, [late!]))!;
    expect((await stateOf(fleet)).aggregate!.state).toBe('complete');
  });

  it('a key whose container goes is required still, so nothing is behind', async () => {
    const { nodeId, content } = fleet.nodes[0]!;
    await fleet.report(nodeId, { ...content, volumes: content.volumes.slice(1) });
    expect(await stateOf(fleet)).toMatchObject({ behind: false, missingCount: 0, surplusCount: 0 });
    await fleet.report(nodeId, content);
  });

  it('another scope is, and other targets, also where they change no key', async () => {
    const state = await stateOf(fleet);
    const { clusterId, runtime } = fleet;
    const nodeIds = fleet.nodes.map((node) => node.nodeId);
    const { scope } = await service.done('classifyFleetCutoverScope', {
      mutationId: mutationId(),
      clusterId,
      runtime,
      inventory: state.managerSnapshot!,
      expectedScope: fleet.scope,
      statement: { ...fleet.statement, coreflow: { state: 'none', reason: 'said again' } },
    });
    expect(await isBehind(fleet)).toBe(true);
    fleet = { ...fleet, scope };
    expect((await clear('complete')).scope).toEqual(scope);
    const { targetSet } = await service.done('acceptFleetCutoverTargetSet', {
      mutationId: mutationId(),
      clusterId,
      runtime,
      expectedTargetSet: fleet.targetSet,
      nodeIds,
    });
    expect(await isBehind(fleet)).toBe(true);
    expect((await clear('complete')).targetSet).toEqual(referenceOf(targetSet));
    const fewer = await service.done('acceptFleetCutoverTargetSet', {
      mutationId: mutationId(),
      clusterId,
      runtime,
      expectedTargetSet: referenceOf(targetSet),
      nodeIds: nodeIds.slice(0, 1),
    });
    expect(fewer.blockers).toEqual([{ code: 'node-not-targeted', count: 1 }]);
    await clear('incomplete');
  });
});

describe('as a mutation', () => {
  it('makes the next header of the same set, with no change and no new page', async () => {
    const fleet = await syntheticFleet(service, { nodes: 1, volumesPerNode: 40 });
    const head = (await prepareKeys(service, fleet, null, fleet.keys()))!;
    const before = (await stateOf(fleet)).aggregate!;
    const rows = () =>
      Promise.all(
        ['handoff_pages', 'handoff_revisions', 'page_heads'].map((table) =>
          countRows(service.database, table, fleet.clusterId),
        ),
      );
    const stored = await rows();
    const next = await rederive(fleet, head);
    const { generation, setDigest, pageCount } = before;
    expect(next).toMatchObject({
      generation: generation + 1,
      setDigest,
      pageCount,
      predecessor: head,
      changeDigest: independentBareDigest([]),
    });
    expect(await rows()).toEqual(stored);
    expect((await sparkRead(fleet, null)).body).toMatchObject({ aggregate: { generation: generation + 1 } });
  });

  it('compares runtime, scope and aggregate, replays, and as a dry run writes nothing', async () => {
    const fleet = await syntheticFleet(service, { nodes: 1, volumesPerNode: 1 });
    const other = await service.organization('rederive-strangers');
    const body = request(fleet, null);
    const clean = await dumpTables(service.database, []);
    const dry = await service.done(method, { ...body, dryRun: true });
    expect(await dumpTables(service.database, [])).toEqual(clean);
    const done = await service.done(method, body);
    expect({ ...dry, dryRun: false, audit: done.audit }).toEqual(done);
    expect(await service.done(method, body)).toEqual({ ...done, replayed: true });
    const head = referenceOf(done.aggregate);
    const before = await dumpTables(service.database);
    const cases = [
      [request(fleet, null), 'aggregate-stale', head],
      [request(fleet, { ...head, generation: 2 }), 'aggregate-stale', head],
      [
        request(fleet, head, { runtime: { ...fleet.runtime, digest: someDigest('x') } }),
        'runtime-stale',
        fleet.runtime,
      ],
      [request(fleet, head, { scope: { ...fleet.scope, generation: 2 } }), 'scope-stale', fleet.scope],
    ] as const;
    for (const [wrong, code, current] of cases) {
      const answer = await service.call(method, wrong);
      expect(answer.status).toBe(409);
      expect(answer.body).toMatchObject({ code, current, mutationOutcome: 'not-applied', retrySafe: false });
    }
    expect((await service.call(method, body, other)).body.code).toBe('cluster-unknown');
    expect((await service.call(method, { ...body, scope: { ...fleet.scope, generation: 2 } })).body.code).toBe(
      'mutation-id-reused',
    );
    expect(await dumpTables(service.database)).toEqual(before);
    await rederive(fleet, head);
    expect(await service.done(method, body)).toMatchObject({ replayed: true, current: false });
  });

  it('a prepared set with a blocker is not complete; without it, it is, by a rederivation alone', async () => {
    const fleet = await syntheticFleet(service, { nodes: 1, volumesPerNode: 2 });
    const { nodeId, content } = fleet.nodes[0]!;
    const head = (await prepareKeys(service, fleet, null, fleet.keys()))!;
    await fleet.report(nodeId, {
      ...content,
      otherContainers: [container('backup', [volumeMount('v000000', '/backup')])],
    });
    const blocked = await rederive(fleet, head);
    expect(blocked).toMatchObject({ state: 'incomplete', requiredCount: 2, actualCount: 2, pageCount: 0 });
    // What is blocked can't be upserted, not even as it is.
    const { clusterId, runtime, scope } = fleet;
    const upserts = fleet.keys().map((key) => upsertOf(key));
    const refused = await service.call('prepareFleetCutoverVolumeHandoffs', {
      mutationId: mutationId(),
      clusterId,
      runtime,
      scope,
      expectedAggregate: referenceOf(blocked),
      upserts,
      removals: [],
    });
    expect(refused.body.entries?.map((entry) => entry.code)).toEqual(['entry-blocked']);
    await fleet.report(nodeId, content);
    expect(await rederive(fleet, referenceOf(blocked))).toMatchObject({
      state: 'complete',
      pageCount: 1,
      generation: 3,
    });
  });
});
