/** Services and containers that a demonstration or a test adds to a captured swarm, as an engine would tell of them. */
import { bytesDigest } from '../../contract/digest.js';
import type { IEngineContainer, IEngineService, IEngineTask } from './answers.js';

/** One service with one running task and its container, without any mount. */
export interface AddedService {
  readonly service: IEngineService;
  readonly task: IEngineTask;
  readonly container: IEngineContainer;
}

export interface AddedServiceOptions {
  readonly name: string;
  /** Value of the label `serve.zone.role`. */
  readonly role: string;
  /** Swarm node that the task runs on. */
  readonly swarmNodeId: string;
  /** TCP ports of the routing mesh. */
  readonly ports: readonly number[];
}

export function addedService({ name, role, swarmNodeId, ports }: AddedServiceOptions): AddedService {
  const serviceId = swarmId(`${name} service`);
  const taskId = swarmId(`${name} task`);
  const containerId = hex(`${name} container`);
  const image = `serve.zone/${name}:1.0@${bytesDigest(`${name} image`)}`;
  const published = ports.map((port) => ({
    Protocol: 'tcp',
    TargetPort: port,
    PublishedPort: port,
    PublishMode: 'ingress',
  }));
  return {
    service: {
      ID: serviceId,
      Version: { Index: 1 },
      Spec: {
        Name: name,
        Labels: { 'serve.zone.role': role },
        Mode: { Replicated: { Replicas: 1 } },
        TaskTemplate: { ContainerSpec: { Image: image } },
        EndpointSpec: { Ports: published },
      },
      Endpoint: { Ports: published },
    },
    task: {
      ID: taskId,
      CreatedAt: '2026-01-01T00:00:00Z',
      ServiceID: serviceId,
      Slot: 1,
      NodeID: swarmNodeId,
      DesiredState: 'running',
      Status: { State: 'running', ContainerStatus: { ContainerID: containerId } },
    },
    container: {
      Id: containerId,
      Name: `/${name}.1.${taskId}`,
      Image: bytesDigest(`${name} image id`),
      State: { Status: 'running' },
      Config: {
        Image: image,
        Labels: {
          'com.docker.swarm.service.id': serviceId,
          'com.docker.swarm.service.name': name,
          'com.docker.swarm.task.id': taskId,
        },
      },
      Mounts: [],
      NetworkSettings: { Ports: {} },
    },
  };
}

export interface KeeperOptions {
  /** No other container of the swarm's nodes has it. */
  readonly name: string;
  readonly swarmNodeId: string;
  /** Names of volumes of that node, at most 32. */
  readonly volumes: readonly string[];
}

/** Where a keeper mounts a volume. */
export function keeperTarget(volume: string): string {
  return `/keep/${volume}`;
}

/** `docker create` with one mount per volume, by its name: outside Swarm and never started. */
export function keeperContainer({ name, volumes }: KeeperOptions): IEngineContainer {
  const image = `serve.zone/keeper:1.0@${bytesDigest('keeper image')}`;
  return {
    Id: hex(`${name} keeper`),
    Name: `/${name}`,
    Image: bytesDigest('keeper image id'),
    State: { Status: 'created' },
    Config: { Image: image, Labels: {} },
    Mounts: volumes.map((volume) => ({
      Type: 'volume',
      Name: volume,
      Source: `/var/lib/docker/volumes/${volume}/_data`,
      Destination: keeperTarget(volume),
      Driver: 'local',
      RW: false,
    })),
    NetworkSettings: { Ports: {} },
  };
}

function hex(text: string): string {
  return bytesDigest(text).slice('sha256:'.length);
}

/** As long as the ids of Swarm, in their alphabet; the same for the same text. */
function swarmId(text: string): string {
  return hex(text).slice(0, 25);
}
