import pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { createSparkClient } from '../../src/client/spark-client.js';
import type { MethodResponse } from '../../src/contract/methods.js';
import { Secret } from '../../src/secret.js';
import { type Cutover, cutover } from '../support/cutover.js';
import { startService, type TestService } from '../support/service.js';
import { volumeMount } from '../support/snapshots.js';

type Seen = MethodResponse<'watchFleetCutover'>;

let service: TestService;
/** In `draining`, prepared. */
let cut: Cutover;

beforeAll(async () => {
  service = await startService({ logLevel: 'warn' });
  cut = await cutover(service, 'wa-1', { relay: false });
  await cut.bringTo('draining');
  await cut.prepare();
});
afterEach(() => {
  vi.restoreAllMocks();
});
afterAll(() => service.close());

const watch = (cursor: string | null, timeoutMs = 30_000, clusterId = cut.clusterId) =>
  service.done('watchFleetCutover', { clusterId, cursor, timeoutMs });
const now = () => watch(null, 0);

/** Begins to wait, makes the change when it waits, and gives what woke it. */
async function wokenBy(change: () => Promise<unknown>, cursor?: string): Promise<Seen> {
  const from = cursor ?? (await now()).cursor;
  const waiting = watch(from);
  await change();
  return waiting;
}
function addVolume(name: string): Promise<unknown> {
  const [app] = cut.world.nodes[0]!.containers;
  cut.world.nodes[0]!.containers[0] = { ...app!, mounts: [...app!.mounts, volumeMount(name, `/${name}`)] };
  return cut.report(0);
}

describe('an agent', () => {
  it('waits at its own door, with its token, for its own cluster', async () => {
    const nodeId = cut.nodeIds[0]!;
    const client = createSparkClient({ url: service.url, nodeId, nodeToken: new Secret(cut.fleet.token(nodeId)) });
    const stranger = createSparkClient({ url: service.url, nodeId, nodeToken: new Secret('x'.repeat(43)) });
    try {
      const first = await client.watch(null, 0);
      expect(first).toMatchObject({ reset: false, changed: [], phase: 'draining', nodeId });
      expect(first.cursor).toBe((await now()).cursor);
      const waiting = client.watch(first.cursor, 30_000);
      await addVolume('agent-woken');
      expect(await waiting).toMatchObject({ changed: ['derivation'], reset: false });
      expect(await client.watch('no-cursor', 30_000)).toMatchObject({ reset: true });
      await expect(stranger.watch(null, 0)).rejects.toMatchObject({ code: 'credential-refused' });
    } finally {
      await client.close();
      await stranger.close();
    }
  });
});

describe('a watcher', () => {
  it('without a cursor gets one at once, with nothing to throw away', async () => {
    const seen = await watch(null);
    expect(seen).toMatchObject({
      reset: false,
      changed: [],
      phase: 'draining',
      runtime: await cut.runtime(),
      aggregate: await cut.aggregate(),
    });
    expect(seen.cursor.length).toBeLessThanOrEqual(512);
  });

  it('is answered at the end of its time with the same cursor, where nothing changed', async () => {
    const { cursor } = await now();
    expect(await watch(cursor, 0)).toMatchObject({ cursor, reset: false, changed: [] });
    expect(await watch(cursor, 700)).toMatchObject({ cursor, reset: false, changed: [] });
    // A report that changes nothing of it wakes nobody.
    const waiting = watch(cursor, 1_500);
    await cut.report(2);
    expect(await waiting).toMatchObject({ cursor, reset: false, changed: [] });
  });

  it('is woken by each kind of change, and its cursor goes on from there', async () => {
    const coverage = await wokenBy(() => cut.hold(1, 0));
    expect([coverage.changed, coverage.reset]).toEqual([['coverage'], false]);
    const again = await wokenBy(() => addVolume('more'), coverage.cursor);
    expect(again.changed).toEqual(['derivation']);
    const aggregate = await wokenBy(() => cut.rederive(), again.cursor);
    expect(aggregate.changed).toEqual(['aggregate']);
    expect(aggregate.aggregate).toEqual(await cut.aggregate());
    await cut.prepare();
    await cut.holdAll();
    await cut.reportAll();
    const ready = await now();
    const runtime = await wokenBy(() => cut.advance('switching'), ready.cursor);
    expect([runtime.changed, runtime.phase, runtime.runtime.generation]).toEqual([['runtime'], 'switching', 3]);
    // Voided coverage is a change, too.
    cut.fleet.restart(cut.nodeIds[0]!);
    const voided = await wokenBy(() => cut.report(0), runtime.cursor);
    expect(voided.changed).toEqual(['coverage']);
    // Who was away for long is told of everything together, at once.
    const { cursor } = ready;
    await addVolume('late');
    await cut.rederive();
    expect((await watch(cursor)).changed).toEqual(['runtime', 'aggregate', 'derivation', 'coverage']);
  });

  it('with a cursor that is hostile, of another cluster or ahead is told to read everything again', async () => {
    const other = await cutover(service, 'wa-2', { relay: false, volumes: [0, 0, 0] });
    const foreign = (await watch(null, 0, other.clusterId)).cursor;
    const { cursor } = await now();
    const [life, runtime, aggregate, derivation, coverage] = JSON.parse(
      Buffer.from(cursor, 'base64url').toString(),
    ) as [string, number, number, number, string];
    const encoded = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url');
    const odd = [
      foreign,
      '',
      'x'.repeat(512),
      '../../etc/passwd',
      '{"a":1}',
      encoded(null),
      encoded([life, runtime]),
      encoded(['other-life', runtime, aggregate, derivation, coverage]),
      encoded([life, runtime + 1, aggregate, derivation, coverage]),
      encoded([life, runtime, aggregate + 1, derivation, coverage]),
      encoded([life, runtime, aggregate, derivation + 1, coverage]),
      encoded([life, '1', aggregate, derivation, coverage]),
      encoded([life, runtime, aggregate, derivation, { toString: 1 }]),
    ];
    for (const each of odd) {
      expect(await watch(each), each).toMatchObject({ cursor, reset: true, changed: [] });
    }
    const long = await service.call('watchFleetCutover', {
      clusterId: cut.clusterId,
      cursor: 'x'.repeat(513),
      timeoutMs: 0,
    });
    expect([long.status, long.body.code]).toEqual([400, 'body-schema']);
    for (const timeoutMs of [-1, 60_001, 0.5]) {
      const bad = await service.call('watchFleetCutover', { clusterId: cut.clusterId, cursor, timeoutMs });
      expect(bad.status).toBe(400);
    }
  });

  it('of another organization, or of no cluster, sees nothing', async () => {
    const foreign = await service.organization('other-watch');
    for (const [clusterId, token] of [
      [cut.clusterId, foreign],
      ['nowhere', service.token],
    ] as const) {
      const answer = await service.call('watchFleetCutover', { clusterId, cursor: null, timeoutMs: 0 }, token);
      expect([answer.status, answer.body.code]).toEqual([404, 'cluster-unknown']);
    }
  });
});

describe('two hundred watchers', () => {
  it('cost one query a turn for all of them, and are all woken', async () => {
    const { cursor } = await now();
    const query = vi.spyOn(pg.Client.prototype, 'query');
    const asked = () => query.mock.calls.length;
    let answered = 0;
    const waiting = Array.from({ length: 200 }, () =>
      watch(cursor, 60_000).finally(() => {
        answered += 1;
      }),
    );
    // All of them have authenticated and looked once when nothing but the turns is asked any more.
    for (let before = -1, quiet = 0; quiet < 4;) {
      await new Promise((resolve) => setTimeout(resolve, 500));
      quiet = before >= 0 && asked() - before <= 2 ? quiet + 1 : 0;
      before = asked();
    }
    expect(answered).toBe(0);
    const [since, before] = [performance.now(), asked()];
    await new Promise((resolve) => setTimeout(resolve, 3_000));
    const turns = Math.ceil((performance.now() - since) / 500) + 1;
    const spent = asked() - before;
    expect(spent).toBeGreaterThan(0);
    expect(spent).toBeLessThanOrEqual(turns);
    query.mockRestore();
    await addVolume('woken');
    const seen = await Promise.all(waiting);
    expect(seen.every((each) => each.changed.includes('derivation') && !each.reset)).toBe(true);
    expect(new Set(seen.map((each) => each.cursor)).size).toBe(1);
  });

  it('leave nothing behind: without a waiter nothing is asked', async () => {
    await watch((await now()).cursor, 600);
    await new Promise((resolve) => setTimeout(resolve, 1_200));
    const query = vi.spyOn(pg.Client.prototype, 'query');
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    expect(query.mock.calls.length).toBe(0);
  });
});

describe('a server that ends', () => {
  it('answers who waits, and does not wait for the end of their time', async () => {
    const ending = await startService({ logLevel: 'warn' });
    try {
      const other = await cutover(ending, 'wa-3', { relay: false, volumes: [0, 0, 0] });
      const request = { clusterId: other.clusterId, timeoutMs: 60_000 };
      const { cursor } = await ending.done('watchFleetCutover', { ...request, cursor: null });
      const waiting = Array.from({ length: 20 }, () => ending.call('watchFleetCutover', { ...request, cursor }));
      await new Promise((resolve) => setTimeout(resolve, 1_000));
      await ending.app.close();
      for (const answer of await Promise.all(waiting)) {
        expect(answer).toMatchObject({ status: 200, body: { cursor, reset: false, changed: [] } });
      }
    } finally {
      await ending.close();
    }
  });
});
