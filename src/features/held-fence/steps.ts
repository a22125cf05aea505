/** Steps in the transaction that takes a report. */
import { LRUCache } from 'lru-cache';
import type { IFleetCutoverPreparedVolumeHandoffIntent } from '../../contract/handoff.js';
import type { IFleetCutoverHeldVolumeFenceEvidencePage } from '../../contract/held-fence.js';
import type { TFleetCutoverPhase } from '../../contract/runtime.js';
import type { Reference } from '../../contract/schema.js';
import type { Tx } from '../../db/transaction.js';
import { shareRuntime } from '../phase/facts.js';
import { isTarget } from '../scope/facts.js';
import { CorruptPageError, currentAggregate, handoffRecords, pageAt, readPage } from '../volume-handoff/facts.js';
import { type ExpectedFence, judgeEvidence, type THeldFenceRefusal } from './evidence.js';
import { coverPage, knownFences, uncoverPage, writeFences } from './rows.js';

export { voidHeldPages } from './rows.js';

export interface HeldFenceOutcome {
  readonly state: 'accepted' | 'refused' | 'absent';
  readonly code: THeldFenceRefusal | null;
  readonly aggregate: Reference | null;
  readonly coveredPages: number;
}

export const noHeldFences: HeldFenceOutcome = { state: 'absent', code: null, aggregate: null, coveredPages: 0 };

export interface EvidenceScope {
  readonly clusterId: string;
  readonly clusterLife: string;
  readonly nodeId: string;
  readonly phase: TFleetCutoverPhase;
  /** Unix ms. */
  readonly receivedAt: number;
  /** Pallet's fence store as the node's latest accepted snapshot names it. */
  readonly fenceStoreId: string | null;
}

/** Judges and writes one page's evidence. It only adds coverage, so it locks neither runtime nor aggregate. */
export async function takeHeldFences(
  tx: Tx,
  scope: EvidenceScope,
  evidence: IFleetCutoverHeldVolumeFenceEvidencePage,
): Promise<HeldFenceOutcome> {
  const { clusterId, nodeId } = scope;
  const handoffIds = evidence.fences.map((fence) => fence.handoff.id);
  const [aggregate, targeted, known] = await Promise.all([
    currentAggregate(tx, clusterId, scope.clusterLife),
    isTarget(tx, clusterId, nodeId),
    knownFences(tx, clusterId, nodeId, handoffIds),
  ]);
  const pinned = aggregate !== null && evidence.pageIndex < aggregate.pageCount;
  const page = pinned ? await expectedFences(tx, scope, evidence.pageIndex, aggregate.reference) : null;
  const code = judgeEvidence(evidence, {
    clusterId,
    phase: scope.phase,
    aggregate: aggregate?.reference ?? null,
    targeted,
    fenceStoreId: scope.fenceStoreId,
    page,
    known,
  });
  if (code === 'membership-differs' || code === 'store-differs') {
    // The node itself says that it does not hold the page as it should. That can falsify a gate.
    await shareRuntime(tx, clusterId);
    await uncoverPage(tx, clusterId, nodeId, evidence.aggregate.generation, evidence.pageIndex);
  }
  if (code !== null) return { state: 'refused', code, aggregate: aggregate?.reference ?? null, coveredPages: 0 };
  if (evidence.fences.length > 0) await writeFences(tx, clusterId, nodeId, evidence.fences);
  const coveredPages = await coverPage(tx, clusterId, nodeId, {
    aggregateGeneration: evidence.aggregate.generation,
    pageIndex: evidence.pageIndex,
    held: evidence.fences.length > 0,
    minute: Math.floor(scope.receivedAt / 60_000),
  });
  return { state: 'accepted', code: null, aggregate: evidence.aggregate, coveredPages };
}

interface ExpectedPage {
  readonly contentDigest: string;
  readonly expected: readonly ExpectedFence[];
}

/** A node's share of a page under one pin never changes. */
const shares = new LRUCache<string, ExpectedPage>({ max: 20_000 });

async function expectedFences(
  tx: Tx,
  scope: EvidenceScope,
  pageIndex: number,
  aggregate: Reference,
): Promise<ExpectedPage | null> {
  const { clusterId, nodeId } = scope;
  const key = [clusterId, aggregate.id, aggregate.generation, aggregate.digest, pageIndex, nodeId].join(' ');
  const cached = shares.get(key);
  if (cached !== undefined) return cached;
  const stored = await pageAt(tx, clusterId, pageIndex, aggregate.generation);
  if (stored === undefined) return null;
  const content = readPage(stored.tail, stored.contentDigest);
  if (content === null) throw new CorruptPageError(clusterId, pageIndex);
  const own = content.handoffs.filter((entry) => entry.nodeId === nodeId);
  const records = own.length === 0 ? [] : await handoffRecords(tx, clusterId, nodeId, own);
  const expected = records.map(({ record }) => {
    const handoff = JSON.parse(record) as IFleetCutoverPreparedVolumeHandoffIntent;
    const { id, generation, digest, volumeId } = handoff;
    return {
      handoff: { id, generation, digest },
      volumeId,
      mountIdentityDigest: handoff.observedMount.mountIdentityDigest,
    };
  });
  const page = { contentDigest: stored.contentDigest, expected };
  shares.set(key, page);
  return page;
}
