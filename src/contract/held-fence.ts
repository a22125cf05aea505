/**
 * Held volume fences: what Pallet keeps per volume while the cluster drains, and Spark's forwarding of one page's share.
 * A hold grants nothing: no claim, session, assignment, attachment, reservation, confirmation or execution.
 */
import { type Static, Type } from '@sinclair/typebox';
import { canonicalizeStrictJson } from './canonical-json.js';
import { fleetCutoverContract, maximumHeldFenceEvidenceBytes } from './limits.js';
import { defineRecord } from './record.js';
import {
  closed,
  compareText,
  Digest,
  FleetCutoverAcceptedEvidenceReference,
  Identifier,
  PositiveInteger,
} from './schema.js';

/** Bytes of the canonical encoding of one fence, so that 32 always fit into the evidence's own budget. */
export const maximumVolumeFenceBytes = 3584;

/** In state `held`: it exists in the node's fence store and binds one handoff. A lost hold is taken again at a higher generation. */
export const FleetCutoverHeldVolumeFence = closed({
  id: Identifier,
  generation: PositiveInteger,
  digest: Digest,
  state: Type.Literal('held'),
  clusterId: Identifier,
  nodeId: Identifier,
  fenceStoreId: Identifier,
  volumeId: Identifier,
  mountIdentityDigest: Digest,
  handoff: FleetCutoverAcceptedEvidenceReference,
});
export const FleetCutoverVolumeFence = FleetCutoverHeldVolumeFence;
export type TFleetCutoverVolumeFence = Static<typeof FleetCutoverVolumeFence>;

function encodedBytes(value: unknown): number {
  return new TextEncoder().encode(canonicalizeStrictJson(value)).byteLength;
}

export const fleetCutoverVolumeFenceRecord = defineRecord('TFleetCutoverVolumeFence', FleetCutoverVolumeFence, {
  sealed: true,
  rules: (fence) =>
    encodedBytes(fence) > maximumVolumeFenceBytes ? [`exceeds ${maximumVolumeFenceBytes} encoded bytes`] : [],
});
export const snapshotFleetCutoverVolumeFence = fleetCutoverVolumeFenceRecord.snapshot;
export const validateFleetCutoverVolumeFence = async (value: unknown): Promise<string[]> =>
  fleetCutoverVolumeFenceRecord.validate(value);

/**
 * One node's holds for one pinned page, in page order; empty only where the node has no entry on the page. Says nothing
 * about other nodes.
 */
export const FleetCutoverHeldVolumeFenceEvidencePage = closed({
  aggregate: FleetCutoverAcceptedEvidenceReference,
  pageIndex: Type.Integer({ minimum: 0, maximum: fleetCutoverContract.maximumPreparedVolumeHandoffPages - 1 }),
  /** The page's own commitment. */
  contentDigest: Digest,
  nodeId: Identifier,
  fences: Type.Array(FleetCutoverVolumeFence, {
    maxItems: fleetCutoverContract.maximumPreparedVolumeHandoffMutationEntries,
  }),
});
export type IFleetCutoverHeldVolumeFenceEvidencePage = Static<typeof FleetCutoverHeldVolumeFenceEvidencePage>;

/** Rules beyond the schema; also those of the observation that carries the evidence. */
export function heldFenceEvidenceRules(evidence: IFleetCutoverHeldVolumeFenceEvidencePage): string[] {
  const errors: string[] = [];
  evidence.fences.forEach((fence, index) => {
    if (fence.nodeId !== evidence.nodeId) errors.push(`/fences/${index} is of another node`);
    const before = evidence.fences[index - 1];
    if (before !== undefined && compareText(before.handoff.id, fence.handoff.id) >= 0) {
      errors.push(`/fences/${index} is out of page order`);
    }
    errors.push(...fleetCutoverVolumeFenceRecord.check(fence).map((error) => `/fences/${index} ${error}`));
  });
  if (encodedBytes(evidence) > maximumHeldFenceEvidenceBytes) {
    errors.push(`exceeds ${maximumHeldFenceEvidenceBytes} encoded bytes`);
  }
  return errors;
}

export const fleetCutoverHeldVolumeFenceEvidencePageRecord = defineRecord(
  'IFleetCutoverHeldVolumeFenceEvidencePage',
  FleetCutoverHeldVolumeFenceEvidencePage,
  { rules: heldFenceEvidenceRules },
);
export const snapshotFleetCutoverHeldVolumeFenceEvidencePage = fleetCutoverHeldVolumeFenceEvidencePageRecord.snapshot;
export const validateFleetCutoverHeldVolumeFenceEvidencePage = async (value: unknown): Promise<string[]> =>
  fleetCutoverHeldVolumeFenceEvidencePageRecord.validate(value);

/** Why a page's evidence does not count although the observation that carried it was accepted. */
export const heldFenceRefusals = [
  'phase-refused',
  'pin-stale',
  'page-unknown',
  'membership-differs',
  'store-differs',
  'fence-conflict',
  'node-not-targeted',
] as const;
