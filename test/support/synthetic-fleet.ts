/** A fleet of any size up to the contract's, made as a real one is: registered, observed over HTTP, classified, targeted. */
import { newMutationId } from '../../src/client/mutation-id.js';
import { fleetCutoverContract, sparkSwarmNodeContracts } from '../../src/contract/limits.js';
import type { IHandoffUpsert } from '../../src/contract/cutover-methods.js';
import { comparePageOrder } from '../../src/contract/handoff.js';
import { bytesDigest } from '../../src/contract/digest.js';
import { observedMountOf } from '../../src/contract/mount.js';
import type {
  IFleetCutoverCompleteLocalNodeSnapshot,
  IFleetCutoverCompleteManagerSnapshot,
  IFleetCutoverLocalNodeSnapshot,
  IFleetCutoverManagerSnapshot,
  IObservedContainer,
  IObservedContainerMount,
  ISparkSwarmObservationAcceptedReceipt,
} from '../../src/contract/observation.js';
import type { IProblemDocument } from '../../src/contract/problems.js';
import { supportedProtocol } from '../../src/contract/protocol.js';
import { handoffId } from '../../src/contract/record-id.js';
import { type Reference, referenceOf } from '../../src/contract/schema.js';
import type { IFleetCutoverScopeStatement } from '../../src/contract/scope.js';
// A type alone: programs without vitest make fleets too.
import type { TestService } from './service.js';

const mountsPerContainer = fleetCutoverContract.maximumMountsPerOwner;

/** One named volume of a node, mounted read-write by one of the fleet's services. */
export interface SyntheticVolume {
  /** Index of the service in `SyntheticFleet.services`. */
  readonly service: number;
  readonly name: string;
  readonly mountPath: string;
}

/** What Docker has on a node. Every service has at least one container there. */
export interface SyntheticNodeContent {
  readonly volumes: readonly SyntheticVolume[];
  /** Containers beside those of the volumes. */
  readonly otherContainers?: readonly IObservedContainer[];
  /** Names of local volumes that no container mounts. */
  readonly looseVolumes?: readonly string[];
}

export interface SyntheticFleetOptions {
  readonly nodes: number;
  /** Of every node, or of each one. 64 nodes × 2,048 are the contract's 131,072. */
  readonly volumesPerNode: number | readonly number[];
  /** `application` services, each with tasks on every node. By default one for 32 volumes, at most 64. */
  readonly services?: number;
  readonly clusterId?: string;
  /** Reports under way at once; the service takes two large ones at a time. */
  readonly concurrency?: number;
  /** Bearer of another organization's administrator. */
  readonly token?: string;
}

/** A required key in the shape that a mutation takes, with the id that its handoff has or will have. */
export interface SyntheticKey {
  readonly id: string;
  readonly nodeId: string;
  readonly serviceId: string;
  readonly mountIdentityDigest: Reference['digest'];
  readonly mountPath: string;
}

export interface SyntheticNode {
  readonly nodeId: string;
  readonly swarmNodeId: string;
  readonly token: string;
  readonly reporterSessionId: string;
  /** What it reported last. */
  content: SyntheticNodeContent;
  sequence: number;
}

export interface SparkAnswer<T> {
  readonly status: number;
  readonly text: string;
  readonly body: T & IProblemDocument;
}

export interface SyntheticFleet {
  readonly clusterId: string;
  readonly clusterLife: string;
  readonly runtime: Reference;
  readonly scope: Reference;
  readonly targetSet: Reference;
  /** The statement that was classified. */
  readonly statement: IFleetCutoverScopeStatement;
  /** In node id order. The first one is the manager. */
  readonly nodes: readonly SyntheticNode[];
  /** Spark tokens by node. */
  readonly tokens: ReadonlyMap<string, string>;
  readonly services: readonly { readonly serviceId: string; readonly swarmServiceId: string; readonly name: string }[];
  node(nodeId: string): SyntheticNode;
  /** The keys of everything that the nodes reported last, in page order. */
  keys(): SyntheticKey[];
  localSnapshot(nodeId: string, content: SyntheticNodeContent): IFleetCutoverCompleteLocalNodeSnapshot;
  managerSnapshot(): IFleetCutoverCompleteManagerSnapshot;
  /** One report of a node with these snapshots, as they are. Fails unless it is accepted. */
  observe(
    nodeId: string,
    snapshots: { readonly local?: IFleetCutoverLocalNodeSnapshot; readonly manager?: IFleetCutoverManagerSnapshot },
  ): Promise<ISparkSwarmObservationAcceptedReceipt>;
  /** The node now has this. */
  report(nodeId: string, content: SyntheticNodeContent): Promise<ISparkSwarmObservationAcceptedReceipt>;
}

/** What of a service the fleet needs: also a service in another process is one. */
export type FleetService = Pick<TestService, 'url' | 'done'>;

let fleets = 0;

/** Nothing is prepared yet; the scope is complete, every node targeted, nothing blocks. */
export async function syntheticFleet(service: FleetService, options: SyntheticFleetOptions): Promise<SyntheticFleet> {
  fleets += 1;
  const clusterId = options.clusterId ?? `synthetic-${fleets}`;
  const counts = volumeCounts(options);
  const serviceCount =
    options.services ?? Math.min(64, Math.max(1, Math.ceil(Math.max(...counts) / mountsPerContainer)));
  const { token } = options;
  const { cluster, runtime } = await service.done(
    'createCluster',
    { mutationId: newMutationId(), clusterId, controllerId: 'controller', runtimeNamespace: 'apps' },
    token,
  );
  const nodeIds = counts.map((_, index) => `${clusterId}-n${String(index).padStart(4, '0')}`);
  const names = Array.from(
    { length: serviceCount },
    (_, index) => `${clusterId}-app-${String(index).padStart(4, '0')}`,
  );
  const imported = await service.done(
    'importFleet',
    {
      mutationId: newMutationId(),
      clusterId,
      nodes: nodeIds.map((nodeId) => ({ nodeId, corestorePublicKey: null })),
      services: names.map((name) => ({ name })),
      specs: [],
    },
    token,
  );
  const serviceIds = new Map(imported.services.map((each) => [each.name, each.serviceId]));
  const services = names.map((name) => ({
    name,
    serviceId: serviceIds.get(name)!,
    swarmServiceId: `sw-${name.slice(clusterId.length + 1)}`,
  }));
  const nodes = nodeIds.map((nodeId, index): SyntheticNode => ({
    nodeId,
    swarmNodeId: `sn-${nodeId.slice(clusterId.length + 1)}`,
    // Two secrets for each node in the document's order: Spark's token, then the session credential.
    token: imported.secrets[2 * index]!.secret,
    reporterSessionId: `session-${nodeId.slice(clusterId.length + 1)}`,
    content: { volumes: volumesOf(counts[index]!, serviceCount) },
    sequence: 0,
  }));
  const tasks = nodes.reduce((sum, node) => sum + containersOf(node, services, node.content).length, 0);
  if (tasks > fleetCutoverContract.maximumTasks) throw new Error(`${tasks} tasks are more than a fleet may have`);
  const manager = managerSnapshotOf(clusterId, referenceOf(runtime), nodes, services);
  const fleet = { service, clusterId, runtime: referenceOf(runtime), nodes, services, manager };
  const observe = (nodeId: string, snapshots: Parameters<SyntheticFleet['observe']>[1]) =>
    observeNode(fleet, nodeId, snapshots);

  const targets = await service.done(
    'acceptFleetCutoverTargetSet',
    { mutationId: newMutationId(), clusterId, runtime: referenceOf(runtime), expectedTargetSet: null, nodeIds },
    token,
  );
  const { managerSnapshot } = await observe(nodeIds[0]!, { manager });
  const statement = statementOf(services);
  const classified = await service.done(
    'classifyFleetCutoverScope',
    {
      mutationId: newMutationId(),
      clusterId,
      runtime: referenceOf(runtime),
      inventory: managerSnapshot.reference!,
      expectedScope: null,
      statement,
    },
    token,
  );
  const report: SyntheticFleet['report'] = async (nodeId, content) => {
    const receipt = await observe(nodeId, { local: localSnapshotOf(fleet, nodeOf(nodes, nodeId), content) });
    nodeOf(nodes, nodeId).content = content;
    return receipt;
  };
  // Only now, so that every node is derived once.
  await inTurns(nodes, options.concurrency ?? 2, (node) => report(node.nodeId, node.content));
  return {
    clusterId,
    clusterLife: cluster.clusterLife,
    runtime: referenceOf(runtime),
    scope: classified.scope,
    targetSet: referenceOf(targets.targetSet),
    statement,
    nodes,
    tokens: new Map(nodes.map((node) => [node.nodeId, node.token])),
    services,
    node: (nodeId) => nodeOf(nodes, nodeId),
    keys: () => nodes.flatMap((node) => keysOf(cluster.clusterLife, node, services)).sort(comparePageOrder),
    localSnapshot: (nodeId, content) => localSnapshotOf(fleet, nodeOf(nodes, nodeId), content),
    managerSnapshot: () => manager,
    observe,
    report,
  };
}

type Services = SyntheticFleet['services'];

interface Making {
  readonly service: FleetService;
  readonly clusterId: string;
  readonly runtime: Reference;
  readonly nodes: readonly SyntheticNode[];
  readonly services: Services;
  readonly manager: IFleetCutoverCompleteManagerSnapshot;
}

function volumeCounts({ nodes, volumesPerNode }: SyntheticFleetOptions): number[] {
  return Array.from({ length: nodes }, (_, index) =>
    typeof volumesPerNode === 'number' ? volumesPerNode : (volumesPerNode[index] ?? 0),
  );
}

/** The volumes that a node begins with; those after `count` are what it may get later. */
export function volumesOf(count: number, services: number, from = 0): SyntheticVolume[] {
  return Array.from({ length: count }, (_, offset) => {
    const name = `v${String(from + offset).padStart(6, '0')}`;
    return { service: (from + offset) % services, name, mountPath: `/data/${name}` };
  });
}

function nodeOf(nodes: readonly SyntheticNode[], nodeId: string): SyntheticNode {
  const node = nodes.find((each) => each.nodeId === nodeId);
  if (node === undefined) throw new Error(`the fleet has no node ${nodeId}`);
  return node;
}

const sourceOf = (volumeName: string) => `/var/lib/docker/volumes/${volumeName}/_data`;

export function volumeMount(
  name: string,
  destination: string,
  more: Partial<IObservedContainerMount> = {},
): IObservedContainerMount {
  return {
    type: 'volume',
    name,
    source: sourceOf(name),
    destination,
    readWrite: true,
    driver: 'local',
    options: null,
    ...more,
  };
}

/** A running container outside Swarm, or of a service. */
export function container(
  name: string,
  mounts: IObservedContainerMount[],
  swarmServiceId: string | null = null,
): IObservedContainer {
  return {
    id: `c-${name}`,
    name,
    swarmTaskId: null,
    swarmServiceId,
    imageId: null,
    imageDigest: null,
    state: 'running',
    mounts,
    mountsBeyond: 0,
  };
}

function containersOf(node: SyntheticNode, services: Services, content: SyntheticNodeContent): IObservedContainer[] {
  return services.flatMap(({ name, swarmServiceId }, index) => {
    const volumes = content.volumes.filter((volume) => volume.service === index);
    const count = Math.max(1, Math.ceil(volumes.length / mountsPerContainer));
    return Array.from({ length: count }, (_, ordinal): IObservedContainer => {
      const mounted = volumes.slice(ordinal * mountsPerContainer, (ordinal + 1) * mountsPerContainer);
      return {
        ...container(
          `${name}.${ordinal}`,
          mounted.map((each) => volumeMount(each.name, each.mountPath)),
          swarmServiceId,
        ),
        id: containerId(node, index, ordinal),
        swarmTaskId: taskId(node, index, ordinal),
      };
    });
  });
}

const containerId = (node: SyntheticNode, service: number, ordinal: number) =>
  `c-${node.swarmNodeId}-${service}-${ordinal}`;
const taskId = (node: SyntheticNode, service: number, ordinal: number) => `t-${node.swarmNodeId}-${service}-${ordinal}`;

function localSnapshotOf(
  { runtime, services }: Making,
  node: SyntheticNode,
  content: SyntheticNodeContent,
): IFleetCutoverCompleteLocalNodeSnapshot {
  const names = [...content.volumes.map((volume) => volume.name), ...(content.looseVolumes ?? [])];
  return {
    complete: true,
    runtime,
    containers: [...containersOf(node, services, content), ...(content.otherContainers ?? [])],
    volumes: names.map((name) => ({ name, driver: 'local', options: null, mountpoint: sourceOf(name) })),
    ports: [],
    pallet: null,
    spark: {
      bundleDigest: bytesDigest('bundle'),
      unitDigest: bytesDigest('unit'),
      configurationDigest: bytesDigest('configuration'),
      oldModeRefused: true,
    },
  };
}

function managerSnapshotOf(
  clusterId: string,
  runtime: Reference,
  nodes: readonly SyntheticNode[],
  services: Services,
): IFleetCutoverCompleteManagerSnapshot {
  return {
    complete: true,
    runtime,
    swarmId: `swarm-${clusterId}`,
    nodes: nodes.map((node, index) => ({
      id: node.swarmNodeId,
      hostname: node.nodeId,
      role: index === 0 ? 'manager' : 'worker',
      availability: 'active',
      state: 'ready',
    })),
    services: services.map(({ swarmServiceId, name }) => ({
      id: swarmServiceId,
      name,
      specVersion: 1,
      specDigest: bytesDigest(name),
      mode: 'global',
      replicas: null,
      image: `registry.example/${name}`,
      labels: [],
      otherLabelsDigest: null,
      ports: [],
      mounts: [],
    })),
    tasks: nodes.flatMap((node) =>
      containersOf(node, services, node.content).map((each) => ({
        id: each.swarmTaskId!,
        serviceId: each.swarmServiceId!,
        nodeId: node.swarmNodeId,
        slot: null,
        desiredState: 'running' as const,
        state: 'running' as const,
        containerId: each.id,
      })),
    ),
  };
}

function statementOf(services: Services): IFleetCutoverScopeStatement {
  return {
    services: services.map(({ swarmServiceId, serviceId }) => ({
      swarmServiceId,
      class: 'application',
      serviceId,
      reason: null,
      mounts: [],
    })),
    coreflow: { state: 'none', reason: 'a synthetic fleet has no relay' },
    overlapOwners: [],
    overlapConfirmations: [],
    dormantVolumes: [],
    releasedEntries: [],
    releasedAnonymousVolumes: [],
  };
}

function keysOf(clusterLife: string, node: SyntheticNode, services: Services): SyntheticKey[] {
  return node.content.volumes.map((volume) => {
    const { serviceId } = services[volume.service]!;
    const { mountIdentityDigest } = observedMountOf(sourceOf(volume.name), volume.mountPath);
    const key = { nodeId: node.nodeId, serviceId, mountIdentityDigest };
    return { id: handoffId(clusterLife, key), ...key, mountPath: volume.mountPath };
  });
}

async function observeNode(
  { service, nodes }: Making,
  nodeId: string,
  snapshots: Parameters<SyntheticFleet['observe']>[1],
): Promise<ISparkSwarmObservationAcceptedReceipt> {
  const node = nodeOf(nodes, nodeId);
  node.sequence += 1;
  const answer = await sparkPost<ISparkSwarmObservationAcceptedReceipt>(
    service.url,
    sparkSwarmNodeContracts.swarmObservation.endpoint,
    {
      nodeId,
      nodeToken: node.token,
      protocol: supportedProtocol,
      observation: {
        reporterSessionId: node.reporterSessionId,
        observationSequence: node.sequence,
        observedAt: 1_700_000_000_000 + node.sequence,
        state: 'member',
        localSwarmNodeId: node.swarmNodeId,
        controlAvailable: node === nodes[0],
        ...(snapshots.local === undefined ? {} : { fleetCutoverLocalNodeSnapshot: snapshots.local }),
        ...(snapshots.manager === undefined ? {} : { fleetCutoverManagerSnapshot: snapshots.manager }),
      },
    },
  );
  if (answer.status !== 200) throw new Error(`report of ${nodeId}: ${answer.status} ${answer.text}`);
  return answer.body;
}

/** Posts to one of Spark's endpoints. */
export async function sparkPost<T>(url: string, endpoint: string, body: unknown): Promise<SparkAnswer<T>> {
  const response = await fetch(url + endpoint, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(body),
  });
  const text = await response.text();
  return { status: response.status, text, body: JSON.parse(text) as SparkAnswer<T>['body'] };
}

/** What an administrator sends to have the key's handoff. */
export function upsertOf(key: SyntheticKey, requestedCapacityBytes: number | null = null): IHandoffUpsert {
  const { id, nodeId, serviceId, mountIdentityDigest, mountPath } = key;
  return {
    nodeId,
    serviceId,
    mountIdentityDigest,
    request: {
      requestId: `rq-${id.slice('vh-'.length)}`,
      kind: 'filesystem',
      mountPath,
      accessMode: 'ReadWriteOnce',
      reclaimPolicy: 'Retain',
      requestedCapacityBytes,
    },
  };
}

/** Prepares the keys in this order, 32 a mutation; gives the last aggregate's reference. */
export async function prepareKeys(
  service: FleetService,
  fleet: Pick<SyntheticFleet, 'clusterId' | 'runtime' | 'scope'>,
  expectedAggregate: Reference | null,
  keys: readonly SyntheticKey[],
  token?: string,
): Promise<Reference | null> {
  const { clusterId, runtime, scope } = fleet;
  let aggregate = expectedAggregate;
  const entries = fleetCutoverContract.maximumPreparedVolumeHandoffMutationEntries;
  for (let from = 0; from < keys.length; from += entries) {
    const upserts = keys.slice(from, from + entries).map((key) => upsertOf(key));
    const request = {
      mutationId: newMutationId(),
      clusterId,
      runtime,
      scope,
      expectedAggregate: aggregate,
      upserts,
      removals: [],
    };
    aggregate = referenceOf((await service.done('prepareFleetCutoverVolumeHandoffs', request, token)).aggregate);
  }
  return aggregate;
}

async function inTurns<T>(
  items: readonly T[],
  concurrency: number,
  work: (item: T) => Promise<unknown>,
): Promise<void> {
  const left = items.values();
  await Promise.all(
    Array.from({ length: concurrency }, async () => {
      for (const item of left) await work(item);
    }),
  );
}
