import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { bareDigest } from '../../src/contract/digest.js';
import { sparkSwarmNodeContracts } from '../../src/contract/limits.js';
import { observedMountOf } from '../../src/contract/mount.js';
import type { IFleetCutoverCompleteManagerSnapshot, IObservedContainerMount } from '../../src/contract/observation.js';
import type { Reference } from '../../src/contract/schema.js';
import { fleetCutoverScopeRecord, fleetCutoverTargetSetRecord } from '../../src/contract/scope.js';
import { createFleet } from '../support/fleet.js';
import { type Answer, mutationId, startService, type TestService } from '../support/service.js';
import {
  localSnapshot,
  managerSnapshot,
  scopeService,
  scopeStatement,
  swarmNode,
  swarmService,
  swarmTask,
  taskContainer,
  volumeMount,
} from '../support/snapshots.js';

let service: TestService;
beforeAll(async () => {
  service = await startService();
});
afterAll(() => service.close());

let fleets = 0;
/** A fleet of one reporting manager, with the services `a` and `b`, of which `a` mounts the volume `v`. */
async function newFleet(services: readonly string[] = ['a', 'b']) {
  const clusterId = `f${(fleets += 1)}`;
  const node = `${clusterId}-1`;
  const fleet = await createFleet(service, {
    clusterId,
    nodes: [node],
    services: ['a', 'b'].map((name) => `${clusterId}-${name}`),
  });
  const manager = (ids: readonly string[] = services, over: Partial<IFleetCutoverCompleteManagerSnapshot> = {}) =>
    managerSnapshot({
      nodes: [swarmNode(`sn-${node}`)],
      services: ids.map((id) => swarmService(id)),
      tasks: ids.map((id) => swarmTask(id, `sn-${node}`)),
      ...over,
    });
  const local = (ids: readonly string[] = services, mounts: readonly IObservedContainerMount[] = [volumeMount('v')]) =>
    localSnapshot({ containers: ids.map((id) => taskContainer(id, id === 'a' ? mounts : [])) });
  const owner = (name: string) => fleet.owner(`${clusterId}-${name}`);
  const application = (id: string, over: Parameters<typeof scopeService>[1] = {}) =>
    scopeService(id, { serviceId: owner(id), ...over });
  const receipt = await fleet.reported(node, { local: local(), manager: manager() });
  const key = (mount: IObservedContainerMount, name = 'a') => ({
    nodeId: node,
    serviceId: owner(name),
    mountIdentityDigest: observedMountOf(mount.source, mount.destination).mountIdentityDigest,
    reason: 'because',
  });
  const volumes = async () => (await fleet.entries()).map((each) => each.volumeName).sort();
  const codes = async () => (await fleet.blockers()).map((each) => each.code).sort();
  return {
    fleet,
    clusterId,
    node,
    manager,
    local,
    owner,
    application,
    key,
    volumes,
    codes,
    inventory: receipt.managerSnapshot.reference!,
  };
}
const codeOf = (answer: { status: number; body: { code?: string } }) =>
  answer.status === 200 ? '200' : `${answer.status} ${answer.body.code}`;
const entriesOf = (answer: Answer<'classifyFleetCutoverScope'> | Answer<'acceptFleetCutoverTargetSet'>) =>
  answer.body.entries?.map(({ list, index, code }) => `${list}[${index}] ${code}`);
/** A reference with another digest. */
const other = ({ id, generation }: Reference): Reference => ({ id, generation, digest: bareDigest('other') });

/** How many rows of the cluster each table has. */
async function rowCounts(clusterId: string) {
  const tables = [
    'scope_revisions',
    'target_set_revisions',
    'derivation_revisions',
    'required_entries',
    'blockers',
    'audit_rows',
    'aggregate_revisions',
  ];
  const counts: Record<string, number> = {};
  for (const table of tables) {
    const column = table === 'audit_rows' ? 'chain_id' : 'cluster_id';
    const { rows } = await service.database.owner.query(
      `select count(*)::int as count from control.${table} where ${column} = $1`,
      [clusterId],
    );
    counts[table] = rows[0].count as number;
  }
  const { rows } = await service.database.owner.query('select swarm_id from control.clusters where cluster_id = $1', [
    clusterId,
  ]);
  return { ...counts, swarm: rows[0].swarm_id as string | null };
}

describe('the scope', () => {
  it('is admitted with an inventory, binds the swarm and is read back whole', async () => {
    const { fleet, clusterId, application, inventory } = await newFleet();
    const statement = { services: [application('b'), application('a')] };
    const made = await fleet.classified(statement);
    expect(made).toMatchObject({
      replayed: false,
      current: true,
      dryRun: false,
      state: 'complete',
      unclassified: [],
      requiredCount: 1,
    });
    expect(made.scope.generation).toBe(1);
    expect(made.blockers).toEqual([{ code: 'node-not-targeted', count: 1 }]);
    const { scope } = await service.done('readFleetCutoverScope', { clusterId, scope: null });
    expect(fleetCutoverScopeRecord.validate(scope)).toEqual([]);
    expect(scope).toMatchObject({ ...made.scope, clusterId, inventory, swarmId: 'swarm-1', predecessor: null });
    expect(scope.services.map((each) => each.swarmServiceId)).toEqual(['a', 'b']);
    expect((await service.done('readCluster', { clusterId })).cluster.swarmId).toBe('swarm-1');
    const pinned = await service.done('readFleetCutoverScope', { clusterId, scope: made.scope });
    expect(pinned.scope).toEqual(scope);
    const future = { ...made.scope, generation: 2 };
    expect(codeOf(await service.call('readFleetCutoverScope', { clusterId, scope: future }))).toBe('422 pin-unknown');
    expect(codeOf(await service.call('readFleetCutoverScope', { clusterId, scope: other(made.scope) }))).toBe(
      '422 pin-unknown',
    );
  });

  it('may leave services out, which block until they have a class', async () => {
    const { fleet, application, codes } = await newFleet();
    const partial = await fleet.classified({ services: [application('a')] });
    expect([partial.state, partial.unclassified]).toEqual(['incomplete', ['b']]);
    expect(await codes()).toEqual(['node-not-targeted', 'service-unclassified']);
    const whole = await fleet.classified({ services: [application('a'), scopeService('b', { class: 'excluded' })] });
    expect([whole.state, whole.scope.generation]).toEqual(['complete', 2]);
    expect(await codes()).toEqual(['node-not-targeted']);
  });

  it('blocks again for a service that comes up later', async () => {
    const { fleet, node, manager, application, codes } = await newFleet();
    await fleet.classified({ services: [application('a'), application('b')] });
    await fleet.reported(node, {
      manager: manager(['a', 'b'], { services: ['a', 'b', 'new'].map((id) => swarmService(id)) }),
    });
    expect(await codes()).toEqual(['node-not-targeted', 'service-unclassified']);
  });

  it.each(['classifyFleetCutoverScope', 'acceptFleetCutoverTargetSet'] as const)(
    '%s compares the runtime',
    async (method) => {
      const { fleet, node } = await newFleet();
      for (const runtime of [
        other(fleet.runtime),
        { ...fleet.runtime, generation: 2 },
        { ...fleet.runtime, id: 'rt-other' },
      ]) {
        const answer =
          method === 'classifyFleetCutoverScope'
            ? await fleet.classify({}, { runtime })
            : await fleet.accept([node], { runtime });
        expect([codeOf(answer), answer.body]).toMatchObject([
          '409 runtime-stale',
          { expectation: 'runtime', current: fleet.runtime, mutationOutcome: 'not-applied', retrySafe: false },
        ]);
      }
    },
  );

  it('compares the scope: null where there is none, else exactly the current one', async () => {
    const { fleet, application } = await newFleet();
    const statement = { services: [application('a'), application('b')] };
    const invented = { id: 'sc-x', generation: 1, digest: bareDigest('x') };
    const early = await fleet.classify(statement, { expectedScope: invented });
    expect([codeOf(early), early.body.current, early.body.expectation]).toEqual([
      '409 scope-stale',
      null,
      'expectedScope',
    ]);
    const first = await fleet.classified(statement);
    const second = await fleet.classified(statement);
    expect(second.scope).toMatchObject({ id: first.scope.id, generation: 2 });
    for (const expectedScope of [null, first.scope, other(second.scope)]) {
      const stale = await fleet.classify(statement, { expectedScope });
      expect([codeOf(stale), stale.body]).toMatchObject([
        '409 scope-stale',
        { expectation: 'expectedScope', current: second.scope, mutationOutcome: 'not-applied', retrySafe: false },
      ]);
    }
  });

  it('lets one of two administrators win who expect the same', async () => {
    const { fleet, application } = await newFleet();
    const statement = { services: [application('a'), application('b')] };
    const answers = await Promise.all(
      Array.from({ length: 6 }, () => fleet.classify(statement, { expectedScope: null })),
    );
    expect(answers.map(codeOf).sort()).toEqual(['200', ...Array<string>(5).fill('409 scope-stale')]);
    const winner = answers.find((each) => each.status === 200)!;
    for (const loser of answers.filter((each) => each.status !== 200))
      expect(loser.body.current).toEqual(winner.body.scope);
  });

  it('takes an inventory that was accepted, whole, of this cluster, and no other', async () => {
    const { fleet, inventory } = await newFleet();
    const foreign = (await newFleet()).inventory;
    const wrong = [other(inventory), { ...inventory, generation: 2 }, { ...inventory, id: 'ms-x' }, foreign];
    const answers = [];
    for (const each of wrong) answers.push(await fleet.classify({}, { inventory: each }));
    expect(answers.map((each) => [codeOf(each), each.body.current])).toEqual([
      ['409 inventory-stale', inventory],
      ['409 inventory-stale', null],
      ['409 inventory-stale', inventory],
      ['409 inventory-stale', inventory],
    ]);
    const nothing = await createFleet(service, { clusterId: 'unreported', nodes: ['unreported-1'] });
    expect(codeOf(await nothing.classify({}, { inventory }))).toBe('409 inventory-stale');
  });

  it('admits a newer inventory, or an older one that is kept, but none of another swarm', async () => {
    const { fleet, clusterId, node, manager, application, inventory } = await newFleet();
    const statement = { services: [application('a'), application('b')] };
    const newer = await fleet.reported(node, { manager: manager(['a', 'b'], { swarmId: 'swarm-2' }) });
    await fleet.classified(statement);
    expect((await service.done('readFleetCutoverScope', { clusterId, scope: null })).scope.inventory).toEqual(
      newer.managerSnapshot.reference,
    );
    const mismatch = await fleet.classify(statement, { inventory });
    expect([codeOf(mismatch), mismatch.body.mutationOutcome]).toEqual(['409 swarm-mismatch', 'not-applied']);
    await fleet.reported(node, { manager: manager(['a', 'b', 'c'], { swarmId: 'swarm-2' }) });
    expect((await fleet.classified(statement)).unclassified).toEqual(['c']);
    const older = await fleet.classify(statement, { inventory: newer.managerSnapshot.reference! });
    expect([older.status, older.body.unclassified, older.body.state]).toEqual([200, [], 'complete']);
    // Blockers come from the latest snapshot, whichever was admitted.
    expect((await fleet.blockers()).map((each) => each.swarmServiceId)).toContain('c');
  });

  it('is refused with every entry that is wrong, named in the caller’s own order', async () => {
    const { fleet, clusterId, node, owner, application, key } = await newFleet();
    const retired = await service.done('createService', { mutationId: mutationId(), name: `${clusterId}-retired` });
    await service.done('retireService', { mutationId: mutationId(), serviceId: retired.service.serviceId });
    await service.organization(`org-of-${clusterId}`);
    const before = await rowCounts(clusterId);
    const mount = { target: '/data', class: 'external', reason: 'r' } as const;
    const answer = await fleet.classify({
      services: [
        scopeService('zzz', { class: 'excluded' }),
        application('b', { mounts: [mount, mount] }),
        application('a', { serviceId: owner('b') }),
        scopeService('a', { class: 'ingress', serviceId: null }),
        scopeService('a', { class: 'excluded', serviceId: owner('a') }),
        scopeService('a', { class: 'coreflow', reason: null }),
        scopeService('a', { class: 'excluded', reason: null }),
        scopeService('a', { serviceId: 'sv-nobody' }),
        scopeService('a', { serviceId: retired.service.serviceId }),
      ],
      overlapOwners: [key(volumeMount('v')), { ...key(volumeMount('v')), nodeId: 'elsewhere' }],
      dormantVolumes: ['v', 'v'].map((volumeName) => ({ nodeId: node, volumeName, reason: 'r' })),
      releasedAnonymousVolumes: ['x', 'x'].map((serviceId) => ({ serviceId, reason: 'r' })),
    });
    expect([codeOf(answer), answer.body.mutationOutcome, answer.body.retrySafe]).toEqual([
      '422 scope-refused',
      'not-applied',
      false,
    ]);
    expect(entriesOf(answer)).toEqual([
      'services[0] service-not-in-inventory',
      'services[1] mount-duplicate',
      'services[2] service-owned-twice',
      'services[3] entry-duplicate',
      'services[3] service-id-required',
      'services[4] entry-duplicate',
      'services[4] service-id-refused',
      'services[5] entry-duplicate',
      'services[5] coreflow-mismatch',
      'services[6] entry-duplicate',
      'services[6] reason-required',
      'services[7] entry-duplicate',
      'services[7] service-unknown',
      'services[8] entry-duplicate',
      'services[8] service-retired',
      'overlapOwners[1] node-unknown',
      'dormantVolumes[1] entry-duplicate',
      'releasedAnonymousVolumes[1] entry-duplicate',
    ]);
    expect(await rowCounts(clusterId)).toEqual(before);
  });

  it('names no service of another organization', async () => {
    const { fleet, clusterId, application } = await newFleet();
    const stranger = await service.organization(`org-${clusterId}`);
    const theirs = await service.done('createService', { mutationId: mutationId(), name: 'theirs' }, stranger);
    const answer = await fleet.classify({
      services: [application('a'), scopeService('b', { serviceId: theirs.service.serviceId })],
    });
    expect(entriesOf(answer)).toEqual(['services[1] service-unknown']);
  });

  it('does in a dry run all but write', async () => {
    const { fleet, clusterId, application } = await newFleet();
    const statement = { services: [application('a'), application('b')] };
    const before = await rowCounts(clusterId);
    const id = mutationId();
    const dryRun = await fleet.classify(statement, { dryRun: true, mutationId: id });
    expect(dryRun.body).toMatchObject({
      dryRun: true,
      replayed: false,
      audit: null,
      requiredCount: 1,
      state: 'complete',
    });
    expect(await rowCounts(clusterId)).toEqual(before);
    expect(before.swarm).toBeNull();
    const refused = await fleet.classify({ services: [application('a', { serviceId: 'sv-x' })] }, { dryRun: true });
    expect(codeOf(refused)).toBe('422 scope-refused');
    // The id is free: nothing was recorded. What is really done is what the dry run said.
    const done = await fleet.classify(statement, { mutationId: id });
    const { audit: _audit, dryRun: _dryRun, ...result } = done.body;
    expect(dryRun.body).toMatchObject(result);
  });

  it('is answered again for the same request, in whichever order it lists things, and is then not done again', async () => {
    const { fleet, clusterId, application } = await newFleet();
    const id = mutationId();
    const services = [application('a'), application('b')];
    const over = { mutationId: id, expectedScope: null };
    const first = await fleet.classify({ services }, over);
    const before = await rowCounts(clusterId);
    const again = await fleet.classify({ services: [...services].reverse() }, over);
    expect(again.body).toEqual({ ...first.body, replayed: true });
    expect(await rowCounts(clusterId)).toEqual(before);
    await fleet.classified({ services });
    expect((await fleet.classify({ services }, over)).body).toMatchObject({
      scope: first.body.scope,
      replayed: true,
      current: false,
    });
    const reused = await fleet.classify({ services: [application('a')] }, over);
    expect([codeOf(reused), reused.body.mutationOutcome]).toEqual(['422 mutation-id-reused', 'not-applied']);
    const runtime = fleet.runtime;
    const elsewhere = await service.call('rederiveFleetCutoverVolumeHandoffs', {
      mutationId: id,
      clusterId,
      runtime,
      scope: first.body.scope,
      expectedAggregate: null,
    });
    expect(codeOf(elsewhere)).toBe('422 mutation-id-reused');
  });

  it('may be sent again after a refusal, which is not recorded', async () => {
    const { fleet, application } = await newFleet();
    const id = mutationId();
    const invented = { id: 'sc-x', generation: 1, digest: bareDigest('x') };
    expect(codeOf(await fleet.classify({}, { mutationId: id, expectedScope: invented }))).toBe('409 scope-stale');
    expect(
      codeOf(await fleet.classify({ services: [application('a')] }, { mutationId: id, expectedScope: null })),
    ).toBe('200');
  });

  it('is no concern of other organizations, nor of operators to write', async () => {
    const { fleet, clusterId, node, inventory } = await newFleet();
    const stranger = await service.organization(`strangers-of-${clusterId}`);
    const classify = {
      mutationId: mutationId(),
      clusterId,
      runtime: fleet.runtime,
      inventory,
      expectedScope: null,
      statement: scopeStatement(),
    };
    const accept = {
      mutationId: mutationId(),
      clusterId,
      runtime: fleet.runtime,
      expectedTargetSet: null,
      nodeIds: [node],
    };
    const answers = [
      await service.call('classifyFleetCutoverScope', classify, stranger),
      await service.call('acceptFleetCutoverTargetSet', accept, stranger),
      await service.call('readFleetCutoverScope', { clusterId, scope: null }, stranger),
      await service.call('readFleetCutoverTargetSet', { clusterId, targetSet: null }, stranger),
      await service.call('readFleetCutoverManagerSnapshot', { clusterId, snapshot: inventory }, stranger),
      await service.call('readFleetCutoverState', { clusterId }, stranger),
      await service.call('readFleetCutoverState', { clusterId: 'no-such' }),
    ];
    expect(answers.map(codeOf)).toEqual(answers.map(() => '404 cluster-unknown'));
    const issued = await service.done('issueAdministratorToken', {
      mutationId: mutationId(),
      principalId: `op-${clusterId}`,
      role: 'operator',
    });
    const operator = issued.secrets[0]!.secret;
    expect(codeOf(await service.call('classifyFleetCutoverScope', classify, operator))).toBe('403 role-refused');
    expect(codeOf(await service.call('readFleetCutoverManagerSnapshot', { clusterId, snapshot: null }, operator))).toBe(
      '200',
    );
  });

  it('is not stated any more once the cluster runs on Pallet, nor are targets from the switch on', async () => {
    const { fleet, clusterId, node, inventory } = await newFleet();
    const { owner } = service.database;
    const enter = async (phase: string) => {
      await owner.query(
        'update control.runtime_heads set phase = $2, generation = generation + 1 where cluster_id = $1',
        [clusterId, phase],
      );
      const { rows } = await owner.query(
        'select generation::int as generation from control.runtime_heads where cluster_id = $1',
        [clusterId],
      );
      return { ...fleet.runtime, generation: rows[0].generation as number };
    };
    const accept = async (phase: string) =>
      fleet.accept([node], { runtime: await enter(phase), expectedTargetSet: null });
    expect(codeOf(await accept('draining'))).toBe('200');
    const switching = await accept('switching');
    expect([codeOf(switching), switching.body.mutationOutcome]).toEqual(['422 phase-refused', 'not-applied']);
    expect(codeOf(await accept('pallet'))).toBe('422 phase-refused');
    const runtime = { ...fleet.runtime, generation: 4 };
    const classify = await fleet.classify({}, { runtime, inventory, expectedScope: null });
    expect([codeOf(classify), classify.body.mutationOutcome]).toEqual(['422 phase-refused', 'not-applied']);
  });
});

describe('required entries', () => {
  it('stay through every later report, and leave by name only', async () => {
    const { fleet, node, manager, local, application, key, volumes } = await newFleet();
    const services = [application('a'), application('b')];
    await fleet.classified({ services });
    await fleet.reported(node, { local: local(['a', 'b'], [volumeMount('w', '/w')]) });
    await fleet.reported(node, { local: localSnapshot(), manager: manager(['a', 'b'], { tasks: [] }) });
    expect(await volumes()).toEqual(['v', 'w']);
    await fleet.classified({ services, releasedEntries: [key(volumeMount('v'))] });
    expect(await volumes()).toEqual(['w']);
    // Said for as long as it is meant: the whole statement is in every revision, and nothing mounts it any more.
    await fleet.classified({ services });
    expect(await volumes()).toEqual(['w']);
  });

  it('stay for a service that left the inventory, until it is stated otherwise', async () => {
    const { fleet, node, manager, local, application, volumes } = await newFleet();
    await fleet.classified({ services: [application('a'), application('b')] });
    await fleet.reported(node, { local: local(['b']), manager: manager(['b']) });
    expect(await volumes()).toEqual(['v']);
    const silent = await fleet.classify({ services: [application('b')] });
    expect([codeOf(silent), entriesOf(silent)]).toEqual(['422 scope-refused', ['services[1] service-has-entries']]);
    const still = await fleet.classified({ services: [application('b'), application('a')] });
    expect([still.state, still.requiredCount]).toEqual(['complete', 1]);
    await fleet.classified({ services: [application('b'), scopeService('a', { class: 'excluded' })] });
    expect(await volumes()).toEqual([]);
    // It was stated before and holds nothing, so it may be left out now.
    expect((await fleet.classified({ services: [application('b')] })).state).toBe('complete');
  });

  it('leave when their service or their mount gets another class, and come back with what is mounted', async () => {
    const { fleet, application, volumes, codes } = await newFleet();
    const states = async (a: ReturnType<typeof scopeService>) => {
      await fleet.classified({ services: [a, application('b')] });
      return [await volumes(), (await codes()).filter((code) => code !== 'node-not-targeted')];
    };
    const mount = (kind: 'external' | 'ephemeral' | 'host-path') =>
      application('a', { mounts: [{ target: '/data', class: kind, reason: 'r' }] });
    expect(await states(application('a'))).toEqual([['v'], []]);
    expect(await states(mount('external'))).toEqual([[], []]);
    expect(await states(application('a'))).toEqual([['v'], []]);
    expect(await states(mount('host-path'))).toEqual([[], []]);
    expect(await states(application('a', { class: 'ingress' }))).toEqual([[], ['ingress-persistent-mount']]);
    expect(await states(scopeService('a', { class: 'excluded' }))).toEqual([[], []]);
    expect(await states(application('a'))).toEqual([['v'], []]);
  });

  it('pass to the swarm service that the same service runs as now, and stay when its container goes', async () => {
    const { fleet, node, manager, owner, application, volumes } = await newFleet();
    await fleet.classified({ services: [application('a'), application('b')] });
    const [before] = await fleet.entries();
    // The stack was removed and deployed again: another swarm service on the same volume.
    await fleet.reported(node, {
      local: localSnapshot({ containers: [taskContainer('a2', [volumeMount('v')]), taskContainer('b', [])] }),
      manager: manager(['a2', 'b']),
    });
    await fleet.classified({
      services: [
        scopeService('a', { class: 'excluded' }),
        scopeService('a2', { serviceId: owner('a') }),
        application('b'),
      ],
    });
    expect(await fleet.entries()).toEqual([{ ...before, swarmServiceId: 'a2', serviceName: 'name-a2' }]);
    const successor = [scopeService('a2', { serviceId: owner('a') }), application('b')];
    expect((await fleet.classified({ services: successor })).requiredCount).toBe(1);
    await fleet.reported(node, { local: localSnapshot({ containers: [taskContainer('b', [])] }) });
    expect(await volumes()).toEqual(['v']);
    expect((await fleet.entries())[0]?.id).toBe(before?.id);
  });
});

describe('the target set', () => {
  it('is accepted, compared, replayed and read back', async () => {
    const { fleet, clusterId, node, application, codes } = await newFleet();
    await fleet.classified({ services: [application('a'), application('b')] });
    const second = `${clusterId}-2`;
    await service.done('registerNode', {
      mutationId: mutationId(),
      clusterId,
      nodeId: second,
      corestorePublicKey: null,
    });
    expect(await codes()).toEqual(['node-not-targeted']);
    const id = mutationId();
    const first = await fleet.accept([second, node], { mutationId: id, expectedTargetSet: null });
    expect(first.body).toMatchObject({
      targetSet: { generation: 1, clusterId, nodeIds: [node, second], predecessor: null },
      blockers: [{ code: 'node-unobserved', count: 1 }],
    });
    expect(fleetCutoverTargetSetRecord.validate(first.body.targetSet)).toEqual([]);
    expect((await fleet.accept([node, second], { mutationId: id, expectedTargetSet: null })).body).toEqual({
      ...first.body,
      replayed: true,
    });
    for (const expectedTargetSet of [null, other(first.body.targetSet)]) {
      const stale = await fleet.accept([node], { expectedTargetSet });
      expect([codeOf(stale), stale.body.expectation, stale.body.current?.generation]).toEqual([
        '409 target-set-stale',
        'expectedTargetSet',
        1,
      ]);
    }
    const smaller = await fleet.accept([second]);
    expect(smaller.body.targetSet).toMatchObject({ generation: 2, nodeIds: [second], predecessor: { generation: 1 } });
    expect(await codes()).toEqual(['node-not-targeted', 'node-unobserved']);
    expect((await fleet.accept([node, second], { mutationId: id, expectedTargetSet: null })).body).toMatchObject({
      replayed: true,
      current: false,
    });
    const { targetSet } = await service.done('readFleetCutoverTargetSet', { clusterId, targetSet: null });
    expect(targetSet).toEqual(smaller.body.targetSet);
    const { id: recordId, generation, digest } = first.body.targetSet;
    const pinned = await service.done('readFleetCutoverTargetSet', {
      clusterId,
      targetSet: { id: recordId, generation, digest },
    });
    expect(pinned.targetSet).toEqual(first.body.targetSet);
    expect(
      codeOf(
        await service.call('readFleetCutoverTargetSet', {
          clusterId,
          targetSet: { id: recordId, generation: 3, digest },
        }),
      ),
    ).toBe('422 pin-unknown');
  });

  it('names nodes of the cluster that are not revoked, each once', async () => {
    const { fleet, clusterId, node } = await newFleet();
    const foreign = (await newFleet()).node;
    const revoked = `${clusterId}-9`;
    await service.done('registerNode', {
      mutationId: mutationId(),
      clusterId,
      nodeId: revoked,
      corestorePublicKey: null,
    });
    await service.done('revokeNode', { mutationId: mutationId(), clusterId, nodeId: revoked });
    const answer = await fleet.accept([node, 'nobody', node, foreign, revoked]);
    expect([codeOf(answer), answer.body.mutationOutcome, entriesOf(answer)]).toEqual([
      '422 target-set-refused',
      'not-applied',
      ['nodeIds[1] node-unknown', 'nodeIds[2] entry-duplicate', 'nodeIds[3] node-unknown', 'nodeIds[4] node-unknown'],
    ]);
    expect(codeOf(await fleet.accept([]))).toBe('400 body-schema');
  });

  it('writes nothing in a dry run', async () => {
    const { fleet, clusterId, node, application } = await newFleet();
    await fleet.classified({ services: [application('a'), application('b')] });
    const before = await rowCounts(clusterId);
    const dryRun = await fleet.accept([node], { dryRun: true });
    expect(dryRun.body).toMatchObject({ dryRun: true, audit: null, targetSet: { generation: 1 }, blockers: [] });
    expect(await rowCounts(clusterId)).toEqual(before);
    expect((await fleet.state()).targetSet).toBeNull();
  });
});

describe('a fleet without volumes', () => {
  it('is complete with nothing required, and says so to Spark', async () => {
    const { fleet, clusterId, node, application, codes } = await newFleet(['b']);
    await fleet.classified({ services: [application('b')] });
    await fleet.accept([node]);
    expect(await codes()).toEqual([]);
    const { scope } = await fleet.state();
    const rederive = (expectedAggregate: Reference | null) =>
      service.call('rederiveFleetCutoverVolumeHandoffs', {
        mutationId: mutationId(),
        clusterId,
        runtime: fleet.runtime,
        scope: scope!,
        expectedAggregate,
      });
    const made = await rederive(null);
    expect(made.body.aggregate).toMatchObject({
      generation: 1,
      state: 'complete',
      requiredCount: 0,
      actualCount: 0,
      pageCount: 0,
      setDigest: bareDigest([]),
      predecessor: null,
    });
    expect(codeOf(await rederive(null))).toBe('409 aggregate-stale');
    const state = await fleet.state();
    expect(state).toMatchObject({
      behind: false,
      missingCount: 0,
      surplusCount: 0,
      blockers: [],
      aggregate: { state: 'complete' },
    });

    const answer = await fetch(service.url + sparkSwarmNodeContracts.fleetCutoverPreparedVolumeHandoffs.endpoint, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        nodeId: node,
        nodeToken: fleet.token(node),
        protocol: { major: 32, minor: 15 },
        aggregate: null,
        pageIndex: 0,
      }),
    });
    expect([answer.status, await answer.json()]).toEqual([
      200,
      { aggregate: null, page: null, nodeId: node, nodeHandoffs: [], protocol: { major: 32, minor: 15 } },
    ]);
  });
});
