import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { bareDigest } from '../../src/contract/digest.js';
import type {
  IFleetCutoverHeldVolumeFenceEvidencePage,
  TFleetCutoverVolumeFence,
} from '../../src/contract/held-fence.js';
import { maximumHeldFenceEvidenceBytes, maximumObservationCensusBytes } from '../../src/contract/limits.js';
import { referenceOf } from '../../src/contract/schema.js';
import { type Cutover, cutover, sealFence } from '../support/cutover.js';
import type { ReportAnswer } from '../support/fleet.js';
import { referenceNamed } from '../support/handoff-set.js';
import { mutationId, startService, type TestService } from '../support/service.js';
import { incompleteSnapshot } from '../support/snapshots.js';

let service: TestService;
/** In `draining`, prepared: 33 handoffs on two pages. Tests leave it covered by nobody in particular. */
let cut: Cutover;
let made = 0;

beforeAll(async () => {
  service = await startService({ logLevel: 'warn' });
  cut = await draining([20, 13, 0]);
});
afterAll(() => service.close());

async function draining(volumes: readonly number[]): Promise<Cutover> {
  made += 1;
  const fresh = await cutover(service, `hf-${made}`, { volumes, relay: false });
  await fresh.bringTo('draining');
  await fresh.prepare();
  return fresh;
}

const said = ({ status, body }: ReportAnswer) =>
  status === 200
    ? `${body.heldVolumeFences.state} ${body.heldVolumeFences.code ?? body.heldVolumeFences.coveredPages}`
    : `${status} ${body.code}`;

function altered(fence: TFleetCutoverVolumeFence, over: Partial<TFleetCutoverVolumeFence>): TFleetCutoverVolumeFence {
  const { digest: _digest, ...content } = { ...fence, ...over };
  return sealFence(content);
}
const withFirst = (
  evidence: IFleetCutoverHeldVolumeFenceEvidencePage,
  over: Partial<TFleetCutoverVolumeFence>,
): IFleetCutoverHeldVolumeFenceEvidencePage => ({
  ...evidence,
  fences: evidence.fences.map((fence, index) => (index === 0 ? altered(fence, over) : fence)),
});

async function missing(of: Cutover): Promise<string[]> {
  const { rows } = await service.database.owner.query<{ node_id: string; page_index: number }>(
    'select node_id, page_index from operator.missing_coverage where cluster_id = $1 order by node_id collate "C", page_index',
    [of.clusterId],
  );
  return rows.map((row) => `${of.nodeIds.indexOf(row.node_id)}/${row.page_index}`);
}
async function fencesOf(of: Cutover): Promise<string[]> {
  const { rows } = await service.database.owner.query<{ line: string }>(
    `select node_id || ' ' || handoff_id || ' ' || fence_id || ' ' || generation || ' ' || handoff_generation as line
     from operator.held_fences where cluster_id = $1 order by 1`,
    [of.clusterId],
  );
  return rows.map((row) => row.line);
}
/** Revises one handoff of the first node, which makes the next aggregate. */
async function revise(of: Cutover, requestId: string, node = 0): Promise<void> {
  const [entry] = (await of.fleet.entries()).filter((each) => each.nodeId === of.nodeIds[node]);
  const { nodeId, serviceId, mountIdentityDigest, mountPath } = entry!;
  await service.done('prepareFleetCutoverVolumeHandoffs', {
    mutationId: mutationId(),
    clusterId: of.clusterId,
    runtime: await of.runtime(),
    scope: (await of.fleet.state()).scope!,
    expectedAggregate: await of.aggregate(),
    upserts: [
      {
        nodeId,
        serviceId,
        mountIdentityDigest,
        request: {
          requestId,
          kind: 'filesystem',
          mountPath,
          accessMode: 'ReadWriteOnce',
          reclaimPolicy: 'Retain',
          requestedCapacityBytes: null,
        },
      },
    ],
    removals: [],
  });
}

describe('evidence of held fences', () => {
  it('covers its page for its node; the receipt says how many pages of which aggregate are covered', async () => {
    const fresh = await draining([20, 13, 0]);
    expect(await fresh.pageCount()).toBe(2);
    const aggregate = await fresh.aggregate();
    const state = await fresh.fleet.state();
    const first = await fresh.hold(0, 0);
    expect(first.body.heldVolumeFences).toEqual({ state: 'accepted', code: null, aggregate, coveredPages: 1 });
    expect(said(await fresh.hold(0, 0))).toBe('accepted 1');
    // The first node has nothing on the second page, the third nothing at all.
    expect((await fresh.evidence(0, 1)).fences).toEqual([]);
    expect(said(await fresh.hold(0, 1))).toBe('accepted 2');
    expect(said(await fresh.hold(1, 1))).toBe('accepted 1');
    expect((await fresh.evidence(1, 0)).fences).toHaveLength(12);
    expect((await fresh.evidence(1, 1)).fences).toHaveLength(1);
    expect(await missing(fresh)).toEqual(['1/0', '2/0', '2/1']);
    expect(said(await fresh.hold(2, 1))).toBe('accepted 1');
    expect((await fresh.explain()).coverage).toEqual({
      total: 6,
      covered: 4,
      remaining: 2,
      completeNodes: 1,
      targetNodes: 3,
      coveredLastMinute: 4,
    });
    await fresh.holdAll();
    expect(await missing(fresh)).toEqual([]);
    expect(await fencesOf(fresh)).toHaveLength(33);
    // Nothing that an administrator compares against moved.
    const after = await fresh.fleet.state();
    expect([after.runtime, after.scope, after.derivation, after.aggregate, after.behind]).toEqual([
      state.runtime,
      state.scope,
      state.derivation,
      state.aggregate,
      false,
    ]);
  });

  it('is taken from a node in every state, and with a report’s repetition comes the same receipt', async () => {
    const evidence = await cut.evidence(2, 0);
    for (const state of [
      { state: 'unknown', reason: 'docker-unreachable' },
      { state: 'inactive' },
      { state: 'member', localSwarmNodeId: `sn-${cut.nodeIds[2]!}`, controlAvailable: false },
    ]) {
      const body = cut.fleet.body(cut.nodeIds[2]!, { ...state, fleetCutoverHeldVolumeFences: evidence });
      const [once, again] = [await cut.fleet.send(body), await cut.fleet.send(body)];
      expect(once.body.heldVolumeFences.state).toBe('accepted');
      expect(again.text).toBe(once.text);
    }
  });

  it('refuses the whole report where it is not well-formed, and nothing of the report is taken', async () => {
    const good = await cut.evidence(0, 0);
    const other = await cut.evidence(1, 0);
    const [first, second] = good.fences as [TFleetCutoverVolumeFence, TFleetCutoverVolumeFence];
    const before = await cut.fleet.node(cut.nodeIds[0]!);
    const hostile: unknown[] = [
      other,
      { ...good, nodeId: cut.nodeIds[1] },
      { ...good, fences: [second, first, ...good.fences.slice(2)] },
      { ...good, fences: [first, first, ...good.fences.slice(2)] },
      { ...good, fences: [altered(first, { nodeId: cut.nodeIds[1]! }), ...good.fences.slice(1)] },
      { ...good, fences: [{ ...first, volumeId: 'vo-forged' }, ...good.fences.slice(1)] },
      { ...good, fences: [{ ...first, state: 'released' }] },
      { ...good, fences: [...good.fences, ...Array.from({ length: 20 }, () => first)] },
      { ...good, fences: null },
      { ...good, extra: true },
      { ...good, pageIndex: 4096 },
      { ...good, pageIndex: -1 },
      null,
      [],
      'fences',
      { ...good, fences: [altered(first, { fenceStoreId: 'not an identifier' })] },
      { ...good, nodeId: `${good.nodeId}\u0000` },
    ];
    for (const evidence of hostile) {
      const answer = await cut.fleet.observe(cut.nodeIds[0]!, {
        state: 'member',
        localSwarmNodeId: `sn-${cut.nodeIds[0]!}`,
        controlAvailable: false,
        fleetCutoverLocalNodeSnapshot: incompleteSnapshot('timeout'),
        fleetCutoverHeldVolumeFences: evidence,
      });
      expect([answer.status, answer.body.code]).toEqual([400, 'body-schema']);
    }
    const after = await cut.fleet.node(cut.nodeIds[0]!);
    expect(after).toEqual(before);
  });

  it.each<
    [string, (evidence: IFleetCutoverHeldVolumeFenceEvidencePage) => IFleetCutoverHeldVolumeFenceEvidencePage, string]
  >([
    [
      'an older pin',
      (good) => ({ ...good, aggregate: { ...good.aggregate, generation: good.aggregate.generation - 1 } }),
      'pin-stale',
    ],
    [
      'a pin to come',
      (good) => ({ ...good, aggregate: { ...good.aggregate, generation: good.aggregate.generation + 1 } }),
      'pin-stale',
    ],
    ['another digest', (good) => ({ ...good, aggregate: { ...good.aggregate, digest: bareDigest('x') } }), 'pin-stale'],
    ['another aggregate', (good) => ({ ...good, aggregate: referenceNamed('ha-x') }), 'pin-stale'],
    ['another page content', (good) => ({ ...good, contentDigest: bareDigest('x') }), 'pin-stale'],
    ['a page beyond the last', (good) => ({ ...good, pageIndex: 2 }), 'page-unknown'],
    ['the last page of all', (good) => ({ ...good, pageIndex: 4095 }), 'page-unknown'],
    ['a fence less', (good) => ({ ...good, fences: good.fences.slice(1) }), 'membership-differs'],
    ['no fence', (good) => ({ ...good, fences: [] }), 'membership-differs'],
    ['another cluster', (good) => withFirst(good, { clusterId: 'other' }), 'membership-differs'],
    ['another volume', (good) => withFirst(good, { volumeId: 'vo-other' }), 'membership-differs'],
    ['another mount', (good) => withFirst(good, { mountIdentityDigest: bareDigest('x') }), 'membership-differs'],
    [
      'another handoff generation',
      (good) => withFirst(good, { handoff: { ...good.fences[0]!.handoff, generation: 2 } }),
      'membership-differs',
    ],
    [
      'another handoff digest',
      (good) => withFirst(good, { handoff: { ...good.fences[0]!.handoff, digest: bareDigest('x') } }),
      'membership-differs',
    ],
  ])('with %s is refused alone; the report’s snapshots are taken', async (_name, change, code) => {
    const nodeId = cut.nodeIds[0]!;
    const before = await missing(cut);
    const generation = (await cut.fleet.node(nodeId)).localSnapshot!.generation;
    cut.world.nodes[0]!.palletReady = !cut.world.nodes[0]!.palletReady;
    const answer = await cut.fleet.observe(nodeId, {
      state: 'member',
      localSwarmNodeId: `sn-${nodeId}`,
      controlAvailable: false,
      fleetCutoverLocalNodeSnapshot: await cut.local(0),
      fleetCutoverHeldVolumeFences: change(await cut.evidence(0, 0)),
    });
    expect(answer.status).toBe(200);
    expect(answer.body.heldVolumeFences).toEqual({
      state: 'refused',
      code,
      aggregate: await cut.aggregate(),
      coveredPages: 0,
    });
    expect(answer.body.localSnapshot).toMatchObject({ state: 'accepted', reference: { generation: generation + 1 } });
    expect(await missing(cut)).toEqual(before);
  });

  it('with the holds of another page is refused: the page’s digest is not that one’s', async () => {
    const [one, two] = [await cut.evidence(1, 0), await cut.evidence(1, 1)];
    expect(said(await cut.send(1, { ...one, pageIndex: 1 }))).toBe('refused pin-stale');
    expect(said(await cut.send(1, { ...two, fences: one.fences }))).toBe('refused membership-differs');
  });

  it('does not count in phase swarm, nor of a node outside the targets', async () => {
    made += 1;
    const fresh = await cutover(service, `hf-${made}`, { volumes: [2, 1, 0], relay: false });
    await fresh.accept(fresh.nodeIds.slice(0, 2));
    await fresh.prepare();
    expect(said(await fresh.hold(0, 0))).toBe('refused phase-refused');
    await fresh.reportAll();
    expect((await fresh.advance('draining')).status).toBe(200);
    expect(said(await fresh.hold(0, 0))).toBe('accepted 1');
    expect(said(await fresh.hold(2, 0))).toBe('refused node-not-targeted');
    expect((await fresh.explain()).coverage).toMatchObject({ total: 2, covered: 1, targetNodes: 2 });
  });

  it('has nothing to count where nothing is required: the coverage is 0 of 0, complete', async () => {
    const fresh = await draining([0, 0, 0]);
    expect((await fresh.explain()).coverage).toMatchObject({ total: 0, covered: 0, remaining: 0, completeNodes: 3 });
    await fresh.reportAll();
    expect(await fresh.unmet()).toEqual([]);
    expect((await fresh.advance('switching')).status).toBe(200);
  });
});

describe('a fence', () => {
  it('never goes back: no lower generation, and no other content at the same one', async () => {
    const fresh = await draining([2, 1, 0]);
    const good = await fresh.evidence(0, 0, 5);
    expect(said(await fresh.send(0, good))).toBe('accepted 1');
    const kept = await fencesOf(fresh);
    for (const generation of [4, 1]) {
      expect(said(await fresh.send(0, withFirst(good, { generation })))).toBe('refused fence-conflict');
    }
    // Of another store only once the node says that it is its own, and then at a higher generation.
    const elsewhere = (generation: number) => ({
      ...good,
      fences: good.fences.map((fence) => altered(fence, { generation, fenceStoreId: 'fs-other' })),
    });
    expect(said(await fresh.send(0, elsewhere(6)))).toBe('refused store-differs');
    fresh.world.nodes[0]!.fenceStoreId = 'fs-other';
    await fresh.report(0);
    expect(said(await fresh.send(0, good))).toBe('refused store-differs');
    expect(said(await fresh.send(0, elsewhere(5)))).toBe('refused fence-conflict');
    expect(await fencesOf(fresh)).toEqual(kept);
    expect(said(await fresh.send(0, elsewhere(6)))).toBe('accepted 1');
    // A fence of another name begins anew.
    expect(said(await fresh.send(0, withFirst(elsewhere(6), { id: 'vf-new', generation: 1 })))).toBe('accepted 1');
    expect(await fencesOf(fresh)).not.toEqual(kept);
  });

  it('stays where its handoff stays: a new aggregate begins a coverage, and the same fences count again', async () => {
    const fresh = await draining([20, 13, 0]);
    await fresh.holdAll();
    const [old, kept] = [await fresh.evidence(1, 1), await fencesOf(fresh)];
    await revise(fresh, 'rq-second');
    expect(await missing(fresh)).toEqual(['0/0', '0/1', '1/0', '1/1', '2/0', '2/1']);
    expect((await fresh.explain()).coverage).toMatchObject({ total: 6, covered: 0, remaining: 6, completeNodes: 0 });
    expect(said(await fresh.send(1, old))).toBe('refused pin-stale');
    // Of the revised handoff a fence at a higher generation, of all others the very same ones.
    const revised = await fresh.evidence(0, 0);
    const again = revised.fences.map((fence) =>
      fence.handoff.generation === 2 ? altered(fence, { generation: 2 }) : fence,
    );
    expect(again.filter((fence) => fence.generation === 2)).toHaveLength(1);
    expect(said(await fresh.send(0, revised))).toBe('refused fence-conflict');
    expect(said(await fresh.send(0, { ...revised, fences: again }))).toBe('accepted 1');
    expect(said(await fresh.hold(1, 0))).toBe('accepted 1');
    expect(said(await fresh.hold(1, 1))).toBe('accepted 2');
    const now = await fencesOf(fresh);
    expect(now.filter((line) => !kept.includes(line))).toHaveLength(1);
  });

  it('is proved again by a new reporter session: its pages with entries are void, the empty ones are not', async () => {
    const fresh = await draining([20, 13, 0]);
    await fresh.holdAll();
    fresh.fleet.restart(fresh.nodeIds[0]!);
    expect(await missing(fresh)).toEqual([]);
    await fresh.report(0);
    expect(await missing(fresh)).toEqual(['0/0']);
    fresh.fleet.restart(fresh.nodeIds[1]!);
    fresh.fleet.restart(fresh.nodeIds[2]!);
    expect(said(await fresh.hold(1, 1))).toBe('accepted 1');
    await fresh.report(2);
    expect(await missing(fresh)).toEqual(['0/0', '1/0']);
    // A repetition of the old session’s last report changes nothing, and no report voids twice.
    await fresh.report(1);
    expect(await missing(fresh)).toEqual(['0/0', '1/0']);
    await fresh.holdAll();
    expect(await missing(fresh)).toEqual([]);
  });

  it('is proved again after a quarantine', async () => {
    const fresh = await draining([2, 1, 0]);
    await fresh.holdAll();
    const nodeId = fresh.nodeIds[0]!;
    fresh.fleet.restart(nodeId);
    await fresh.report(0);
    await fresh.hold(0, 0);
    expect(await missing(fresh)).toEqual([]);
    const clone = await fresh.report(0, undefined, { session: `rs-${fresh.clusterId}-${nodeId}-1`, sequence: 99 });
    expect([clone.status, clone.body.code]).toEqual([409, 'reporter-replaced']);
    expect(said(await fresh.send(0, await fresh.evidence(0, 0)))).toBe('403 node-quarantined');
    const released = await service.done('releaseNodeQuarantine', {
      mutationId: mutationId(),
      clusterId: fresh.clusterId,
      nodeId,
    });
    fresh.fleet.setToken(nodeId, released.secrets[0]!.secret);
    fresh.fleet.restart(nodeId);
    await fresh.report(0);
    expect(await missing(fresh)).toEqual(['0/0']);
  });
});

describe('the budget of bytes', () => {
  /** The report with blanks so that the fences and all the rest have exactly these many bytes. */
  async function padded(node: number, fenceBytes: number, restBytes: number): Promise<string> {
    const nodeId = cut.nodeIds[node]!;
    const evidence = JSON.stringify(await cut.evidence(node, 0));
    const member = `{${' '.repeat(fenceBytes - evidence.length)}${evidence.slice(1)}`;
    const rest = JSON.stringify(
      cut.fleet.body(nodeId, {
        state: 'member',
        localSwarmNodeId: `sn-${nodeId}`,
        controlAvailable: false,
        fleetCutoverLocalNodeSnapshot: await cut.local(node),
        fleetCutoverHeldVolumeFences: 0,
      }),
    );
    const blanks = restBytes - (rest.length - 1);
    return `{${' '.repeat(blanks)}${rest.slice(1)}`.replace(
      '"fleetCutoverHeldVolumeFences":0',
      () => `"fleetCutoverHeldVolumeFences":${member}`,
    );
  }

  it('of the fences is apart from the census’s: both full pass together, one byte over either does not', async () => {
    const [fences, census] = [maximumHeldFenceEvidenceBytes, maximumObservationCensusBytes];
    const full = await padded(0, fences, census);
    expect(Buffer.byteLength(full)).toBe(fences + census);
    expect(said(await cut.fleet.send(full))).toMatch(/^accepted /);
    const overFences = await cut.fleet.send(await padded(0, fences + 1, census - 1));
    expect([said(overFences), overFences.body.detail]).toEqual([
      '413 body-too-large',
      `held fences may have ${fences} bytes`,
    ]);
    const overCensus = await cut.fleet.send(await padded(0, fences - 1, census + 1));
    expect([said(overCensus), overCensus.body.detail]).toEqual([
      '413 body-too-large',
      `the report without held fences may have ${census} bytes`,
    ]);
    expect(said(await cut.fleet.send(await padded(0, fences, census + 1)))).toBe('413 body-too-large');
    // Small fences leave nothing more for the census.
    expect(said(await cut.fleet.send(await padded(0, 20_000, census + 1)))).toBe('413 body-too-large');
  });
});

/** A coverage kept by hand: what each target has reported of the current aggregate. */
class Oracle {
  private generation = 0;
  private readonly covered = new Map<number, Map<number, boolean>>();

  begin(generation: number): void {
    if (generation === this.generation) return;
    this.generation = generation;
    this.covered.clear();
  }
  cover(node: number, page: number, held: boolean): void {
    const pages = this.covered.get(node) ?? new Map<number, boolean>();
    pages.set(page, held || pages.get(page) === true);
    this.covered.set(node, pages);
  }
  renew(node: number): void {
    for (const [page, held] of this.covered.get(node) ?? []) if (held) this.covered.get(node)!.delete(page);
  }
  missing(targets: readonly number[], pages: number): string[] {
    return targets.flatMap((node) =>
      Array.from({ length: pages }, (_, page) => page)
        .filter((page) => this.covered.get(node)?.has(page) !== true)
        .map((page) => `${node}/${page}`),
    );
  }
}

describe('coverage', () => {
  it.each([11, 12])('is what a count by hand says, after any sequence of acts (seed %i)', async (seed) => {
    let state = seed;
    const random = (below: number) => {
      state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
      return Math.floor((state / 2_147_483_648) * below);
    };
    const fresh = await draining([20, 13, 1, 0]);
    const oracle = new Oracle();
    let targets = [0, 1, 2, 3];
    const generations = new Map<string, number>();
    const hold = async (node: number, page: number) => {
      const evidence = await fresh.evidence(node, page);
      // A fence of a revised handoff is one generation higher each time.
      const fences = evidence.fences.map((fence) => altered(fence, { generation: fence.handoff.generation }));
      const answer = await fresh.send(node, { ...evidence, fences });
      if (targets.includes(node)) {
        expect(said(answer)).toMatch(/^accepted/);
        oracle.cover(node, page, fences.length > 0);
      } else {
        expect(said(answer)).toBe('refused node-not-targeted');
      }
    };
    for (let step = 0; step < 24; step += 1) {
      const node = random(4);
      oracle.begin((await fresh.aggregate()).generation);
      switch (random(9)) {
        case 0:
          fresh.fleet.restart(fresh.nodeIds[node]!);
          await fresh.report(node);
          oracle.renew(node);
          break;
        case 1: {
          const count = (generations.get('r') ?? 1) + 1;
          generations.set('r', count);
          await revise(fresh, `rq-${count}`, random(3));
          oracle.begin((await fresh.aggregate()).generation);
          break;
        }
        case 2: {
          const evidence = await fresh.evidence(node, random(2));
          const stale = { ...evidence.aggregate, generation: evidence.aggregate.generation + 1 };
          expect((await fresh.send(node, { ...evidence, aggregate: stale })).body.heldVolumeFences.state).toBe(
            'refused',
          );
          break;
        }
        case 3:
          // The fourth node has no entries, so that it may come and go.
          targets = targets.length === 4 ? [0, 1, 2] : [0, 1, 2, 3];
          expect((await fresh.accept(targets.map((each) => fresh.nodeIds[each]!))).status).toBe(200);
          break;
        default:
          await hold(node, random(2));
      }
      const expected = oracle.missing(targets, 2);
      expect(await missing(fresh)).toEqual(expected);
      const { coverage } = await fresh.explain();
      const total = targets.length * 2;
      expect(coverage).toMatchObject({
        total,
        covered: total - expected.length,
        remaining: expected.length,
        completeNodes: targets.filter((each) => !expected.some((line) => line.startsWith(`${each}/`))).length,
        targetNodes: targets.length,
      });
      const { rows } = await service.database.owner.query<{ covered: number; missing: number }>(
        `select sum(covered_pages)::int as covered, sum(missing_pages)::int as missing from operator.coverage where cluster_id = $1`,
        [fresh.clusterId],
      );
      expect(rows).toEqual([{ covered: total - expected.length, missing: expected.length }]);
    }
    expect(referenceOf((await fresh.fleet.state()).runtime)).toEqual(await fresh.runtime());
  });
});
