import { mkdtemp, rm, truncate } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { capturedSource } from '../../src/agents/docker/captured-source.js';
import { openFenceStore } from '../../src/agents/pallet/fence-store.js';
import { createReferencePallet, type NodePallet } from '../../src/agents/pallet/node-pallet.js';
import { createSparkAgent } from '../../src/agents/spark/agent.js';
import { createForwardedPages, heldFenceEvidence } from '../../src/agents/spark/forwarding.js';
import type { SparkEvent } from '../../src/agents/spark/log.js';
import { openSparkState } from '../../src/agents/spark/spark-state.js';
import { startSpark } from '../../src/agents/spark/start.js';
import { createSparkClient } from '../../src/client/spark-client.js';
import { systemClock } from '../../src/clock.js';
import type { ISparkGetFleetCutoverPreparedVolumeHandoffsRequest as PageRequest } from '../../src/contract/handoff.js';
import {
  type IFleetCutoverHeldVolumeFenceEvidencePage,
  validateFleetCutoverHeldVolumeFenceEvidencePage,
} from '../../src/contract/held-fence.js';
import { sparkSwarmNodeContracts } from '../../src/contract/limits.js';
import type { ISparkSwarmObservationAcceptedReceipt } from '../../src/contract/observation.js';
import { referenceOf } from '../../src/contract/schema.js';
import { systemRandom } from '../../src/random.js';
import { Secret } from '../../src/secret.js';
import { answerJson, type Answering, openAnsweringServer } from '../support/answering-server.js';
import { handoffSet, type HandoffSet, referenceNamed } from '../support/handoff-set.js';
import { nothing, pageAnswer } from '../support/page-server.js';
import { observationOf, receiptOf } from '../support/spark-receipt.js';

type Evidence = IFleetCutoverHeldVolumeFenceEvidencePage;
type FenceReceipt = ISparkSwarmObservationAcceptedReceipt['heldVolumeFences'];

let directory: string;
const open: { close(): Promise<void> }[] = [];
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'fleet-cutover-forwarding-'));
});
afterEach(async () => {
  for (const each of open.splice(0).reverse()) await each.close();
  await rm(directory, { recursive: true });
});

interface Cloudly {
  set: HandoffSet | null;
  runtime: number;
  /** Another answer to a page's evidence; null accepts it. */
  judge: (evidence: Evidence) => FenceReceipt['code'];
  /** Answers an evidence's report by itself; false leaves it to the usual answer. */
  cut: (response: Parameters<Answering>[1]) => boolean;
}

async function openCloudly(set: HandoffSet) {
  const cloudly: Cloudly = { set, runtime: 2, judge: () => null, cut: () => false };
  const server = await openAnsweringServer((request, response) => {
    if (request.path === sparkSwarmNodeContracts.fleetCutoverPreparedVolumeHandoffs.endpoint) {
      const asked = request.json as unknown as PageRequest;
      return answerJson(response, cloudly.set === null ? nothing(asked) : pageAnswer(cloudly.set, asked));
    }
    const runtime = referenceNamed('rt-1', cloudly.runtime);
    const evidence = observationOf(request).fleetCutoverHeldVolumeFences;
    if (evidence === undefined) return answerJson(response, receiptOf(request, { runtime }));
    if (cloudly.cut(response)) return;
    const code = cloudly.judge(evidence);
    const receipt = receiptOf(request, { runtime });
    const refused: FenceReceipt = { state: 'refused', code, aggregate: evidence.aggregate, coveredPages: 0 };
    return answerJson(response, code === null ? receipt : { ...receipt, heldVolumeFences: refused });
  });
  open.push(server);
  /** Takes what was sent since the last call. */
  const sent = () =>
    server.requests
      .splice(0)
      .filter(({ path }) => path === sparkSwarmNodeContracts.swarmObservation.endpoint)
      .map(observationOf)
      .flatMap((observation) => observation.fleetCutoverHeldVolumeFences ?? []);
  return { cloudly, server, sent };
}

async function openPallet(name = 'pallet'): Promise<NodePallet> {
  const store = await openFenceStore({ directory: join(directory, name), nodeId: 'node-a', random: systemRandom });
  return createReferencePallet({ store, version: '1', isReady: () => true });
}

async function openAgent(url: string, pallet: NodePallet | null) {
  const client = createSparkClient({
    url,
    nodeId: 'node-a',
    nodeToken: new Secret('t'.repeat(43)),
    repetition: { attempts: 2, firstDelayMs: 1 },
  });
  open.push(client);
  const { digest } = referenceNamed('spark');
  return createSparkAgent({
    client,
    source: capturedSource(join(import.meta.dirname, '..', 'fixtures', 'swarm', 'worker')),
    state: openSparkState(join(directory, 'spark')),
    facts: {
      spark: { bundleDigest: digest, unitDigest: digest, configurationDigest: digest, oldModeRefused: true },
      pallet: null,
    },
    ...(pallet === null ? {} : { pallet }),
    clock: systemClock,
    random: systemRandom,
    log: () => {},
  });
}

// Pages of 32: node-a alone, node-a and node-b, node-b alone.
const set = handoffSet({ nodes: { 'node-a': 40, 'node-b': 40 } });
const aggregate = referenceOf(set.aggregate);

describe('what is forwarded', () => {
  it('is one page a report: exactly the node’s entries in page order, none where it has none, no census', async () => {
    const { server } = await openCloudly(set);
    const run = await (await openAgent(server.url, await openPallet())).runOnce();
    const reports = server.requests.filter(({ path }) => path === sparkSwarmNodeContracts.swarmObservation.endpoint);
    const observations = reports.map(observationOf);
    const carriers = observations.filter((each) => each.fleetCutoverHeldVolumeFences !== undefined);
    expect(carriers).toHaveLength(3);
    for (const [index, carrier] of carriers.entries()) {
      expect(carrier).not.toHaveProperty('fleetCutoverLocalNodeSnapshot');
      expect(carrier).not.toHaveProperty('fleetCutoverManagerSnapshot');
      const evidence = carrier.fleetCutoverHeldVolumeFences!;
      expect(await validateFleetCutoverHeldVolumeFenceEvidencePage(evidence)).toEqual([]);
      const { handoffs, contentDigest } = set.pages[index]!;
      expect(evidence).toMatchObject({ aggregate, pageIndex: index, contentDigest, nodeId: 'node-a' });
      expect(evidence.fences.map((fence) => fence.handoff)).toEqual(
        handoffs.filter(({ nodeId }) => nodeId === 'node-a').map(referenceOf),
      );
    }
    expect(observations.map((each) => each.observationSequence)).toEqual(observations.map((_, index) => index + 1));
    expect(run.holds).toEqual({ aggregate, pageCount: 3, acceptedPages: 3, refused: null });
    expect(observations[0]).toMatchObject({ fleetCutoverLocalNodeSnapshot: { pallet: { version: '1', ready: true } } });
  });

  it('is nothing without Pallet, and nothing while no complete set is there', async () => {
    const { cloudly, server, sent } = await openCloudly(set);
    expect((await (await openAgent(server.url, null)).runOnce()).holds).toBeNull();
    cloudly.set = null;
    expect((await (await openAgent(server.url, await openPallet())).runOnce()).holds).toBeNull();
    expect(sent()).toEqual([]);
  });

  it('is sent once a session; a new session sends all of it again, with the same fences', async () => {
    const { server, sent } = await openCloudly(set);
    const agent = await openAgent(server.url, await openPallet());
    await agent.runOnce();
    const first = sent();
    await agent.runOnce();
    expect(sent()).toEqual([]);
    await (await openAgent(server.url, await openPallet())).runOnce();
    expect(sent()).toEqual(first);
  });

  it('of a newer aggregate is all of it, with fences of removed handoffs gone', async () => {
    const { cloudly, server, sent } = await openCloudly(set);
    const agent = await openAgent(server.url, await openPallet());
    await agent.runOnce();
    sent();
    cloudly.set = handoffSet({ nodes: { 'node-a': 31, 'node-b': 40 }, generation: 2 });
    expect((await agent.runOnce()).holds).toMatchObject({ acceptedPages: 3, refused: null });
    expect(sent().map((evidence) => evidence.fences.length)).toEqual([31, 0, 0]);
    const store = await openFenceStore({
      directory: join(directory, 'pallet'),
      nodeId: 'node-a',
      random: systemRandom,
    });
    expect(store.held()).toHaveLength(31);
  });

  it('after a lost hold has the fence at a higher generation', async () => {
    const { server, sent } = await openCloudly(set);
    await (await openAgent(server.url, await openPallet())).runOnce();
    const [before] = sent();
    const lost = before!.fences[3]!.handoff.id;
    await truncate(join(directory, 'pallet', 'fences', `${lost}.json`), 10);
    await (await openAgent(server.url, await openPallet())).runOnce();
    const [after] = sent();
    expect(after!.fences[3]).toMatchObject({ id: before!.fences[3]!.id, generation: 2 });
    expect(after!.fences.filter((_, index) => index !== 3)).toEqual(before!.fences.filter((_, index) => index !== 3));
  });
});

describe('the program of the agent', () => {
  it('keeps the fences in its directory from one process to the next', async () => {
    const { server, sent } = await openCloudly(set);
    const events: SparkEvent[] = [];
    const start = (palletDirectory: string | null) =>
      startSpark(
        {
          nodeId: 'node-a',
          nodeToken: new Secret('t'.repeat(43)),
          transport: { url: server.url },
          source: capturedSource(join(import.meta.dirname, '..', 'fixtures', 'swarm', 'worker')),
          stateDirectory: join(directory, 'spark'),
          palletDirectory,
          once: true,
          intervalMs: 1000,
          unitFile: null,
        },
        (event) => events.push(event),
        new AbortController().signal,
      );
    await start(join(directory, 'pallet'));
    const first = sent();
    expect(first.map((evidence) => evidence.fences.length)).toEqual([32, 8, 0]);
    await start(join(directory, 'pallet'));
    expect(sent()).toEqual(first);
    expect(events.filter((each) => each.event === 'fences-loaded').map((each) => each['held'])).toEqual([0, 40]);
    expect(events).toContainEqual(expect.objectContaining({ event: 'holds-forwarded', held: 40, acceptedPages: 3 }));
    await start(null);
    expect(sent()).toEqual([]);
  });
});

describe('what is refused', () => {
  it('with a stale pin ends the round, and is read and sent again in the next', async () => {
    const { cloudly, server, sent } = await openCloudly(set);
    const agent = await openAgent(server.url, await openPallet());
    cloudly.judge = ({ pageIndex }) => (pageIndex === 1 ? 'pin-stale' : null);
    expect((await agent.runOnce()).holds).toMatchObject({ acceptedPages: 1, refused: 'pin-stale' });
    expect(sent().map(({ pageIndex }) => pageIndex)).toEqual([0, 1]);
    cloudly.judge = () => null;
    expect((await agent.runOnce()).holds).toMatchObject({ acceptedPages: 3, refused: null });
    expect(sent().map(({ pageIndex }) => pageIndex)).toEqual([1, 2]);
  });

  it('by the phase is asked again when the runtime is another one, not before', async () => {
    const { cloudly, server, sent } = await openCloudly(set);
    const agent = await openAgent(server.url, await openPallet());
    cloudly.judge = () => 'phase-refused';
    expect((await agent.runOnce()).holds).toMatchObject({ acceptedPages: 0, refused: 'phase-refused' });
    expect(sent()).toHaveLength(1);
    await agent.runOnce();
    expect(sent()).toEqual([]);
    cloudly.judge = () => null;
    cloudly.runtime = 3;
    expect((await agent.runOnce()).holds).toMatchObject({ acceptedPages: 3, refused: null });
    expect(sent()).toHaveLength(3);
  });

  it('for another reason is tried again every round, one page of it', async () => {
    const { cloudly, server, sent } = await openCloudly(set);
    const agent = await openAgent(server.url, await openPallet());
    cloudly.judge = () => 'node-not-targeted';
    await agent.runOnce();
    await agent.runOnce();
    expect(sent().map(({ pageIndex }) => pageIndex)).toEqual([0, 0]);
  });
});

describe('what the service has voided', () => {
  /** Pallet that is replaced while its node's Spark goes on; null while it isn't installed. */
  function replaceable(first: NodePallet) {
    const at: { pallet: NodePallet | null } = { pallet: first };
    const pallet: NodePallet = {
      status: async () => (await at.pallet?.status()) ?? null,
      holdShare: (share) => at.pallet!.holdShare(share),
    };
    return { at, pallet };
  }
  const storeOf = async (pallet: NodePallet) => (await pallet.status())!.fenceStoreId;

  it('because the fence store is another one is sent again, every page once', async () => {
    const { server, sent } = await openCloudly(set);
    const [first, second] = [await openPallet('first'), await openPallet('second')];
    const { at, pallet } = replaceable(first);
    const agent = await openAgent(server.url, pallet);
    await agent.runOnce();
    sent();
    at.pallet = second;
    expect((await agent.runOnce()).holds).toMatchObject({ acceptedPages: 3, refused: null });
    const again = sent();
    expect(again.map(({ pageIndex }) => pageIndex)).toEqual([0, 1, 2]);
    const stores = again.flatMap((evidence) => evidence.fences.map((fence) => fence.fenceStoreId));
    expect(new Set(stores)).toEqual(new Set([await storeOf(second)]));
    await agent.runOnce();
    expect(sent()).toEqual([]);
  });

  it('because there was no fence store for a round is sent again when the same one is back', async () => {
    const { server, sent } = await openCloudly(set);
    const first = await openPallet();
    const { at, pallet } = replaceable(first);
    const agent = await openAgent(server.url, pallet);
    await agent.runOnce();
    const before = sent();
    at.pallet = null;
    expect((await agent.runOnce()).holds).toBeNull();
    expect(sent()).toEqual([]);
    at.pallet = first;
    await agent.runOnce();
    expect(sent()).toEqual(before);
  });

  it.each(['membership-differs', 'store-differs'] as const)(
    'with %s is sent again from the first page',
    async (code) => {
      const { cloudly, server, sent } = await openCloudly(set);
      const agent = await openAgent(server.url, await openPallet());
      cloudly.judge = ({ pageIndex }) => (pageIndex === 1 ? code : null);
      expect((await agent.runOnce()).holds).toMatchObject({ acceptedPages: 0, refused: code });
      expect(sent().map(({ pageIndex }) => pageIndex)).toEqual([0, 1]);
      cloudly.judge = () => null;
      expect((await agent.runOnce()).holds).toMatchObject({ acceptedPages: 3, refused: null });
      expect(sent().map(({ pageIndex }) => pageIndex)).toEqual([0, 1, 2]);
    },
  );
});

describe('a page whose receipt was lost', () => {
  it('is sent again under its own sequence, and counts by the repeat’s receipt', async () => {
    const { cloudly, server, sent } = await openCloudly(set);
    const agent = await openAgent(server.url, await openPallet());
    cloudly.cut = (response) => {
      response.destroy();
      return true;
    };
    await expect(agent.runOnce()).rejects.toMatchObject({ code: 'connection-lost' });
    const lost = sent();
    cloudly.cut = () => false;
    expect((await agent.runOnce()).holds).toMatchObject({ acceptedPages: 3 });
    const [repeated, ...others] = sent();
    expect(repeated).toEqual(lost[0]);
    expect(others.map(({ pageIndex }) => pageIndex)).toEqual([1, 2]);
  });
});

describe('an answer about held fences', () => {
  it.each<[string, Partial<FenceReceipt>]>([
    ['that has none', { state: 'absent', aggregate: null }],
    ['that accepts them under another pin', { state: 'accepted', aggregate: referenceNamed('ha-2') }],
    ['that refuses them without a reason', { state: 'refused' }],
  ])('%s violates the contract', async (_what, fences) => {
    const server = await openAnsweringServer((request, response) => {
      const receipt = receiptOf(request);
      return answerJson(response, { ...receipt, heldVolumeFences: { ...receipt.heldVolumeFences, ...fences } });
    });
    open.push(server);
    const client = createSparkClient({ url: server.url, nodeId: 'node-a', nodeToken: new Secret('t'.repeat(43)) });
    open.push(client);
    const report = client.reportObservation({
      state: 'inactive',
      reporterSessionId: 'rs-1',
      observationSequence: 1,
      observedAt: 0,
      fleetCutoverHeldVolumeFences: {
        aggregate,
        pageIndex: 2,
        contentDigest: set.pages[2]!.contentDigest,
        nodeId: 'node-a',
        fences: [],
      },
    });
    await expect(report).rejects.toMatchObject({ name: 'ContractViolationError' });
  });
});

describe('evidence', () => {
  it('is never half of a page', () => {
    const [page] = set.pages;
    const handoffs = page!.handoffs.map(referenceOf);
    expect(() => heldFenceEvidence('node-a', aggregate, { ...page!, handoffs }, new Map())).toThrow('is not held');
  });

  it('that was accepted for a fence store does not count for another one, nor for it once it was away', () => {
    const pages = createForwardedPages();
    const runtime = referenceNamed('rt-1');
    const evidence = { aggregate, pageIndex: 0, contentDigest: set.pages[0]!.contentDigest, nodeId: 'n', fences: [] };
    const receipt = {
      runtime,
      heldVolumeFences: { state: 'accepted', code: null, aggregate, coveredPages: 1 },
    } as const;
    const countAfter = (...stores: (string | null)[]) => {
      pages.useFenceStore('fs-1');
      pages.note(evidence, receipt);
      for (const store of stores) pages.useFenceStore(store);
      return pages.acceptedCount(aggregate);
    };
    expect(countAfter('fs-1')).toBe(1);
    expect(countAfter('fs-2')).toBe(0);
    expect(countAfter(null, 'fs-1')).toBe(0);
  });

  it('that was accepted for an older aggregate does not count for a newer one', () => {
    const pages = createForwardedPages();
    const runtime = referenceNamed('rt-1');
    const evidence = { aggregate, pageIndex: 0, contentDigest: set.pages[0]!.contentDigest, nodeId: 'n', fences: [] };
    const accepted = { state: 'accepted', code: null, aggregate, coveredPages: 1 } as const;
    pages.note(evidence, { runtime, heldVolumeFences: accepted });
    expect(pages.acceptedCount(aggregate)).toBe(1);
    const newer = { ...aggregate, generation: 2 };
    expect(pages.acceptedCount(newer)).toBe(0);
    const proved = set.pages.map((page) => ({ ...page, handoffs: [] }));
    expect(pages.missing(newer, proved, runtime)).toEqual(proved);
    expect(pages.missing(aggregate, proved, runtime)).toEqual(proved.slice(1));
  });
});
