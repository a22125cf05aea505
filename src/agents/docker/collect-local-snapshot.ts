/** The census of one node. */
import {
  FleetCutoverCompleteLocalNodeSnapshot,
  fleetCutoverLocalNodeSnapshotRecord,
  type IFleetCutoverLocalNodeSnapshot,
} from '../../contract/observation.js';
import type { IEngineContainer, IEngineVolume } from './answers.js';
import { type Census, type CensusOptions, refuseBeyond, refuseRepeated, takeCensus } from './census.js';
import { CensusFailure } from './census-failure.js';
import { pinnedDigest } from './image-digest.js';
import { type LocalFacts, localSnapshotOf, type SparkFacts } from './local-snapshot.js';
import type { DockerSource } from './source.js';

export interface LocalSnapshotContext extends SparkFacts, CensusOptions {
  /** The node is a manager: then the engine also tells the ports of the routing mesh, and has to. */
  readonly controlAvailable: boolean;
}

const bounds = {
  containers: FleetCutoverCompleteLocalNodeSnapshot.properties.containers.maxItems ?? 0,
  volumes: FleetCutoverCompleteLocalNodeSnapshot.properties.volumes.maxItems ?? 0,
  ports: FleetCutoverCompleteLocalNodeSnapshot.properties.ports.maxItems ?? 0,
};

/** Containers come and go while they are looked at: so many lists may be needed until one holds. */
const maximumLists = 4;
const maximumAttempts = 3;
const concurrentInspects = 8;

/**
 * All containers, volumes and open ports of the source's node. Never throws: an error gives `complete: false` with its
 * reason and what was counted. `inconsistent` means that the node changed faster than it could be looked at.
 */
export function collectLocalSnapshot(
  source: DockerSource,
  context: LocalSnapshotContext,
): Promise<IFleetCutoverLocalNodeSnapshot> {
  return takeCensus(fleetCutoverLocalNodeSnapshotRecord, context.runtime, context, async (census) => {
    const snapshot = localSnapshotOf(await readLocalFacts(source, census, context.controlAvailable), context);
    refuseBeyond('ports', snapshot.ports.length, bounds.ports);
    return snapshot;
  });
}

async function readLocalFacts(source: DockerSource, census: Census, controlAvailable: boolean): Promise<LocalFacts> {
  const { containers, volumes } = await readContainersAndVolumes(source, census);
  const images = containers.some((container) => pinnedDigest(container) === null)
    ? await source.images(census.signal)
    : [];
  const services = controlAvailable ? await source.services(census.signal) : [];
  return { containers, volumes, images, services };
}

/**
 * Volumes are listed after the containers, so that those of every container are there; one that is not was removed with
 * its container in between, or its options would be told as none.
 */
async function readContainersAndVolumes(
  source: DockerSource,
  census: Census,
): Promise<Pick<LocalFacts, 'containers' | 'volumes'>> {
  for (let attempt = 1; attempt <= maximumAttempts; attempt++) {
    const containers = await readContainers(source, census);
    const volumes = await source.volumes(census.signal);
    census.count('volumes', volumes.length, bounds.volumes);
    refuseRepeated(
      volumes.map((volume) => volume.Name),
      'volume',
    );
    if (namesEveryLocalVolume(volumes, containers)) return { containers, volumes };
  }
  throw new CensusFailure('inconsistent', 'a container mounts a local volume that the engine does not list');
}

function namesEveryLocalVolume(volumes: readonly IEngineVolume[], containers: readonly IEngineContainer[]): boolean {
  const names = new Set(volumes.map((volume) => volume.Name));
  return containers
    .flatMap((container) => container.Mounts ?? [])
    .every(({ Type, Driver, Name }) => Type !== 'volume' || Driver !== 'local' || names.has(Name ?? ''));
}

/**
 * Lists and inspects until a list holds. Only a list says that a container is gone: one that vanished before its
 * inspect is dropped when the next list has dropped it.
 */
async function readContainers(source: DockerSource, census: Census): Promise<IEngineContainer[]> {
  const inspected = new Map<string, IEngineContainer>();
  for (let list = 1; list <= maximumLists; list++) {
    const ids = new Set(await source.containerIds(census.signal));
    census.count('containers', ids.size, bounds.containers);
    for (const id of inspected.keys()) if (!ids.has(id)) inspected.delete(id);
    const missing = [...ids].filter((id) => !inspected.has(id));
    await eachBounded(missing, concurrentInspects, async (id) => {
      const container = await source.container(id, census.signal);
      if (container !== null && container.Id !== id) {
        throw new CensusFailure('engine-error', 'the engine answered with another container');
      }
      if (container !== null) inspected.set(id, container);
    });
    if (inspected.size === ids.size) return [...inspected.values()];
  }
  throw new CensusFailure('inconsistent', 'the engine lists a container that it does not have');
}

/** Runs `work` for every item, at most `limit` at once; the first failure ends it, without starting another item. */
async function eachBounded<T>(items: readonly T[], limit: number, work: (item: T) => Promise<void>): Promise<void> {
  const queue = items.values();
  let failed = false;
  const lane = async () => {
    for (const item of queue) {
      if (failed) return;
      try {
        await work(item);
      } catch (error) {
        failed = true;
        throw error;
      }
    }
  };
  await Promise.all(Array.from({ length: limit }, lane));
}
