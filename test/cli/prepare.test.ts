/** `prepare`: killed, overtaken, cut off, and gone on with. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { PreparationResult } from '../../src/cli/bulk/preparation.js';
import { type AnswerProxy, openAnswerProxy } from '../../src/demo/answer-proxy.js';
import { type Reference, referenceOf } from '../../src/contract/schema.js';
import { type CommandEnd, environmentOf, lastJson, runCommand, startProgram } from '../support/command-line.js';
import { openCuttingProxy } from '../support/cutting-proxy.js';
import { openFaultService } from '../support/kill-service.js';
import { repeatableRandom } from '../support/repeatable-random.js';
import { mutationId, startService, type TestService } from '../support/service.js';
import {
  container,
  prepareKeys,
  type SyntheticFleet,
  syntheticFleet,
  upsertOf,
  volumeMount,
  volumesOf,
} from '../support/synthetic-fleet.js';

const mutationPath = '/requests/fleetcutover/prepareFleetCutoverVolumeHandoffs';

let service: TestService;
/** Made of the same random bytes: what is asked of both in the same order has the same ids in both. */
let twin: TestService;
const proxies: AnswerProxy[] = [];

beforeAll(async () => {
  service = await startService({ logLevel: 'warn', random: repeatableRandom('twins') });
  twin = await startService({ logLevel: 'warn', random: repeatableRandom('twins') });
});
afterAll(async () => {
  for (const proxy of proxies) await proxy.close();
  await service.close();
  await twin.close();
});

const prepare = (clusterId: string, ...more: string[]) => ['prepare', '--cluster', clusterId, '--json', ...more];
type Way = Parameters<typeof environmentOf>[0];
const startAt = (of: Way, args: string[]) => startProgram(environmentOf(of), args);
const runAt = (of: Way, args: string[]) => runCommand(environmentOf(of), args);
const resultOf = (end: Pick<CommandEnd, 'stdout'>) => lastJson<PreparationResult>(end);
const stateOf = (of: TestService, clusterId: string) => of.done('readFleetCutoverState', { clusterId });
const setDigest = async (of: TestService, clusterId: string) => (await stateOf(of, clusterId)).aggregate?.setDigest;

/** Tells of every answer to a mutation of handoffs before the client gets it; false loses it. */
async function proxied(of: { url: string }, answered: (count: number, status: number) => boolean | Promise<boolean>) {
  let count = 0;
  const proxy = await openAnswerProxy(of.url, async ({ path, status, body }) => {
    if (path !== mutationPath) return body;
    count += 1;
    return (await answered(count, status)) ? body : null;
  });
  proxies.push(proxy);
  return { url: proxy.url, token: service.token, mutations: () => count };
}

/** Another administrator's mutation, against whatever is current. */
async function otherMutation(fleet: SyntheticFleet, keys: ReturnType<SyntheticFleet['keys']>, capacity: number | null) {
  const { aggregate } = await stateOf(service, fleet.clusterId);
  await service.done('prepareFleetCutoverVolumeHandoffs', {
    mutationId: mutationId(),
    clusterId: fleet.clusterId,
    runtime: fleet.runtime,
    scope: fleet.scope,
    expectedAggregate: aggregate === null ? null : referenceOf(aggregate),
    upserts: keys.map((key) => upsertOf(key, capacity)),
    removals: [],
  });
}

async function prepared(fleet: SyntheticFleet, key: { nodeId: string; id: string }) {
  const { clusterId } = fleet;
  return service.done('readFleetCutoverVolumeHandoff', { clusterId, nodeId: key.nodeId, id: key.id, generation: null });
}

const capacityOf = async (fleet: SyntheticFleet, key: { nodeId: string; id: string }) =>
  (await prepared(fleet, key)).handoff.claimIntent.binding.request.requestedCapacityBytes;

describe('a run that is killed', () => {
  it(
    'three times at random points ends complete, with the set digest of an undisturbed run',
    { timeout: 240_000 },
    async () => {
      const shape = { clusterId: 'killed', nodes: 2, volumesPerNode: 640, concurrency: 1 };
      const fleet = await syntheticFleet(service, shape);
      const equal = await syntheticFleet(twin, shape);
      expect(equal.clusterLife).toBe(fleet.clusterLife);

      const points: string[] = [];
      for (let round = 0; round < 3; round += 1) {
        const after = 1 + Math.floor(Math.random() * 6);
        const delayMs = Math.random() * 10;
        points.push(`${delayMs.toFixed(1)} ms after answer ${after}`);
        let kill: () => void = () => {};
        const way = await proxied(service, (count) => {
          if (count === after) setTimeout(() => kill(), delayMs);
          return true;
        });
        const run = startAt(way, prepare('killed'));
        kill = () => run.child.kill('SIGKILL');
        expect((await run.ended).signal, points.join(', ')).toBe('SIGKILL');
        const { missingCount } = await stateOf(service, 'killed');
        expect(missingCount, points.join(', ')).toBeLessThan(1_280);
        expect(missingCount, points.join(', ')).toBeGreaterThan(0);
      }
      const last = await runAt(service, prepare('killed'));
      expect(last.code, points.join(', ')).toBe(0);
      expect(resultOf(last)).toMatchObject({ prepared: 1_280, total: 1_280, state: 'complete', reasons: [] });
      const undisturbed = await runAt(twin, prepare('killed'));
      expect(undisturbed.code).toBe(0);
      expect(resultOf(undisturbed)).toMatchObject({ created: 1_280, mutations: 40, conflicts: 0, repeats: 0 });
      expect(await setDigest(service, 'killed')).toBe(await setDigest(twin, 'killed'));
      expect(await setDigest(service, 'killed')).toMatch(/^sha256:/);

      const nothingLeft = await runAt(service, prepare('killed'));
      expect([nothingLeft.code, resultOf(nothingLeft).mutations]).toEqual([0, 0]);
    },
  );

  it.each(['SIGINT', 'SIGTERM'] as const)(
    'by %s ends after the mutation under way',
    { timeout: 120_000 },
    async (signal) => {
      const clusterId = `asked-${signal.toLowerCase()}`;
      await syntheticFleet(service, { clusterId, nodes: 1, volumesPerNode: 256 });
      let end: () => void = () => {};
      const way = await proxied(service, (count) => {
        if (count === 3) end();
        return true;
      });
      const run = startAt(way, prepare(clusterId));
      end = () => run.child.kill(signal);
      const ended = await run.ended;
      expect([ended.code, ended.signal]).toEqual([1, null]);
      const result = resultOf(ended);
      expect(result).toMatchObject({ state: 'incomplete', reasons: [{ code: 'interrupted' }, { code: 'missing' }] });
      // What it says is what there is: the mutation under way was waited for.
      expect(result.created).toBe(256 - (await stateOf(service, clusterId)).missingCount);
      expect([96, 128]).toContain(result.created);
      expect((await runAt(service, prepare(clusterId))).code).toBe(0);
    },
  );
});

describe('another administrator', () => {
  it('mutates in the middle: the run goes on, and keeps what the other asked for', async () => {
    const clusterId = 'overtaken';
    const fleet = await syntheticFleet(service, { clusterId, nodes: 2, volumesPerNode: 160 });
    const keys = fleet.keys();
    // A part of one later batch, a whole later batch, and, near the end, one that is prepared already.
    const theirs = new Map([
      [2, keys.slice(110, 130)],
      [4, keys.slice(192, 224)],
      [6, keys.slice(0, 1)],
    ]);
    const way = await proxied(service, async (count, status) => {
      const part = status === 200 ? theirs.get(count) : undefined;
      if (part !== undefined) {
        theirs.delete(count);
        await otherMutation(fleet, part, 4_096);
      }
      return true;
    });
    const end = await runAt(way, prepare(clusterId));
    expect([end.code, end.stderr]).toEqual([0, expect.any(String)]);
    const result = resultOf(end);
    expect(theirs.size).toBe(0);
    expect(result).toMatchObject({ state: 'complete', prepared: 320, total: 320, reasons: [] });
    expect(result.conflicts).toBeGreaterThanOrEqual(2);
    expect(result.created).toBe(320 - 20 - 32);
    for (const index of [110, 129, 192, 223, 0]) expect(await capacityOf(fleet, keys[index]!)).toBe(4_096);
    for (const index of [1, 109, 130, 191, 224, 319]) expect(await capacityOf(fleet, keys[index]!)).toBeNull();
    // Nothing of theirs was revised and revised back.
    expect((await prepared(fleet, keys[192]!)).handoff.generation).toBe(1);
  });

  it('runs the same command at the same time: every handoff is made once', { timeout: 120_000 }, async () => {
    const clusterId = 'contended';
    const fleet = await syntheticFleet(service, { clusterId, nodes: 2, volumesPerNode: 256 });
    const ends = await Promise.all([runAt(service, prepare(clusterId)), runAt(service, prepare(clusterId))]);
    expect(ends.map(({ code }) => code)).toEqual([0, 0]);
    const [left, right] = ends.map(resultOf);
    expect(left!.created + right!.created).toBe(512);
    for (const key of fleet.keys().filter((_, index) => index % 37 === 0)) {
      expect((await prepared(fleet, key)).handoff.generation).toBe(1);
    }
  });

  it('changes the scope, or the phase, in the middle: what is sent next names the new one, or is asked for first', async () => {
    const clusterId = 'moved';
    const fleet = await syntheticFleet(service, { clusterId, nodes: 1, volumesPerNode: 192 });
    const way = await proxied(service, async (count) => {
      if (count === 2) {
        await service.done('classifyFleetCutoverScope', {
          mutationId: mutationId(),
          clusterId,
          runtime: fleet.runtime,
          inventory: (await stateOf(service, clusterId)).managerSnapshot!,
          expectedScope: fleet.scope,
          statement: fleet.statement,
        });
      }
      if (count === 5) {
        await service.done('advanceFleetCutoverPhase', {
          mutationId: mutationId(),
          clusterId,
          runtime: fleet.runtime,
          to: 'draining',
        });
      }
      return true;
    });
    const end = await runAt(way, prepare(clusterId));
    expect(end.code).toBe(1);
    expect(resultOf(end).reasons.map(({ code }) => code)).toEqual(['confirmation-needed', 'missing']);
    expect(resultOf(end).created).toBeLessThan(192);

    const refused = await runAt(service, prepare(clusterId));
    expect([refused.code, refused.stdout]).toEqual([2, '']);
    expect(refused.stderr).toContain('--yes');
    const dry = await runAt(service, prepare(clusterId, '--dry-run'));
    expect([dry.code, resultOf(dry).created]).toEqual([0, 192 - resultOf(end).created]);
    expect(dry.stderr).toContain('it needs --yes');
    const confirmed = await runAt(service, prepare(clusterId, '--yes'));
    expect(confirmed.code).toBe(0);
    expect(confirmed.stderr).toContain('draining: with a change coverage starts again');
    // Nothing is left to do, so that nothing has to be confirmed.
    expect((await runAt(service, prepare(clusterId))).code).toBe(0);
  });
});

describe('an answer that is lost', () => {
  it('after the commit is asked for again under the same mutation id', async () => {
    const clusterId = 'lost';
    await syntheticFleet(service, { clusterId, nodes: 1, volumesPerNode: 192 });
    const way = await proxied(service, (count) => count !== 3);
    const end = await runAt(way, prepare(clusterId));
    expect(end.code).toBe(0);
    expect(resultOf(end)).toMatchObject({ created: 192, mutations: 6, conflicts: 0, repeats: 1, state: 'complete' });
    expect(way.mutations()).toBe(7);
  });

  it('because the service lost its database at COMMIT: nothing is done twice, whether it was applied or not', async () => {
    const cutting = await openCuttingProxy(service.database.serviceUrl);
    // At the mutation's own COMMIT, not at one of the reads before it.
    let arm: 'before' | 'after' | null = null;
    const faults = {
      at: (point: string) => {
        if (arm === null || point !== 'prepareFleetCutoverVolumeHandoffs:commit') return;
        cutting.cut('COMMIT', arm);
        arm = null;
      },
    };
    const behind = await openFaultService({ url: cutting.url, poolSize: 2, faults });
    try {
      for (const when of ['before', 'after'] as const) {
        const clusterId = `cut-${when}`;
        const fleet = await syntheticFleet(service, { clusterId, nodes: 1, volumesPerNode: 192 });
        const statuses: number[] = [];
        const way = await proxied(behind, (count, status) => {
          statuses.push(status);
          if (count === 2) arm = when;
          return true;
        });
        const end = await runAt(way, prepare(clusterId));
        expect(end.code).toBe(0);
        // The service itself did not know what became of it.
        expect(statuses).toEqual([200, 200, 503, 200, 200, 200, 200]);
        expect(resultOf(end)).toMatchObject({ created: 192, mutations: 6, repeats: when === 'after' ? 1 : 0 });
        // One revision for each mutation, and no more.
        expect(resultOf(end).aggregate?.generation).toBe(6);
        for (const key of [fleet.keys()[64]!, fleet.keys()[95]!])
          expect((await prepared(fleet, key)).handoff.generation).toBe(1);
      }
    } finally {
      await behind.close();
      await cutting.close();
    }
  });

  it('for good is an unknown outcome: exit code 3, and the last line says so', { timeout: 120_000 }, async () => {
    const clusterId = 'away';
    await syntheticFleet(service, { clusterId, nodes: 1, volumesPerNode: 96 });
    let cutOff: () => void = () => {};
    const way = await proxied(service, (count) => {
      if (count < 2) return true;
      cutOff();
      return false;
    });
    const run = startAt(way, prepare(clusterId));
    cutOff = () => {
      void proxies.at(-1)!.close();
      run.child.kill('SIGTERM');
    };
    const end = await run.ended;
    expect(end.code).toBe(3);
    expect(resultOf(end)).toMatchObject({
      created: 32,
      state: 'unknown',
      reasons: [{ code: 'unreachable' }, { code: 'missing' }],
    });
    // It takes no mutation id: the list tells the next run what is missing.
    const { error } = JSON.parse(end.stderr.trimEnd().split('\n').at(-1)!) as { error: { next: string } };
    expect(error.next).toMatch(/^run `prepare` again /);
    expect((await runAt(service, prepare(clusterId))).code).toBe(0);
  });
});

describe('what is not complete afterwards', () => {
  it('is told with its reasons: blocked entries are left out, everything else is prepared', async () => {
    const clusterId = 'blocked';
    const fleet = await syntheticFleet(service, { clusterId, nodes: 2, volumesPerNode: 70 });
    const nodeId = fleet.nodes[1]!.nodeId;
    const { volumes } = fleet.node(nodeId).content;
    const intruder = container('intruder', [volumeMount(volumes[3]!.name, '/x'), volumeMount(volumes[40]!.name, '/y')]);
    await fleet.report(nodeId, { volumes, otherContainers: [intruder] });

    const dry = await runAt(service, prepare(clusterId, '--dry-run'));
    expect(dry.code).toBe(1);
    expect(resultOf(dry)).toMatchObject({ dryRun: true, created: 138, skippedBlocked: 2, state: 'absent' });
    expect((await stateOf(service, clusterId)).aggregate).toBeNull();

    const end = await runAt(service, prepare(clusterId));
    expect(end.code).toBe(1);
    expect(resultOf(end)).toMatchObject({
      created: 138,
      prepared: 138,
      total: 140,
      skippedBlocked: 2,
      state: 'incomplete',
    });
    expect(resultOf(end).reasons.map(({ code, count }) => [code, count])).toEqual([
      ['overlap-container', 2],
      ['missing', 2],
    ]);
    const lines = await runAt(service, ['prepare', '--cluster', clusterId]);
    expect([lines.code, lines.stdout]).toEqual([1, expect.stringContaining('2 of them are blocked')]);

    // Unblocked, it is completed; a surplus keeps it from being complete, and is a person's to remove.
    await fleet.report(nodeId, { volumes });
    expect(resultOf(await runAt(service, prepare(clusterId)))).toMatchObject({ created: 2, state: 'complete' });
    const left = fleet.keys()[0]!;
    const { nodeId: leftNode, serviceId, mountIdentityDigest } = left;
    await service.done('classifyFleetCutoverScope', {
      mutationId: mutationId(),
      clusterId,
      runtime: fleet.runtime,
      inventory: (await stateOf(service, clusterId)).managerSnapshot!,
      expectedScope: fleet.scope,
      statement: {
        ...fleet.statement,
        releasedEntries: [{ nodeId: leftNode, serviceId, mountIdentityDigest, reason: 'empty' }],
      },
    });
    const surplus = await runAt(service, prepare(clusterId));
    expect([surplus.code, resultOf(surplus).mutations]).toEqual([1, 0]);
    expect(resultOf(surplus).reasons.map(({ code }) => code)).toEqual(['surplus', 'behind']);
  });

  it('needs only the next revision: that is made', async () => {
    const clusterId = 'behind';
    const fleet = await syntheticFleet(service, { clusterId, nodes: 1, volumesPerNode: 32 });
    expect((await runAt(service, prepare(clusterId))).code).toBe(0);
    await service.done('classifyFleetCutoverScope', {
      mutationId: mutationId(),
      clusterId,
      runtime: fleet.runtime,
      inventory: (await stateOf(service, clusterId)).managerSnapshot!,
      expectedScope: fleet.scope,
      statement: fleet.statement,
    });
    expect((await stateOf(service, clusterId)).behind).toBe(true);
    const end = await runAt(service, prepare(clusterId));
    expect(end.code).toBe(0);
    expect(resultOf(end)).toMatchObject({ created: 0, mutations: 1, rederivations: 1, state: 'complete' });
    expect((await stateOf(service, clusterId)).behind).toBe(false);

    // A fleet that requires nothing has no aggregate until it is derived once.
    await syntheticFleet(service, { clusterId: 'empty', nodes: 1, volumesPerNode: 0 });
    expect(resultOf(await runAt(service, prepare('empty')))).toMatchObject({
      total: 0,
      state: 'complete',
      reasons: [],
    });
  });

  it('came while it ran: new evidence is picked up until nothing is missing', async () => {
    const clusterId = 'growing';
    const fleet = await syntheticFleet(service, { clusterId, nodes: 2, volumesPerNode: 100, services: 1 });
    const first = fleet.nodes[0]!.nodeId;
    let volumes = 100;
    const way = await proxied(service, async (count) => {
      if (count <= 5) {
        volumes += 3;
        // Before the place where the run is: only another pass finds it.
        await fleet.report(first, { volumes: volumesOf(volumes, 1) });
      }
      return true;
    });
    const end = await runAt(way, prepare(clusterId));
    expect(end.code).toBe(0);
    expect(resultOf(end)).toMatchObject({ created: 215, prepared: 215, total: 215, state: 'complete' });
  });

  it('is a cluster without a scope, one that is unknown, or a command that is none', async () => {
    await service.done('createCluster', {
      mutationId: mutationId(),
      clusterId: 'new',
      controllerId: 'controller',
      runtimeNamespace: 'apps',
    });
    const none = await runAt(service, prepare('new'));
    expect([none.code, resultOf(none).state]).toEqual([1, 'absent']);
    expect(resultOf(none).reasons.map(({ code }) => code)).toEqual(['scope-missing']);
    const unknown = await runAt(service, prepare('nowhere'));
    expect([unknown.code, unknown.stdout]).toEqual([1, '']);
    expect(unknown.stderr).toContain('cluster-unknown');
    for (const bytes of ['0', '-1', '1.5', '9007199254740993', 'many'])
      expect((await runAt(service, prepare('new', '--capacity-bytes', bytes))).code, bytes).toBe(2);
    expect((await runAt(service, ['prepare'])).code).toBe(2);
    expect((await runAt({ ...service, url: 'http://127.0.0.1:9' }, prepare('new'))).code).toBe(3);
  });
});

it('--capacity-bytes is asked for with what is made, and revises nothing', async () => {
  const clusterId = 'sized';
  const fleet = await syntheticFleet(service, { clusterId, nodes: 1, volumesPerNode: 40 });
  const keys = fleet.keys();
  await prepareKeys(service, fleet, null as Reference | null, keys.slice(0, 8));
  expect((await runAt(service, prepare(clusterId, '--capacity-bytes', '1073741824'))).code).toBe(0);
  expect(await capacityOf(fleet, keys[0]!)).toBeNull();
  expect(await capacityOf(fleet, keys[8]!)).toBe(1_073_741_824);
  expect((await prepared(fleet, keys[0]!)).handoff.generation).toBe(1);
});
