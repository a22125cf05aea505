/**
 * Names what is wrong with one answer that the contract's validator refused. The validator alone decides whether an answer
 * is refused; this says which of its reasons it was, the outermost first.
 */
import {
  comparePageOrder,
  fleetCutoverPreparedVolumeHandoffAggregateRecord,
  fleetCutoverPreparedVolumeHandoffIntentRecord,
  type IFleetCutoverPreparedVolumeHandoffAggregate,
  type IFleetCutoverPreparedVolumeHandoffPage,
  pageContentDigest,
  type TSparkGetFleetCutoverPreparedVolumeHandoffsResponse,
} from '../contract/handoff.js';
import { type Reference, referenceOf, sameReference } from '../contract/schema.js';
import type { PageReaderErrorCode } from './page-reader-error.js';

export interface AskedPage {
  readonly nodeId: string;
  /** The pin, or null for the current complete revision. */
  readonly aggregate: Reference | null;
  readonly pageIndex: number;
}

type Answer = TSparkGetFleetCutoverPreparedVolumeHandoffsResponse;
type AnswerWithPage = Extract<Answer, { page: IFleetCutoverPreparedVolumeHandoffPage }>;

/** `answer` has the contract's shape and was refused. */
export function pageFault(asked: AskedPage, answer: Answer): PageReaderErrorCode {
  if (answer.nodeId !== asked.nodeId) return 'node-mismatch';
  if (answer.aggregate === null) return 'page-missing';
  return (
    aggregateFault(asked, answer.aggregate) ??
    pagePlaceFault(asked, answer) ??
    pageContentFault(answer.page) ??
    subsetFault(asked, answer) ??
    'response-malformed'
  );
}

function aggregateFault(
  asked: AskedPage,
  aggregate: IFleetCutoverPreparedVolumeHandoffAggregate,
): PageReaderErrorCode | undefined {
  const pinFault = asked.aggregate === null ? undefined : revisionFault(asked.aggregate, referenceOf(aggregate));
  if (pinFault !== undefined) return pinFault;
  if (fleetCutoverPreparedVolumeHandoffAggregateRecord.check(aggregate).length > 0) return 'aggregate-invalid';
  return aggregate.state === 'complete' ? undefined : 'aggregate-incomplete';
}

/** How a reference differs from the pinned one. */
function revisionFault(pinned: Reference, found: Reference): PageReaderErrorCode | undefined {
  if (sameReference(pinned, found)) return undefined;
  return found.id === pinned.id && found.generation < pinned.generation ? 'revision-stale' : 'revision-mixed';
}

function pagePlaceFault(asked: AskedPage, { aggregate, page }: AnswerWithPage): PageReaderErrorCode | undefined {
  const fault = revisionFault(referenceOf(aggregate), page.aggregate);
  if (fault !== undefined) return fault;
  // Pages are asked for once each, in ascending order: a lower index has been asked for, a higher one has not.
  if (page.pageIndex < asked.pageIndex) return 'page-duplicate';
  return page.pageIndex > asked.pageIndex || page.pageIndex >= aggregate.pageCount ? 'page-out-of-order' : undefined;
}

function pageContentFault(page: IFleetCutoverPreparedVolumeHandoffPage): PageReaderErrorCode | undefined {
  for (const [index, entry] of page.handoffs.entries()) {
    const previous = page.handoffs[index - 1];
    if (previous === undefined) continue;
    const order = comparePageOrder(previous, entry);
    if (order === 0) return 'handoff-duplicate';
    if (order > 0) return 'order-wrong';
  }
  return pageContentDigest(page.pageIndex, page.handoffs) === page.contentDigest ? undefined : 'content-digest-wrong';
}

function subsetFault(
  { nodeId }: AskedPage,
  { aggregate, page, nodeHandoffs }: AnswerWithPage,
): PageReaderErrorCode | undefined {
  const committed = page.handoffs.filter((entry) => entry.nodeId === nodeId);
  if (committed.length !== nodeHandoffs.length) return 'subset-incomplete';
  for (const [index, handoff] of nodeHandoffs.entries()) {
    const entry = committed[index] ?? null;
    if (handoff.nodeId !== nodeId || !sameReference(entry, handoff)) return 'subset-mismatch';
    if (handoff.clusterId !== aggregate.clusterId) return 'handoff-invalid';
    if (fleetCutoverPreparedVolumeHandoffIntentRecord.check(handoff).length > 0) return 'handoff-invalid';
  }
  return undefined;
}
