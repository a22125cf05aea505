import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { IFleetCutoverBlocker, IFleetCutoverRequiredEntry } from '../../src/contract/derivation.js';
import { comparePageOrder } from '../../src/contract/handoff.js';
import type { MethodRequest, MethodResponse } from '../../src/contract/methods.js';
import type { IFleetCutoverCompleteManagerSnapshot } from '../../src/contract/observation.js';
import { type Reference, referenceOf } from '../../src/contract/schema.js';
import { mutationId, startService, type TestService } from '../support/service.js';
import {
  container,
  prepareKeys,
  type SyntheticFleet,
  syntheticFleet,
  type SyntheticKey,
  volumeMount,
  volumesOf,
} from '../support/synthetic-fleet.js';

let service: TestService;
beforeAll(async () => {
  service = await startService({ logLevel: 'warn' });
});
afterAll(() => service.close());

type Required = MethodResponse<'listFleetCutoverRequiredVolumeHandoffs'>;

const listPage = (fleet: SyntheticFleet, cursor: string | null, limit: number) =>
  service.done('listFleetCutoverRequiredVolumeHandoffs', { clusterId: fleet.clusterId, cursor, limit });

async function listAll(
  fleet: SyntheticFleet,
  limit: number,
  between: () => Promise<unknown> = async () => {},
): Promise<Required[]> {
  const pages: Required[] = [];
  let cursor: string | null = null;
  do {
    const page: Required = await listPage(fleet, cursor, limit);
    pages.push(page);
    cursor = page.nextCursor;
    if (cursor !== null) await between();
  } while (cursor !== null);
  return pages;
}

const entriesOf = (pages: readonly Required[]) => pages.flatMap((page) => page.entries);
const statesOf = (entries: readonly IFleetCutoverRequiredEntry[]) =>
  Object.fromEntries(entries.map((entry) => [entry.id, entry.state]));

async function prepare(
  fleet: SyntheticFleet,
  expectedAggregate: Reference | null,
  more: Partial<MethodRequest<'prepareFleetCutoverVolumeHandoffs'>>,
) {
  const { clusterId, runtime, scope } = fleet;
  const { aggregate } = await service.done('prepareFleetCutoverVolumeHandoffs', {
    mutationId: mutationId(),
    clusterId,
    runtime,
    scope,
    expectedAggregate,
    upserts: [],
    removals: [],
    ...more,
  });
  return referenceOf(aggregate);
}

async function reclassify(fleet: SyntheticFleet, more: object): Promise<SyntheticFleet> {
  const state = await service.done('readFleetCutoverState', { clusterId: fleet.clusterId });
  const { scope } = await service.done('classifyFleetCutoverScope', {
    mutationId: mutationId(),
    clusterId: fleet.clusterId,
    runtime: fleet.runtime,
    inventory: state.managerSnapshot!,
    expectedScope: state.scope,
    statement: { ...fleet.statement, ...more },
  });
  return { ...fleet, scope };
}

const removalOf = ({ nodeId, serviceId, mountIdentityDigest }: SyntheticKey) => ({
  nodeId,
  serviceId,
  mountIdentityDigest,
});

describe('required against prepared', () => {
  it('lists in page order whatever the limit, with ready-made mutations that are accepted as they are', async () => {
    const fleet = await syntheticFleet(service, { nodes: 3, volumesPerNode: [40, 0, 45], services: 3 });
    const keys = fleet.keys();
    for (const limit of [1024, 85, 84, 33, 7]) {
      const pages = await listAll(fleet, limit);
      const entries = entriesOf(pages);
      expect(entries.map((entry) => entry.id)).toEqual(keys.map((key) => key.id));
      expect(pages.map((page) => page.entries.length)).toEqual(
        Array.from({ length: Math.ceil(85 / limit) }, (_, index) => Math.min(limit, 85 - index * limit)),
      );
      expect(new Set(pages.map((page) => page.derivation.digest)).size).toBe(1);
      expect(pages.every((page) => page.aggregate === null)).toBe(true);
    }
    const [all] = await listAll(fleet, 1024);
    const names = new Map(fleet.services.map((each) => [each.serviceId, each]));
    for (const [index, entry] of all!.entries.entries()) {
      const { serviceId } = keys[index]!;
      expect(entry).toEqual({
        ...keys[index],
        swarmServiceId: names.get(serviceId)!.swarmServiceId,
        serviceName: names.get(serviceId)!.name,
        volumeName: keys[index]!.mountPath.slice('/data/'.length),
        state: 'missing',
        handoff: null,
        blockers: [],
      });
    }
    expect(all!.mutations.map((upserts) => upserts.length)).toEqual([32, 32, 21]);
    const ids = new Map(keys.map((key) => [`${key.nodeId} ${key.serviceId} ${key.mountIdentityDigest}`, key]));
    const ordered = all!.mutations
      .flat()
      .map((upsert) => ids.get(`${upsert.nodeId} ${upsert.serviceId} ${upsert.mountIdentityDigest}`)!);
    expect(ordered).toEqual([...ordered].sort(comparePageOrder));
    expect(new Set(all!.mutations.flat().map((upsert) => upsert.request.requestId)).size).toBe(85);

    let head: Reference | null = null;
    for (const upserts of all!.mutations) head = await prepare(fleet, head, { upserts });
    const done = await service.done('readFleetCutoverState', { clusterId: fleet.clusterId });
    expect(done).toMatchObject({ aggregate: { state: 'complete', pageCount: 3 }, missingCount: 0 });
    const [after] = await listAll(fleet, 1024);
    expect(after!.mutations).toEqual([]);
    expect(after!.aggregate).toEqual(head);
    expect(new Set(after!.entries.map((entry) => entry.state))).toEqual(new Set(['prepared']));
    const { handoff } = await service.done('readFleetCutoverVolumeHandoff', {
      clusterId: fleet.clusterId,
      nodeId: keys[50]!.nodeId,
      id: keys[50]!.id,
      generation: null,
    });
    expect(after!.entries[50]!.handoff).toEqual(referenceOf(handoff));
  });

  it('stays at what its first page showed, while observations and mutations go on', async () => {
    const fleet = await syntheticFleet(service, { nodes: 2, volumesPerNode: 20 });
    const keys = fleet.keys();
    let head = await prepareKeys(service, fleet, null, keys.slice(0, 10));
    const first = entriesOf(await listAll(fleet, 1024));
    let round = 0;
    const pages = await listAll(fleet, 6, async () => {
      round += 1;
      const node = fleet.nodes[round % 2]!;
      const volumes = [...node.content.volumes, ...volumesOf(3, fleet.services.length, 100 * round)];
      const blocked = container('backup', [volumeMount(volumes[round]!.name, '/backup')]);
      await fleet.report(node.nodeId, { volumes, otherContainers: [blocked] });
      if (round === 1) head = await prepare(fleet, head, { removals: keys.slice(0, 10).map(removalOf) });
      if (round === 2)
        await reclassify(fleet, {
          releasedEntries: keys.slice(30).map((key) => ({ ...removalOf(key), reason: 'gone' })),
        });
    });
    expect(round).toBeGreaterThan(4);
    expect(entriesOf(pages)).toEqual(first);
    expect(pages.every((page) => page.aggregate!.generation === 1)).toBe(true);
    const now = entriesOf(await listAll(fleet, 1024));
    expect(now.length).toBe(keys.length - 10 + 3 * round);
    expect(now.some((entry) => entry.state === 'prepared')).toBe(false);
    // A cursor of then goes on at then, however late.
    const late = await listPage(fleet, pages[2]!.nextCursor, 6);
    expect(late).toEqual(pages[3]);
  });

  it('shows what is prepared but required no more as surplus, until it is removed', async () => {
    let fleet = await syntheticFleet(service, { nodes: 1, volumesPerNode: 12 });
    const keys = fleet.keys();
    let head = await prepareKeys(service, fleet, null, keys.slice(0, 8));
    fleet = await reclassify(fleet, {
      releasedEntries: [keys[2]!, keys[10]!].map((key) => ({ ...removalOf(key), reason: 'gone' })),
    });
    for (const limit of [1024, 3, 1]) {
      const entries = entriesOf(await listAll(fleet, limit));
      expect(entries.map((entry) => entry.id)).toEqual(keys.filter((_, index) => index !== 10).map((key) => key.id));
      expect(statesOf(entries)).toEqual(
        Object.fromEntries(
          keys.flatMap((key, index) => {
            if (index === 10) return [];
            return [[key.id, index === 2 ? 'surplus' : index < 8 ? 'prepared' : 'missing']];
          }),
        ),
      );
    }
    expect(await service.done('readFleetCutoverState', { clusterId: fleet.clusterId })).toMatchObject({
      missingCount: 3,
      surplusCount: 1,
    });
    head = await prepare(fleet, head, { removals: [removalOf(keys[2]!)] });
    expect(entriesOf(await listAll(fleet, 1024)).map((entry) => entry.id)).not.toContain(keys[2]!.id);
    expect(await service.done('readFleetCutoverState', { clusterId: fleet.clusterId })).toMatchObject({
      surplusCount: 0,
    });
    expect(head!.generation).toBe(2);
  });

  it('names an entry’s blockers and makes no mutation of it', async () => {
    const fleet = await syntheticFleet(service, { nodes: 1, volumesPerNode: 6 });
    const node = fleet.nodes[0]!;
    const blocked = fleet.keys().filter((key) => ['/data/v000001', '/data/v000003'].includes(key.mountPath));
    await fleet.report(node.nodeId, {
      ...node.content,
      otherContainers: [
        container('backup', [volumeMount('v000001', '/one'), volumeMount('v000003', '/three')]),
        container('viewer', [volumeMount('v000003', '/three')]),
      ],
    });
    const [page] = await listAll(fleet, 1024);
    const ids = new Set(blocked.map((key) => key.id));
    for (const entry of page!.entries) expect(entry.blockers).toEqual(ids.has(entry.id) ? ['overlap-container'] : []);
    expect(page!.mutations.flat().map((upsert) => upsert.request.mountPath)).toHaveLength(4);
    expect(
      page!.mutations.flat().every((upsert) => !blocked.some((key) => key.mountPath === upsert.request.mountPath)),
    ).toBe(true);
  });

  it('is not broken by a destination that no request can name: the entry is blocked', async () => {
    const fleet = await syntheticFleet(service, { nodes: 1, volumesPerNode: 2 });
    const { nodeId, content } = fleet.nodes[0]!;
    await fleet.report(nodeId, { volumes: [...content.volumes, { service: 0, name: 'odd', mountPath: 'C:\\data' }] });
    const [page] = await listAll(fleet, 1024);
    expect(page!.entries.map((entry) => [entry.mountPath, entry.blockers.length > 0]).sort()).toEqual([
      ['/data/v000000', false],
      ['/data/v000001', false],
      ['C:\\data', true],
    ]);
    expect(page!.mutations.flat()).toHaveLength(2);
  });
});

describe('blockers', () => {
  it('are listed each with its reason, at one derivation, whatever the limit', async () => {
    const fleet = await syntheticFleet(service, { nodes: 2, volumesPerNode: 5 });
    for (const node of fleet.nodes) {
      await fleet.report(node.nodeId, {
        ...node.content,
        otherContainers: [
          container(
            'backup',
            node.content.volumes.map((volume) => volumeMount(volume.name, `/backup/${volume.name}`)),
          ),
        ],
      });
    }
    const all = async (limit: number, between: () => Promise<unknown> = async () => {}) => {
      const blockers: IFleetCutoverBlocker[] = [];
      let cursor: string | null = null;
      do {
        const page: MethodResponse<'listFleetCutoverBlockers'> = await service.done('listFleetCutoverBlockers', {
          clusterId: fleet.clusterId,
          cursor,
          limit,
        });
        blockers.push(...page.blockers);
        cursor = page.nextCursor;
        if (cursor !== null) await between();
      } while (cursor !== null);
      return blockers;
    };
    const first = await all(1024);
    expect(first).toHaveLength(10);
    expect(new Set(first.map((blocker) => blocker.id)).size).toBe(10);
    expect(await all(3)).toEqual(first);
    const keys = fleet.keys();
    const named = (blocker: IFleetCutoverBlocker) => `${blocker.entry!.nodeId} ${blocker.entry!.mountIdentityDigest}`;
    expect(first.map(named).sort()).toEqual(keys.map((key) => `${key.nodeId} ${key.mountIdentityDigest}`).sort());
    expect(
      first.every((each) => each.code === 'overlap-container' && each.containerName === 'backup' && each.detail !== ''),
    ).toBe(true);
    const state = await service.done('readFleetCutoverState', { clusterId: fleet.clusterId });
    expect(state.blockers).toEqual([{ code: 'overlap-container', count: 10 }]);
    expect(state.derivation.blockerCount).toBe(10);
    let rounds = 0;
    const pinned = await all(2, async () => {
      if (rounds++ === 0) await fleet.report(fleet.nodes[0]!.nodeId, { volumes: fleet.nodes[0]!.content.volumes });
    });
    expect(pinned).toEqual(first);
    expect(await all(1024)).toHaveLength(5);
  });
});

describe('cursors that nobody was given', () => {
  const encode = (value: unknown) =>
    Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64url');
  const lists = [
    'listFleetCutoverRequiredVolumeHandoffs',
    'listFleetCutoverBlockers',
    'listFleetCutoverTaskVerdicts',
    'listFleetCutoverUncoveredVolumes',
  ] as const;

  it.each(lists)('%s refuses them or shows nothing of others, and never fails', async (list) => {
    const fleet = await syntheticFleet(service, { nodes: 1, volumesPerNode: 2 });
    const other = await syntheticFleet(service, { nodes: 1, volumesPerNode: 9 });
    await prepareKeys(service, other, null, other.keys());
    const ask = (cursor: string) =>
      service.call(list, {
        clusterId: fleet.clusterId,
        cursor,
        limit: 10,
        ...(list === 'listFleetCutoverTaskVerdicts' ? { verdict: null } : {}),
      } as never);
    const nonsense = [
      '',
      'x',
      '%%%',
      '💣',
      encode('null'),
      encode('{'),
      encode([]),
      encode([1, 0, '']),
      encode([1, 0, '', '', '']),
      encode({ derivation: 1 }),
    ];
    const wrong = [
      ['1', 0, '', ''],
      [1.5, 0, '', ''],
      [1, null, '', ''],
      [1, 0, 1, ''],
      [1, 0, '', null],
      [1, 0, '\0', ''],
      [1, 0, '', 'a\0b'],
      [1e300, 0, '', ''],
    ];
    for (const cursor of [...nonsense, ...wrong.map(encode)]) {
      const answer = await ask(cursor);
      expect([cursor, answer.status, answer.body.code]).toEqual([cursor, 422, 'cursor-invalid']);
    }
    const pinned = list === 'listFleetCutoverRequiredVolumeHandoffs' || list === 'listFleetCutoverBlockers';
    const outside = [
      [0, 0, '', ''],
      [-1, 0, '', ''],
      [1, -1, '', ''],
      [9999, 0, '', ''],
      [1, 9999, '', ''],
      [2 ** 53 - 1, 0, '', ''],
    ];
    for (const cursor of outside.map(encode)) {
      const answer = await ask(cursor);
      if (pinned) expect([cursor, answer.status, answer.body.code]).toEqual([cursor, 422, 'cursor-invalid']);
      else expect(answer.status).toBe(200);
    }
    for (const cursor of [
      [1, 0, '', ''],
      [1, 0, '~', '~'],
      [1, 0, '\ud800', "'; drop table control.nodes; --"],
      [1, 0, other.nodes[0]!.nodeId, ''],
    ].map(encode)) {
      const answer = await ask(cursor);
      expect(answer.status).toBe(200);
      expect(JSON.stringify(answer.body)).not.toContain(other.clusterId);
    }
    expect((await ask('x'.repeat(100_000))).status).toBe(413);
    const foreign = (await listPage(other, null, 3)).nextCursor!;
    const answer = await ask(foreign);
    expect([200, 422]).toContain(answer.status);
    expect(JSON.stringify(answer.body)).not.toContain(other.clusterId);
  });
});

describe('task verdicts', () => {
  it('are listed in task order, of one verdict if asked, with the manager snapshot that they are of', async () => {
    const fleet = await syntheticFleet(service, { nodes: 2, volumesPerNode: 64, services: 2 });
    const manager = fleet.managerSnapshot();
    const [first, second] = manager.tasks;
    const changed: IFleetCutoverCompleteManagerSnapshot = {
      ...manager,
      tasks: [
        ...manager.tasks.slice(2),
        { ...first!, state: 'complete' },
        { ...second!, containerId: 'c-none', id: 't-lost' },
        { ...second!, containerId: null, state: 'pending', nodeId: null, id: 't-pending' },
      ],
    };
    await fleet.observe(fleet.nodes[0]!.nodeId, { manager: changed });
    const all = async (limit: number, verdict: 'live' | 'not-started' | 'stopped' | 'unknown' | null) => {
      const verdicts = [];
      let cursor: string | null = null;
      do {
        const page: MethodResponse<'listFleetCutoverTaskVerdicts'> = await service.done(
          'listFleetCutoverTaskVerdicts',
          {
            clusterId: fleet.clusterId,
            verdict,
            cursor,
            limit,
          },
        );
        const state = await service.done('readFleetCutoverState', { clusterId: fleet.clusterId });
        expect(page.managerSnapshot).toEqual(state.managerSnapshot);
        verdicts.push(...page.verdicts);
        cursor = page.nextCursor;
      } while (cursor !== null);
      return verdicts;
    };
    const verdicts = await all(1024, null);
    expect(verdicts.map((each) => each.swarmTaskId)).toEqual(changed.tasks.map((task) => task.id).sort());
    expect(await all(2, null)).toEqual(verdicts);
    const of = (id: string) => verdicts.find((each) => each.swarmTaskId === id);
    expect(of(first!.id)).toMatchObject({
      verdict: 'unknown',
      reason: 'terminal-but-running',
      nodeId: fleet.nodes[0]!.nodeId,
    });
    expect(of('t-lost')).toMatchObject({ verdict: 'unknown', reason: 'container-not-found' });
    expect(of('t-pending')).toMatchObject({ verdict: 'not-started', reason: 'never-assigned', nodeId: null });
    for (const verdict of ['live', 'not-started', 'stopped', 'unknown'] as const) {
      expect(await all(1, verdict)).toEqual(verdicts.filter((each) => each.verdict === verdict));
    }
    const state = await service.done('readFleetCutoverState', { clusterId: fleet.clusterId });
    expect(state.verdicts).toEqual({ live: manager.tasks.length - 2, notStarted: 1, stopped: 0, unknown: 2 });
    expect(state.blockers).toEqual([{ code: 'task-unknown', count: 2 }]);
  });
});

describe('uncovered volumes', () => {
  const all = async (fleet: SyntheticFleet, limit: number) => {
    const volumes = [];
    let cursor: string | null = null;
    for (let pages = 0; pages < 100; pages += 1) {
      const page: MethodResponse<'listFleetCutoverUncoveredVolumes'> = await service.done(
        'listFleetCutoverUncoveredVolumes',
        {
          clusterId: fleet.clusterId,
          cursor,
          limit,
        },
      );
      volumes.push(...page.volumes);
      cursor = page.nextCursor;
      if (cursor === null) return volumes;
    }
    throw new Error('the listing does not end');
  };

  it('are mounted, dormant or orphan, in node and name order, whatever the limit', async () => {
    const fleet = await syntheticFleet(service, { nodes: 3, volumesPerNode: [3, 0, 2], services: 1 });
    const manager = fleet.managerSnapshot();
    const mount = {
      type: 'volume' as const,
      source: 'app-{{.Task.Slot}}',
      target: '/app',
      readOnly: false,
      driver: null,
      options: null,
    };
    await fleet.observe(fleet.nodes[0]!.nodeId, {
      manager: { ...manager, services: manager.services.map((each) => ({ ...each, mounts: [mount] })) },
    });
    for (const node of fleet.nodes) {
      await fleet.report(node.nodeId, {
        ...node.content,
        looseVolumes: ['app-1', 'zz-orphan', 'a-orphan', 'tools'],
        otherContainers: [container('tool', [volumeMount('tools', '/tools')])],
      });
    }
    const expected = fleet.nodes.flatMap(({ nodeId }) =>
      [
        ['a-orphan', 'orphan'],
        ['app-1', 'dormant'],
        ['tools', 'mounted'],
        ['zz-orphan', 'orphan'],
      ].map(([volumeName, kind]) => ({ nodeId, volumeName, driver: 'local', kind })),
    );
    for (const limit of [1024, 12, 11, 5, 4, 3, 1]) expect(await all(fleet, limit)).toEqual(expected);
  });

  it('goes on after the longest names too', async () => {
    const fleet = await syntheticFleet(service, { nodes: 1, volumesPerNode: 0, clusterId: 'u'.repeat(122) });
    const looseVolumes = [`${'a'.repeat(4000)}1`, `${'é'.repeat(4000)}2`, `${'"'.repeat(4000)}3`, 'z'];
    await fleet.report(fleet.nodes[0]!.nodeId, { volumes: [], looseVolumes });
    expect((await all(fleet, 1)).map((each) => each.volumeName)).toEqual([...looseVolumes].sort());
  });
});
