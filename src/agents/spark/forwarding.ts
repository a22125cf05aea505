/**
 * Forwarding of what Pallet holds, one page of the pinned aggregate a report: pure, with the memory of one reporter session.
 *
 *  1. A page is sent until its receipt accepts it; a new session or another aggregate begins with all pages.
 *  2. `phase-refused` is asked again only when the receipts name another runtime: until then the answer stays the same.
 *  3. Any refusal ends the round: a stale pin needs another reading, and the others are the same for every page.
 *  4. Another fence store, or none, begins with all pages again, as does a page that the service finds not held as it
 *     should be: the service has taken back what it had counted, and what else it took back is not in the receipt.
 */
import type { ProvedPage } from '../../client/page-reader.js';
import type { IFleetCutoverHeldVolumeFenceEvidencePage, TFleetCutoverVolumeFence } from '../../contract/held-fence.js';
import type { ISparkSwarmObservationAcceptedReceipt } from '../../contract/observation.js';
import { type Reference, sameReference } from '../../contract/schema.js';

export interface ForwardedPages {
  /** Names Pallet's fence store as it is now, before the snapshot that says so is sent; null where there is none. */
  useFenceStore(fenceStoreId: string | null): void;
  /** Notes what became of evidence that was sent. */
  note(
    evidence: IFleetCutoverHeldVolumeFenceEvidencePage,
    receipt: Pick<ISparkSwarmObservationAcceptedReceipt, 'runtime' | 'heldVolumeFences'>,
  ): void;
  /** Pages that are still to be sent under the runtime that the last receipt named. */
  missing(aggregate: Reference, pages: readonly ProvedPage[], runtime: Reference): readonly ProvedPage[];
  /** How many pages of the aggregate were accepted and still count. */
  acceptedCount(aggregate: Reference): number;
}

export function createForwardedPages(): ForwardedPages {
  let current: { readonly aggregate: Reference; readonly accepted: Set<number> } | null = null;
  let refusedUnder: Reference | null = null;
  let usedStore: string | null = null;
  const acceptedOf = (aggregate: Reference): ReadonlySet<number> =>
    current !== null && sameReference(current.aggregate, aggregate) ? current.accepted : new Set();
  return {
    useFenceStore(fenceStoreId) {
      if (fenceStoreId !== usedStore) current = null;
      usedStore = fenceStoreId;
    },
    note({ aggregate, pageIndex }, { runtime, heldVolumeFences: { state, code } }) {
      if (code === 'phase-refused') refusedUnder = runtime;
      if (code === 'membership-differs' || code === 'store-differs') current = null;
      if (state !== 'accepted') return;
      if (current === null || !sameReference(current.aggregate, aggregate))
        current = { aggregate, accepted: new Set() };
      current.accepted.add(pageIndex);
    },
    missing(aggregate, pages, runtime) {
      if (sameReference(refusedUnder, runtime)) return [];
      const accepted = acceptedOf(aggregate);
      return pages.filter((page) => !accepted.has(page.pageIndex));
    },
    acceptedCount: (aggregate) => acceptedOf(aggregate).size,
  };
}

/**
 * The node's evidence for one page: exactly its entries, in page order; empty where it has none.
 *
 * @throws Error where one of them is not held: half of a page is no evidence
 */
export function heldFenceEvidence(
  nodeId: string,
  aggregate: Reference,
  page: ProvedPage,
  fences: ReadonlyMap<string, TFleetCutoverVolumeFence>,
): IFleetCutoverHeldVolumeFenceEvidencePage {
  return {
    aggregate,
    pageIndex: page.pageIndex,
    contentDigest: page.contentDigest,
    nodeId,
    fences: page.handoffs.map((handoff) => {
      const fence = fences.get(handoff.id);
      if (fence === undefined || !sameReference(fence.handoff, handoff)) {
        throw new Error(`the handoff ${handoff.id} is not held`);
      }
      return fence;
    }),
  };
}
