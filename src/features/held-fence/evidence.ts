/**
 * Whether one page's held fences count: pure.
 *
 * 1. Holds count in `draining` and `switching`; in `pallet` they may be taken again.
 * 2. The pin must be the current aggregate, and complete. A stale pin refuses the evidence, not the report.
 * 3. The fences are exactly the node's entries on the page, in page order; none where it has none.
 * 4. The fences are of the store that the node's latest accepted snapshot names.
 * 5. A fence never goes back: no lower generation, and no other content at the same one.
 */
import type { heldFenceRefusals, IFleetCutoverHeldVolumeFenceEvidencePage } from '../../contract/held-fence.js';
import type { TFleetCutoverPhase } from '../../contract/runtime.js';
import { type Reference, sameReference } from '../../contract/schema.js';
import { permission } from '../phase/phase.js';

export type THeldFenceRefusal = (typeof heldFenceRefusals)[number];

/** One entry of the node on the pinned page, with what the handoff itself says. */
export interface ExpectedFence {
  readonly handoff: Reference;
  readonly volumeId: string;
  readonly mountIdentityDigest: string;
}

export interface KnownFence {
  readonly handoffId: string;
  readonly fenceId: string;
  readonly generation: number;
  readonly digest: string;
}

export interface EvidenceFacts {
  readonly clusterId: string;
  readonly phase: TFleetCutoverPhase;
  /** The current aggregate; null where there is none or it is incomplete. */
  readonly aggregate: Reference | null;
  readonly targeted: boolean;
  /** Pallet's fence store as the node's latest accepted snapshot names it; null where it names none. */
  readonly fenceStoreId: string | null;
  /** The page as the aggregate has it; null where it has no such page. */
  readonly page: { readonly contentDigest: string; readonly expected: readonly ExpectedFence[] } | null;
  /** What the node reported before for these handoffs. */
  readonly known: readonly KnownFence[];
}

/** Null where the evidence counts. */
export function judgeEvidence(
  evidence: IFleetCutoverHeldVolumeFenceEvidencePage,
  facts: EvidenceFacts,
): THeldFenceRefusal | null {
  if (permission(facts.phase, 'hold-fences') === 'no') return 'phase-refused';
  if (!facts.targeted) return 'node-not-targeted';
  if (facts.aggregate === null || !sameReference(evidence.aggregate, facts.aggregate)) return 'pin-stale';
  if (facts.page === null) return 'page-unknown';
  if (facts.page.contentDigest !== evidence.contentDigest) return 'pin-stale';
  if (!holdsExactly(evidence, facts, facts.page.expected)) return 'membership-differs';
  if (evidence.fences.some((fence) => fence.fenceStoreId !== facts.fenceStoreId)) return 'store-differs';
  return facts.known.some((known) => goesBack(evidence, known)) ? 'fence-conflict' : null;
}

function holdsExactly(
  evidence: IFleetCutoverHeldVolumeFenceEvidencePage,
  facts: EvidenceFacts,
  expected: readonly ExpectedFence[],
): boolean {
  return (
    evidence.fences.length === expected.length &&
    expected.every((entry, index) => {
      const fence = evidence.fences[index];
      return (
        fence !== undefined &&
        fence.clusterId === facts.clusterId &&
        sameReference(fence.handoff, entry.handoff) &&
        fence.volumeId === entry.volumeId &&
        fence.mountIdentityDigest === entry.mountIdentityDigest
      );
    })
  );
}

function goesBack(evidence: IFleetCutoverHeldVolumeFenceEvidencePage, known: KnownFence): boolean {
  const fence = evidence.fences.find((each) => each.handoff.id === known.handoffId);
  if (fence === undefined || fence.id !== known.fenceId) return false;
  if (fence.generation < known.generation) return true;
  return fence.generation === known.generation && fence.digest !== known.digest;
}
