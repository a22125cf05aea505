/**
 * The aggregate's next header: pure.
 *
 * 1. Complete: the required and the prepared set are equal and nothing blocks.
 * 2. Only complete revisions have pages and a set digest.
 * 3. Each revision names its predecessor and digests its changes.
 */
import { digestDomain, sealRecord } from '../../contract/digest.js';
import {
  type HandoffChange,
  handoffChangeDigest,
  type IFleetCutoverPreparedVolumeHandoffAggregate,
} from '../../contract/handoff.js';
import { aggregateId } from '../../contract/record-id.js';
import type { Reference } from '../../contract/schema.js';
import type { DerivationHead } from './derivation-rows.js';
import type { HandoffWrite } from './handoff.js';

export interface AggregateHead {
  /** 0 before the first revision. */
  readonly generation: number;
  readonly digest: Reference['digest'] | null;
  readonly state: 'absent' | 'incomplete' | 'complete';
  readonly preparedCount: number;
  /** Prepared handoffs that are required. */
  readonly matchedCount: number;
  readonly pageCount: number;
  readonly derivationGeneration: number;
  readonly scopeGeneration: number;
  readonly targetSetGeneration: number;
  readonly completeGeneration: number;
}

export function aggregateReference(
  clusterLife: string,
  head: Pick<AggregateHead, 'generation' | 'digest'>,
): Reference | null {
  return head.digest === null
    ? null
    : { id: aggregateId(clusterLife), generation: head.generation, digest: head.digest };
}

export interface Counts {
  readonly preparedCount: number;
  readonly matchedCount: number;
}

export function isComplete(derivation: DerivationHead, counts: Counts): boolean {
  return (
    derivation.blockerCount === 0 &&
    counts.matchedCount === derivation.requiredCount &&
    counts.preparedCount === derivation.requiredCount
  );
}

interface NextAggregate {
  readonly clusterId: string;
  readonly clusterLife: string;
  readonly runtime: Reference;
  readonly scope: Reference;
  readonly targetSet: Reference | null;
  readonly derivation: Reference;
  readonly requiredCount: number;
  readonly counts: Counts;
  readonly writes: readonly HandoffWrite[];
  /** Pages of the set; null while it is incomplete. */
  readonly pages: { readonly pageCount: number; readonly setDigest: Reference['digest'] } | null;
}

export function nextAggregate(head: AggregateHead, next: NextAggregate): IFleetCutoverPreparedVolumeHandoffAggregate {
  return sealRecord(digestDomain('IFleetCutoverPreparedVolumeHandoffAggregate'), {
    id: aggregateId(next.clusterLife),
    generation: head.generation + 1,
    clusterId: next.clusterId,
    requiredCount: next.requiredCount,
    actualCount: next.counts.preparedCount,
    state: next.pages === null ? ('incomplete' as const) : ('complete' as const),
    pageCount: next.pages?.pageCount ?? 0,
    setDigest: next.pages?.setDigest ?? null,
    runtime: next.runtime,
    scope: next.scope,
    targetSet: next.targetSet,
    derivation: next.derivation,
    predecessor: aggregateReference(next.clusterLife, head),
    changeDigest: handoffChangeDigest(next.writes.map(changeOf)),
  });
}

function changeOf(write: HandoffWrite): HandoffChange {
  const { nodeId, id, generation, digest } = write;
  return { nodeId, id, handoff: write.record === null ? null : { generation, digest } };
}
