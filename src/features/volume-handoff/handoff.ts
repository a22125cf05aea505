/**
 * One mutation of prepared handoffs, decided from owner rows: pure.
 *
 * 1. An upsert says which key and which request; everything else is derived.
 * 2. A key that is not required, or is blocked, has no handoff made. A removal of what is not there is refused.
 * 3. One bad entry refuses the batch; every bad entry is named by list and index.
 * 4. An upsert equal to what is there keeps its reference. A handoff made again continues its generations.
 */
import type { IHandoffOutcome, IHandoffRemoval, IHandoffUpsert } from '../../contract/cutover-methods.js';
import { canonicalizeStrictJson } from '../../contract/canonical-json.js';
import { bareDigestOfCanonical, digestDomain, sealCanonical } from '../../contract/digest.js';
import type { IFleetCutoverPreparedVolumeHandoffIntent } from '../../contract/handoff.js';
import { maximumPreparedVolumeHandoffBytes } from '../../contract/limits.js';
import type { IProblemEntry, TBatchEntryCode } from '../../contract/problems.js';
import { recordId } from '../../contract/record-id.js';
import type { Reference } from '../../contract/schema.js';
import type { IRuntimeStorageClaimIntent } from '../../contract/storage-claim.js';
import { type NewVolume, volumeId } from '../fleet/volumes.js';

type Digest = Reference['digest'];

/** What the owner rows say about one key of the request, in the request's order. */
export interface KeyFacts {
  /** Null where the key was never required. */
  readonly handoffId: string | null;
  readonly required: boolean;
  readonly sourceDigest: Digest | null;
  readonly targetDigest: Digest | null;
  readonly mountPath: string | null;
  /** The key, or its whole node, is written off: nothing of it changes any more. */
  readonly writtenOff: boolean;
  /** Codes of the blockers that block the key. */
  readonly blockers: readonly string[];
  /** Newest generation of the handoff, removed or not; null where there never was one. */
  readonly generation: number | null;
  readonly digest: Digest | null;
  readonly claimDigest: Digest | null;
  readonly requestDigest: Digest | null;
  readonly removed: boolean | null;
  readonly localGeneration: number | null;
  readonly localDigest: Digest | null;
  readonly serviceState: 'live' | 'retired' | null;
}

export interface HandoffOwner {
  readonly clusterId: string;
  readonly clusterLife: string;
  readonly organizationId: string;
  readonly controllerId: string;
  readonly controllerEpoch: number;
  readonly runtimeNamespace: string;
}

export interface HandoffEvidence {
  readonly runtime: Reference;
  readonly scope: Reference;
  readonly managerSnapshot: Reference;
  localSnapshot(nodeId: string, generation: number, digest: Digest): Reference;
}

/** A row to write: a new generation, or a removal (`record` null). */
export interface HandoffWrite {
  readonly nodeId: string;
  readonly id: string;
  readonly generation: number;
  readonly digest: Digest;
  readonly claimDigest: Digest;
  readonly requestDigest: Digest;
  /** Canonical JSON of the handoff; null says that it is removed. */
  readonly record: string | null;
  /** The volume whose row a first handoff makes exist. */
  readonly newVolume: NewVolume | null;
}

export interface HandoffBatch {
  readonly entries: readonly IProblemEntry[];
  readonly writes: readonly HandoffWrite[];
  readonly outcomes: readonly IHandoffOutcome[];
  /** How many prepared handoffs more, and how many of those that are required. */
  readonly preparedDelta: number;
  readonly matchedDelta: number;
  /** Whether handoffs came or went, so that pages shift. */
  readonly membershipChanged: boolean;
}

interface BatchInput {
  readonly upserts: readonly IHandoffUpsert[];
  readonly removals: readonly IHandoffRemoval[];
  readonly upsertFacts: readonly KeyFacts[];
  readonly removalFacts: readonly KeyFacts[];
  readonly owner: HandoffOwner;
  readonly evidence: HandoffEvidence;
  /** Only what was never prepared may be: nothing that is prepared changes while the cluster switches. */
  readonly straysOnly: boolean;
}

const handoffDomain = digestDomain('IFleetCutoverPreparedVolumeHandoffIntent');
const claimDomain = digestDomain('IRuntimeStorageClaimIntent');

export function decideBatch(input: BatchInput): HandoffBatch {
  const entries: IProblemEntry[] = [];
  const writes: HandoffWrite[] = [];
  const outcomes: IHandoffOutcome[] = [];
  let preparedDelta = 0;
  let matchedDelta = 0;
  let membershipChanged = false;
  const evidenceAt = evidencePerNode(input.evidence);
  const seen = new Set<string>();
  const repeated = (key: IHandoffRemoval): boolean => {
    const identity = `${key.nodeId}\0${key.serviceId}\0${key.mountIdentityDigest}`;
    if (seen.has(identity)) return true;
    seen.add(identity);
    return false;
  };

  input.upserts.forEach((upsert, index) => {
    const facts = input.upsertFacts[index]!;
    const code = repeated(upsert) ? 'entry-duplicate' : judgeUpsert(upsert, facts);
    if (code !== null) {
      entries.push({
        list: 'upserts',
        index,
        code,
        ...(code === 'entry-blocked' ? { detail: facts.blockers.join(', ') } : {}),
      });
      return;
    }
    const request = canonicalizeStrictJson(upsert.request);
    const requestDigest = bareDigestOfCanonical(request);
    if (facts.removed === false && facts.requestDigest === requestDigest) {
      outcomes.push({
        nodeId: upsert.nodeId,
        id: facts.handoffId!,
        change: 'unchanged',
        reference: headReference(facts),
      });
      return;
    }
    if (input.straysOnly && facts.removed === false) {
      entries.push({ list: 'upserts', index, code: 'strays-only' });
      return;
    }
    const write = makeHandoff(input, upsert, facts, {
      request,
      requestDigest,
      evidence: evidenceAt(facts, upsert.nodeId),
    });
    if (write.record !== null && Buffer.byteLength(write.record) > maximumPreparedVolumeHandoffBytes) {
      entries.push({ list: 'upserts', index, code: 'entry-too-large' });
      return;
    }
    const created = facts.removed !== false;
    if (created) {
      preparedDelta += 1;
      matchedDelta += 1;
      membershipChanged = true;
    }
    writes.push(write);
    const { id, generation, digest } = write;
    outcomes.push({
      nodeId: upsert.nodeId,
      id,
      change: created ? 'created' : 'revised',
      reference: { id, generation, digest },
    });
  });

  input.removals.forEach((removal, index) => {
    const facts = input.removalFacts[index]!;
    if (repeated(removal)) {
      entries.push({ list: 'removals', index, code: 'entry-duplicate' });
      return;
    }
    if (facts.removed !== false) {
      entries.push({ list: 'removals', index, code: 'entry-absent' });
      return;
    }
    if (facts.writtenOff && facts.required) {
      entries.push({ list: 'removals', index, code: 'entry-written-off' });
      return;
    }
    // What is not required any more may be removed at any time: it only keeps the set from being complete.
    if (input.straysOnly && facts.required) {
      entries.push({ list: 'removals', index, code: 'strays-only' });
      return;
    }
    preparedDelta -= 1;
    if (facts.required) matchedDelta -= 1;
    membershipChanged = true;
    const reference = headReference(facts);
    writes.push({
      nodeId: removal.nodeId,
      ...reference,
      claimDigest: facts.claimDigest!,
      requestDigest: facts.requestDigest!,
      record: null,
      newVolume: null,
    });
    outcomes.push({ nodeId: removal.nodeId, id: reference.id, change: 'removed', reference });
  });
  return { entries, writes, outcomes, preparedDelta, matchedDelta, membershipChanged };
}

function headReference(facts: KeyFacts): Reference {
  return { id: facts.handoffId!, generation: facts.generation!, digest: facts.digest! };
}

function judgeUpsert(upsert: IHandoffUpsert, facts: KeyFacts): TBatchEntryCode | null {
  if (facts.serviceState === 'retired') return 'service-retired';
  if (facts.handoffId === null || !facts.required) return 'entry-not-required';
  if (facts.writtenOff) return 'entry-written-off';
  if (facts.blockers.length > 0) return 'entry-blocked';
  if (facts.mountPath !== upsert.request.mountPath) return 'mount-path-mismatch';
  return null;
}

type NodeEvidence = IFleetCutoverPreparedVolumeHandoffIntent['evidence'];

/** What stands on all of a node's handoffs, and its canonical JSON: both are made once for them. */
interface SpelledEvidence {
  readonly evidence: NodeEvidence;
  readonly text: string;
}

function evidencePerNode(batch: HandoffEvidence): (facts: KeyFacts, nodeId: string) => SpelledEvidence {
  const known = new Map<string, SpelledEvidence>();
  return (facts, nodeId) => {
    let spelled = known.get(nodeId);
    if (spelled === undefined) {
      const { runtime, scope, managerSnapshot } = batch;
      const localSnapshot = batch.localSnapshot(nodeId, facts.localGeneration!, facts.localDigest!);
      const evidence = { runtime, scope, managerSnapshot, localSnapshot };
      spelled = { evidence, text: canonicalizeStrictJson(evidence) };
      known.set(nodeId, spelled);
    }
    return spelled;
  };
}

interface Spelled {
  /** Canonical JSON of the upsert's request, and its digest. */
  readonly request: string;
  readonly requestDigest: Digest;
  readonly evidence: SpelledEvidence;
}

function makeHandoff(input: BatchInput, upsert: IHandoffUpsert, facts: KeyFacts, spelled: Spelled): HandoffWrite {
  const { owner } = input;
  const { nodeId, serviceId, mountIdentityDigest, request } = upsert;
  const { requestDigest, evidence } = spelled;
  const id = facts.handoffId!;
  const generation = (facts.generation ?? 0) + 1;
  const volume = volumeId(owner.clusterLife, upsert);
  const claimId = recordId('cl', { clusterLife: owner.clusterLife, handoffId: id });
  const binding = { serviceId, request, requestDigest };
  const intent: Omit<IRuntimeStorageClaimIntent, 'digest'> = {
    id: claimId,
    generation,
    controllerId: owner.controllerId,
    controllerEpoch: owner.controllerEpoch,
    organizationId: owner.organizationId,
    clusterId: owner.clusterId,
    nodeId,
    runtimeNamespace: owner.runtimeNamespace,
    serviceId,
    predecessor:
      facts.claimDigest === null ? null : { id: claimId, generation: generation - 1, digest: facts.claimDigest },
    binding,
  };
  const bindingText = canonicalizeStrictJson(binding, { knownMembers: new Map([['request', spelled.request]]) });
  const { sealed: claimIntent, canonical: claimText } = sealCanonical(
    claimDomain,
    intent,
    new Map([['binding', bindingText]]),
  );
  const handoff: Omit<IFleetCutoverPreparedVolumeHandoffIntent, 'digest'> = {
    id,
    generation,
    clusterId: owner.clusterId,
    nodeId,
    serviceId,
    volumeId: volume,
    observedMount: { sourceDigest: facts.sourceDigest!, targetDigest: facts.targetDigest!, mountIdentityDigest },
    claimIntent,
    evidence: evidence.evidence,
    predecessor: facts.digest === null ? null : { id, generation: generation - 1, digest: facts.digest },
  };
  const known = new Map([
    ['claimIntent', claimText],
    ['evidence', evidence.text],
  ]);
  const { sealed, canonical } = sealCanonical(handoffDomain, handoff, known);
  return {
    nodeId,
    id,
    generation,
    digest: sealed.digest,
    claimDigest: claimIntent.digest,
    requestDigest,
    record: canonical,
    newVolume: facts.generation === null ? { nodeId, serviceId, mountIdentityDigest, volumeId: volume } : null,
  };
}

/** The request of a ready-made mutation; its id is derived from the handoff's. */
export function defaultRequest(handoffId: string, mountPath: string): IHandoffUpsert['request'] {
  return {
    requestId: `rq-${handoffId.slice('vh-'.length)}`,
    kind: 'filesystem',
    mountPath,
    accessMode: 'ReadWriteOnce',
    reclaimPolicy: 'Retain',
    requestedCapacityBytes: null,
  };
}
