/** Steps in a caller's transaction: accepting what one report says. */
import { digestDomain, domainDigestOfCanonical } from '../../contract/digest.js';
import type {
  IFleetCutoverCompleteLocalNodeSnapshot,
  IFleetCutoverLocalNodeSnapshot,
  IFleetCutoverManagerSnapshot,
} from '../../contract/observation.js';
import { localSnapshotId, managerSnapshotId } from '../../contract/record-id.js';
import { type Reference, sameReference } from '../../contract/schema.js';
import type { Tx } from '../../db/transaction.js';
import type { ReportingNode } from '../fleet/report-rows.js';
import { managerSnapshotHead } from './facts.js';
import {
  insertLocalSnapshot,
  insertManagerSnapshot,
  lockManagerHead,
  type ManagerChange,
  recordIncomplete,
  writeManagerHead,
} from './rows.js';

export interface ReportScope {
  readonly clusterId: string;
  readonly clusterLife: string;
  readonly nodeId: string;
  /** Unix ms. */
  readonly receivedAt: number;
  /** The cluster's current runtime. */
  readonly runtime: Reference;
}

export interface SnapshotOutcome {
  readonly state: 'accepted' | 'unchanged' | 'incomplete' | 'absent';
  readonly reference: Reference | null;
}

export interface LocalOutcome extends SnapshotOutcome {
  /** The node's latest snapshot fields after the report. */
  readonly generation: number;
  readonly digest: string | null;
  readonly incomplete: string | null;
  readonly seen: boolean;
  /** Generation of the current runtime if the accepted snapshot names it; null if it names another; undefined: as before. */
  readonly runtimeGeneration: number | null | undefined;
  /** Whether anything that the derivation reads is different now. */
  readonly changed: boolean;
  readonly snapshot: IFleetCutoverCompleteLocalNodeSnapshot | null;
}

const localDomain = digestDomain('IFleetCutoverLocalNodeSnapshot');
const managerDomain = digestDomain('IFleetCutoverManagerSnapshot');

function referenceOrNull(id: string, generation: number, digest: string | null): Reference | null {
  return digest === null ? null : { id, generation, digest: digest as Reference['digest'] };
}

/** A reported snapshot with its canonical JSON: it may have 4 MiB, so that nobody makes that twice. */
export interface ReportedSnapshot<T> {
  readonly content: T;
  readonly canonical: string;
}

/** Accepts, recognises or records a node's local snapshot. The node's row must be locked. */
export async function takeLocalSnapshot(
  tx: Tx,
  scope: ReportScope,
  node: ReportingNode,
  reported: ReportedSnapshot<IFleetCutoverLocalNodeSnapshot> | undefined,
): Promise<LocalOutcome> {
  const id = localSnapshotId(scope.clusterLife, scope.nodeId);
  const before = {
    generation: node.localGeneration,
    digest: node.localDigest,
    incomplete: node.localIncomplete,
    seen: false,
    changed: false,
    snapshot: null,
    runtimeGeneration: undefined,
    reference: referenceOrNull(id, node.localGeneration, node.localDigest),
  };
  if (reported === undefined) return { ...before, state: 'absent' };
  const { content: snapshot, canonical: record } = reported;
  if (!snapshot.complete) {
    await recordIncomplete(tx, scope.clusterId, scope.nodeId, 'local', snapshot, scope.receivedAt);
    return {
      ...before,
      state: 'incomplete',
      incomplete: snapshot.reason,
      changed: node.localIncomplete !== snapshot.reason,
    };
  }
  const digest = domainDigestOfCanonical(localDomain, record);
  if (digest === node.localDigest) {
    return {
      ...before,
      state: 'unchanged',
      incomplete: null,
      seen: true,
      changed: node.localIncomplete !== null,
      // The same content names the same runtime; one that is not current any more counts for what it counted before.
      runtimeGeneration: namedRuntime(scope, snapshot.runtime) ?? undefined,
    };
  }
  const generation = node.localGeneration + 1;
  await insertLocalSnapshot(tx, scope.clusterId, scope.nodeId, { generation, digest, record }, snapshot);
  return {
    state: 'accepted',
    generation,
    digest,
    incomplete: null,
    seen: true,
    changed: true,
    snapshot,
    runtimeGeneration: namedRuntime(scope, snapshot.runtime),
    reference: { id, generation, digest },
  };
}

/** Only a snapshot that was begun under the current runtime can count for its gates. */
function namedRuntime(scope: ReportScope, named: Reference | null): number | null {
  return sameReference(named, scope.runtime) ? scope.runtime.generation : null;
}

export interface ManagerOutcome extends SnapshotOutcome {
  readonly change: ManagerChange | null;
  /** The manager snapshot became incomplete or whole again, or its content changed. */
  readonly changed: boolean;
}

/** Accepts, recognises or records a manager snapshot of the cluster. */
export async function takeManagerSnapshot(
  tx: Tx,
  scope: ReportScope,
  reported: ReportedSnapshot<IFleetCutoverManagerSnapshot> | undefined,
): Promise<ManagerOutcome> {
  const id = managerSnapshotId(scope.clusterLife);
  if (reported === undefined) {
    // Without a snapshot nothing is decided from the head, so that reports of workers do not wait for each other.
    const current = await managerSnapshotHead(tx, scope.clusterId);
    const reference = current === undefined ? null : referenceOrNull(id, current.generation, current.digest);
    return { state: 'absent', reference, change: null, changed: false };
  }
  const { content: snapshot, canonical: record } = reported;
  const head = await lockManagerHead(tx, scope.clusterId);
  const reference = referenceOrNull(id, head.generation, head.digest);
  const seen = { nodeId: scope.nodeId, seenAt: scope.receivedAt };
  if (!snapshot.complete) {
    await recordIncomplete(tx, scope.clusterId, scope.nodeId, 'manager', snapshot, scope.receivedAt);
    await writeManagerHead(tx, scope.clusterId, { ...head, ...seen, incomplete: snapshot.reason });
    return { state: 'incomplete', reference, change: null, changed: head.incomplete !== snapshot.reason };
  }
  const digest = domainDigestOfCanonical(managerDomain, record);
  if (digest === head.digest) {
    const runtimeGeneration = namedRuntime(scope, snapshot.runtime) ?? head.runtimeGeneration;
    await writeManagerHead(tx, scope.clusterId, { ...head, ...seen, incomplete: null, runtimeGeneration });
    return { state: 'unchanged', reference, change: null, changed: head.incomplete !== null };
  }
  const generation = head.generation + 1;
  const change = await insertManagerSnapshot(
    tx,
    scope.clusterId,
    scope.nodeId,
    { generation, digest, record },
    snapshot,
  );
  const runtimeGeneration = namedRuntime(scope, snapshot.runtime);
  await writeManagerHead(tx, scope.clusterId, { generation, digest, incomplete: null, runtimeGeneration, ...seen });
  return { state: 'accepted', reference: { id, generation, digest }, change, changed: true };
}
