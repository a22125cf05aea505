/**
 * Publishing the pages of a complete revision. Only pages whose content differs are stored; the caller's transaction
 * holds the aggregate's row.
 */
import { handoffSetDigest } from '../../contract/handoff.js';
import type { Reference } from '../../contract/schema.js';
import type { Tx } from '../../db/transaction.js';
import type { HandoffWrite } from './handoff.js';
import { entriesPerPage, makePage, type PageContent, readPage } from './page.js';
import {
  dropPageHeadsFrom,
  firstChangeAfter,
  handoffsFrom,
  insertPages,
  pageContentDigests,
  pageHeads,
  pageOfKey,
  pagesAt,
  pagesOfKeys,
  readInPageOrder,
  type PageOrderKey,
} from './rows.js';

export interface Published {
  readonly pageCount: number;
  readonly setDigest: Reference['digest'];
}

/** Handoffs fetched and pages stored at a time: bounds memory and the time that the event loop is held. */
const pagesPerBatch = 128;

/**
 * Rebuilds the pages from the first key that changed after the last complete revision (`completeGeneration`, 0 for none)
 * to the end. Costs what lies behind that key.
 */
export async function publishFromFirstChange(
  tx: Tx,
  clusterId: string,
  completeGeneration: number,
  generation: number,
): Promise<Published> {
  const [firstChange, known] = await Promise.all([
    completeGeneration === 0 ? firstKey : firstChangeAfter(tx, clusterId, completeGeneration),
    pageHeads(tx, clusterId),
  ]);
  const contentDigests = known.map((head) => head.contentDigest);
  if (firstChange === undefined) return { pageCount: known.length, setDigest: handoffSetDigest(contentDigests) };

  let pageIndex = known.length === 0 ? 0 : await pageOfKey(tx, clusterId, firstChange);
  let from: PageOrderKey = startOf(known[pageIndex], firstChange);
  let inclusive = true;
  void readInPageOrder(tx);
  for (;;) {
    const handoffs = await handoffsFrom(tx, clusterId, from, inclusive, pagesPerBatch * entriesPerPage);
    const changed: PageContent[] = [];
    for (let start = 0; start < handoffs.length; start += entriesPerPage) {
      const page = makePage(pageIndex, handoffs.slice(start, start + entriesPerPage));
      if (contentDigests[pageIndex] !== page.contentDigest) changed.push(page);
      contentDigests[pageIndex] = page.contentDigest;
      pageIndex += 1;
    }
    if (changed.length > 0) await insertPages(tx, clusterId, generation, changed);
    const last = handoffs.at(-1);
    if (last === undefined || handoffs.length < pagesPerBatch * entriesPerPage) break;
    from = last;
    inclusive = false;
  }
  if (pageIndex < known.length) await dropPageHeadsFrom(tx, clusterId, pageIndex);
  return { pageCount: pageIndex, setDigest: handoffSetDigest(contentDigests.slice(0, pageIndex)) };
}

/** Before every other one: where nothing is published yet, everything has changed. */
const firstKey: PageOrderKey = { nodeId: '', id: '' };

/** A key before the first page's first one begins the layout anew. */
function startOf(head: PageOrderKey | undefined, change: PageOrderKey): PageOrderKey {
  if (head === undefined) return change;
  const before = change.nodeId < head.nodeId || (change.nodeId === head.nodeId && change.id < head.id);
  return before ? change : { nodeId: head.nodeId, id: head.id };
}

/** Replaces revised handoffs where they stand in the layout of the revision before, which was complete. */
export async function publishInPlace(
  tx: Tx,
  clusterId: string,
  before: { readonly generation: number },
  generation: number,
  writes: readonly HandoffWrite[],
): Promise<Published> {
  const byPage = new Map<number, HandoffWrite[]>();
  const indexes = await pagesOfKeys(tx, clusterId, writes);
  writes.forEach((write, position) => {
    const index = indexes[position]!;
    byPage.set(index, [...(byPage.get(index) ?? []), write]);
  });
  const stored = await pagesAt(tx, clusterId, [...byPage.keys()], before.generation);
  const known = new Map(stored.map((page) => [page.pageIndex, page]));
  const changed = [...byPage].map(([pageIndex, revised]) => {
    const page = known.get(pageIndex);
    const content = page === undefined ? null : readPage(page.tail, page.contentDigest);
    if (content === null) throw new CorruptPageError(clusterId, pageIndex);
    const next = new Map(revised.map((write) => [`${write.nodeId}\0${write.id}`, write]));
    return makePage(
      pageIndex,
      content.handoffs.map((entry) => {
        const write = next.get(`${entry.nodeId}\0${entry.id}`);
        return write === undefined ? entry : { ...entry, generation: write.generation, digest: write.digest };
      }),
    );
  });
  const inserted = insertPages(tx, clusterId, generation, changed);
  const contentDigests = await pageContentDigests(tx, clusterId);
  await inserted;
  return { pageCount: contentDigests.length, setDigest: handoffSetDigest(contentDigests) };
}

/** A stored page does not match the digest it was stored under; nothing may be built on it. */
export class CorruptPageError extends Error {
  override readonly name = 'CorruptPageError';
  constructor(clusterId: string, pageIndex: number) {
    super(`page ${pageIndex} of cluster ${clusterId} does not match its content digest`);
  }
}
