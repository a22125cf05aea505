/** Snapshots, statements and facts of derivations as tests write them: what a test does not say is a harmless default. */
import { bareDigest, bytesDigest, type TSha256Digest } from '../../src/contract/digest.js';
import { observedMountOf } from '../../src/contract/mount.js';
import type {
  IFleetCutoverCompleteLocalNodeSnapshot,
  IFleetCutoverCompleteManagerSnapshot,
  IIncompleteSnapshot,
  IObservedContainer,
  IObservedContainerMount,
  IObservedSpecMount,
  IObservedSwarmNode,
  IObservedSwarmService,
  IObservedSwarmTask,
  IObservedVolume,
  IReducedDriverOptions,
} from '../../src/contract/observation.js';
import { handoffId } from '../../src/contract/record-id.js';
import type {
  IFleetCutoverScope,
  IFleetCutoverScopeService,
  IFleetCutoverScopeStatement,
} from '../../src/contract/scope.js';
import type { NodeFacts, NodeTask, RequiredEntry } from '../../src/features/volume-handoff/derive-node.js';

export function driverOptions(over: Partial<IReducedDriverOptions> = {}): IReducedDriverOptions {
  return { type: null, deviceDigest: null, bindDevice: null, optionNames: [], otherOptions: 0, ...over };
}

/** Where the local driver keeps a volume. */
export function volumeSource(name: string): string {
  return `/var/lib/docker/volumes/${name}/_data`;
}

/** A read-write mount of a named volume of the local driver. */
export function volumeMount(
  name: string,
  destination = '/data',
  over: Partial<IObservedContainerMount> = {},
): IObservedContainerMount {
  return {
    type: 'volume',
    name,
    source: volumeSource(name),
    destination,
    readWrite: true,
    driver: 'local',
    options: null,
    ...over,
  };
}

/** A volume of the local driver that is a directory of the host (`type=none,o=bind,device=…`). */
export function boundVolumeMount(name: string, bindDevice: string, destination = '/data'): IObservedContainerMount {
  return volumeMount(name, destination, { options: driverOptions({ type: 'none', bindDevice }) });
}

export function bindMount(
  source: string,
  destination = '/data',
  over: Partial<IObservedContainerMount> = {},
): IObservedContainerMount {
  return { type: 'bind', name: null, source, destination, readWrite: true, driver: null, options: null, ...over };
}

/** A running container outside Swarm; `swarmTaskId` and `swarmServiceId` make it a task's. */
export function container(name: string, over: Partial<IObservedContainer> = {}): IObservedContainer {
  return {
    id: `c-${name}`,
    name,
    swarmTaskId: null,
    swarmServiceId: null,
    imageId: null,
    imageDigest: null,
    state: 'running',
    mounts: [],
    mountsBeyond: 0,
    ...over,
  };
}

/** A container of the task `<swarm service>.<ordinal>`. */
export function taskContainer(
  swarmServiceId: string,
  mounts: readonly IObservedContainerMount[],
  over: Partial<IObservedContainer> & { readonly ordinal?: number } = {},
): IObservedContainer {
  const { ordinal = 1, ...rest } = over;
  const swarmTaskId = `${swarmServiceId}.${ordinal}`;
  return container(swarmTaskId, { swarmTaskId, swarmServiceId, mounts: [...mounts], ...rest });
}

export function volume(name: string, over: Partial<IObservedVolume> = {}): IObservedVolume {
  return { name, driver: 'local', options: null, mountpoint: volumeSource(name), ...over };
}

export function localSnapshot(
  over: Partial<IFleetCutoverCompleteLocalNodeSnapshot> = {},
): IFleetCutoverCompleteLocalNodeSnapshot {
  return {
    complete: true,
    runtime: null,
    containers: [],
    volumes: [],
    ports: [],
    pallet: null,
    spark: {
      bundleDigest: bytesDigest('bundle'),
      unitDigest: bytesDigest('unit'),
      configurationDigest: bytesDigest('configuration'),
      oldModeRefused: true,
    },
    ...over,
  };
}

export function swarmNode(id: string, over: Partial<IObservedSwarmNode> = {}): IObservedSwarmNode {
  return { id, hostname: `host-${id}`, role: 'manager', availability: 'active', state: 'ready', ...over };
}

export function swarmService(id: string, over: Partial<IObservedSwarmService> = {}): IObservedSwarmService {
  return {
    id,
    name: `name-${id}`,
    specVersion: 1,
    specDigest: bytesDigest(id),
    mode: 'replicated',
    replicas: 1,
    image: null,
    labels: [],
    otherLabelsDigest: null,
    ports: [],
    mounts: [],
    ...over,
  };
}

export function specMount(
  source: string | null,
  target = '/data',
  over: Partial<IObservedSpecMount> = {},
): IObservedSpecMount {
  return { type: 'volume', source, target, readOnly: false, driver: null, options: null, ...over };
}

/** The running task `<swarm service>.<slot>`, whose container {@link taskContainer} makes. */
export function swarmTask(
  serviceId: string,
  nodeId: string | null,
  over: Partial<IObservedSwarmTask> = {},
): IObservedSwarmTask {
  const slot = over.slot ?? 1;
  return {
    id: `${serviceId}.${slot}`,
    serviceId,
    nodeId,
    slot,
    desiredState: 'running',
    state: 'running',
    containerId: nodeId === null ? null : `c-${serviceId}.${slot}`,
    ...over,
  };
}

export function managerSnapshot(
  over: Partial<IFleetCutoverCompleteManagerSnapshot> = {},
): IFleetCutoverCompleteManagerSnapshot {
  return { complete: true, runtime: null, swarmId: 'swarm-1', nodes: [], services: [], tasks: [], ...over };
}

export function incompleteSnapshot(reason: IIncompleteSnapshot['reason']): IIncompleteSnapshot {
  return { complete: false, runtime: null, reason, counts: null };
}

/** An application owned by `sv-<swarm service>`. */
export function scopeService(
  swarmServiceId: string,
  over: Partial<IFleetCutoverScopeService> = {},
): IFleetCutoverScopeService {
  const owned = over.class === undefined || over.class === 'application' || over.class === 'ingress';
  return {
    swarmServiceId,
    class: 'application',
    serviceId: owned ? `sv-${swarmServiceId}` : null,
    reason: over.class === 'excluded' ? 'not ours' : null,
    mounts: [],
    ...over,
  };
}

export function scopeStatement(over: Partial<IFleetCutoverScopeStatement> = {}): IFleetCutoverScopeStatement {
  return {
    services: [],
    coreflow: { state: 'none', reason: 'there is no relay' },
    overlapOwners: [],
    overlapConfirmations: [],
    dormantVolumes: [],
    releasedEntries: [],
    releasedAnonymousVolumes: [],
    ...over,
  };
}

export function scope(over: Partial<IFleetCutoverScope> = {}): IFleetCutoverScope {
  const digest = bareDigest('scope');
  return {
    id: 'sc-1',
    generation: 1,
    digest,
    clusterId: 'cluster-1',
    inventory: { id: 'ms-1', generation: 1, digest },
    swarmId: 'swarm-1',
    ...scopeStatement(),
    unclassified: [],
    state: 'complete',
    predecessor: null,
    ...over,
  };
}

export const testClusterLife = 'life-1';
export const testNodeId = 'node-1';

export function nodeTask(
  swarmServiceId: string,
  over: Partial<NodeTask> & { readonly ordinal?: number } = {},
): NodeTask {
  const { ordinal = 1, ...rest } = over;
  const swarmTaskId = `${swarmServiceId}.${ordinal}`;
  return {
    swarmTaskId,
    swarmServiceId,
    swarmNodeId: 'swarm-node-1',
    state: 'running',
    containerId: `c-${swarmTaskId}`,
    ...rest,
  };
}

/** A targeted node that Swarm calls ready. */
export function nodeFacts(over: Partial<NodeFacts> = {}): NodeFacts {
  return {
    clusterLife: testClusterLife,
    nodeId: testNodeId,
    snapshot: localSnapshot(),
    incomplete: null,
    tasks: [],
    swarmState: 'ready',
    scope: scope(),
    specMounts: new Map(),
    targeted: true,
    previous: [],
    ...over,
  };
}

/** The entry that a service's mount makes. */
export function requiredEntry(
  swarmServiceId: string,
  mount: IObservedContainerMount,
  over: Partial<RequiredEntry> = {},
): RequiredEntry {
  const { nodeId = testNodeId, serviceId = `sv-${swarmServiceId}` } = over;
  const observed = observedMountOf(mount.source, mount.destination);
  return {
    handoffId: handoffId(testClusterLife, { nodeId, serviceId, mountIdentityDigest: observed.mountIdentityDigest }),
    nodeId,
    serviceId,
    swarmServiceId,
    ...observed,
    source: mount.source,
    mountPath: mount.destination,
    volumeName: mount.type === 'volume' ? mount.name : null,
    anonymous: mount.type === 'volume' && /^[0-9a-f]{64}$/.test(mount.name ?? ''),
    ...over,
  };
}

/** Key of an entry as scope statements name it. */
export function entryKey(entry: RequiredEntry, reason = 'because') {
  const { nodeId, serviceId, mountIdentityDigest } = entry;
  return { nodeId, serviceId, mountIdentityDigest: mountIdentityDigest as TSha256Digest, reason };
}
