/**
 * An engine's answers with what happened since: services that were added, and services that an administrator stopped. For
 * demonstrations and tests on a captured swarm, whose files stay as they are.
 */
import type { IEngineContainer, IEngineService, IEngineTask } from './answers.js';
import { addedService, type AddedService, type AddedServiceOptions } from './overlay-services.js';
import type { DockerSource } from './source.js';
import { swarmServiceIdOf } from './swarm-labels.js';
import { isLiveTask } from './task-retention.js';

/** What happened to one swarm; the sources of all its nodes share it. */
export class SwarmOverlay {
  readonly #added = new Map<string, AddedService>();
  readonly #stopped = new Set<string>();

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

  /** Services are scaled to zero or, where their mode has no zero, removed; none of their containers runs any more. */
  stop(swarmServiceIds: Iterable<string>): void {
    for (const id of swarmServiceIds) this.#stopped.add(id);
  }

  added(): AddedService[] {
    return [...this.#added.values()];
  }

  isStopped(swarmServiceId: string | null): boolean {
    return swarmServiceId !== null && this.#stopped.has(swarmServiceId);
  }
}

export function overlaySource(source: DockerSource, overlay: SwarmOverlay): DockerSource {
  /** Added containers of the source's own node. */
  const addedHere = async (signal: AbortSignal): Promise<IEngineContainer[]> => {
    const added = overlay.added();
    if (added.length === 0) return [];
    const { Swarm: swarm } = await source.info(signal);
    return added.filter(({ task }) => task.NodeID === swarm.NodeID).map(({ container }) => container);
  };
  return {
    info: (signal) => source.info(signal),
    containerIds: async (signal) => [
      ...(await source.containerIds(signal)),
      ...(await addedHere(signal)).map(({ Id }) => Id),
    ],
    container: async (id, signal) => {
      const added = (await addedHere(signal)).find(({ Id }) => Id === id);
      if (added !== undefined) return added;
      const container = await source.container(id, signal);
      return container !== null && overlay.isStopped(swarmServiceIdOf(container)) ? exited(container) : container;
    },
    volumes: (signal) => source.volumes(signal),
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

const ended = new Set(['exited', 'dead', 'removing']);

function exited(container: IEngineContainer): IEngineContainer {
  return ended.has(container.State.Status) ? container : { ...container, State: { Status: 'exited' } };
}
