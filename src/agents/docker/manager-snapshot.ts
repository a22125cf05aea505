/** From a manager's answers to `IFleetCutoverManagerSnapshot`: pure, and the same for the same reality. */
import canonicalize from 'canonicalize';
import { bytesDigest, type TSha256Digest } from '../../contract/digest.js';
import type {
  IFleetCutoverCompleteManagerSnapshot,
  IObservedSpecMount,
  IObservedSwarmNode,
  IObservedSwarmService,
  IObservedSwarmTask,
} from '../../contract/observation.js';
import { compareText, type Reference } from '../../contract/schema.js';
import type { IEngineNode, IEngineService, IEngineServiceMode, IEngineSpecMount, IEngineTask } from './answers.js';
import { CensusFailure } from './census-failure.js';
import { reduceDriverOptions } from './driver-options.js';
import { reduceLabels } from './labels.js';
import { mountTypeOf } from './mount-type.js';
import { protocolOf, servicePorts } from './observed-ports.js';
import { keptTasks, taskContainerId, taskState } from './task-retention.js';

/** What a manager said about its swarm. */
export interface ManagerFacts {
  readonly swarmId: string;
  readonly nodes: readonly IEngineNode[];
  readonly services: readonly IEngineService[];
  /** All tasks that Swarm remembers; which of them are kept is decided here. */
  readonly tasks: readonly IEngineTask[];
}

/**
 * @param runtime the runtime reference that was read before the census began; null before the first receipt
 * @throws CensusFailure `engine-error` for a word that the contract doesn't have, e.g. a new state of tasks
 */
export function managerSnapshotOf(
  facts: ManagerFacts,
  runtime: Reference | null,
): IFleetCutoverCompleteManagerSnapshot {
  return {
    complete: true,
    runtime,
    swarmId: facts.swarmId,
    nodes: facts.nodes.map(observedNode).sort(byId),
    services: facts.services.map(observedService).sort(byId),
    tasks: keptTasks(facts.tasks).map(observedTask).sort(byId),
  };
}

function byId(left: { id: string }, right: { id: string }): number {
  return compareText(left.id, right.id);
}

/** The word if the contract has it. */
function known<T extends string>(words: readonly T[], text: string, what: string): T {
  const word = words.find((one) => one === text);
  if (word === undefined) throw new CensusFailure('engine-error', `${what} is unknown`);
  return word;
}

function observedNode(node: IEngineNode): IObservedSwarmNode {
  const hostname = node.Description?.Hostname ?? '';
  return {
    id: node.ID,
    // A node that never reported to the manager has no description yet.
    hostname: hostname === '' ? node.ID : hostname,
    role: known(['manager', 'worker'], node.Spec.Role, 'the role of a node'),
    availability: known(['active', 'pause', 'drain'], node.Spec.Availability, 'the availability of a node'),
    state: known(['unknown', 'down', 'ready', 'disconnected'], node.Status.State, 'the state of a node'),
  };
}

function observedService(service: IEngineService): IObservedSwarmService {
  const { Spec: spec } = service;
  const { labels, otherLabelsDigest } = reduceLabels(spec.Labels);
  const image = spec.TaskTemplate.ContainerSpec?.Image ?? '';
  return {
    id: service.ID,
    name: spec.Name,
    specVersion: service.Version.Index,
    specDigest: specDigest(spec),
    ...modeAndReplicas(spec.Mode),
    image: image === '' ? null : image,
    labels,
    otherLabelsDigest,
    ports: observedPorts(service),
    mounts: (spec.TaskTemplate.ContainerSpec?.Mounts ?? []).map(observedSpecMount).sort(byTarget),
  };
}

/**
 * SHA-256 over the RFC 8785 form of the whole spec as the engine has it. Not the contract's own canonical form: a spec
 * may hold fractions (`MaxFailureRatio`). It says that a spec differs, and nothing of what is in it.
 */
export function specDigest(spec: IEngineService['Spec']): TSha256Digest {
  return bytesDigest(canonicalize(spec) ?? '');
}

/** A job's replicas are the completions that it is to reach, which is what scaling a job sets. */
function modeAndReplicas(mode: IEngineServiceMode): Pick<IObservedSwarmService, 'mode' | 'replicas'> {
  const found: Pick<IObservedSwarmService, 'mode' | 'replicas'>[] = [];
  if (mode.Replicated) found.push({ mode: 'replicated', replicas: mode.Replicated.Replicas });
  if (mode.Global) found.push({ mode: 'global', replicas: null });
  if (mode.ReplicatedJob) found.push({ mode: 'replicated-job', replicas: mode.ReplicatedJob.TotalCompletions });
  if (mode.GlobalJob) found.push({ mode: 'global-job', replicas: null });
  const [only] = found;
  if (only === undefined || found.length > 1)
    throw new CensusFailure('engine-error', 'the mode of a service is unknown');
  return only;
}

function observedPorts(service: IEngineService): IObservedSwarmService['ports'] {
  const ports = servicePorts(service).map((port): IObservedSwarmService['ports'][number] => ({
    protocol: protocolOf(port.Protocol),
    targetPort: port.TargetPort ?? 0,
    publishedPort: port.PublishedPort === undefined || port.PublishedPort === 0 ? null : port.PublishedPort,
    publishMode: known(['ingress', 'host'], port.PublishMode ?? 'ingress', 'the publish mode of a port'),
  }));
  const byKey = new Map(ports.map((port) => [portKey(port), port]));
  return [...byKey].sort(([left], [right]) => compareText(left, right)).map(([, port]) => port);
}

/** Numbers are padded, so that the text's order is the numbers'. */
function portKey({ protocol, targetPort, publishedPort, publishMode }: IObservedSwarmService['ports'][number]): string {
  const padded = [targetPort, publishedPort ?? 0].map((port) => String(port).padStart(5, '0'));
  return [protocol, ...padded, publishMode].join(' ');
}

function observedSpecMount(mount: IEngineSpecMount): IObservedSpecMount {
  const type = mountTypeOf(mount.Type);
  const config = type === 'volume' ? mount.VolumeOptions?.DriverConfig : undefined;
  const driver = config?.Name === undefined || config.Name === '' ? null : config.Name;
  return {
    type,
    source: mount.Source === undefined || mount.Source === '' ? null : mount.Source,
    target: mount.Target,
    readOnly: mount.ReadOnly ?? false,
    driver,
    options: reduceDriverOptions(driver, config?.Options),
  };
}

/** By target, then by what else tells two mounts apart: Swarm doesn't refuse a spec that names one target twice. */
function byTarget(left: IObservedSpecMount, right: IObservedSpecMount): number {
  return (
    compareText(left.target, right.target) ||
    compareText(left.type, right.type) ||
    compareText(left.source ?? '', right.source ?? '')
  );
}

function observedTask(task: IEngineTask): IObservedSwarmTask {
  return {
    id: task.ID,
    serviceId: task.ServiceID,
    nodeId: task.NodeID === undefined || task.NodeID === '' ? null : task.NodeID,
    slot: task.Slot === undefined || task.Slot === 0 ? null : task.Slot,
    desiredState: taskState(task.DesiredState),
    state: taskState(task.Status.State),
    containerId: taskContainerId(task),
  };
}
