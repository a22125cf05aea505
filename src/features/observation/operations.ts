/** Taking one report of a node. */
import { canonicalizeStrictJson } from '../../contract/canonical-json.js';
import { bareDigestOfCanonical } from '../../contract/digest.js';
import type {
  IFleetCutoverLocalNodeSnapshot,
  IFleetCutoverManagerSnapshot,
  ISparkSwarmObservationAcceptedReceipt,
  TSparkSwarmObservation,
} from '../../contract/observation.js';
import { refuse, type Refused } from '../../contract/problems.js';
import type { IProtocolOffer } from '../../contract/protocol.js';
import type { Reference } from '../../contract/schema.js';
import { present } from '../../db/present.js';
import { inTransaction, type Tx } from '../../db/transaction.js';
import type { Deps } from '../../deps.js';
import type { NodeActor } from '../auth/actor.js';
import { type Cluster, clusterOfNode } from '../fleet/facts.js';
import {
  lockReportingNode,
  noteReportedSwarmNode,
  quarantineNode,
  rememberSwarmNode,
  type ReportingNode,
  swarmNodeHolder,
  takeFromRevoked,
  writeNodeReport,
} from '../fleet/report-rows.js';
import { decideReport, type ReportDecision } from '../inventory/report.js';
import { findReporterSession, writeReporterSession } from '../inventory/rows.js';
import {
  type LocalOutcome,
  type ManagerOutcome,
  type ReportedSnapshot,
  type ReportScope,
  takeLocalSnapshot,
  takeManagerSnapshot,
} from '../inventory/steps.js';
import { type HeldFenceOutcome, noHeldFences, takeHeldFences, voidHeldPages } from '../held-fence/steps.js';
import { readRuntime, runtimeReference, shareRuntime } from '../phase/facts.js';
import { deriveAgain } from '../volume-handoff/steps.js';

export interface Report {
  readonly observation: TSparkSwarmObservation;
  readonly protocol: IProtocolOffer;
}

/** A refusal whose traces (quarantine, a claimed id) are committed with it. */
interface RefusedWithTrace {
  readonly kind: 'refused-with-trace';
  readonly refusal: Refused;
}

/** The receipt's canonical JSON: an exact repeat gets the very same text. */
export async function observe(deps: Deps, actor: NodeActor, report: Report): Promise<string | Refused> {
  const { observation } = report;
  const snapshots = snapshotsOf(observation);
  const requestDigest = digestOf(observation, snapshots);
  const outcome = await inTransaction(deps, 'observe', async (tx): Promise<string | Refused | RefusedWithTrace> => {
    const member = observation.state === 'member' ? observation.localSwarmNodeId : null;
    const [node, session, cluster, holder] = await Promise.all([
      lockReportingNode(tx, actor.clusterId, actor.nodeId),
      findReporterSession(tx, actor.clusterId, actor.nodeId, observation.reporterSessionId),
      clusterOfNode(tx, actor),
      member === null ? undefined : swarmNodeHolder(tx, actor.clusterId, member),
    ]);
    const decision = decideReport(node, session, holder, observation, requestDigest);
    if (decision.kind === 'repeat') return decision.receipt;
    if (decision.kind !== 'accept') return leaveTrace(tx, actor, decision);
    const foreign = refuseForeignSwarm(cluster, observation);
    if (foreign !== null) return foreign;
    const { opensSession } = decision;
    return acceptReport(tx, { deps, actor, cluster, node, report, snapshots, requestDigest, opensSession });
  });
  return typeof outcome === 'string' || outcome.kind === 'refused' ? outcome : outcome.refusal;
}

interface ReportedSnapshots {
  readonly local: ReportedSnapshot<IFleetCutoverLocalNodeSnapshot> | undefined;
  readonly manager: ReportedSnapshot<IFleetCutoverManagerSnapshot> | undefined;
}

function snapshotsOf(observation: TSparkSwarmObservation): ReportedSnapshots {
  const local = observation.state === 'unknown' ? undefined : observation.fleetCutoverLocalNodeSnapshot;
  const manager = observation.state === 'member' ? observation.fleetCutoverManagerSnapshot : undefined;
  return { local: withCanonical(local), manager: withCanonical(manager) };
}

function withCanonical<T>(content: T | undefined): ReportedSnapshot<T> | undefined {
  return content === undefined ? undefined : { content, canonical: canonicalizeStrictJson(content) };
}

/** The bare digest of the whole observation. */
function digestOf(observation: TSparkSwarmObservation, { local, manager }: ReportedSnapshots): string {
  const knownMembers = new Map<string, string>();
  if (local !== undefined) knownMembers.set('fleetCutoverLocalNodeSnapshot', local.canonical);
  if (manager !== undefined) knownMembers.set('fleetCutoverManagerSnapshot', manager.canonical);
  return bareDigestOfCanonical(canonicalizeStrictJson(observation, { knownMembers }));
}

async function leaveTrace(
  tx: Tx,
  actor: NodeActor,
  decision: Exclude<ReportDecision, { kind: 'repeat' | 'accept' }>,
): Promise<Refused | RefusedWithTrace> {
  switch (decision.kind) {
    case 'refused':
      return decision;
    case 'quarantine':
      // A quarantine falsifies gates: an advance under way waits, or is waited for.
      await shareRuntime(tx, actor.clusterId);
      await quarantineNode(tx, actor.clusterId, actor.nodeId, decision.reason);
      return { kind: 'refused-with-trace', refusal: decision.refusal };
    case 'claim':
      await noteReportedSwarmNode(tx, actor.clusterId, actor.nodeId, decision.swarmNodeId);
      return { kind: 'refused-with-trace', refusal: decision.refusal };
    default: {
      const unexpected: never = decision;
      throw new TypeError(`unexpected decision ${JSON.stringify(unexpected)}`);
    }
  }
}

/** Another swarm's census says nothing about this cluster. */
function refuseForeignSwarm(cluster: Cluster, observation: TSparkSwarmObservation): Refused | null {
  if (observation.state !== 'member' || cluster.swarmId === null) return null;
  const snapshot = observation.fleetCutoverManagerSnapshot;
  if (snapshot === undefined || !snapshot.complete || snapshot.swarmId === cluster.swarmId) return null;
  return refuse('swarm-mismatch', { detail: `bound to ${cluster.swarmId}, reported ${snapshot.swarmId}` });
}

interface Acceptance {
  readonly deps: Deps;
  readonly actor: NodeActor;
  readonly cluster: Cluster;
  readonly node: ReportingNode;
  readonly report: Report;
  readonly snapshots: ReportedSnapshots;
  readonly requestDigest: string;
  /** A new reporter session has proved no hold yet, whether it replaces one or follows a released quarantine. */
  readonly opensSession: boolean;
}

async function acceptReport(tx: Tx, acceptance: Acceptance): Promise<string> {
  const { actor, cluster, node, report, snapshots, requestDigest } = acceptance;
  const { observation } = report;
  const falsifies =
    snapshots.local !== undefined || snapshots.manager !== undefined || acceptance.opensSession || !node.volumesJudged;
  const runtime = present(await (falsifies ? shareRuntime : readRuntime)(tx, cluster.clusterId));
  const scope: ReportScope = {
    clusterId: cluster.clusterId,
    clusterLife: cluster.clusterLife,
    nodeId: actor.nodeId,
    receivedAt: acceptance.deps.clock.now().getTime(),
    runtime: runtimeReference(cluster.clusterLife, runtime),
  };
  const local = await takeLocalSnapshot(tx, scope, node, snapshots.local);
  const manager = await takeManagerSnapshot(tx, scope, snapshots.manager);
  const swarmNodeId = observation.state === 'member' ? observation.localSwarmNodeId : node.swarmNodeId;
  const fenceStoreId = local.snapshot === null ? node.fenceStoreId : (local.snapshot.pallet?.fenceStoreId ?? null);
  const bound = swarmNodeId !== node.swarmNodeId;
  const former = bound && swarmNodeId !== null ? await takeFromRevoked(tx, cluster.clusterId, swarmNodeId) : [];
  await writeNodeReport(tx, cluster.clusterId, actor.nodeId, {
    reporterSessionId: observation.reporterSessionId,
    observationSequence: observation.observationSequence,
    reportedState: observation.state,
    receivedAt: scope.receivedAt,
    swarmNodeId,
    localGeneration: local.generation,
    localDigest: local.digest,
    localSeen: local.seen,
    localIncomplete: local.incomplete,
    localRuntimeGeneration: local.runtimeGeneration,
    fenceStoreId,
  });
  if (bound && swarmNodeId !== null) {
    await rememberSwarmNode(tx, cluster.clusterId, actor.nodeId, swarmNodeId);
  }
  // Neither a new reporter nor another fence store has proved a hold yet.
  const otherStore = node.fenceStoreId !== null && fenceStoreId !== node.fenceStoreId;
  if (acceptance.opensSession || otherStore) await voidHeldPages(tx, cluster.clusterId, actor.nodeId);
  await deriveChanged(tx, cluster, actor.nodeId, {
    local,
    manager,
    bound,
    former,
    unjudged: !node.volumesJudged,
  });
  const evidence = observation.fleetCutoverHeldVolumeFences;
  const fences =
    evidence === undefined
      ? noHeldFences
      : await takeHeldFences(tx, { ...scope, phase: runtime.phase, fenceStoreId }, evidence);
  const receipt = canonicalizeStrictJson(receiptOf(acceptance, scope.runtime, { local, manager, fences }));
  await writeReporterSession(tx, cluster.clusterId, actor.nodeId, observation.reporterSessionId, {
    observationSequence: observation.observationSequence,
    requestDigest,
    receipt,
  });
  return receipt;
}

interface Changed {
  readonly local: LocalOutcome;
  readonly manager: ManagerOutcome;
  /** The node was bound to its swarm node by this report. */
  readonly bound: boolean;
  /** Revoked nodes that were that swarm node before. */
  readonly former: readonly string[];
  /** An older program derived the node, which the gates don't take. */
  readonly unjudged: boolean;
}

/** Derives again only what the report can have changed, and a node that an older program derived. */
async function deriveChanged(
  tx: Tx,
  cluster: Cluster,
  nodeId: string,
  { local, manager, bound, former, unjudged }: Changed,
): Promise<void> {
  if (!local.changed && !manager.changed && !bound && !unjudged) return;
  const here = local.changed || bound || unjudged ? [nodeId, ...former] : [];
  await deriveAgain(tx, cluster, {
    nodes: new Set(here),
    ...(manager.change === null
      ? {}
      : { swarmNodes: manager.change.swarmNodeIds, specServices: manager.change.swarmServiceIds }),
    cluster: manager.changed || bound,
    always: false,
    ...(local.snapshot === null ? {} : { snapshots: new Map([[nodeId, local.snapshot]]) }),
  });
}

interface Outcomes {
  readonly local: LocalOutcome;
  readonly manager: ManagerOutcome;
  readonly fences: HeldFenceOutcome;
}

function receiptOf(
  { actor, report }: Acceptance,
  runtime: Reference,
  { local, manager, fences }: Outcomes,
): ISparkSwarmObservationAcceptedReceipt {
  const { observation } = report;
  return {
    state: 'accepted',
    nodeId: actor.nodeId,
    reporterSessionId: observation.reporterSessionId,
    observationSequence: observation.observationSequence,
    runtime,
    localSnapshot: { state: local.state, reference: local.reference },
    managerSnapshot: { state: manager.state, reference: manager.reference },
    heldVolumeFences: fences,
    protocol: report.protocol,
  };
}
