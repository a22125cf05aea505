/**
 * What only all pages together prove. Each page alone was proved by the contract's validator, so that its references are
 * sorted, have its content digest, and stand under the pinned header.
 *
 *  1. The pages are those at 0..pageCount-1, each once.
 *  2. Every page but the last is full, and the references are as many as the header counts.
 *  3. References ascend strictly by (nodeId, id) from each page to the next.
 *  4. The content digests in page order have the header's set digest.
 */
import {
  comparePageOrder,
  handoffSetDigest,
  type IFleetCutoverPreparedVolumeHandoffAggregate,
  type IFleetCutoverPreparedVolumeHandoffIntent,
  type IFleetCutoverPreparedVolumeHandoffPage,
} from '../contract/handoff.js';
import { fleetCutoverContract } from '../contract/limits.js';
import type { TSha256Digest } from '../contract/digest.js';
import { PageReaderError } from './page-reader-error.js';

interface PageKey {
  readonly nodeId: string;
  readonly id: string;
}

/** What a proved page leaves behind: 4,096 whole pages would be kept for their digests and ends alone. */
export interface PageSummary {
  readonly pageIndex: number;
  readonly contentDigest: TSha256Digest;
  readonly count: number;
  readonly first: PageKey;
  readonly last: PageKey;
  /** The node's own handoffs on the page. */
  readonly handoffs: readonly IFleetCutoverPreparedVolumeHandoffIntent[];
}

export function summarizePage(
  page: IFleetCutoverPreparedVolumeHandoffPage,
  handoffs: readonly IFleetCutoverPreparedVolumeHandoffIntent[],
): PageSummary {
  const first = page.handoffs[0];
  const last = page.handoffs.at(-1);
  if (first === undefined || last === undefined) throw new PageReaderError('response-malformed');
  return {
    pageIndex: page.pageIndex,
    contentDigest: page.contentDigest,
    count: page.handoffs.length,
    first: { nodeId: first.nodeId, id: first.id },
    last: { nodeId: last.nodeId, id: last.id },
    handoffs,
  };
}

/** @throws PageReaderError when the pages aren't the header's set; `pages` are in page order */
export function proveSet(aggregate: IFleetCutoverPreparedVolumeHandoffAggregate, pages: readonly PageSummary[]): void {
  proveIndexes(aggregate, pages);
  proveCounts(aggregate, pages);
  proveOrder(pages);
  if (handoffSetDigest(pages.map((page) => page.contentDigest)) !== aggregate.setDigest) {
    throw new PageReaderError('set-digest-wrong');
  }
}

function proveIndexes({ pageCount }: IFleetCutoverPreparedVolumeHandoffAggregate, pages: readonly PageSummary[]): void {
  for (const [index, { pageIndex }] of pages.entries()) {
    if (pageIndex < index) throw new PageReaderError('page-duplicate');
    if (pageIndex > index) throw new PageReaderError('page-missing');
  }
  if (pages.length < pageCount) throw new PageReaderError('page-missing');
  if (pages.length > pageCount) throw new PageReaderError('page-duplicate');
}

function proveCounts(
  { actualCount }: IFleetCutoverPreparedVolumeHandoffAggregate,
  pages: readonly PageSummary[],
): void {
  const fullPage = fleetCutoverContract.maximumPreparedVolumeHandoffMutationEntries;
  const notFull = pages.slice(0, -1).find((page) => page.count !== fullPage);
  if (notFull !== undefined) {
    throw new PageReaderError('count-wrong', [
      `page ${notFull.pageIndex} has ${notFull.count} of ${fullPage} references`,
    ]);
  }
  const count = referenceCount(pages);
  if (count !== actualCount) {
    throw new PageReaderError('count-wrong', [`the pages have ${count} references, the header counts ${actualCount}`]);
  }
}

export function referenceCount(pages: readonly PageSummary[]): number {
  return pages.reduce((sum, page) => sum + page.count, 0);
}

function proveOrder(pages: readonly PageSummary[]): void {
  for (const [index, page] of pages.entries()) {
    const previous = pages[index - 1];
    if (previous === undefined) continue;
    const order = comparePageOrder(previous.last, page.first);
    const where = [`between the pages ${previous.pageIndex} and ${page.pageIndex}`];
    if (order === 0) throw new PageReaderError('handoff-duplicate', where);
    if (order > 0) throw new PageReaderError('order-wrong', where);
  }
}
