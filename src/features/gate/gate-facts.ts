/** Loads what the gates rest on, from current rows: in an advance with the runtime locked, in `explain` in one read. */
import { sql } from 'kysely';
import type { IFleetCutoverCoreflowRelay } from '../../contract/coreflow.js';
import { localSnapshotId } from '../../contract/record-id.js';
import type { IFleetCutoverRuntime } from '../../contract/runtime.js';
import { compareText, type Reference } from '../../contract/schema.js';
import { bareDigest } from '../../contract/digest.js';
import { present } from '../../db/present.js';
import { qb } from '../../db/query.js';
import type { ReadTx } from '../../db/transaction.js';
import type { Cluster } from '../fleet/facts.js';
import { coverageFacts, type CoverageFacts } from '../held-fence/facts.js';
import { managerSnapshotReference } from '../inventory/facts.js';
import { runtimeRecord, type RuntimeHead } from '../phase/facts.js';
import { currentScope, targetSetReference } from '../scope/facts.js';
import { aggregateFacts, derivationReference, isBehind, readDerivationHead } from '../volume-handoff/facts.js';
import { clip } from '../volume-handoff/derive-node.js';
import type { EntryVolume } from '../volume-handoff/kept-volumes.js';
import type { GateFacts, RelayFacts, Seen, Shortage } from './gates.js';
import { newestRetirement, relayCredential } from './rows.js';

export interface LoadedGateFacts {
  readonly facts: GateFacts;
  /** The runtime's own record, with what closed its gate. */
  readonly runtime: IFleetCutoverRuntime;
  readonly derivation: Reference;
  readonly localSnapshotsDigest: Reference['digest'];
  readonly coverage: CoverageFacts & { readonly pageCount: number; readonly targetNodes: number };
}

interface NodeRow {
  readonly nodeId: string;
  readonly state: string;
  readonly targeted: boolean;
  /** It is, or was, a node of the swarm, or reported once. */
  readonly known: boolean;
  readonly generation: number;
  readonly digest: Reference['digest'] | null;
  readonly runtimeGeneration: number | null;
  readonly incomplete: string | null;
  readonly seenAt: number | null;
  readonly palletReady: boolean | null;
  readonly oldModeRefused: boolean | null;
  readonly activeContainers: number | null;
  readonly confirmedContainers: number | null;
  readonly unkeptVolumes: number | null;
  readonly vanishedVolumes: number | null;
  readonly detail: NodeDetail | null;
  /** False: who derived the node last did not look at its volumes, and what the counts say is older. Null: never derived. */
  readonly volumesJudged: boolean | null;
}

interface NodeDetail {
  readonly active: readonly ContainerDetail[];
  readonly confirmed: readonly ContainerDetail[];
  readonly relay: readonly (ContainerDetail & { containerId: string; imageDigest: Reference['digest'] | null })[];
  readonly unkept?: readonly EntryVolume[];
  readonly vanished?: readonly EntryVolume[];
}
interface ContainerDetail {
  readonly swarmServiceId: string | null;
  readonly name: string;
  readonly state: string;
}

/**
 * `nowMs` is the database's clock, for ages that people read. `named`: how many of what is missing are named at least,
 * where there may be many; the counts are whole all the same.
 */
export async function loadGateFacts(
  tx: ReadTx,
  cluster: Cluster,
  runtime: RuntimeHead,
  nowMs: number,
  named = 10,
): Promise<LoadedGateFacts> {
  const { clusterId, clusterLife } = cluster;
  const [current, nodes, manager, aggregate, derivationHead, blockers, missing, runtimeRevision] = await Promise.all([
    currentScope(tx, clusterId),
    nodeRows(tx, clusterId),
    managerRow(tx, clusterId),
    aggregateFacts(tx, clusterId, clusterLife),
    readDerivationHead(tx, clusterId),
    currentBlockers(tx, clusterId, named),
    missingHandoffs(tx, clusterId, named),
    runtimeRecord(tx, clusterId, runtime),
  ]);
  const { scope } = current;
  const applications = (scope?.services ?? [])
    .filter((service) => service.class === 'application')
    .map((each) => each.swarmServiceId);
  // Who is written off is asked for nothing more.
  const live = nodes.filter((node) => node.state !== 'written-off');
  const targets = live.filter((node) => node.targeted);
  const pageCount = aggregate.head.pageCount;
  const [coverage, services, tasks, behind, relay, surplus] = await Promise.all([
    coverageFacts(
      tx,
      clusterId,
      targets.map((node) => node.nodeId),
      { generation: aggregate.head.generation, pageCount },
      Math.floor(nowMs / 60_000),
      named,
    ),
    runningServices(tx, clusterId, applications),
    runningTasks(tx, clusterId, applications, named),
    isBehind(tx, clusterId, aggregate.head),
    relayFacts(tx, { cluster, nodes: live, scope, runtime: runtimeRevision, manager }),
    surplusHandoffs(tx, clusterId, named),
  ]);
  const observed = (node: NodeRow) => isObserved(node, runtime);
  const facts: GateFacts = {
    scope:
      scope === null
        ? null
        : {
            reference: { id: scope.id, generation: scope.generation, digest: scope.digest },
            complete: scope.state === 'complete',
            unclassified: listed(scope.unclassified, (id) => ({
              nodeId: null,
              swarmServiceId: id,
              detail: 'has no class',
            })),
          },
    targetSet: targetSetReference(clusterLife, current.targetSetHead),
    managerSnapshot:
      manager.digest === null
        ? null
        : {
            reference: managerSnapshotReference(clusterLife, {
              generation: manager.generation,
              digest: manager.digest,
            }),
            ageMs: age(nowMs, manager.seenAt),
            current: manager.runtimeGeneration === runtime.generation,
            incomplete: manager.incomplete,
          },
    unobservedTargets: listed(
      targets.filter((node) => !observed(node)),
      describeUnobserved,
    ),
    unobservedNodes: listed(
      // Only two administrators may excuse a node; one that never was in this swarm has nothing to say.
      live.filter((node) => !observed(node) && (node.state !== 'revoked' || node.known)),
      describeUnobserved,
    ),
    oldestSnapshots: oldestSnapshots(clusterLife, targets, nowMs),
    entriesOutsideTargets: only(blockers, (code) => code === 'node-not-targeted'),
    quarantined: listed(
      targets
        .filter((node) => node.state !== 'active')
        .concat(live.filter((node) => !node.targeted && node.state === 'quarantined')),
      (node) => ({ nodeId: node.nodeId, swarmServiceId: null, detail: `the node is ${node.state}` }),
    ),
    blockers: only(blockers, () => true),
    aggregate:
      aggregate.reference === null
        ? null
        : { reference: aggregate.reference, complete: aggregate.head.state === 'complete', behind },
    missingHandoffs: missing,
    surplusHandoffs: surplus,
    uncovered: {
      count: targets.length * pageCount - coverage.covered,
      first: coverage.first.map(({ nodeId, covered }) => ({
        nodeId,
        swarmServiceId: null,
        detail: `covered ${covered} of ${pageCount} pages`,
      })),
    },
    vanishedVolumes: volumes(live, 'vanished', (node) => node.vanishedVolumes, describeVanished),
    unkeptVolumes: volumes(live, 'unkept', (node) => node.unkeptVolumes, describeUnkept),
    unjudgedVolumes: listed(
      live.filter((node) => node.volumesJudged === false && node.state !== 'revoked'),
      describeUnjudged,
    ),
    unjudgedRevoked: listed(
      live.filter((node) => node.volumesJudged === false && node.state === 'revoked'),
      describeUnjudged,
    ),
    relay,
    runningServices: services,
    runningTasks: tasks,
    activeContainers: containers(live, 'active', (node) => node.activeContainers),
    confirmedContainers: containers(live, 'confirmed', (node) => node.confirmedContainers),
    palletNotReady: listed(
      targets.filter((node) => node.palletReady !== true),
      (node) => ({ nodeId: node.nodeId, swarmServiceId: null, detail: 'Pallet is not reported ready' }),
    ),
  };
  return {
    facts,
    runtime: runtimeRevision,
    derivation: derivationReference(clusterLife, present(derivationHead)),
    localSnapshotsDigest: snapshotsDigest(runtime.phase === 'switching' ? live : targets),
    coverage: { ...coverage, pageCount, targetNodes: targets.length },
  };
}

/** The gates of `pallet` rest on every node's snapshot, those before on the targets'. */
function snapshotsDigest(nodes: readonly NodeRow[]): Reference['digest'] {
  return bareDigest(nodes.map(({ nodeId, generation, digest }) => ({ nodeId, generation, digest })));
}

/** Whether the node's latest local snapshot is whole and was taken under the runtime being left. */
function isObserved(node: NodeRow, runtime: { readonly generation: number }): boolean {
  return node.runtimeGeneration === runtime.generation && node.incomplete === null;
}

type ShortageItem = Shortage['first'][number];

function listed<T>(items: readonly T[], describe: (item: T) => ShortageItem): Shortage {
  return { count: items.length, first: items.map(describe) };
}

function age(nowMs: number, seenAt: number | null): number | null {
  return seenAt === null ? null : Math.max(0, nowMs - seenAt);
}

function describeUnobserved(node: NodeRow): ShortageItem {
  const detail =
    node.digest === null
      ? 'has no accepted local snapshot'
      : node.incomplete !== null
        ? `its latest local snapshot is incomplete: ${node.incomplete}`
        : 'has no local snapshot that was taken under the runtime being left';
  return { nodeId: node.nodeId, swarmServiceId: null, detail };
}

function oldestSnapshots(clusterLife: string, nodes: readonly NodeRow[], nowMs: number): Seen[] {
  return nodes
    .flatMap((node) => (node.digest === null ? [] : [{ ...node, digest: node.digest }]))
    .sort((left, right) => (left.seenAt ?? 0) - (right.seenAt ?? 0) || compareText(left.nodeId, right.nodeId))
    .slice(0, 10)
    .map((node) => ({
      reference: { id: localSnapshotId(clusterLife, node.nodeId), generation: node.generation, digest: node.digest },
      ageMs: age(nowMs, node.seenAt),
    }));
}

function containers(
  nodes: readonly NodeRow[],
  list: 'active' | 'confirmed',
  count: (node: NodeRow) => number | null,
): Shortage {
  return {
    count: nodes.reduce((sum, node) => sum + (count(node) ?? 0), 0),
    first: nodes.flatMap((node) =>
      (node.detail?.[list] ?? []).map((each) => ({
        nodeId: node.nodeId,
        swarmServiceId: each.swarmServiceId,
        detail: `container ${each.name} is ${each.state}`,
      })),
    ),
  };
}

function volumes(
  nodes: readonly NodeRow[],
  list: 'unkept' | 'vanished',
  count: (node: NodeRow) => number | null,
  describe: (volume: EntryVolume) => string,
): Shortage {
  const judged = nodes.filter((node) => node.volumesJudged === true);
  return {
    count: judged.reduce((sum, node) => sum + (count(node) ?? 0), 0),
    first: judged.flatMap(({ nodeId, detail }) =>
      (detail?.[list] ?? []).map((volume) => ({
        nodeId,
        swarmServiceId: volume.swarmServiceId,
        detail: describe(volume),
      })),
    ),
  };
}

function describeUnjudged({ nodeId, state }: NodeRow): ShortageItem {
  const detail =
    state === 'revoked'
      ? 'its volumes were not judged yet, and it is revoked: classify the scope again before switching, or write the node off'
      : 'its volumes were not judged yet: its next report judges them';
  return { nodeId, swarmServiceId: null, detail };
}

function describeVanished({ volumeName, mountPath }: EntryVolume): string {
  return clip(
    `volume ${volumeName} at ${mountPath} is not on the node any more: write it off, or before switching release the entry`,
  );
}

function describeUnkept({ volumeName, mountPath }: EntryVolume): string {
  return clip(
    `anonymous volume ${volumeName} at ${mountPath} goes with its service: create a container outside Swarm that mounts it, ` +
      'or copy it to a named volume and release the entry',
  );
}

function nodeRows(tx: ReadTx, clusterId: string): Promise<NodeRow[]> {
  return tx.rows(
    sql<NodeRow>`
      select node.node_id as "nodeId", node.state, target.node_id is not null as targeted,
        node.swarm_node_id is not null or node.local_digest is not null as known, node.local_generation as generation,
        node.local_digest as digest, node.local_runtime_generation as "runtimeGeneration", node.local_incomplete as incomplete,
        node.local_seen_at as "seenAt", gate.pallet_ready as "palletReady", gate.old_mode_refused as "oldModeRefused",
        gate.active_containers as "activeContainers", gate.confirmed_containers as "confirmedContainers",
        gate.unkept_volumes as "unkeptVolumes", gate.vanished_volumes as "vanishedVolumes", gate.detail,
        -- A program of before volumes were judged replaces the detail and leaves the counts as they were.
        case when gate.node_id is not null then gate.unkept_volumes is not null and gate.vanished_volumes is not null
          and gate.detail ?& array['unkept', 'vanished'] end as "volumesJudged"
      from control.nodes node
      join control.target_set_heads targets on targets.cluster_id = node.cluster_id
      left join control.target_set_nodes target
        on target.cluster_id = node.cluster_id and target.generation = targets.generation and target.node_id = node.node_id
      left join control.node_gate_facts gate on gate.cluster_id = node.cluster_id and gate.node_id = node.node_id
      where node.cluster_id = ${clusterId} order by node.node_id`.compile(qb),
  );
}

interface ManagerRow {
  readonly generation: number;
  readonly digest: Reference['digest'] | null;
  readonly incomplete: string | null;
  readonly runtimeGeneration: number | null;
  readonly seenAt: number | null;
}

function managerRow(tx: ReadTx, clusterId: string): Promise<ManagerRow> {
  return tx.one(
    sql<ManagerRow>`
      select generation, digest, incomplete, runtime_generation as "runtimeGeneration", seen_at as "seenAt"
      from control.manager_snapshot_heads where cluster_id = ${clusterId}`.compile(qb),
  );
}

interface BlockerRow extends ShortageItem {
  readonly code: string;
  readonly total: number;
}

/** The first of each code, with the code's count. */
function currentBlockers(tx: ReadTx, clusterId: string, named: number): Promise<BlockerRow[]> {
  return tx.rows(
    sql<BlockerRow>`
      select code, total, "nodeId", "swarmServiceId", detail from (
        select code, count(*) over (partition by code) as total, node_id as "nodeId",
          record::jsonb ->> 'swarmServiceId' as "swarmServiceId", code || ': ' || (record::jsonb ->> 'detail') as detail,
          row_number() over (partition by code order by part, blocker_id) as place
        from control.blockers where cluster_id = ${clusterId} and until is null
      ) numbered where place <= ${named} order by code collate "C", place`.compile(qb),
  );
}

function only(blockers: readonly BlockerRow[], wanted: (code: string) => boolean): Shortage {
  const found = blockers.filter((each) => wanted(each.code));
  const totals = new Map(found.map((each) => [each.code, each.total]));
  return {
    count: [...totals.values()].reduce((sum, total) => sum + total, 0),
    first: found.map(({ nodeId, swarmServiceId, detail }) => ({ nodeId, swarmServiceId, detail })),
  };
}

async function missingHandoffs(tx: ReadTx, clusterId: string, named: number): Promise<Shortage> {
  const rows = await tx.rows(
    sql<ShortageItem & { total: number }>`
      select count(*) over () as total, entry.node_id as "nodeId", entry.swarm_service_id as "swarmServiceId",
        'the volume at ' || entry.mount_path || ' is not prepared' as detail
      from control.required_entries entry
      left join control.handoff_heads head on head.cluster_id = entry.cluster_id and head.node_id = entry.node_id
        and head.handoff_id = entry.handoff_id and not head.removed
      where entry.cluster_id = ${clusterId} and entry.until is null and head.handoff_id is null
      order by entry.node_id, entry.handoff_id limit ${named}`.compile(qb),
  );
  return {
    count: rows[0]?.total ?? 0,
    first: rows.map(({ nodeId, swarmServiceId, detail }) => ({ nodeId, swarmServiceId, detail })),
  };
}

async function surplusHandoffs(tx: ReadTx, clusterId: string, named: number): Promise<Shortage> {
  const rows = await tx.rows(
    sql<{ nodeId: string; id: string; total: number }>`
      select count(*) over () as total, head.node_id as "nodeId", head.handoff_id as id from control.handoff_heads head
      where head.cluster_id = ${clusterId} and not head.removed and not exists (
        select from control.required_entries entry where entry.cluster_id = head.cluster_id
          and entry.node_id = head.node_id and entry.handoff_id = head.handoff_id and entry.until is null)
      order by head.node_id, head.handoff_id limit ${named}`.compile(qb),
  );
  return {
    count: rows[0]?.total ?? 0,
    first: rows.map((row) => ({
      nodeId: row.nodeId,
      swarmServiceId: null,
      detail: `handoff ${row.id} is prepared although it is not required any more`,
    })),
  };
}

async function runningServices(tx: ReadTx, clusterId: string, applications: readonly string[]): Promise<Shortage> {
  const rows = await tx.rows(
    sql<{ id: string; name: string; mode: string; replicas: number | null }>`
      select swarm_service_id as id, name, mode, replicas from control.observed_services
      where cluster_id = ${clusterId} and swarm_service_id = any(${[...applications]}::text[]) and replicas is distinct from 0
      order by swarm_service_id`.compile(qb),
  );
  return listed(rows, (row) => ({
    nodeId: null,
    swarmServiceId: row.id,
    detail: `service ${row.name} is ${row.mode}${row.replicas === null ? '' : ` with ${row.replicas} replicas`}, neither gone nor at zero`,
  }));
}

/** Tasks of nodes that are written off run nowhere, whatever Swarm says for months. */
async function runningTasks(
  tx: ReadTx,
  clusterId: string,
  applications: readonly string[],
  named: number,
): Promise<Shortage> {
  const rows = await tx.rows(
    sql<{ nodeId: string | null; swarmServiceId: string; state: string; total: number }>`
      select count(*) over () as total, node.node_id as "nodeId", task.swarm_service_id as "swarmServiceId", task.state
      from control.observed_tasks task
      left join control.node_swarm_ids known on known.cluster_id = task.cluster_id and known.swarm_node_id = task.swarm_node_id
      left join control.nodes node on node.cluster_id = known.cluster_id and node.node_id = known.node_id
      left join control.task_verdicts verdict
        on verdict.cluster_id = task.cluster_id and verdict.swarm_task_id = task.swarm_task_id
      where task.cluster_id = ${clusterId} and task.swarm_service_id = any(${[...applications]}::text[])
        and task.state in ('new', 'pending', 'assigned', 'accepted', 'preparing', 'ready', 'starting', 'running')
        and node.state is distinct from 'written-off' and verdict.verdict is distinct from 'stopped'
      order by task.swarm_task_id limit ${named}`.compile(qb),
  );
  return {
    count: rows[0]?.total ?? 0,
    first: rows.map((row) => ({
      nodeId: row.nodeId,
      swarmServiceId: row.swarmServiceId,
      detail: `a task is ${row.state}`,
    })),
  };
}

interface RelayInput {
  readonly cluster: Cluster;
  readonly nodes: readonly NodeRow[];
  readonly scope: Awaited<ReturnType<typeof currentScope>>['scope'];
  readonly runtime: IFleetCutoverRuntime;
  readonly manager: ManagerRow;
}

async function relayFacts(tx: ReadTx, { cluster, nodes, scope, runtime, manager }: RelayInput): Promise<RelayFacts> {
  const { clusterId } = cluster;
  if (scope === null || scope.coreflow.state === 'undetermined') return { kind: 'undetermined' };
  const classified = scope.services.find((service) => service.class === 'coreflow');
  const labelled = await labelledRelays(tx, clusterId, classified?.swarmServiceId ?? null);
  if (classified === undefined) return { kind: 'none', labelled };
  const { swarmServiceId } = classified;
  const [service, credential, taskContainers, retired] = await Promise.all([
    tx.maybe(
      sql<{ specVersion: number; specDigest: Reference['digest'] }>`
        select spec_version as "specVersion", spec_digest as "specDigest" from control.observed_services
        where cluster_id = ${clusterId} and swarm_service_id = ${swarmServiceId}`.compile(qb),
    ),
    relayCredential(tx, clusterId),
    liveTaskContainers(tx, clusterId, swarmServiceId),
    newestRetirement(tx, clusterId),
  ]);
  const found = nodes.flatMap((node) => (node.detail?.relay ?? []).map((container) => ({ node, container })));
  const running = found.filter(({ container }) => container.state === 'running');
  const [only] = running;
  const isLive =
    only !== undefined &&
    running.length === 1 &&
    isObserved(only.node, runtime) &&
    taskContainers.has(only.container.containerId);
  const bound = runtime.gate?.coreflowRelay ?? retired?.relay ?? null;
  return {
    kind: 'classified',
    swarmServiceId,
    labelled,
    service: service ?? null,
    containers: listed(found, ({ node, container }) => ({
      nodeId: node.nodeId,
      swarmServiceId,
      detail: `container ${container.name} of the relay is ${container.state}`,
    })),
    live: isLive && service !== undefined ? relayOf(cluster, { swarmServiceId, ...service }, only, manager) : null,
    bound,
    // The retirement binds what the relay's node says, be it a target or not.
    oldModeAccepted: listed(
      nodes.filter((node) => (node.targeted || node.nodeId === bound?.nodeId) && node.oldModeRefused !== true),
      (node) => ({ nodeId: node.nodeId, swarmServiceId: null, detail: 'Spark does not refuse the old mode' }),
    ),
    credential: credential ?? null,
  };
}

interface RelayContainer {
  readonly node: NodeRow;
  readonly container: NodeDetail['relay'][number];
}

function relayOf(
  { clusterLife }: Cluster,
  service: Pick<IFleetCutoverCoreflowRelay, 'swarmServiceId' | 'specVersion' | 'specDigest'>,
  { node, container }: RelayContainer,
  manager: ManagerRow,
): IFleetCutoverCoreflowRelay | null {
  if (manager.digest === null || node.digest === null) return null;
  return {
    ...service,
    nodeId: node.nodeId,
    containerId: container.containerId,
    imageDigest: container.imageDigest,
    managerSnapshot: managerSnapshotReference(clusterLife, { generation: manager.generation, digest: manager.digest }),
    localSnapshot: { id: localSnapshotId(clusterLife, node.nodeId), generation: node.generation, digest: node.digest },
  };
}

/** Services that call themselves Coreflow by their label, the classified one left out. */
async function labelledRelays(tx: ReadTx, clusterId: string, classified: string | null): Promise<Shortage> {
  const rows = await tx.rows(
    sql<{ id: string; name: string }>`
      select swarm_service_id as id, name from control.observed_services
      where cluster_id = ${clusterId} and role = 'coreflow' and swarm_service_id is distinct from ${classified}::text
      order by swarm_service_id`.compile(qb),
  );
  return listed(rows, (row) => ({
    nodeId: null,
    swarmServiceId: row.id,
    detail: `service ${row.name} is labelled coreflow although the scope does not say that it is`,
  }));
}

/** Containers that the manager's non-terminal tasks of a service have. */
async function liveTaskContainers(tx: ReadTx, clusterId: string, swarmServiceId: string): Promise<Set<string>> {
  const rows = await tx.rows(
    sql<{ id: string }>`
      select container.container_id as id from control.observed_tasks task
      join control.observed_task_containers container
        on container.cluster_id = task.cluster_id and container.swarm_task_id = task.swarm_task_id
      where task.cluster_id = ${clusterId} and task.swarm_service_id = ${swarmServiceId}
        and task.state in ('new', 'pending', 'assigned', 'accepted', 'preparing', 'ready', 'starting', 'running')`.compile(
      qb,
    ),
  );
  return new Set(rows.map((row) => row.id));
}
