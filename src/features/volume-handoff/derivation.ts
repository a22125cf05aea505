/** The derivation's own record: pure. */
import type { IFleetCutoverDerivation } from '../../contract/derivation.js';
import { bareDigest, digestDomain, sealRecord } from '../../contract/digest.js';
import { derivationId } from '../../contract/record-id.js';
import type { Reference } from '../../contract/schema.js';
import type { Blocker, RequiredEntry } from './derive-node.js';
import type { DerivationHead } from './derivation-rows.js';

/** What came and went in one revision. */
export interface DerivationChange {
  readonly entriesAdded: readonly RequiredEntry[];
  readonly entriesRemoved: readonly RequiredEntry[];
  readonly blockersAdded: readonly Blocker[];
  readonly blockersRemoved: readonly string[];
}

export function isEmptyChange(change: DerivationChange): boolean {
  return (
    change.entriesAdded.length +
      change.entriesRemoved.length +
      change.blockersAdded.length +
      change.blockersRemoved.length ===
    0
  );
}

/** Bare digest over the sorted ids of keys and blockers that came and went. */
export function derivationChangeDigest(change: DerivationChange) {
  return bareDigest({
    entriesAdded: change.entriesAdded.map((entry) => entry.handoffId).sort(),
    entriesRemoved: change.entriesRemoved.map((entry) => entry.handoffId).sort(),
    blockersAdded: change.blockersAdded.map((blocker) => blocker.record.id).sort(),
    blockersRemoved: [...change.blockersRemoved].sort(),
  });
}

interface NextDerivation {
  readonly clusterId: string;
  readonly clusterLife: string;
  readonly scope: Reference | null;
  readonly targetSet: Reference | null;
  readonly change: DerivationChange;
}

/** The revision that follows `head`; `head` null makes the first one. */
export function nextDerivation(head: DerivationHead | null, next: NextDerivation): IFleetCutoverDerivation {
  const { change } = next;
  const id = derivationId(next.clusterLife);
  return sealRecord(digestDomain('IFleetCutoverDerivation'), {
    id,
    generation: (head?.generation ?? 0) + 1,
    clusterId: next.clusterId,
    scope: next.scope,
    targetSet: next.targetSet,
    requiredCount: (head?.requiredCount ?? 0) + change.entriesAdded.length - change.entriesRemoved.length,
    blockerCount: (head?.blockerCount ?? 0) + change.blockersAdded.length - change.blockersRemoved.length,
    predecessor: head === null ? null : { id, generation: head.generation, digest: head.digest },
    changeDigest: derivationChangeDigest(change),
  });
}
