/**
 * Required entries, blockers and verdicts as they are now, against a fresh derivation of every node and of the cluster from
 * the latest accepted snapshots; then the derivation's revisions against the rows that came and went with each.
 */
import { sql } from 'kysely';
import { maximumPreparedVolumeHandoffs } from '../../contract/limits.js';
import type { IFleetCutoverCompleteLocalNodeSnapshot } from '../../contract/observation.js';
import { qb } from '../../db/query.js';
import { deriveCluster } from '../volume-handoff/derive-cluster.js';
import { deriveNode, type NodeTask, type RequiredEntry } from '../volume-handoff/derive-node.js';
import { factsOfNode, withinRoom } from '../volume-handoff/steps.js';
import { writtenOffOfNode } from '../write-off/facts.js';
import type { DerivationEvidence, NodeEvidence } from './derivation-evidence.js';
import { DerivationLedger } from './derivation-ledger.js';
import { compareDerived, compareGateFacts, compareVerdicts, currentBlockers, currentEntries } from './derived-rows.js';
import type { HandoffSet } from './handoff-set.js';
import { swarmNodesOf } from './node-memberships.js';
import { compareObservedContainers } from './observed-rows.js';
import { pagesOf, type Verification, type VerifiedCluster } from './verification.js';

export interface ComparedDerivation {
  readonly ledger: DerivationLedger;
  /** How many of the required entries are prepared. */
  readonly matchedCount: number;
}

/**
 * `evidence` undefined: a row that every derivation depends on is broken, so that only the nodes' rows are counted.
 * `withoutWriteOff`: nodes of which it isn't known what is written off; theirs are counted, too.
 */
export async function compareDerivation(
  verification: Verification,
  cluster: VerifiedCluster,
  evidence: DerivationEvidence | undefined,
  set: HandoffSet,
  withoutWriteOff: ReadonlySet<string>,
): Promise<ComparedDerivation> {
  const { tx, findings, skipped } = verification;
  const { clusterId } = cluster;
  const ledger = new DerivationLedger(verification, clusterId);
  const bound = new Set<string>();
  let matchedCount = 0;
  const nodes = pagesOf<NodeEvidence & { record: string | null }>((last) =>
    tx.rows(
      sql<NodeEvidence & { record: string | null }>`
        select node.node_id as "nodeId", node.swarm_node_id as "swarmNodeId", node.local_incomplete as incomplete,
          node.local_generation as generation, snapshot.record
        from control.nodes node left join control.local_snapshots snapshot
          on snapshot.cluster_id = node.cluster_id and snapshot.node_id = node.node_id and snapshot.generation = node.local_generation
        where node.cluster_id = ${clusterId} and node.node_id > ${last?.nodeId ?? ''}
        order by node.node_id limit 1`.compile(qb),
    ),
  );
  for await (const [node] of nodes) {
    if (node === undefined) break;
    const { nodeId, generation, record } = node;
    const swarmNodes = await swarmNodesOf(verification, clusterId, nodeId);
    for (const each of swarmNodes) bound.add(each);
    const broken =
      findings.has('local_snapshots', { cluster_id: clusterId, node_id: nodeId, generation }) ||
      findings.has('nodes', { cluster_id: clusterId, node_id: nodeId });
    if (broken) skipped.push(`derivation of node ${nodeId}: its latest snapshot is broken`);
    const snapshot = broken || record === null ? null : (JSON.parse(record) as IFleetCutoverCompleteLocalNodeSnapshot);
    if (!broken) await compareObservedContainers(verification, clusterId, nodeId, snapshot);
    if (withoutWriteOff.has(nodeId)) skipped.push(`derivation of node ${nodeId}: a write-off of it is broken`);
    const entries =
      broken || evidence === undefined || withoutWriteOff.has(nodeId)
        ? await currentEntries(verification, clusterId, nodeId)
        : await compareNode(verification, cluster, { ...node, snapshot, swarmNodes }, { ...evidence, set }, ledger);
    for (const entry of entries) if (set.get(entry.nodeId, entry.handoffId) !== undefined) matchedCount += 1;
    verification.advance(1);
  }
  if (evidence !== undefined) await compareCluster(verification, clusterId, evidence, bound, ledger);
  return { ledger, matchedCount };
}

/** Gives the node's required entries as they should be. */
async function compareNode(
  verification: Verification,
  { clusterId, clusterLife }: VerifiedCluster,
  node: NodeEvidence & { readonly swarmNodes: readonly string[] },
  evidence: DerivationEvidence & { readonly set: HandoffSet },
  ledger: DerivationLedger,
): Promise<readonly RequiredEntry[]> {
  const { nodeId, swarmNodeId, incomplete, snapshot } = node;
  const stored = await currentEntries(verification, clusterId, nodeId);
  const blockers = await currentBlockers(verification, clusterId, nodeId);
  const previous = stored.map(({ since: _since, ...entry }): RequiredEntry => entry);
  const lost = await writtenOffOfNode(verification.tx, clusterId, nodeId);
  const known = {
    clusterLife,
    nodeId,
    snapshot,
    incomplete,
    tasks: node.swarmNodes.flatMap((id): NodeTask[] =>
      (evidence.tasks.get(id) ?? []).map((task) => ({ ...task, former: id !== swarmNodeId })),
    ),
    swarmState: swarmNodeId === null ? null : (evidence.swarmStates.get(swarmNodeId) ?? null),
    scope: evidence.scope,
    specMounts: evidence.specMounts,
    targeted: evidence.targets.has(nodeId),
    previous,
  };
  const derived = deriveNode(
    await factsOfNode(known, lost, (ids) => everPrepared(verification, clusterId, nodeId, evidence.set, ids)),
  );
  // What did not fit when it was derived does not fit now: with no room, exactly the known entries are kept.
  const full = blockers.some((blocker) => (JSON.parse(blocker.record) as { code: string }).code === 'entry-limit');
  const room = full ? 0 : maximumPreparedVolumeHandoffs;
  const bounded = withinRoom(nodeId, previous, derived.entries, derived.blockers, room);
  ledger.add(compareDerived(verification, clusterId, bounded, { entries: stored, blockers }));
  await compareVerdicts(verification, clusterId, nodeId, derived.verdicts);
  await compareGateFacts(verification, clusterId, nodeId, derived.gate, snapshot !== null);
  return bounded.entries;
}

/**
 * Removing a handoff derives nothing again, so that an entry which stays only because it is prepared is there until the node's
 * next derivation: what is required now and was prepared once may rightly be so.
 */
async function everPrepared(
  { tx }: Verification,
  clusterId: string,
  nodeId: string,
  set: HandoffSet,
  handoffIds: readonly string[],
): Promise<ReadonlySet<string>> {
  const unprepared = handoffIds.filter((id) => set.get(nodeId, id) === undefined);
  const prepared = new Set(handoffIds.filter((id) => set.get(nodeId, id) !== undefined));
  if (unprepared.length === 0) return prepared;
  const removed = await tx.rows(
    sql<{ id: string }>`
      select handoff_id as id from control.handoff_heads
      where cluster_id = ${clusterId} and node_id = ${nodeId} and removed and handoff_id = any(${unprepared}::text[])`.compile(
      qb,
    ),
  );
  for (const { id } of removed) prepared.add(id);
  return prepared;
}

async function compareCluster(
  verification: Verification,
  clusterId: string,
  evidence: DerivationEvidence,
  bound: ReadonlySet<string>,
  ledger: DerivationLedger,
): Promise<void> {
  const { scope, services, managerIncomplete } = evidence;
  const tasks = [...evidence.tasks].flatMap(([swarmNodeId, list]) => {
    if (swarmNodeId !== null && bound.has(swarmNodeId)) return [];
    const swarmState = swarmNodeId === null ? null : (evidence.swarmStates.get(swarmNodeId) ?? null);
    return list.map((task) => ({ ...task, swarmState }));
  });
  const derived = deriveCluster({ scope, services, managerIncomplete, tasks });
  const blockers = await currentBlockers(verification, clusterId, '');
  ledger.add(
    compareDerived(verification, clusterId, { entries: [], blockers: derived.blockers }, { entries: [], blockers }),
  );
  await compareVerdicts(verification, clusterId, null, derived.verdicts);
}
