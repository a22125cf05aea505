/** Steps in a caller's transaction: re-deriving what changed evidence, scope or targets touch. */
import { maximumPreparedVolumeHandoffs } from '../../contract/limits.js';
import type { IFleetCutoverCompleteLocalNodeSnapshot, IObservedSpecMount } from '../../contract/observation.js';
import { derivationId } from '../../contract/record-id.js';
import type { Reference } from '../../contract/schema.js';
import type { IFleetCutoverScope } from '../../contract/scope.js';
import { present } from '../../db/present.js';
import type { Tx } from '../../db/transaction.js';
import {
  allNodes,
  managerIncomplete,
  nodeEvidence,
  nodesOfSwarmNodes,
  observedServices,
  tasksOfNobody,
  tasksOfNode,
} from '../inventory/facts.js';
import { writtenOffOfNode } from '../write-off/facts.js';
import { currentScope, scopeReference, targetSetReference } from '../scope/facts.js';
import { type DerivationChange, isEmptyChange, nextDerivation } from './derivation.js';
import {
  blockerIdsOfPart,
  closeBlockers,
  closeEntries,
  clusterPart,
  type DerivationHead,
  insertBlockers,
  insertEntries,
  insertFirstDerivation,
  lockDerivationHead,
  requiredEntriesOfNode,
  writeDerivation,
  writeGateFacts,
  writeVerdicts,
} from './derivation-rows.js';
import { deriveCluster } from './derive-cluster.js';
import {
  type Blocker,
  deriveNode,
  makeBlocker,
  type NodeFacts,
  type RequiredEntry,
  type WrittenOff,
} from './derive-node.js';
import { adjustMatched, countPrepared, insertAggregateHead, preparedIds } from './rows.js';

export interface DerivedCluster {
  readonly clusterId: string;
  readonly clusterLife: string;
}

/** What may be different from the last derivation. */
export interface DerivationScope {
  /** Nodes to derive again. */
  readonly nodes: ReadonlySet<string> | 'all';
  /** Swarm nodes whose fleet nodes are to be derived again. */
  readonly swarmNodes?: ReadonlySet<string>;
  /** Services whose spec mounts differ: of an application they may match volumes on every node. */
  readonly specServices?: ReadonlySet<string>;
  /** The cluster's own part: manager snapshot, scope, or which nodes are bound. */
  readonly cluster: boolean;
  /** Scope or targets have another reference: a new revision is made even where nothing else differs. */
  readonly always: boolean;
  /** Snapshots that the caller has parsed already, by node. */
  readonly snapshots?: ReadonlyMap<string, IFleetCutoverCompleteLocalNodeSnapshot>;
}

export interface Derived {
  readonly head: DerivationHead;
  readonly reference: Reference;
}

/** A new cluster's first derivation: nothing is required, and the missing scope blocks. */
export async function initializeVolumeHandoffs(tx: Tx, cluster: DerivedCluster): Promise<void> {
  const { blockers } = deriveCluster({ scope: null, services: [], managerIncomplete: null, tasks: [] });
  const change = { entriesAdded: [], entriesRemoved: [], blockersAdded: blockers, blockersRemoved: [] };
  const first = nextDerivation(null, { ...cluster, scope: null, targetSet: null, change });
  await Promise.all([insertFirstDerivation(tx, first, blockers), insertAggregateHead(tx, cluster.clusterId)]);
}

interface PartChange {
  readonly part: string;
  readonly nodeId: string | null;
  readonly change: DerivationChange;
}

/**
 * Derives again what `what` names, writes the difference and, where there is one, the next derivation revision. Locks
 * the derivation row first: whoever commits later sees the other's evidence.
 */
export async function deriveAgain(tx: Tx, cluster: DerivedCluster, what: DerivationScope): Promise<Derived> {
  const { clusterId, clusterLife } = cluster;
  const head = present(await lockDerivationHead(tx, clusterId));
  const [current, services, bound] = await Promise.all([
    currentScope(tx, clusterId),
    observedServices(tx, clusterId),
    what.swarmNodes === undefined ? [] : nodesOfSwarmNodes(tx, clusterId, [...what.swarmNodes]),
  ]);
  const nodes =
    what.nodes === 'all' || touchesApplication(current.scope, what.specServices)
      ? await allNodes(tx, clusterId)
      : [...new Set([...what.nodes, ...bound])].sort();
  const targets = new Set(current.targetSet?.nodeIds);
  const specMounts = new Map(services.map((service) => [service.swarmServiceId, service.mounts]));

  const parts: PartChange[] = [];
  let room = maximumPreparedVolumeHandoffs - head.requiredCount;
  for (const nodeId of nodes) {
    const part = await deriveOneNode(tx, cluster, nodeId, {
      scope: current.scope,
      specMounts,
      targeted: targets.has(nodeId),
      snapshot: what.snapshots?.get(nodeId),
      room,
    });
    room += part.change.entriesRemoved.length - part.change.entriesAdded.length;
    parts.push(part);
  }
  if (what.cluster) parts.push(await deriveClusterPart(tx, clusterId, current.scope, services));

  const change = joinChanges(parts.map((part) => part.change));
  const changed = !isEmptyChange(change);
  if (!changed && !what.always) return { head, reference: referenceOfHead(clusterLife, head) };
  const next = nextDerivation(head, {
    clusterId,
    clusterLife,
    scope: scopeReference(clusterLife, current.scopeHead),
    targetSet: targetSetReference(clusterLife, current.targetSetHead),
    change,
  });
  for (const part of parts) await writePart(tx, clusterId, next.generation, part);
  await writeDerivation(tx, next);
  const [gained, lost] = await Promise.all([
    countPrepared(tx, clusterId, change.entriesAdded),
    countPrepared(tx, clusterId, change.entriesRemoved),
  ]);
  if (gained !== lost) await adjustMatched(tx, clusterId, gained - lost);
  const { id, generation, digest } = next;
  return {
    head: { generation, digest, requiredCount: next.requiredCount, blockerCount: next.blockerCount },
    reference: { id, generation, digest },
  };
}

function touchesApplication(scope: IFleetCutoverScope | null, services: ReadonlySet<string> | undefined): boolean {
  if (scope === null || services === undefined || services.size === 0) return false;
  return scope.services.some((service) => service.class === 'application' && services.has(service.swarmServiceId));
}

export function referenceOfHead(clusterLife: string, head: Pick<DerivationHead, 'generation' | 'digest'>): Reference {
  return { id: derivationId(clusterLife), generation: head.generation, digest: head.digest };
}

interface NodeContext extends Pick<NodeFacts, 'scope' | 'targeted'> {
  readonly specMounts: ReadonlyMap<string, readonly IObservedSpecMount[]>;
  readonly snapshot: IFleetCutoverCompleteLocalNodeSnapshot | undefined;
  /** How many more entries the contract allows. */
  readonly room: number;
}

async function deriveOneNode(
  tx: Tx,
  cluster: DerivedCluster,
  nodeId: string,
  context: NodeContext,
): Promise<PartChange> {
  const { clusterId, clusterLife } = cluster;
  const [evidence, previous, knownBlockers, tasks, lost] = await Promise.all([
    nodeEvidence(tx, clusterId, nodeId),
    requiredEntriesOfNode(tx, clusterId, nodeId),
    blockerIdsOfPart(tx, clusterId, nodeId),
    tasksOfNode(tx, clusterId, nodeId),
    writtenOffOfNode(tx, clusterId, nodeId),
  ]);
  const snapshot =
    context.snapshot ??
    (evidence.snapshot === null ? null : (JSON.parse(evidence.snapshot) as IFleetCutoverCompleteLocalNodeSnapshot));
  const known = {
    clusterLife,
    nodeId,
    snapshot,
    incomplete: evidence.incomplete,
    tasks,
    swarmState: evidence.swarmState,
    scope: context.scope,
    specMounts: context.specMounts,
    targeted: context.targeted,
    previous,
  };
  const derived = deriveNode(await factsOfNode(known, lost, (ids) => preparedOf(tx, clusterId, nodeId, ids)));
  await Promise.all([
    writeVerdicts(tx, clusterId, nodeId, derived.verdicts),
    writeGateFacts(tx, clusterId, nodeId, derived.gate),
  ]);
  const bounded = withinRoom(nodeId, previous, derived.entries, derived.blockers, context.room);
  return { part: nodeId, nodeId, change: difference(previous, bounded.entries, knownBlockers, bounded.blockers) };
}

/**
 * What a node's derivation takes, completed by what is written off and by which of the entries that may leave are prepared.
 * `preparedOf` gives those of the handoff ids that are.
 */
export async function factsOfNode(
  known: Omit<NodeFacts, 'prepared' | 'writtenOff'>,
  lost: WrittenOff | null,
  preparedOf: (handoffIds: readonly string[]) => Promise<ReadonlySet<string>>,
): Promise<NodeFacts> {
  const prepared = await preparedOf(mayLeave(known.scope, lost, known.previous));
  return { ...known, prepared, ...(lost === null ? {} : { writtenOff: lost }) };
}

/** Handoff ids of entries that may leave without being named, for which it matters whether they are prepared. */
export function mayLeave(
  scope: IFleetCutoverScope | null,
  lost: WrittenOff | null,
  previous: readonly RequiredEntry[],
): string[] {
  if (lost?.node === true) return previous.map((entry) => entry.handoffId);
  const released = new Set(scope?.releasedAnonymousVolumes.map((each) => each.serviceId));
  return previous
    .filter(
      (entry) => lost?.entries.has(entry.handoffId) === true || (entry.anonymous && released.has(entry.serviceId)),
    )
    .map((entry) => entry.handoffId);
}

async function preparedOf(
  tx: Tx,
  clusterId: string,
  nodeId: string,
  handoffIds: readonly string[],
): Promise<Set<string>> {
  return new Set(handoffIds.length === 0 ? [] : await preparedIds(tx, clusterId, nodeId, handoffIds));
}

/** The next key beyond 131,072 is a blocker, not an entry. */
export function withinRoom(
  nodeId: string,
  previous: readonly RequiredEntry[],
  entries: readonly RequiredEntry[],
  blockers: readonly Blocker[],
  room: number,
): { entries: readonly RequiredEntry[]; blockers: readonly Blocker[] } {
  if (entries.length - previous.length <= room) return { entries, blockers };
  const known = new Set(previous.map((entry) => entry.handoffId));
  let left = room + previous.length - entries.filter((entry) => known.has(entry.handoffId)).length;
  const kept = entries.filter((entry) => known.has(entry.handoffId) || left-- > 0);
  const keptIds = new Set(kept.map((entry) => entry.handoffId));
  const dropped = new Set(entries.map((entry) => entry.handoffId).filter((id) => !keptIds.has(id)));
  const limit = makeBlocker(
    'entry-limit',
    `${dropped.size} required entries of the node are beyond the fleet's ${maximumPreparedVolumeHandoffs}`,
    { nodeId },
  );
  return {
    entries: kept,
    blockers: [...blockers.filter((each) => each.handoffId === null || !dropped.has(each.handoffId)), limit],
  };
}

async function deriveClusterPart(
  tx: Tx,
  clusterId: string,
  scope: IFleetCutoverScope | null,
  services: readonly { swarmServiceId: string; name: string }[],
): Promise<PartChange> {
  const [tasks, incomplete, knownBlockers] = await Promise.all([
    tasksOfNobody(tx, clusterId),
    managerIncomplete(tx, clusterId),
    blockerIdsOfPart(tx, clusterId, clusterPart),
  ]);
  const derived = deriveCluster({ scope, services, managerIncomplete: incomplete, tasks });
  await writeVerdicts(tx, clusterId, null, derived.verdicts);
  return { part: clusterPart, nodeId: null, change: difference([], [], knownBlockers, derived.blockers) };
}

function difference(
  previous: readonly RequiredEntry[],
  entries: readonly RequiredEntry[],
  knownBlockers: readonly string[],
  blockers: readonly Blocker[],
): DerivationChange {
  const before = new Map(previous.map((entry) => [entry.handoffId, entry]));
  const after = new Map(entries.map((entry) => [entry.handoffId, entry]));
  // A key that passes to the service's next swarm service, or to another volume's name, is written anew: its row says so.
  const stays = (entry: RequiredEntry, other: RequiredEntry | undefined) =>
    other !== undefined && other.swarmServiceId === entry.swarmServiceId && other.volumeName === entry.volumeName;
  const known = new Set(knownBlockers);
  const now = new Set(blockers.map((blocker) => blocker.record.id));
  return {
    entriesAdded: entries.filter((entry) => !stays(entry, before.get(entry.handoffId))),
    entriesRemoved: previous.filter((entry) => !stays(entry, after.get(entry.handoffId))),
    blockersAdded: blockers.filter((blocker) => !known.has(blocker.record.id)),
    blockersRemoved: knownBlockers.filter((id) => !now.has(id)),
  };
}

function joinChanges(changes: readonly DerivationChange[]): DerivationChange {
  return {
    entriesAdded: changes.flatMap((change) => change.entriesAdded),
    entriesRemoved: changes.flatMap((change) => change.entriesRemoved),
    blockersAdded: changes.flatMap((change) => change.blockersAdded),
    blockersRemoved: changes.flatMap((change) => change.blockersRemoved),
  };
}

async function writePart(
  tx: Tx,
  clusterId: string,
  generation: number,
  { part, nodeId, change }: PartChange,
): Promise<void> {
  const writes: Promise<number>[] = [];
  if (change.entriesRemoved.length > 0 && nodeId !== null) {
    writes.push(
      closeEntries(
        tx,
        clusterId,
        generation,
        nodeId,
        change.entriesRemoved.map((entry) => entry.handoffId),
      ),
    );
  }
  if (change.blockersRemoved.length > 0) writes.push(closeBlockers(tx, clusterId, generation, change.blockersRemoved));
  if (change.entriesAdded.length > 0) writes.push(insertEntries(tx, clusterId, generation, change.entriesAdded));
  if (change.blockersAdded.length > 0)
    writes.push(insertBlockers(tx, clusterId, part, generation, change.blockersAdded));
  await Promise.all(writes);
}
