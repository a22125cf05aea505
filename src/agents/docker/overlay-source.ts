/**
 * An engine's answers with what happened since: services that were added or stopped, and containers that keep volumes over the
 * stop. For demonstrations and tests on a captured swarm, whose files stay as they are.
 */
import { isAnonymousVolumeName } from '../../contract/mount.js';
import type { IEngineContainer, IEngineService, IEngineTask } from './answers.js';
import {
  addedService,
  type AddedService,
  type AddedServiceOptions,
  keeperContainer,
  type KeeperOptions,
} from './overlay-services.js';
import type { DockerSource } from './source.js';
import { swarmServiceIdOf } from './swarm-labels.js';
import { isLiveTask } from './task-retention.js';

interface Added {
  readonly swarmNodeId: string;
  readonly container: IEngineContainer;
}

/** What happened to one swarm; the sources of all its nodes share it. */
export class SwarmOverlay {
  readonly #added = new Map<string, AddedService>();
  readonly #keepers = new Map<string, KeeperOptions>();
  /** With the volumes that had a keeper when the service was stopped. */
  readonly #stopped = new Map<string, ReadonlySet<string>>();

  /** Gives the id of the new swarm service. */
  add(options: AddedServiceOptions): string {
    const added = addedService(options);
    this.#added.set(added.service.ID, added);
    return added.service.ID;
  }

  /** An added service is gone, with its task and its container. */
  remove(swarmServiceId: string): void {
    this.#added.delete(swarmServiceId);
  }

  /** A container outside Swarm is created, which mounts volumes and never starts. */
  keep(options: KeeperOptions): void {
    this.#keepers.set(options.name, options);
  }

  /** `docker rm`: the container goes, its volumes stay. */
  removeKeeper(name: string): void {
    this.#keepers.delete(name);
  }

  /**
   * Services are scaled to zero or, where their mode has no zero, removed. Swarm removes their containers and with them, once
   * and for good, the anonymous volumes that no other container mounts.
   */
  stop(swarmServiceIds: Iterable<string>): void {
    const kept = new Set([...this.#keepers.values()].flatMap(({ volumes }) => volumes));
    for (const id of swarmServiceIds) if (!this.#stopped.has(id)) this.#stopped.set(id, kept);
  }

  added(): AddedService[] {
    return [...this.#added.values()];
  }

  /** Containers that were added, whether Swarm's or not. */
  containers(): Added[] {
    return [
      ...this.added().map(({ task, container }) => ({ swarmNodeId: task.NodeID ?? '', container })),
      ...[...this.#keepers.values()].map((keeper) => ({
        swarmNodeId: keeper.swarmNodeId,
        container: keeperContainer(keeper),
      })),
    ];
  }

  isStopped(swarmServiceId: string | null): boolean {
    return swarmServiceId !== null && this.#stopped.has(swarmServiceId);
  }

  /** Of what the containers on a node were, the anonymous volumes that went with the services. */
  deletedVolumes(containers: readonly IEngineContainer[]): Set<string> {
    const deleted = new Set<string>();
    const mounted = new Set<string>();
    for (const container of containers) {
      const kept = this.#stopped.get(swarmServiceIdOf(container) ?? '');
      for (const { Type, Name: name = '' } of container.Mounts ?? []) {
        if (Type !== 'volume') continue;
        if (kept === undefined) mounted.add(name);
        else if (isAnonymousVolumeName(name) && !kept.has(name)) deleted.add(name);
      }
    }
    for (const name of mounted) deleted.delete(name);
    return deleted;
  }
}

export function overlaySource(source: DockerSource, overlay: SwarmOverlay): DockerSource {
  /** Added containers of the source's own node. */
  const addedHere = async (signal: AbortSignal): Promise<IEngineContainer[]> => {
    const added = overlay.containers();
    if (added.length === 0) return [];
    const { Swarm: swarm } = await source.info(signal);
    return added.filter(({ swarmNodeId }) => swarmNodeId === swarm.NodeID).map(({ container }) => container);
  };
  const captured = async (signal: AbortSignal): Promise<IEngineContainer[]> => {
    const ids = await source.containerIds(signal);
    const containers = await Promise.all(ids.map((id) => source.container(id, signal)));
    return containers.filter((container) => container !== null);
  };
  return {
    info: (signal) => source.info(signal),
    containerIds: async (signal) => {
      const gone = new Set(
        (await captured(signal)).filter((each) => overlay.isStopped(swarmServiceIdOf(each))).map(({ Id }) => Id),
      );
      return [
        ...(await source.containerIds(signal)).filter((id) => !gone.has(id)),
        ...(await addedHere(signal)).map(({ Id }) => Id),
      ];
    },
    container: async (id, signal) => {
      const added = (await addedHere(signal)).find(({ Id }) => Id === id);
      if (added !== undefined) return added;
      const container = await source.container(id, signal);
      return container !== null && overlay.isStopped(swarmServiceIdOf(container)) ? null : container;
    },
    volumes: async (signal) => {
      const deleted = overlay.deletedVolumes(await captured(signal));
      return (await source.volumes(signal)).filter(({ Name }) => !deleted.has(Name));
    },
    images: (signal) => source.images(signal),
    nodes: (signal) => source.nodes(signal),
    services: async (signal) => [
      ...(await source.services(signal)).flatMap((service) =>
        overlay.isStopped(service.ID) ? atZero(service) : [service],
      ),
      ...overlay.added().map(({ service }) => service),
    ],
    tasks: async (signal) => {
      const services = await source.services(signal);
      const removed = new Set(
        services.filter(({ ID }) => overlay.isStopped(ID)).flatMap((each) => (atZero(each).length > 0 ? [] : each.ID)),
      );
      const tasks = (await source.tasks(signal)).filter((task) => !removed.has(task.ServiceID));
      return [
        ...tasks.map((task) => (overlay.isStopped(task.ServiceID) ? shutDown(task) : task)),
        ...overlay.added().map(({ task }) => task),
      ];
    },
  };
}

/** Nothing where the mode can't be scaled to zero: such a service is removed. */
function atZero(service: IEngineService): IEngineService[] {
  const { Mode } = service.Spec;
  if (Mode.Replicated === undefined || Mode.Replicated === null) return [];
  return [
    {
      ...service,
      Version: { Index: service.Version.Index + 1 },
      Spec: { ...service.Spec, Mode: { Replicated: { Replicas: 0 } } },
    },
  ];
}

function shutDown(task: IEngineTask): IEngineTask {
  if (!isLiveTask(task)) return task;
  return { ...task, DesiredState: 'shutdown', Status: { ...task.Status, State: 'shutdown' } };
}
