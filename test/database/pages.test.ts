import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createVolatileGenerationMemory } from '../../src/client/generation-memory.js';
import { readPreparedVolumeHandoffs } from '../../src/client/page-reader.js';
import { createSparkClient } from '../../src/client/spark-client.js';
import {
  type IFleetCutoverPreparedVolumeHandoffAggregate,
  type IFleetCutoverPreparedVolumeHandoffPage,
  type TSparkGetFleetCutoverPreparedVolumeHandoffsResponse,
  validateSparkGetFleetCutoverPreparedVolumeHandoffsResponse,
} from '../../src/contract/handoff.js';
import { sparkSwarmNodeContracts } from '../../src/contract/limits.js';
import { supportedProtocol } from '../../src/contract/protocol.js';
import { type Reference, referenceOf } from '../../src/contract/schema.js';
import { authenticateNode } from '../../src/features/auth/facts.js';
import { SparkPageReader } from '../../src/features/volume-handoff/spark-page.js';
import { isRefused } from '../../src/refusal.js';
import { Secret } from '../../src/secret.js';
import { independentBareDigest, independentJson, independentRecordDigest } from '../support/independent-digest.js';
import { mutationId, someDigest, startService, type TestService } from '../support/service.js';
import {
  prepareKeys,
  type SparkAnswer,
  sparkPost,
  type SyntheticFleet,
  syntheticFleet,
  type SyntheticKey,
  upsertOf,
  volumesOf,
} from '../support/synthetic-fleet.js';
import { tamper } from '../support/table-dump.js';

let service: TestService;
beforeAll(async () => {
  service = await startService({ logLevel: 'warn' });
});
afterAll(() => service.close());

const { endpoint, maxResponseBytes } = sparkSwarmNodeContracts.fleetCutoverPreparedVolumeHandoffs;

const sparkRequest = (fleet: SyntheticFleet, nodeIndex: number, aggregate: Reference | null, pageIndex: number) => {
  const { nodeId, token } = fleet.nodes[nodeIndex]!;
  return { nodeId, nodeToken: token, protocol: supportedProtocol, aggregate, pageIndex };
};

const sparkRead = (fleet: SyntheticFleet, nodeIndex: number, aggregate: Reference | null, pageIndex: number) =>
  sparkPost<TSparkGetFleetCutoverPreparedVolumeHandoffsResponse>(
    service.url,
    endpoint,
    sparkRequest(fleet, nodeIndex, aggregate, pageIndex),
  ) as Promise<SparkAnswer<Exclude<TSparkGetFleetCutoverPreparedVolumeHandoffsResponse, { aggregate: null }>>>;

/** The same read by a reader that has nothing cached. */
async function uncachedRead(
  fleet: SyntheticFleet,
  nodeIndex: number,
  aggregate: Reference | null,
  pageIndex: number,
): Promise<string> {
  const { nodeId, token } = fleet.nodes[nodeIndex]!;
  const actor = await authenticateNode(service.deps, nodeId, new Secret(token));
  if (isRefused(actor)) throw new Error(actor.problem.code);
  const answer = await new SparkPageReader(service.deps).read(
    actor,
    sparkRequest(fleet, nodeIndex, aggregate, pageIndex),
    supportedProtocol,
  );
  if (isRefused(answer)) return answer.problem.code;
  return answer.toString();
}

function prove(fleet: SyntheticFleet, nodeIndex: number) {
  const { nodeId, token } = fleet.nodes[nodeIndex]!;
  const client = createSparkClient({ url: service.url, nodeId, nodeToken: new Secret(token) });
  return readPreparedVolumeHandoffs({ client, memory: createVolatileGenerationMemory() }).finally(() => client.close());
}

async function headOf(fleet: SyntheticFleet): Promise<IFleetCutoverPreparedVolumeHandoffAggregate> {
  const { aggregate } = await service.done('readFleetCutoverVolumeHandoffAggregate', {
    clusterId: fleet.clusterId,
    aggregate: null,
  });
  return aggregate!;
}

async function pagesOf(fleet: SyntheticFleet, aggregate: IFleetCutoverPreparedVolumeHandoffAggregate) {
  const pages: IFleetCutoverPreparedVolumeHandoffPage[] = [];
  for (let pageIndex = 0; pageIndex < aggregate.pageCount; pageIndex += 1) {
    const read = { clusterId: fleet.clusterId, aggregate: referenceOf(aggregate), pageIndex };
    pages.push((await service.done('readFleetCutoverVolumeHandoffPage', read)).page);
  }
  return pages;
}

/** Every page as nothing but the prepared keys and the digests' definitions say it must be. */
async function expectWholeSet(
  fleet: SyntheticFleet,
  keys: readonly SyntheticKey[],
): Promise<IFleetCutoverPreparedVolumeHandoffPage[]> {
  const aggregate = await headOf(fleet);
  const pages = await pagesOf(fleet, aggregate);
  const order = keys.map((key) => `${key.nodeId} ${key.id}`).sort();
  expect(aggregate).toMatchObject({
    state: 'complete',
    requiredCount: keys.length,
    actualCount: keys.length,
    pageCount: Math.ceil(keys.length / 32),
  });
  expect(pages.flatMap((page) => page.handoffs.map((entry) => `${entry.nodeId} ${entry.id}`))).toEqual(order);
  expect(pages.map((page) => page.handoffs.length)).toEqual(
    pages.map((_, index) => Math.min(32, keys.length - 32 * index)),
  );
  for (const [pageIndex, page] of pages.entries()) {
    expect(page.pageIndex).toBe(pageIndex);
    expect(page.aggregate).toEqual(referenceOf(aggregate));
    expect(page.contentDigest).toBe(independentBareDigest({ handoffs: page.handoffs, pageIndex }));
  }
  expect(aggregate.setDigest).toBe(independentBareDigest(pages.map((page) => page.contentDigest)));
  expect(aggregate.digest).toBe(independentRecordDigest('fleet-cutover-prepared-volume-handoff-aggregate', aggregate));
  return pages;
}

/** Stored page rows, as `page@since`. */
async function storedPages(fleet: SyntheticFleet): Promise<string[]> {
  const { rows } = await service.database.owner.query<{ row: string }>(
    `select page_index || '@' || since_generation as row from control.handoff_pages where cluster_id = $1
     order by since_generation, page_index`,
    [fleet.clusterId],
  );
  return rows.map((each) => each.row);
}

async function filled(
  nodes: number,
  volumesPerNode: number | readonly number[],
  services?: number,
): Promise<SyntheticFleet> {
  const fleet = await syntheticFleet(service, {
    nodes,
    volumesPerNode,
    ...(services === undefined ? {} : { services }),
  });
  await prepareKeys(service, fleet, null, fleet.keys());
  return fleet;
}

async function change(
  fleet: SyntheticFleet,
  upserts: readonly SyntheticKey[],
  removals: readonly SyntheticKey[] = [],
  capacity = 1,
) {
  const { clusterId, runtime, scope } = fleet;
  const { aggregate } = await service.done('prepareFleetCutoverVolumeHandoffs', {
    mutationId: mutationId(),
    clusterId,
    runtime,
    scope,
    expectedAggregate: referenceOf(await headOf(fleet)),
    upserts: upserts.map((key) => upsertOf(key, capacity)),
    removals: removals.map(({ nodeId, serviceId, mountIdentityDigest }) => ({
      nodeId,
      serviceId,
      mountIdentityDigest,
    })),
  });
  return aggregate;
}

async function rederive(fleet: SyntheticFleet) {
  const { clusterId, runtime, scope } = fleet;
  const request = {
    mutationId: mutationId(),
    clusterId,
    runtime,
    scope,
    expectedAggregate: referenceOf(await headOf(fleet)),
  };
  return (await service.done('rederiveFleetCutoverVolumeHandoffs', request)).aggregate;
}

/** A later volume of the node whose key comes between two keys. */
async function volumeBetween(
  fleet: SyntheticFleet,
  nodeIndex: number,
  after: SyntheticKey | null,
  before: SyntheticKey | null,
) {
  const node = fleet.nodes[nodeIndex]!;
  const { content } = node;
  for (let ordinal = 1000; ; ordinal += 1) {
    const [volume] = volumesOf(1, fleet.services.length, ordinal);
    node.content = { ...content, volumes: [volume!] };
    const key = fleet.keys().find((each) => each.nodeId === node.nodeId)!;
    node.content = content;
    if ((after === null || key.id > after.id) && (before === null || key.id < before.id))
      return { volume: volume!, key };
  }
}

describe.each([1, 31, 32, 33, 65])('a set of %i', (count) => {
  it('has its pages, and Spark’s reader proves it', async () => {
    const fleet = await filled(1, count);
    const pages = await expectWholeSet(fleet, fleet.keys());
    const proved = await prove(fleet, 0);
    expect(proved).toMatchObject({ aggregate: await headOf(fleet), pageCount: pages.length, referenceCount: count });
    expect(proved.aggregate === null ? [] : proved.handoffs.map((each) => each.id)).toEqual(
      fleet.keys().map((key) => key.id),
    );
    expect(await storedPages(fleet)).toEqual(
      pages.map((_, index) => `${index}@${(proved.aggregate ?? { generation: 0 }).generation}`),
    );
  });
});

describe('three pages with a node’s end inside the second', () => {
  let fleet: SyntheticFleet;
  beforeAll(async () => {
    fleet = await filled(3, [40, 30, 0]);
  });

  it('packs nodes next to each other; each reads its own part', async () => {
    const pages = await expectWholeSet(fleet, fleet.keys());
    expect(new Set(pages[1]!.handoffs.map((entry) => entry.nodeId)).size).toBe(2);
    for (const [index, count] of [40, 30, 0].entries()) {
      const proved = await prove(fleet, index);
      expect(proved.aggregate === null ? -1 : proved.handoffs.length).toBe(count);
      expect(proved).toMatchObject({ referenceCount: 70, pageCount: 3 });
    }
  });

  it('answers null with the head and page 0, a pin with exactly it; the subset may be empty', async () => {
    const head = referenceOf(await headOf(fleet));
    const first = await sparkRead(fleet, 0, null, 0);
    expect(first.status).toBe(200);
    expect(first.text).toBe(independentJson(first.body));
    expect((await sparkRead(fleet, 0, head, 0)).text).toBe(first.text);
    const counts = [];
    for (const pageIndex of [0, 1, 2]) {
      const answers = [];
      for (const nodeIndex of [0, 1, 2]) {
        const answer = await sparkRead(fleet, nodeIndex, head, pageIndex);
        const request = sparkRequest(fleet, nodeIndex, head, pageIndex);
        expect(await validateSparkGetFleetCutoverPreparedVolumeHandoffsResponse(answer.body, request)).toEqual([]);
        expect(answer.body.nodeId).toBe(fleet.nodes[nodeIndex]!.nodeId);
        answers.push(answer.body.nodeHandoffs.length);
      }
      counts.push(answers);
    }
    expect(counts).toEqual([
      [32, 0, 0],
      [8, 24, 0],
      [0, 6, 0],
    ]);
    expect((await sparkRead(fleet, 0, null, 2)).body.page.pageIndex).toBe(2);
  });

  it('refuses a foreign, future or altered pin with 422, a page beyond the end with 404', async () => {
    const head = referenceOf(await headOf(fleet));
    const other = await filled(1, 1);
    const pins = [
      referenceOf(await headOf(other)),
      { ...head, generation: head.generation + 1 },
      { ...head, digest: someDigest('another') },
      { ...head, id: 'ha-other' },
      // An incomplete revision has no pages.
      await incompleteRevision(fleet),
    ];
    for (const pin of pins) {
      const answer = await sparkRead(fleet, 0, pin, 0);
      expect([answer.status, answer.body.code]).toEqual([422, 'pin-unknown']);
      const read = await service.call('readFleetCutoverVolumeHandoffPage', {
        clusterId: fleet.clusterId,
        aggregate: pin,
        pageIndex: 0,
      });
      expect([read.status, read.body.code]).toEqual([422, 'pin-unknown']);
    }
    for (const pin of [head, null]) {
      for (const pageIndex of [3, 4095]) {
        const answer = await sparkRead(fleet, 0, pin, pageIndex);
        expect([answer.status, answer.body.code]).toEqual([404, 'page-unknown']);
      }
    }
    const beyond = await service.call('readFleetCutoverVolumeHandoffPage', {
      clusterId: fleet.clusterId,
      aggregate: head,
      pageIndex: 3,
    });
    expect([beyond.status, beyond.body.code]).toEqual([404, 'page-unknown']);
    expect((await sparkRead(fleet, 0, head, 4096)).status).toBe(400);
  });

  it('a pin that could not be read becomes readable once it is published, not before', async () => {
    const future = await sparkRead(fleet, 0, { ...referenceOf(await headOf(fleet)), generation: 99 }, 0);
    expect(future.status).toBe(422);
    const next = await change(fleet, fleet.keys().slice(0, 1), [], 77);
    expect((await sparkRead(fleet, 0, referenceOf(next), 0)).status).toBe(200);
  });

  it('a quarantined node may read still, a revoked one may not', async () => {
    const [, quarantined, revoked] = fleet.nodes;
    await service.database.owner.query(
      `update control.nodes set state = 'quarantined', quarantine_reason = 'two reporters' where node_id = $1`,
      [quarantined!.nodeId],
    );
    expect((await sparkRead(fleet, 1, null, 1)).body.nodeHandoffs).toHaveLength(24);
    expect((await sparkRead(fleet, 2, null, 0)).status).toBe(200);
    await service.done('revokeNode', { mutationId: mutationId(), clusterId: fleet.clusterId, nodeId: revoked!.nodeId });
    const answer = await sparkRead(fleet, 2, null, 0);
    expect([answer.status, answer.body.code]).toEqual([403, 'node-revoked']);
  });
});

async function incompleteRevision(fleet: SyntheticFleet): Promise<Reference> {
  const { rows } = await service.database.owner.query<{ record: string }>(
    `select record from control.aggregate_revisions where cluster_id = $1 and state = 'incomplete' order by generation limit 1`,
    [fleet.clusterId],
  );
  return referenceOf(JSON.parse(rows[0]!.record) as IFleetCutoverPreparedVolumeHandoffAggregate);
}

describe('what a change costs', () => {
  it('an update in place stores exactly the pages of the revised handoffs', async () => {
    const fleet = await filled(1, 65);
    const keys = fleet.keys();
    const before = await storedPages(fleet);
    const first = await change(fleet, [keys[40]!]);
    expect(await storedPages(fleet)).toEqual([...before, `1@${first.generation}`]);
    await expectWholeSet(fleet, keys);
    const second = await change(fleet, [keys[64]!, keys[0]!, keys[31]!], [], 2);
    expect(await storedPages(fleet)).toEqual([
      ...before,
      `1@${first.generation}`,
      `0@${second.generation}`,
      `2@${second.generation}`,
    ]);
    const pages = await expectWholeSet(fleet, keys);
    expect(pages.flatMap((page) => page.handoffs).filter((entry) => entry.generation === 2)).toHaveLength(4);
    // Equal upserts revise nothing, so nothing is stored; the header is another one of the same set.
    const third = await change(fleet, [keys[64]!, keys[0]!], [], 2);
    expect(await storedPages(fleet)).toHaveLength(before.length + 3);
    expect(third).toMatchObject({ setDigest: second.setDigest, generation: second.generation + 1, state: 'complete' });
    await expectWholeSet(fleet, keys);
  });

  it('an insertion re-pages what lies behind it, a removal likewise, and nothing before', async () => {
    const fleet = await filled(1, 100);
    const node = fleet.nodes[0]!;
    const keys = fleet.keys();
    const { volume, key } = await volumeBetween(fleet, 0, keys[40]!, keys[50]!);
    await fleet.report(node.nodeId, { volumes: [...node.content.volumes, volume] });
    const before = await storedPages(fleet);
    const inserted = await change(fleet, [key]);
    expect((await storedPages(fleet)).slice(before.length)).toEqual(
      [1, 2, 3].map((index) => `${index}@${inserted.generation}`),
    );
    await expectWholeSet(fleet, fleet.keys());

    const after = await storedPages(fleet);
    const incomplete = await change(fleet, [], [keys[70]!]);
    expect(incomplete).toMatchObject({
      state: 'incomplete',
      pageCount: 0,
      setDigest: null,
      requiredCount: 101,
      actualCount: 100,
    });
    expect(await storedPages(fleet)).toEqual(after);
    const again = await change(fleet, [keys[70]!], [], 5);
    // keys[70] stands on page 2 behind the insertion: only that page has another reference.
    expect((await storedPages(fleet)).slice(after.length)).toEqual([`2@${again.generation}`]);
    await expectWholeSet(fleet, fleet.keys());
  });

  it('a key before all others, between two pages, behind the last, and a new node before them', async () => {
    const fleet = await filled(2, [0, 64]);
    const node = fleet.nodes[1]!;
    const keys = fleet.keys();
    const places: [SyntheticKey | null, SyntheticKey | null][] = [
      [keys[63]!, null],
      [null, keys[0]!],
      [keys[30]!, keys[31]!],
    ];
    const expectedPages = [[2], [0, 1, 2], [1, 2]];
    for (const [index, [after, before]] of places.entries()) {
      const { volume, key } = await volumeBetween(fleet, 1, after, before);
      await fleet.report(node.nodeId, { volumes: [...node.content.volumes, volume] });
      const known = await storedPages(fleet);
      const made = await change(fleet, [key]);
      expect((await storedPages(fleet)).slice(known.length)).toEqual(
        expectedPages[index]!.map((page) => `${page}@${made.generation}`),
      );
      await expectWholeSet(fleet, fleet.keys());
    }
    await fleet.report(fleet.nodes[0]!.nodeId, { volumes: volumesOf(1, fleet.services.length) });
    const known = await storedPages(fleet);
    const made = await change(fleet, fleet.keys().slice(0, 1));
    expect((await storedPages(fleet)).slice(known.length)).toEqual(
      [0, 1, 2].map((page) => `${page}@${made.generation}`),
    );
    await expectWholeSet(fleet, fleet.keys());
  });
});

describe('a set that shrinks', () => {
  /** A scope revision that lets the keys go. */
  async function release(fleet: SyntheticFleet, keys: readonly SyntheticKey[]): Promise<SyntheticFleet> {
    const state = await service.done('readFleetCutoverState', { clusterId: fleet.clusterId });
    const { scope } = await service.done('classifyFleetCutoverScope', {
      mutationId: mutationId(),
      clusterId: fleet.clusterId,
      runtime: fleet.runtime,
      inventory: state.managerSnapshot!,
      expectedScope: fleet.scope,
      statement: {
        ...fleet.statement,
        releasedEntries: keys.map(({ nodeId, serviceId, mountIdentityDigest }) => ({
          nodeId,
          serviceId,
          mountIdentityDigest,
          reason: 'gone',
        })),
      },
    });
    return { ...fleet, scope };
  }

  it('loses pages at its end, grows again, and every pin still reads its own', async () => {
    let fleet = await filled(1, 70);
    const keys = fleet.keys();
    const three = await headOf(fleet);
    const bytes = await Promise.all([0, 1, 2].map((page) => uncachedRead(fleet, 0, referenceOf(three), page)));
    fleet = await release(fleet, keys.slice(20));
    const first = await change(fleet, [], keys.slice(20, 52));
    expect(first).toMatchObject({ state: 'incomplete', requiredCount: 20, actualCount: 38 });
    const shrunk = await change(fleet, [], keys.slice(52));
    expect(shrunk).toMatchObject({ state: 'complete', requiredCount: 20, actualCount: 20, pageCount: 1 });
    await expectWholeSet(fleet, keys.slice(0, 20));
    expect(await uncachedRead(fleet, 0, referenceOf(shrunk), 1)).toBe('page-unknown');

    fleet = await release(fleet, []);
    await change(fleet, keys.slice(20, 52));
    const grown = await change(fleet, keys.slice(52));
    expect(grown).toMatchObject({ state: 'complete', pageCount: 3 });
    const pages = await expectWholeSet(fleet, keys);
    expect(pages.flatMap((page) => page.handoffs.map((entry) => entry.generation))).toEqual(
      keys.map((_, index) => (index < 20 ? 1 : 2)),
    );
    expect(await Promise.all([0, 1, 2].map((page) => uncachedRead(fleet, 0, referenceOf(three), page)))).toEqual(bytes);

    fleet = await release(fleet, keys);
    await change(fleet, [], keys.slice(0, 32));
    await change(fleet, [], keys.slice(32, 64));
    const empty = await change(fleet, [], keys.slice(64));
    expect(empty).toMatchObject({
      state: 'complete',
      requiredCount: 0,
      pageCount: 0,
      setDigest: independentBareDigest([]),
    });
    expect((await sparkRead(fleet, 0, null, 0)).body).toMatchObject({ aggregate: null, page: null, nodeHandoffs: [] });
    expect(await uncachedRead(fleet, 0, referenceOf(empty), 0)).toBe('page-unknown');
    expect(await Promise.all([0, 1, 2].map((page) => uncachedRead(fleet, 0, referenceOf(three), page)))).toEqual(bytes);
  });
});

describe('from complete to incomplete and back', () => {
  it('a new key makes the head behind, not incomplete; old pins keep their bytes through all of it', async () => {
    const fleet = await filled(2, [40, 40]);
    const keys = fleet.keys();
    const kept = new Map<string, { pin: Reference; node: number; page: number }>();
    const keep = async () => {
      const head = await headOf(fleet);
      for (let page = 0; page < head.pageCount; page += 1) {
        for (const node of [0, 1]) {
          const pin = referenceOf(head);
          const { text, status } = await sparkRead(fleet, node, pin, page);
          expect(status).toBe(200);
          kept.set(text, { pin, node, page });
        }
      }
    };
    await keep();
    const complete = await headOf(fleet);

    const { volume, key } = await volumeBetween(fleet, 1, keys[70]!, null);
    await fleet.report(fleet.nodes[1]!.nodeId, { volumes: [...fleet.nodes[1]!.content.volumes, volume] });
    const state = await service.done('readFleetCutoverState', { clusterId: fleet.clusterId });
    expect(state).toMatchObject({ behind: true, missingCount: 1, surplusCount: 0, aggregate: complete });
    expect((await sparkRead(fleet, 0, null, 0)).body.aggregate).toEqual(complete);

    const incomplete = await rederive(fleet);
    expect(incomplete).toMatchObject({
      state: 'incomplete',
      pageCount: 0,
      setDigest: null,
      requiredCount: 81,
      actualCount: 80,
    });
    expect((await sparkRead(fleet, 0, null, 0)).body).toMatchObject({ aggregate: null, page: null, nodeHandoffs: [] });
    expect((await sparkRead(fleet, 0, referenceOf(complete), 0)).status).toBe(200);
    expect(await uncachedRead(fleet, 0, referenceOf(incomplete), 0)).toBe('pin-unknown');

    const known = await storedPages(fleet);
    const again = await change(fleet, [key]);
    expect((await storedPages(fleet)).slice(known.length)).toEqual([`2@${again.generation}`]);
    await expectWholeSet(fleet, fleet.keys());
    for (let round = 0; round < 6; round += 1) {
      await keep();
      await change(fleet, [keys[round * 13]!], [], round + 2);
    }
    expect(kept.size).toBe(2 * 3 * 7);
    for (const [text, { pin, node, page }] of kept) {
      expect(await uncachedRead(fleet, node, pin, page)).toBe(text);
      expect((await sparkRead(fleet, node, pin, page)).text).toBe(text);
    }
  });
});

describe('32 handoffs of 7,168 bytes', () => {
  it('fit into one answer of at most 262,144 bytes', async () => {
    const clusterId = 'c'.repeat(122);
    const fleet = await syntheticFleet(service, { nodes: 2, volumesPerNode: [0, 1], services: 1, clusterId });
    const [small] = fleet.keys();
    const first = await prepareKeys(service, fleet, null, [small!]);
    const { handoff } = await service.done('readFleetCutoverVolumeHandoff', {
      clusterId,
      nodeId: small!.nodeId,
      id: small!.id,
      generation: null,
    });
    const room = 7168 - Buffer.byteLength(independentJson(handoff)) + small!.mountPath.length;
    const mountPath = (index: number) => {
      const prefix = `/${String(index).padStart(2, '0')}`;
      const rest = room - prefix.length;
      return `${prefix}${'é'.repeat(rest >> 1)}${rest % 2 === 1 ? 'x' : ''}`;
    };
    const volumes = Array.from({ length: 32 }, (_, index) => ({
      service: 0,
      name: `large-${index}`,
      mountPath: mountPath(index),
    }));
    await fleet.report(fleet.nodes[0]!.nodeId, { volumes });
    const head = await prepareKeys(service, fleet, first, fleet.keys().slice(0, 32));
    const answer = await sparkRead(fleet, 0, head, 0);
    expect(answer.status).toBe(200);
    expect(answer.body.nodeHandoffs.map((each) => Buffer.byteLength(independentJson(each)))).toEqual(
      Array(32).fill(7168),
    );
    expect(Buffer.byteLength(answer.text)).toBeLessThanOrEqual(maxResponseBytes);
    expect((await prove(fleet, 0)).aggregate).toEqual(await headOf(fleet));
  });
});

describe('rows that somebody changed', () => {
  let fleet: SyntheticFleet;
  let head: Reference;
  beforeAll(async () => {
    fleet = await filled(1, 70);
    head = referenceOf(await headOf(fleet));
  });

  async function expectCorrupt(pageIndex: number): Promise<void> {
    const answer = await sparkRead(fleet, 0, head, pageIndex);
    expect([answer.status, answer.body.code]).toEqual([500, 'record-corrupt']);
    expect(answer.text).not.toContain('"handoffs"');
    expect((await sparkRead(fleet, 0, head, pageIndex)).status).toBe(500);
    await expect(prove(fleet, 0)).rejects.toThrow();
  }

  it('a flipped byte of a page: the page is not served, the others are', async () => {
    const flip = `update control.handoff_pages set bytes = set_byte(bytes, 200, get_byte(bytes, 200) # 1) where cluster_id = $1 and page_index = 1`;
    expect(await tamper(service.database, flip, [fleet.clusterId])).toBe(1);
    await expectCorrupt(1);
    const read = { clusterId: fleet.clusterId, aggregate: head, pageIndex: 1 };
    const admin = await service.call('readFleetCutoverVolumeHandoffPage', read);
    expect([admin.status, admin.body.code]).toEqual([500, 'record-corrupt']);
    expect((await sparkRead(fleet, 0, head, 0)).status).toBe(200);
    // Nothing is built on it either: the page's own handoffs cannot be revised.
    const before = await storedPages(fleet);
    const { clusterId, runtime, scope } = fleet;
    const revision = await service.call('prepareFleetCutoverVolumeHandoffs', {
      mutationId: mutationId(),
      clusterId,
      runtime,
      scope,
      expectedAggregate: head,
      upserts: [upsertOf(fleet.keys()[40]!, 9)],
      removals: [],
    });
    expect(revision.status).toBe(500);
    expect(await storedPages(fleet)).toEqual(before);
    expect(referenceOf(await headOf(fleet))).toEqual(head);
    await tamper(service.database, flip, [fleet.clusterId]);
    expect((await sparkRead(fleet, 0, head, 1)).status).toBe(200);
  });

  it('a page whose content digest was made right again: the set digest tells the reader', async () => {
    const unread = await filled(1, 40);
    const [, page] = await pagesOf(unread, await headOf(unread));
    const handoffs = page!.handoffs.slice(1);
    const contentDigest = independentBareDigest({ handoffs, pageIndex: 1 });
    await tamper(
      service.database,
      `update control.handoff_pages set bytes = convert_to($2, 'UTF8'), content_digest = $3 where cluster_id = $1 and page_index = 1`,
      [unread.clusterId, independentJson({ contentDigest, handoffs, pageIndex: 1 }).slice(1), contentDigest],
    );
    expect((await sparkRead(unread, 0, referenceOf(await headOf(unread)), 1)).body.page.handoffs).toHaveLength(7);
    await expect(prove(unread, 0)).rejects.toMatchObject({ name: 'PageReaderError' });
  });

  it('an edited handoff and a deleted one', async () => {
    const key = (await pagesOf(fleet, await headOf(fleet)))[0]!.handoffs[3]!;
    const where = `where cluster_id = $1 and node_id = $2 and handoff_id = $3`;
    const row = [fleet.clusterId, key.nodeId, key.id];
    const edit = (from: string, to: string) =>
      tamper(
        service.database,
        `update control.handoff_revisions set record = replace(record, '${from}', '${to}') ${where}`,
        row,
      );
    await edit('"accessMode":"ReadWriteOnce"', '"accessMode":"ReadWriteMany"');
    expect(await uncachedRead(fleet, 0, head, 0)).toBe('record-corrupt');
    const single = { clusterId: fleet.clusterId, nodeId: key.nodeId, id: key.id, generation: null };
    const admin = await service.call('readFleetCutoverVolumeHandoff', single);
    expect([admin.status, admin.body.code]).toEqual([500, 'record-corrupt']);
    await edit('"accessMode":"ReadWriteMany"', '"accessMode":"ReadWriteOnce"');
    expect(await uncachedRead(fleet, 0, head, 0)).toContain(key.digest);
    const { rows } = await service.database.owner.query<{ record: string }>(
      `select record from control.handoff_revisions ${where}`,
      row,
    );
    await tamper(service.database, `delete from control.handoff_revisions ${where}`, row);
    expect(await uncachedRead(fleet, 0, head, 0)).toBe('record-corrupt');
    expect(rows).toHaveLength(1);
  });

  it('an edited header', async () => {
    const count = (from: number, to: number) =>
      tamper(
        service.database,
        `update control.aggregate_revisions set record = replace(record, '"requiredCount":${from}', '"requiredCount":${to}')
         where cluster_id = $1 and generation = $2`,
        [fleet.clusterId, head.generation],
      );
    await count(70, 71);
    expect(await uncachedRead(fleet, 0, head, 1)).toBe('record-corrupt');
    const { clusterId } = fleet;
    const header = await service.call('readFleetCutoverVolumeHandoffAggregate', { clusterId, aggregate: null });
    expect([header.status, header.body.code]).toEqual([500, 'record-corrupt']);
    await count(71, 70);
    expect(await uncachedRead(fleet, 0, head, 1)).toContain(head.digest);
  });
});
