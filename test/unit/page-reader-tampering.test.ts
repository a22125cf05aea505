import fc from 'fast-check';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createVolatileGenerationMemory } from '../../src/client/generation-memory.js';
import { PageReaderError, type PageReaderErrorCode } from '../../src/client/page-reader-error.js';
import { readPreparedVolumeHandoffs } from '../../src/client/page-reader.js';
import { createSparkClient, type SparkClient } from '../../src/client/spark-client.js';
import { bareDigest } from '../../src/contract/digest.js';
import type { IFleetCutoverPreparedVolumeHandoffPage } from '../../src/contract/handoff.js';
import { referenceOf } from '../../src/contract/schema.js';
import { Secret } from '../../src/secret.js';
import { handoffSet, type HandoffSet, repackedSet, sealAggregate, sealHandoff } from '../support/handoff-set.js';
import { nothing, type OpenAnswer, openPageServer, type PageServer } from '../support/page-server.js';

/** Three pages; the second one has the end of node-a and the beginning of node-b. */
const set = handoffSet({ nodes: { 'node-a': 40, 'node-b': 30 }, generation: 3 });
const other = handoffSet({ nodes: { 'node-a': 40, 'node-b': 31 }, generation: 2 });
const entries = set.pages.flatMap((page) => page.handoffs);
const untouched: PageServer['tamper'] = (answer) => answer;

let server: PageServer;
let client: SparkClient;
beforeAll(async () => {
  server = await openPageServer(set);
  client = createSparkClient({ url: server.url, nodeId: 'node-a', nodeToken: new Secret('t'.repeat(43)) });
});
beforeEach(() => {
  server.current = set;
  server.tamper = untouched;
});
afterAll(async () => {
  await client.close();
  await server.close();
});

async function refusal(): Promise<PageReaderErrorCode | 'accepted'> {
  const memory = createVolatileGenerationMemory();
  try {
    await readPreparedVolumeHandoffs({ client, memory });
    return 'accepted';
  } catch (error) {
    if (!(error instanceof PageReaderError)) throw error;
    expect(await memory.load()).toBeNull();
    return error.code;
  }
}

/** Changes the answer for one page. */
function onPage(index: number, change: (answer: OpenAnswer) => unknown): PageServer['tamper'] {
  return (answer, request) => (request.pageIndex === index ? (change(answer) ?? answer) : answer);
}

function changeDigest(holder: { digest: `sha256:${string}` }): void {
  holder.digest = bareDigest('something else');
}

const first = <T>(list: readonly T[]): T => list[0] as T;
const last = <T>(list: readonly T[]): T => list.at(-1) as T;

describe('an answer that was changed on its way is refused by name', () => {
  const cases: [string, PageReaderErrorCode, PageServer['tamper']][] = [
    ['an unknown member', 'response-malformed', onPage(0, (answer) => ({ ...answer, more: 1 }))],
    ['a missing member', 'response-malformed', onPage(1, ({ protocol: _protocol, ...answer }) => answer)],
    ['no JSON object', 'response-malformed', onPage(0, () => [])],
    ['another protocol', 'protocol-mismatch', onPage(1, (answer) => void (answer.protocol = { major: 33, minor: 0 }))],
    ['a later minor', 'protocol-mismatch', onPage(0, (answer) => void (answer.protocol = { major: 32, minor: 16 }))],
    ['another node', 'node-mismatch', onPage(0, (answer) => void (answer.nodeId = 'node-b'))],
    ['a header of another digest', 'aggregate-invalid', onPage(0, ({ aggregate }) => changeDigest(aggregate))],
    ['a header of other counts', 'aggregate-invalid', onPage(0, ({ aggregate }) => void (aggregate.actualCount -= 1))],
    ['a header that isn’t complete', 'aggregate-incomplete', onPage(0, incompleteHeader)],
    [
      'an earlier header under the pin',
      'revision-stale',
      onPage(1, (answer) => void (answer.aggregate = other.aggregate)),
    ],
    ['an earlier page under the header', 'revision-stale', onPage(2, (answer) => void (answer.page = other.pages[2]!))],
    ['a later header under the pin', 'revision-mixed', onPage(1, laterHeader)],
    ['a page of another set', 'revision-mixed', onPage(1, ({ page }) => void (page.aggregate.id = 'ha-9'))],
    ['a page of another digest', 'revision-mixed', onPage(1, ({ page }) => changeDigest(page.aggregate))],
    [
      'nothing under the pin',
      'page-missing',
      (answer, request) => (request.pageIndex === 2 ? nothing(request) : answer),
    ],
    ['the page before', 'page-duplicate', onPage(2, (answer) => void (answer.page = set.pages[1]!))],
    ['the page after', 'page-out-of-order', onPage(1, (answer) => void (answer.page = set.pages[2]!))],
    ['a page too few references', 'content-digest-wrong', onPage(1, ({ page }) => void page.handoffs.pop())],
    ['another reference', 'content-digest-wrong', onPage(1, ({ page }) => changeDigest(first(page.handoffs)))],
    [
      'another content digest',
      'content-digest-wrong',
      onPage(1, ({ page }) => void (page.contentDigest = bareDigest(1))),
    ],
    ['references swapped', 'order-wrong', onPage(1, ({ page }) => void page.handoffs.reverse())],
    ['a reference twice', 'handoff-duplicate', onPage(1, ({ page }) => void (page.handoffs[1] = first(page.handoffs)))],
    ['a handoff left out', 'subset-incomplete', onPage(1, ({ nodeHandoffs }) => void nodeHandoffs.pop())],
    ['all handoffs left out', 'subset-incomplete', onPage(0, (answer) => void (answer.nodeHandoffs = []))],
    [
      'a handoff too many',
      'subset-incomplete',
      onPage(2, ({ nodeHandoffs }) => void nodeHandoffs.push(first(set.handoffs))),
    ],
    ['handoffs swapped', 'subset-mismatch', onPage(0, ({ nodeHandoffs }) => void nodeHandoffs.reverse())],
    [
      'another node’s handoff',
      'subset-mismatch',
      onPage(1, ({ nodeHandoffs }) => void (nodeHandoffs[0] = last(set.handoffs))),
    ],
    [
      'a handoff’s content',
      'handoff-invalid',
      onPage(0, ({ nodeHandoffs }) => void (first(nodeHandoffs).volumeId = 'vo-x')),
    ],
    [
      'a handoff of another cluster',
      'handoff-invalid',
      onPage(0, ({ nodeHandoffs }) => void (first(nodeHandoffs).clusterId = 'x')),
    ],
  ];
  it.each(cases)('%s: %s', async (_what, code, tamper) => {
    server.tamper = tamper;
    expect(await refusal()).toBe(code);
  });

  it('a member twice: response-malformed', async () => {
    server.tamper = onPage(1, (answer) => `{"nodeId":"node-a",${JSON.stringify(answer).slice(1)}`);
    expect(await refusal()).toBe('response-malformed');
  });
});

function incompleteHeader(answer: OpenAnswer): void {
  const { digest: _digest, ...content } = set.aggregate;
  answer.aggregate = sealAggregate({ ...content, state: 'incomplete', pageCount: 0, setDigest: null });
  answer.page.aggregate = referenceOf(answer.aggregate);
}

function laterHeader(answer: OpenAnswer): void {
  answer.aggregate = handoffSet({ nodes: { 'node-a': 40, 'node-b': 30 }, generation: 4 }).aggregate;
}

describe('a service that lies with every digest made right is refused by name', () => {
  type Entries = IFleetCutoverPreparedVolumeHandoffPage['handoffs'];
  const chunksOf = (all: Entries, ...ends: number[]) =>
    ends.map((end, index) => all.slice(ends[index - 1] ?? 0, end)).filter((chunk) => chunk.length > 0);
  const swapped = (left: number, right: number): Entries => {
    const copy = [...entries];
    [copy[left], copy[right]] = [entries[right]!, entries[left]!];
    return copy;
  };
  const cases: [string, PageReaderErrorCode, () => HandoffSet][] = [
    [
      'set digest of other pages',
      'set-digest-wrong',
      () => repackedSet(set, chunksOf(entries, 32, 64, 70), { setDigest: bareDigest([]) }),
    ],
    ['set digest of the pages in another order', 'set-digest-wrong', () => otherOrderOfDigests()],
    ['a page before the last that isn’t full', 'count-wrong', () => repackedSet(set, chunksOf(entries, 32, 63, 70))],
    [
      'fewer references than counted',
      'count-wrong',
      () => repackedSet(set, chunksOf(entries.slice(0, 69), 32, 64, 69)),
    ],
    [
      'more references than counted',
      'count-wrong',
      () => repackedSet(set, chunksOf([...entries, later(1), later(2)], 32, 64, 72)),
    ],
    ['fewer pages than counted', 'page-missing', () => repackedSet(set, chunksOf(entries.slice(0, 64), 32, 64))],
    ['order across a boundary', 'order-wrong', () => repackedSet(set, chunksOf(boundarySwapped(), 32, 64, 70))],
    [
      'the same reference across a boundary',
      'handoff-duplicate',
      () => repackedSet(set, chunksOf(boundaryRepeated(), 32, 64, 70)),
    ],
    ['order within a page', 'order-wrong', () => repackedSet(set, chunksOf(swapped(3, 4), 32, 64, 70))],
    ['two revisions of one handoff', 'handoff-duplicate', () => repackedSet(set, chunksOf(twoRevisions(), 32, 64, 70))],
  ];
  it.each(cases)('%s: %s', async (_what, code, lie) => {
    server.current = lie();
    expect(await refusal()).toBe(code);
  });

  it('pages exchanged under right indexes', async () => {
    const [zero, one, two] = set.pages.map((page) => page.handoffs) as [Entries, Entries, Entries];
    server.current = repackedSet(set, [one, zero, two]);
    expect(await refusal()).toBe('order-wrong');
  });

  it('a right handoff of the node that the page commits to under another digest', async () => {
    const { digest: _digest, ...content } = first(set.handoffs);
    const forged = sealHandoff({ ...content, volumeId: 'vo-forged' });
    server.tamper = onPage(0, ({ nodeHandoffs }) => void (nodeHandoffs[0] = forged));
    expect(await refusal()).toBe('subset-mismatch');
  });

  function otherOrderOfDigests(): HandoffSet {
    const digests = set.pages.map((page) => page.contentDigest);
    return repackedSet(set, chunksOf(entries, 32, 64, 70), { setDigest: bareDigest([...digests].reverse()) });
  }
  function later(ordinal: number): Entries[number] {
    return { nodeId: 'node-c', id: `vh-${ordinal}`, generation: 1, digest: bareDigest(ordinal) };
  }
  /** Each page ascends; the last of the second page belongs behind the first of the third. */
  function boundarySwapped(): Entries {
    return swapped(63, 64);
  }
  function boundaryRepeated(): Entries {
    return entries.map((entry, index) => (index === 64 ? entries[63]! : entry));
  }
  function twoRevisions(): Entries {
    const revised = { ...entries[10]!, generation: 2, digest: bareDigest('revised') };
    return entries.map((entry, index) => (index === 11 ? revised : entry));
  }
});

/** A place in a JSON value: its container and the key in it. */
interface Place {
  readonly container: Record<string | number, unknown>;
  readonly key: string | number;
}

function leavesOf(value: unknown): Place[] {
  if (typeof value !== 'object' || value === null) return [];
  const container = value as Record<string, unknown>;
  return Object.keys(container).flatMap((key) => {
    const inner = container[key];
    const isLeaf = typeof inner !== 'object' || inner === null;
    return isLeaf ? [{ container, key }] : leavesOf(inner);
  });
}

/** Another value of the same kind, which the schema would mostly let pass. */
function changed(value: unknown, how: number): unknown {
  if (typeof value === 'number') return how % 2 === 0 ? value + 1 : Math.max(0, value - 1) + (value === 0 ? 1 : 0);
  if (typeof value === 'boolean') return !value;
  if (value === null) return how % 2 === 0 ? 1 : { id: 'x', generation: 1, digest: bareDigest('x') };
  const text = String(value);
  if (text.startsWith('sha256:')) {
    const at = 7 + (how % 64);
    return `${text.slice(0, at)}${text[at] === '0' ? '1' : '0'}${text.slice(at + 1)}`;
  }
  return how % 2 === 0 ? `${text}x` : text.length > 1 ? text.slice(0, -1) : 'y';
}

describe('any single change', () => {
  const arbitrary = fc.record({
    pageIndex: fc.integer({ min: 0, max: 2 }),
    part: fc.constantFrom('aggregate' as const, 'page' as const, 'nodeHandoffs' as const),
    place: fc.nat(),
    how: fc.nat(),
  });

  it('of a field of header, page or handoff is refused', async () => {
    await fc.assert(
      fc.asyncProperty(arbitrary, async ({ pageIndex, part, place, how }) => {
        let applied = false;
        server.tamper = onPage(pageIndex, (answer) => {
          const leaves = leavesOf(answer[part]);
          if (leaves.length === 0) return; // the third page has none of node-a's handoffs
          const { container, key } = leaves[place % leaves.length]!;
          container[key] = changed(container[key], how);
          applied = true;
        });
        const outcome = await refusal();
        expect(outcome === 'accepted').toBe(!applied);
      }),
      { numRuns: 150 },
    );
  }, 120_000);

  it('of a field’s presence, or of an element, is refused', async () => {
    await fc.assert(
      fc.asyncProperty(arbitrary, async ({ pageIndex, part, place, how }) => {
        let applied = false;
        server.tamper = onPage(pageIndex, (answer) => {
          const containers = [...new Set(leavesOf({ all: answer[part] }).map((leaf) => leaf.container))];
          const container = containers[place % Math.max(1, containers.length)];
          if (container === undefined) return;
          const keys = Object.keys(container);
          if (how % 2 === 0) delete container[keys[how % keys.length]!];
          else container['surplus'] = how;
          applied = true;
        });
        const outcome = await refusal();
        expect(outcome === 'accepted').toBe(!applied);
      }),
      { numRuns: 75 },
    );
  }, 120_000);
});
