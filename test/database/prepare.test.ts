import type { CompiledQuery } from 'kysely';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  fleetCutoverPreparedVolumeHandoffAggregateRecord,
  fleetCutoverPreparedVolumeHandoffIntentRecord,
  type IFleetCutoverPreparedVolumeHandoffAggregate,
} from '../../src/contract/handoff.js';
import { methodPath } from '../../src/contract/method.js';
import { type MethodRequest, methods } from '../../src/contract/methods.js';
import type { IProblemDocument } from '../../src/contract/problems.js';
import { type Reference, referenceOf } from '../../src/contract/schema.js';
import type { Tx } from '../../src/db/transaction.js';
import { keyFacts } from '../../src/features/volume-handoff/rows.js';
import {
  independentBareDigest,
  independentBytesDigest,
  independentJson,
  independentRecordDigest,
} from '../support/independent-digest.js';
import { mutationId, someDigest, startService, type TestService } from '../support/service.js';
import {
  container,
  prepareKeys,
  type SyntheticFleet,
  syntheticFleet,
  type SyntheticKey,
  upsertOf,
  volumeMount,
  volumesOf,
} from '../support/synthetic-fleet.js';
import { countRows, dumpTables, tamper } from '../support/table-dump.js';

let service: TestService;
beforeAll(async () => {
  service = await startService({ logLevel: 'warn' });
});
afterAll(() => service.close());

const method = 'prepareFleetCutoverVolumeHandoffs';
type Request = MethodRequest<typeof method>;

function request(fleet: SyntheticFleet, expectedAggregate: Reference | null, more: Partial<Request>): Request {
  const { clusterId, runtime, scope } = fleet;
  return { mutationId: mutationId(), clusterId, runtime, scope, expectedAggregate, upserts: [], removals: [], ...more };
}

const prepare = (fleet: SyntheticFleet, expected: Reference | null, more: Partial<Request>) =>
  service.done(method, request(fleet, expected, more));

const removalOf = ({ nodeId, serviceId, mountIdentityDigest }: SyntheticKey) => ({
  nodeId,
  serviceId,
  mountIdentityDigest,
});

const readHandoff = async (fleet: SyntheticFleet, key: SyntheticKey, generation: number | null = null) =>
  service.done('readFleetCutoverVolumeHandoff', {
    clusterId: fleet.clusterId,
    nodeId: key.nodeId,
    id: key.id,
    generation,
  });

const stateOf = (fleet: SyntheticFleet) => service.done('readFleetCutoverState', { clusterId: fleet.clusterId });

async function refused(body: Request, token?: string): Promise<IProblemDocument> {
  const before = await dumpTables(service.database);
  const answer = await service.call(method, body, token);
  expect(await dumpTables(service.database)).toEqual(before);
  expect(answer.status).toBe(answer.body.status);
  expect(answer.body.mutationOutcome).toBe('not-applied');
  return answer.body;
}

describe('one handoff’s life', () => {
  let fleet: SyntheticFleet;
  let keys: SyntheticKey[];
  let aggregate: IFleetCutoverPreparedVolumeHandoffAggregate;
  const revisions = () => countRows(service.database, 'handoff_revisions', fleet.clusterId);
  beforeAll(async () => {
    fleet = await syntheticFleet(service, { nodes: 1, volumesPerNode: 5 });
    keys = fleet.keys();
  });

  it('creates: each handoff has generation 1, the first aggregate no predecessor', async () => {
    const made = await prepare(fleet, null, { upserts: [upsertOf(keys[1]!), upsertOf(keys[0]!)] });
    aggregate = made.aggregate;
    expect(made).toMatchObject({ replayed: false, current: true, dryRun: false, audit: { chainId: fleet.clusterId } });
    expect(made.handoffs.map((each) => [each.id, each.change, each.reference.generation])).toEqual([
      [keys[1]!.id, 'created', 1],
      [keys[0]!.id, 'created', 1],
    ]);
    expect(aggregate).toMatchObject({
      generation: 1,
      predecessor: null,
      state: 'incomplete',
      requiredCount: 5,
      actualCount: 2,
      pageCount: 0,
      setDigest: null,
      clusterId: fleet.clusterId,
    });
    expect(await revisions()).toBe(2);
    expect(await countRows(service.database, 'volumes', fleet.clusterId)).toBe(2);
  });

  it('derives everything that an upsert does not say from owner rows and accepted evidence', async () => {
    const { handoff, current } = await readHandoff(fleet, keys[0]!);
    const { cluster } = await service.done('readCluster', { clusterId: fleet.clusterId });
    const state = await stateOf(fleet);
    const { nodes } = await service.done('listNodes', { clusterId: fleet.clusterId, cursor: null, limit: 10 });
    const volume = fleet.nodes[0]!.content.volumes.find((each) => each.mountPath === keys[0]!.mountPath)!;
    const sourceDigest = independentBytesDigest(`/var/lib/docker/volumes/${volume.name}/_data`);
    const targetDigest = independentBytesDigest(volume.mountPath);
    expect(current).toBe(true);
    expect(fleetCutoverPreparedVolumeHandoffIntentRecord.validate(handoff)).toEqual([]);
    expect(handoff).toMatchObject({
      id: keys[0]!.id,
      generation: 1,
      predecessor: null,
      nodeId: keys[0]!.nodeId,
      serviceId: keys[0]!.serviceId,
      clusterId: fleet.clusterId,
      observedMount: {
        sourceDigest,
        targetDigest,
        mountIdentityDigest: independentBareDigest({ sourceDigest, targetDigest }),
      },
      evidence: {
        runtime: fleet.runtime,
        scope: fleet.scope,
        managerSnapshot: state.managerSnapshot,
        localSnapshot: nodes[0]!.localSnapshot,
      },
    });
    const { request: asked } = upsertOf(keys[0]!);
    expect(handoff.claimIntent).toMatchObject({
      generation: 1,
      predecessor: null,
      controllerId: cluster.controllerId,
      controllerEpoch: cluster.controllerEpoch,
      organizationId: cluster.organizationId,
      runtimeNamespace: cluster.runtimeNamespace,
      clusterId: fleet.clusterId,
      nodeId: handoff.nodeId,
      serviceId: handoff.serviceId,
      binding: { serviceId: handoff.serviceId, request: asked, requestDigest: independentBareDigest(asked) },
    });
    expect(handoff.digest).toBe(independentRecordDigest('fleet-cutover-prepared-volume-handoff-intent', handoff));
    expect(handoff.claimIntent.digest).toBe(
      independentRecordDigest('runtime-storage-claim-intent', handoff.claimIntent),
    );
    const facts = { clusterLife: fleet.clusterLife, ...removalOf(keys[0]!) };
    expect(handoff.id).toBe(`vh-${independentBareDigest(facts).slice(7, 47)}`);
  });

  it('revises, keeps what is equal with its reference, and creates in one batch', async () => {
    const before = await readHandoff(fleet, keys[1]!);
    const made = await prepare(fleet, referenceOf(aggregate), {
      upserts: [upsertOf(keys[0]!, 1024), upsertOf(keys[1]!), upsertOf(keys[2]!)],
    });
    expect(made.handoffs.map((each) => [each.change, each.reference.generation])).toEqual([
      ['revised', 2],
      ['unchanged', 1],
      ['created', 1],
    ]);
    expect(made.handoffs[1]!.reference).toEqual(referenceOf(before.handoff));
    expect(made.aggregate).toMatchObject({ generation: 2, actualCount: 3, predecessor: referenceOf(aggregate) });
    expect(await revisions()).toBe(4);
    const { handoff } = await readHandoff(fleet, keys[0]!);
    const first = await readHandoff(fleet, keys[0]!, 1);
    expect(first.current).toBe(false);
    expect(handoff.predecessor).toEqual(referenceOf(first.handoff));
    expect(handoff.claimIntent.predecessor).toEqual(referenceOf(first.handoff.claimIntent));
    expect([handoff.claimIntent.id, handoff.volumeId]).toEqual([first.handoff.claimIntent.id, first.handoff.volumeId]);
    aggregate = made.aggregate;
  });

  it('removes with the last reference, and continues generations when it is made again', async () => {
    const { handoff: last } = await readHandoff(fleet, keys[0]!);
    const removed = await prepare(fleet, referenceOf(aggregate), { removals: [removalOf(keys[0]!)] });
    expect(removed.handoffs).toEqual([
      { nodeId: keys[0]!.nodeId, id: keys[0]!.id, change: 'removed', reference: referenceOf(last) },
    ]);
    expect(removed.aggregate.actualCount).toBe(2);
    expect((await readHandoff(fleet, keys[0]!, 2)).current).toBe(false);
    expect((await readHandoff(fleet, keys[0]!)).current).toBe(false);
    // Equal to what was removed, and still a new generation: two contents never share one.
    const again = await prepare(fleet, referenceOf(removed.aggregate), { upserts: [upsertOf(keys[0]!, 1024)] });
    expect(again.handoffs[0]).toMatchObject({ change: 'created', reference: { generation: 3 } });
    const { handoff } = await readHandoff(fleet, keys[0]!);
    expect(handoff.predecessor).toEqual(referenceOf(last));
    expect(handoff.claimIntent.predecessor).toEqual(referenceOf(last.claimIntent));
    expect(handoff.volumeId).toBe(last.volumeId);
    expect(await countRows(service.database, 'volumes', fleet.clusterId)).toBe(3);
    aggregate = again.aggregate;
  });

  it('makes no handoff revision where everything is equal, only the next header with no change', async () => {
    const before = await revisions();
    const made = await prepare(fleet, referenceOf(aggregate), { upserts: [upsertOf(keys[1]!), upsertOf(keys[2]!)] });
    expect(made.handoffs.map((each) => each.change)).toEqual(['unchanged', 'unchanged']);
    expect(made.aggregate).toMatchObject({ generation: 5, actualCount: 3, changeDigest: independentBareDigest([]) });
    expect(await revisions()).toBe(before);
    aggregate = made.aggregate;
  });

  it('keeps the reference also where newer evidence would make another handoff', async () => {
    const before = await readHandoff(fleet, keys[1]!);
    const { nodeId, content } = fleet.nodes[0]!;
    await fleet.report(nodeId, { ...content, looseVolumes: ['unused'] });
    const made = await prepare(fleet, referenceOf(aggregate), { upserts: [upsertOf(keys[1]!)] });
    expect(made.handoffs[0]!.reference).toEqual(referenceOf(before.handoff));
    aggregate = made.aggregate;
  });

  it('answers removals after upserts, and completes with the last missing one', async () => {
    const made = await prepare(fleet, referenceOf(aggregate), {
      upserts: [upsertOf(keys[4]!), upsertOf(keys[3]!)],
      removals: [removalOf(keys[2]!)],
    });
    expect(made.handoffs.map((each) => [each.id, each.change])).toEqual([
      [keys[4]!.id, 'created'],
      [keys[3]!.id, 'created'],
      [keys[2]!.id, 'removed'],
    ]);
    const complete = await prepare(fleet, referenceOf(made.aggregate), { upserts: [upsertOf(keys[2]!)] });
    expect(complete.aggregate).toMatchObject({ state: 'complete', requiredCount: 5, actualCount: 5, pageCount: 1 });
  });

  it('headers form one chain whose digests anybody can compute', async () => {
    const { rows } = await service.database.owner.query<{ record: string }>(
      `select record from control.aggregate_revisions where cluster_id = $1 order by generation`,
      [fleet.clusterId],
    );
    const chain = rows.map((row) => JSON.parse(row.record) as IFleetCutoverPreparedVolumeHandoffAggregate);
    expect(chain.map((each) => each.generation)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    for (const [index, header] of chain.entries()) {
      expect(fleetCutoverPreparedVolumeHandoffAggregateRecord.validate(header)).toEqual([]);
      expect(header.predecessor).toEqual(index === 0 ? null : referenceOf(chain[index - 1]!));
      expect(header.digest).toBe(independentRecordDigest('fleet-cutover-prepared-volume-handoff-aggregate', header));
      const changes = await service.database.owner.query<{
        nodeId: string;
        id: string;
        generation: string;
        digest: string;
        removed: boolean;
      }>(
        `select node_id as "nodeId", handoff_id as id, generation, digest, record is null as removed from control.handoff_revisions
         where cluster_id = $1 and aggregate_generation = $2 order by node_id, handoff_id`,
        [fleet.clusterId, header.generation],
      );
      const listed = changes.rows.map(({ nodeId, id, generation, digest, removed }) => ({
        nodeId,
        id,
        handoff: removed ? null : { generation: Number(generation), digest },
      }));
      expect(header.changeDigest).toBe(independentBareDigest(listed));
      const pinned = await service.done('readFleetCutoverVolumeHandoffAggregate', {
        clusterId: fleet.clusterId,
        aggregate: referenceOf(header),
      });
      expect(pinned.aggregate).toEqual(header);
      expect(pinned.behind).toBe(index < chain.length - 1);
    }
  });
});

describe('entries that are refused', () => {
  let fleet: SyntheticFleet;
  let keys: SyntheticKey[];
  let head: Reference;
  let retiring: SyntheticKey[];
  beforeAll(async () => {
    fleet = await syntheticFleet(service, { nodes: 2, volumesPerNode: 12, services: 3 });
    const [node] = fleet.nodes;
    retiring = fleet.keys().filter((key) => key.serviceId === fleet.services[2]!.serviceId);
    keys = fleet.keys().filter((key) => key.nodeId === node!.nodeId && key.serviceId !== fleet.services[2]!.serviceId);
    // One more container, outside Swarm, on the volume of the first key.
    const volume = node!.content.volumes.find((each) => each.mountPath === keys[0]!.mountPath)!;
    await fleet.report(node!.nodeId, {
      ...node!.content,
      otherContainers: [container('backup', [volumeMount(volume.name, '/backup')])],
    });
    head = (await prepareKeys(service, fleet, null, [keys[1]!, keys[2]!, retiring[0]!]))!;
    head = referenceOf((await prepare(fleet, head, { removals: [removalOf(keys[2]!)] })).aggregate);
  });

  const batch = (more: Partial<Request>) => refused(request(fleet, head, more));
  const codes = (problem: IProblemDocument) => problem.entries?.map((each) => [each.list, each.index, each.code]);

  it('names every bad entry by list and index, and writes nothing, not even the good ones', async () => {
    const other = { ...keys[5]!, mountIdentityDigest: someDigest('other') };
    const problem = await batch({
      upserts: [
        upsertOf(keys[3]!),
        upsertOf(keys[0]!),
        upsertOf(other),
        { ...upsertOf(keys[4]!), nodeId: fleet.nodes[1]!.nodeId.replace('n0001', 'n0009') },
        { ...upsertOf(keys[4]!), serviceId: 'sv-unknown' },
        { ...upsertOf(keys[4]!), request: { ...upsertOf(keys[4]!).request, mountPath: '/elsewhere' } },
        upsertOf(keys[3]!, 5),
      ],
      removals: [
        removalOf(keys[1]!),
        removalOf(keys[3]!),
        removalOf(keys[1]!),
        removalOf(keys[2]!),
        removalOf(keys[5]!),
        removalOf(other),
      ],
    });
    expect(problem).toMatchObject({ status: 422, code: 'batch-refused', retrySafe: false });
    expect(codes(problem)).toEqual([
      ['upserts', 1, 'entry-blocked'],
      ['upserts', 2, 'entry-not-required'],
      ['upserts', 3, 'entry-not-required'],
      ['upserts', 4, 'entry-not-required'],
      ['upserts', 5, 'mount-path-mismatch'],
      ['upserts', 6, 'entry-duplicate'],
      ['removals', 1, 'entry-duplicate'],
      ['removals', 2, 'entry-duplicate'],
      ['removals', 3, 'entry-absent'],
      ['removals', 4, 'entry-absent'],
      ['removals', 5, 'entry-duplicate'],
    ]);
    expect(problem.entries?.[0]?.detail).toBe('overlap-container');
  });

  it('also where only one of 32 is bad', async () => {
    const good = fleet.keys().filter((key) => key.id !== keys[0]!.id && key.serviceId !== fleet.services[2]!.serviceId);
    const upserts = [...good.map((key) => upsertOf(key)), upsertOf(keys[0]!)].slice(-16);
    expect(codes(await batch({ upserts }))).toEqual([['upserts', upserts.length - 1, 'entry-blocked']]);
  });

  it('a key of another node’s or service’s is not required under this one', async () => {
    const key = fleet.keys().find((each) => each.nodeId === fleet.nodes[1]!.nodeId)!;
    const service0 = fleet.services.find((each) => each.serviceId !== key.serviceId)!;
    const upserts = [{ ...upsertOf(key), serviceId: service0.serviceId }];
    expect(codes(await batch({ upserts }))).toEqual([['upserts', 0, 'entry-not-required']]);
  });

  it('a retired service gets no handoff any more; what it has can be removed', async () => {
    await service.done('retireService', { mutationId: mutationId(), serviceId: fleet.services[2]!.serviceId });
    const upserts = retiring.slice(0, 2).map((key) => upsertOf(key));
    expect(codes(await batch({ upserts }))).toEqual([
      ['upserts', 0, 'service-retired'],
      ['upserts', 1, 'service-retired'],
    ]);
    const made = await prepare(fleet, head, { removals: [removalOf(retiring[0]!)] });
    expect(made.handoffs[0]!.change).toBe('removed');
  });
});

describe('sizes', () => {
  it('takes a handoff of exactly 7,168 bytes and refuses one of 7,169', async () => {
    const fleet = await syntheticFleet(service, { nodes: 1, volumesPerNode: 1, services: 1 });
    const [small] = fleet.keys();
    const head = await prepareKeys(service, fleet, null, [small!]);
    const { handoff } = await readHandoff(fleet, small!);
    const bytes = (value: unknown) => Buffer.byteLength(independentJson(value));
    const { request: asked } = handoff.claimIntent.binding;
    const base = bytes(handoff) - Buffer.byteLength(asked.mountPath) - asked.requestId.length;
    const rest = 7168 - base - 64;
    const mountPath = `/${'é'.repeat((rest - 1) >> 1)}${rest % 2 === 0 ? 'x' : ''}`;
    const { nodeId, content } = fleet.nodes[0]!;
    await fleet.report(nodeId, { ...content, volumes: [...content.volumes, { service: 0, name: 'large', mountPath }] });
    const large = fleet.keys().find((key) => key.mountPath === mountPath)!;
    const withId = (requestId: string) => ({ ...upsertOf(large), request: { ...upsertOf(large).request, requestId } });
    const problem = await refused(request(fleet, head, { upserts: [withId('r'.repeat(65)), withId('r'.repeat(64))] }));
    expect(problem.entries).toEqual([
      { list: 'upserts', index: 0, code: 'entry-too-large' },
      { list: 'upserts', index: 1, code: 'entry-duplicate' },
    ]);
    const made = await prepare(fleet, head, { upserts: [withId('r'.repeat(64))] });
    expect(made.aggregate.state).toBe('complete');
    const stored = await readHandoff(fleet, large);
    expect(bytes(stored.handoff)).toBe(7168);
    // Its predecessor's reference would make the next generation larger.
    const revised = await refused(request(fleet, referenceOf(made.aggregate), { upserts: [withId('s'.repeat(64))] }));
    expect(revised.entries).toEqual([{ list: 'upserts', index: 0, code: 'entry-too-large' }]);
  });

  it('takes 1..32 upserts and removals together', async () => {
    const fleet = await syntheticFleet(service, { nodes: 1, volumesPerNode: 40 });
    const keys = fleet.keys();
    const upserts = keys.map((key) => upsertOf(key));
    for (const wrong of [
      {},
      { upserts: upserts.slice(0, 33) },
      { removals: keys.slice(0, 33).map(removalOf) },
      { upserts: upserts.slice(0, 17), removals: keys.slice(17, 33).map(removalOf) },
    ]) {
      expect(await refused(request(fleet, null, wrong))).toMatchObject({ status: 400, code: 'body-schema' });
    }
    const made = await prepare(fleet, null, { upserts: upserts.slice(0, 32) });
    expect(made.aggregate.actualCount).toBe(32);
    const mixed = await prepare(fleet, referenceOf(made.aggregate), {
      upserts: upserts.slice(32, 40),
      removals: keys.slice(0, 24).map(removalOf),
    });
    expect(mixed.aggregate.actualCount).toBe(16);
  });
});

describe('what is compared', () => {
  let fleet: SyntheticFleet;
  let foreign: SyntheticFleet;
  let head: Reference;
  let older: Reference;
  let foreignHead: Reference;
  beforeAll(async () => {
    fleet = await syntheticFleet(service, { nodes: 1, volumesPerNode: 4 });
    foreign = await syntheticFleet(service, { nodes: 1, volumesPerNode: 4 });
    const keys = fleet.keys();
    foreignHead = (await prepareKeys(service, foreign, null, foreign.keys().slice(0, 1)))!;
    older = (await prepareKeys(service, fleet, null, keys.slice(0, 1)))!;
    head = (await prepareKeys(service, fleet, older, keys.slice(1, 2)))!;
  });

  const upserts = () =>
    fleet
      .keys()
      .slice(2, 3)
      .map((key) => upsertOf(key));
  const wrong = (right: Reference, other: Reference): Reference[] => [
    other,
    { ...right, generation: right.generation + 1 },
    { ...right, digest: someDigest('another') },
    { ...right, id: other.id },
  ];

  it('the runtime: stale, future, foreign and altered references lose and learn the current one', async () => {
    for (const runtime of wrong(fleet.runtime, foreign.runtime)) {
      const problem = await refused(request(fleet, head, { upserts: upserts(), runtime }));
      expect(problem).toMatchObject({
        status: 409,
        code: 'runtime-stale',
        expectation: 'runtime',
        current: fleet.runtime,
        retrySafe: false,
      });
    }
  });

  it('the scope likewise', async () => {
    for (const scope of wrong(fleet.scope, foreign.scope)) {
      const problem = await refused(request(fleet, head, { upserts: upserts(), scope }));
      expect(problem).toMatchObject({
        status: 409,
        code: 'scope-stale',
        expectation: 'scope',
        current: fleet.scope,
        retrySafe: false,
      });
    }
  });

  it('the aggregate likewise, and null where there is one', async () => {
    for (const expected of [null, older, ...wrong(head, foreignHead)]) {
      const problem = await refused(request(fleet, expected, { upserts: upserts() }));
      expect(problem).toMatchObject({
        status: 409,
        code: 'aggregate-stale',
        expectation: 'expectedAggregate',
        current: head,
        retrySafe: false,
      });
    }
  });

  it('a reference where there is none yet: current is null', async () => {
    const fresh = await syntheticFleet(service, { nodes: 1, volumesPerNode: 1 });
    const body = request(fresh, head, { upserts: fresh.keys().map((key) => upsertOf(key)) });
    expect(await refused(body)).toMatchObject({ status: 409, code: 'aggregate-stale', current: null });
  });

  it('a scope that was superseded', async () => {
    const state = await stateOf(fleet);
    const again = await service.done('classifyFleetCutoverScope', {
      mutationId: mutationId(),
      clusterId: fleet.clusterId,
      runtime: fleet.runtime,
      inventory: state.managerSnapshot!,
      expectedScope: fleet.scope,
      statement: fleet.statement,
    });
    expect(await refused(request(fleet, head, { upserts: upserts() }))).toMatchObject({
      code: 'scope-stale',
      current: again.scope,
    });
    const made = await prepare({ ...fleet, scope: again.scope }, head, { upserts: upserts() });
    expect(made.aggregate.scope).toEqual(again.scope);
    expect((await readHandoff(fleet, fleet.keys()[2]!)).handoff.evidence.scope).toEqual(again.scope);
    expect((await readHandoff(fleet, fleet.keys()[0]!)).handoff.evidence.scope).toEqual(fleet.scope);
  });

  it('a cluster without an accepted scope has none that could be named', async () => {
    const clusterId = 'unclassified';
    const { runtime } = await service.done('createCluster', {
      mutationId: mutationId(),
      clusterId,
      controllerId: 'c',
      runtimeNamespace: 'n',
    });
    const body = { ...request(fleet, null, { upserts: upserts() }), clusterId, runtime: referenceOf(runtime) };
    expect(await refused(body)).toMatchObject({ status: 409, code: 'scope-stale', current: null });
  });

  it('the phase: nothing is prepared in pallet', async () => {
    const fresh = await syntheticFleet(service, { nodes: 1, volumesPerNode: 1 });
    const upsert = fresh.keys().map((key) => upsertOf(key));
    for (const [phase, code] of [
      ['draining', null],
      ['pallet', 'phase-refused'],
    ] as const) {
      await tamper(service.database, 'update control.runtime_heads set phase = $2 where cluster_id = $1', [
        fresh.clusterId,
        phase,
      ]);
      const body = request(fresh, null, { upserts: upsert, dryRun: true });
      if (code === null) expect((await service.call(method, body)).status).toBe(200);
      else expect(await refused(body)).toMatchObject({ status: 422, code });
    }
  });
});

describe('dry run', () => {
  it('answers the same and writes nothing, incomplete or complete', async () => {
    const fleet = await syntheticFleet(service, { nodes: 1, volumesPerNode: 3 });
    const keys = fleet.keys();
    let head: Reference | null = null;
    for (const upserts of [keys.slice(0, 2), keys.slice(2), keys.slice(1)].map((list, index) =>
      list.map((key) => upsertOf(key, index + 1)),
    )) {
      const body: Request = request(fleet, head, { upserts });
      const before = await dumpTables(service.database, []);
      const dry = await service.done(method, { ...body, dryRun: true });
      expect(await dumpTables(service.database, [])).toEqual(before);
      expect(dry).toMatchObject({ dryRun: true, audit: null, replayed: false, current: true });
      const done = await service.done(method, body);
      expect(done.dryRun).toBe(false);
      expect({ ...dry, dryRun: false, audit: done.audit }).toEqual(done);
      head = referenceOf(done.aggregate);
    }
    expect((await stateOf(fleet)).aggregate).toMatchObject({ state: 'complete', generation: 3 });
  });

  it('is refused the same', async () => {
    const fleet = await syntheticFleet(service, { nodes: 1, volumesPerNode: 1 });
    const removals = fleet.keys().map(removalOf);
    const dry = await refused(request(fleet, null, { removals, dryRun: true }));
    expect(dry).toEqual(await refused(request(fleet, null, { removals })));
  });
});

describe('replay', () => {
  let fleet: SyntheticFleet;
  let keys: SyntheticKey[];
  beforeAll(async () => {
    fleet = await syntheticFleet(service, { nodes: 1, volumesPerNode: 8 });
    keys = fleet.keys();
  });
  const issue = async (principalId: string, role: 'administrator' | 'operator' = 'administrator') =>
    (await service.done('issueAdministratorToken', { mutationId: mutationId(), principalId, role })).secrets[0]!.secret;

  it('gets the recorded answer, current until it is superseded, whatever has happened since', async () => {
    const body = request(fleet, null, { upserts: [upsertOf(keys[0]!)] });
    const first = await service.done(method, body);
    const before = await dumpTables(service.database);
    expect(await service.done(method, body)).toEqual({ ...first, replayed: true, current: true });
    expect(await dumpTables(service.database)).toEqual(before);
    await prepare(fleet, referenceOf(first.aggregate), { removals: [removalOf(keys[0]!)] });
    expect(await service.done(method, body)).toEqual({ ...first, replayed: true, current: false });
    const reordered = Object.fromEntries(Object.entries(body).reverse()) as Request;
    expect(await service.done(method, reordered)).toEqual({ ...first, replayed: true, current: false });
  });

  it('refuses the id for another caller, body or method', async () => {
    const { aggregate } = await stateOf(fleet);
    const body = request(fleet, referenceOf(aggregate!), { upserts: [upsertOf(keys[1]!)] });
    const done = await service.done(method, body);
    const bob = await issue('bob');
    const reused = { status: 422, code: 'mutation-id-reused', retrySafe: false };
    expect(await refused(body, bob)).toMatchObject(reused);
    expect(await refused({ ...body, upserts: [upsertOf(keys[1]!, 1)] })).toMatchObject(reused);
    expect(await refused({ ...body, expectedAggregate: referenceOf(done.aggregate) })).toMatchObject(reused);
    const { clusterId, runtime, scope, expectedAggregate } = body;
    const other = await service.call('rederiveFleetCutoverVolumeHandoffs', {
      mutationId: body.mutationId,
      clusterId,
      runtime,
      scope,
      expectedAggregate,
    });
    expect(other.body).toMatchObject(reused);
  });

  it('a refused mutation is not recorded and may be sent again', async () => {
    const { aggregate } = await stateOf(fleet);
    const body = request(fleet, null, { upserts: [upsertOf(keys[2]!)] });
    expect(await refused(body)).toMatchObject({ code: 'aggregate-stale' });
    expect(await service.done(method, { ...body, expectedAggregate: referenceOf(aggregate!) })).toMatchObject({
      replayed: false,
    });
  });

  it('50 identical at once have one effect and equal answers', async () => {
    const { aggregate } = await stateOf(fleet);
    const body = request(fleet, referenceOf(aggregate!), { upserts: keys.slice(3).map((key) => upsertOf(key)) });
    const answers = await Promise.all(Array.from({ length: 50 }, () => service.done(method, body)));
    expect(answers.filter((each) => !each.replayed)).toHaveLength(1);
    expect(new Set(answers.map(({ replayed: _replayed, ...rest }) => independentJson(rest))).size).toBe(1);
    const { rows } = await service.database.owner.query(
      `select (select count(*)::int from control.audit_rows where mutation_id = $1) as audited,
              (select generation::int from control.aggregate_heads where cluster_id = $2) as generation`,
      [body.mutationId, fleet.clusterId],
    );
    expect(rows[0]).toEqual({ audited: 1, generation: aggregate!.generation + 1 });
  });
});

describe('who may', () => {
  it('another organization finds no such cluster, also with a used mutation id; an operator may not', async () => {
    const fleet = await syntheticFleet(service, { nodes: 1, volumesPerNode: 1 });
    const body = request(fleet, null, { upserts: fleet.keys().map((key) => upsertOf(key)) });
    const operator = (
      await service.done('issueAdministratorToken', { mutationId: mutationId(), principalId: 'olga', role: 'operator' })
    ).secrets[0]!.secret;
    const stranger = await service.organization('strangers');
    expect(await refused(body, stranger)).toMatchObject({ status: 404, code: 'cluster-unknown' });
    expect(await refused(body, operator)).toMatchObject({ status: 403, code: 'role-refused' });
    await service.done(method, body);
    expect(await refused(body, stranger)).toMatchObject({ status: 404, code: 'cluster-unknown' });
    expect(await refused({ ...body, clusterId: 'nowhere' })).toMatchObject({ status: 404, code: 'cluster-unknown' });
    const read = await service.call('readFleetCutoverState', { clusterId: fleet.clusterId }, stranger);
    expect([read.status, read.body.code]).toEqual([404, 'cluster-unknown']);
    expect((await service.call('readFleetCutoverState', { clusterId: fleet.clusterId }, operator)).status).toBe(200);
  });
});

describe('the request’s schema', () => {
  type Json = { [key: string]: unknown };

  /** Every object of the value with the path to it. */
  function objects(value: unknown, path: (string | number)[] = []): { path: (string | number)[]; keys: string[] }[] {
    if (typeof value !== 'object' || value === null) return [];
    const inner = Object.entries(value).flatMap(([key, member]) =>
      objects(member, [...path, Array.isArray(value) ? Number(key) : key]),
    );
    return Array.isArray(value) ? inner : [{ path, keys: Object.keys(value) }, ...inner];
  }

  function edited(value: object, path: (string | number)[], edit: (object: Json) => void): unknown {
    const copy = structuredClone(value) as Json;
    edit(path.reduce<Json>((at, key) => at[key] as Json, copy));
    return copy;
  }

  async function post(body: unknown): Promise<IProblemDocument> {
    const response = await fetch(service.url + methodPath(methods[method]), {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${service.token}` },
      body: JSON.stringify(body),
    });
    return (await response.json()) as IProblemDocument;
  }

  it('is closed at every level: an unknown or a missing key is refused, and nothing is written', async () => {
    const fleet = await syntheticFleet(service, { nodes: 1, volumesPerNode: 3 });
    const keys = fleet.keys();
    const head = await prepareKeys(service, fleet, null, keys.slice(0, 1));
    const body = request(fleet, head, { upserts: [upsertOf(keys[1]!, 1)], removals: [removalOf(keys[0]!)] });
    const before = await dumpTables(service.database);
    const levels = objects(body);
    expect(levels.map((each) => each.path.join('.'))).toEqual([
      '',
      'runtime',
      'scope',
      'expectedAggregate',
      'upserts.0',
      'upserts.0.request',
      'removals.0',
    ]);
    for (const { path, keys: members } of levels) {
      expect(await post(edited(body, path, (object) => (object['surprise'] = 1)))).toMatchObject({
        status: 400,
        code: 'body-schema',
      });
      for (const key of members) {
        const without = edited(body, path, (object) => delete object[key]);
        expect([path, key, (await post(without)).code]).toEqual([path, key, 'body-schema']);
      }
    }
    const wrongRequests: Json[] = [
      { kind: 'block' },
      { accessMode: 'ReadWriteMany' },
      { reclaimPolicy: 'Delete' },
      { requestedCapacityBytes: 0 },
      { requestedCapacityBytes: -1 },
      { requestedCapacityBytes: 1.5 },
      { requestedCapacityBytes: '1' },
      { requestId: '' },
      { requestId: 'r'.repeat(129) },
      { requestId: '-r' },
      { mountPath: 'data' },
      { mountPath: '/data/' },
      { mountPath: '/data//x' },
      { mountPath: '/data/../x' },
      { mountPath: '/./data' },
      { mountPath: '/' },
    ];
    for (const wrong of wrongRequests) {
      const problem = await post(edited(body, ['upserts', 0, 'request'], (object) => Object.assign(object, wrong)));
      expect([wrong, problem.status]).toEqual([wrong, 400]);
    }
    expect(await dumpTables(service.database)).toEqual(before);
    expect((await service.call(method, body)).status).toBe(200);
  });
});

it('volumes that come later are new keys of the same fleet', async () => {
  const fleet = await syntheticFleet(service, { nodes: 1, volumesPerNode: 2, services: 1 });
  const head = await prepareKeys(service, fleet, null, fleet.keys());
  const { nodeId, content } = fleet.nodes[0]!;
  await fleet.report(nodeId, { volumes: [...content.volumes, ...volumesOf(1, 1, 2)] });
  const [late] = fleet.keys().filter((key) => key.mountPath === '/data/v000002');
  const made = await prepare(fleet, head, { upserts: [upsertOf(late!)] });
  expect(made.aggregate).toMatchObject({ state: 'complete', requiredCount: 3, actualCount: 3 });
});

it('reads the rows of its keys alone, also before the planner knows anything of the tables', async () => {
  const fleet = await syntheticFleet(service, { nodes: 2, volumesPerNode: 300, services: 3 });
  const keys = fleet.keys().slice(0, 32);
  let statement: { sql: string; parameters: readonly unknown[] } | undefined;
  const capturing = {
    rows: (query: { compile?: () => CompiledQuery } & CompiledQuery) => {
      statement = query.compile?.() ?? query;
      return Promise.resolve([]);
    },
  };
  await keyFacts(capturing as unknown as Tx, fleet.clusterId, keys);
  const client = await service.database.owner.connect();
  try {
    // As it is prepared by the service: one plan for all parameters.
    await client.query('set plan_cache_mode = force_generic_plan');
    const { rows } = await client.query<{ 'QUERY PLAN': unknown }>({
      name: 'explained',
      text: `explain (analyze, format json) ${statement!.sql}`,
      values: [...statement!.parameters],
    });
    const plan = JSON.stringify(rows[0]!['QUERY PLAN']);
    const dropped = [...plan.matchAll(/"Rows Removed by Filter":(\d+)/g)].map(([, count]) => Number(count));
    expect(plan).toContain('required_entries_by_key');
    expect(dropped.every((count) => count <= fleet.nodes.length)).toBe(true);
  } finally {
    client.release(true);
  }
});
