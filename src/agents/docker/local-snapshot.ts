/** From an engine's answers to `IFleetCutoverLocalNodeSnapshot`: pure, and the same for the same reality. */
import { fleetCutoverContract } from '../../contract/limits.js';
import {
  containerStates,
  type IFleetCutoverCompleteLocalNodeSnapshot,
  type IObservedContainer,
  type IObservedContainerMount,
  type IObservedPort,
  type IObservedVolume,
  type IReducedDriverOptions,
} from '../../contract/observation.js';
import { compareText, type Reference } from '../../contract/schema.js';
import type {
  IEngineContainer,
  IEngineContainerMount,
  IEngineImage,
  IEngineService,
  IEngineVolume,
} from './answers.js';
import { CensusFailure } from './census-failure.js';
import { reduceDriverOptions } from './driver-options.js';
import { pinnedDigest, registryDigest } from './image-digest.js';
import { mountTypeOf } from './mount-type.js';
import { containerPorts, distinctPorts, routingMeshPorts } from './observed-ports.js';
import { swarmServiceIdOf, swarmTaskIdOf } from './swarm-labels.js';

/** What an engine said about its own node. */
export interface LocalFacts {
  /** Inspect answers, each container once. */
  readonly containers: readonly IEngineContainer[];
  /** Every volume that a `local` mount of a container names is among them. */
  readonly volumes: readonly IEngineVolume[];
  /** Images; needed only where a container's reference has no digest. */
  readonly images: readonly IEngineImage[];
  /** The swarm's services, from managers: who holds the ports of the routing mesh. */
  readonly services: readonly IEngineService[];
}

/** What Spark itself says about its node. */
export interface SparkFacts {
  /** The runtime reference that was read before the census began; null before the first receipt. */
  readonly runtime: Reference | null;
  readonly spark: IFleetCutoverCompleteLocalNodeSnapshot['spark'];
  readonly pallet: IFleetCutoverCompleteLocalNodeSnapshot['pallet'];
  /** Open ports that the engine doesn't know: Pallet's, and those found listening with nobody known (`unknown`). */
  readonly otherPorts?: readonly IObservedPort[];
}

/** @throws CensusFailure `engine-error` for a word that the contract doesn't have, e.g. a new state of containers */
export function localSnapshotOf(facts: LocalFacts, spark: SparkFacts): IFleetCutoverCompleteLocalNodeSnapshot {
  const volumes = facts.volumes.map(observedVolume).sort((left, right) => compareText(left.name, right.name));
  const options = new Map(volumes.map((volume) => [volume.name, volume.options]));
  const digests = new Map(facts.images.map((image) => [image.Id, registryDigest(image)]));
  return {
    complete: true,
    runtime: spark.runtime,
    containers: facts.containers
      .map((container) => observedContainer(container, options, digests.get(container.Image) ?? null))
      .sort((left, right) => compareText(left.id, right.id)),
    volumes,
    ports: distinctPorts([
      ...facts.containers.flatMap(containerPorts),
      ...facts.services.flatMap(routingMeshPorts),
      ...(spark.otherPorts ?? []),
    ]),
    pallet: spark.pallet,
    spark: spark.spark,
  };
}

function observedVolume(volume: IEngineVolume): IObservedVolume {
  return {
    name: volume.Name,
    driver: volume.Driver,
    options: reduceDriverOptions(volume.Driver, volume.Options),
    mountpoint: volume.Mountpoint,
  };
}

function observedContainer(
  container: IEngineContainer,
  volumeOptions: ReadonlyMap<string, IReducedDriverOptions | null>,
  imageDigest: IObservedContainer['imageDigest'],
): IObservedContainer {
  const mounts = (container.Mounts ?? [])
    .map((mount) => observedMount(mount, volumeOptions))
    .sort((left, right) => compareText(left.destination, right.destination));
  const reported = mounts.slice(0, fleetCutoverContract.maximumMountsPerOwner);
  return {
    id: container.Id,
    name: container.Name.replace(/^\//, ''),
    swarmTaskId: swarmTaskIdOf(container),
    swarmServiceId: swarmServiceIdOf(container),
    imageId: container.Image === '' ? null : container.Image,
    imageDigest: pinnedDigest(container) ?? imageDigest,
    state: containerState(container.State.Status),
    mounts: reported,
    mountsBeyond: mounts.length - reported.length,
  };
}

function containerState(text: string): IObservedContainer['state'] {
  const state = containerStates.find((known) => known === text);
  if (state === undefined) throw new CensusFailure('engine-error', 'a container is in an unknown state');
  return state;
}

/** The container says where a mount is, the volume how it persists: a container's `Mounts` has no options. */
function observedMount(
  mount: IEngineContainerMount,
  volumeOptions: ReadonlyMap<string, IReducedDriverOptions | null>,
): IObservedContainerMount {
  const type = mountTypeOf(mount.Type);
  const name = type === 'volume' ? (mount.Name ?? '') : '';
  return {
    type,
    name: name === '' ? null : name,
    source: mount.Source ?? '',
    destination: mount.Destination,
    readWrite: mount.RW,
    driver: mount.Driver === undefined || mount.Driver === '' ? null : mount.Driver,
    options: volumeOptions.get(name) ?? null,
  };
}
