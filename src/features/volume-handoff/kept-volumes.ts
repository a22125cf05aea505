/**
 * Which volumes of required entries go with the containers that Swarm removes, and which are gone already: pure.
 *
 * What Docker does, from its own source (moby/moby, the same in what was read of 1.13 to 28):
 * - Swarm removes the container of a task, when its service is removed or scaled down or its history is trimmed, with
 *   `RemoveVolume: true` (`remove` in `daemon/cluster/executor/container/adapter.go`; issue moby/moby#37517).
 * - Such a removal takes every volume that the container mounts without naming it itself (`m.Spec.Source == ""` in
 *   `removeMountPoints`, `daemon/mounts.go`). What it names stays, and `docker rm` without `-v` takes nothing.
 * - A volume is not removed while any container refers to it (`hasRef` in `Remove`, `volume/service/store.go`); the removal
 *   ignores that, and nobody tries again. A container refers to its volumes from its creation on, started or not, until it is
 *   removed itself (`WithCreateReference` in `registerMountPoints`, `daemon/volumes.go`).
 * - References are in memory. A restarting engine takes them again for every container that it does not start or, being made
 *   with `--rm`, remove (`prepareMountPoints` in `restore`, `daemon/daemon.go`); those that it starts take theirs by starting.
 * - `--volumes-from` copies a mount as it is: the copy of an anonymous one is anonymous, and `docker rm -v` takes its volume.
 *
 * 1. An anonymous volume is at risk while a container of Swarm mounts it, in any state, unless a container outside Swarm, its
 *    *keeper*, mounts the volume itself: a bind of the same directory refers to no volume.
 * 2. A volume is anonymous by its name (`isAnonymousVolumeName`). That the service's spec names it today says nothing of a
 *    container that was made before, so such a volume needs a keeper, too.
 * 3. A keeper was created and never started, runs or is paused. One that has ended may be one that the engine failed to start
 *    again, which refers to nothing.
 * 4. The volume of a required entry that is not among the node's volumes is gone, and with it its data, whether it was named
 *    or not. Binds have no volume.
 */
import type { IFleetCutoverCompleteLocalNodeSnapshot, IObservedContainer } from '../../contract/observation.js';
import type { RequiredEntry } from './derive-node.js';

export interface EntryVolume {
  readonly swarmServiceId: string;
  readonly mountPath: string;
  readonly volumeName: string;
}

export interface JudgedVolumes {
  /** They go with the containers of Swarm that mount them. */
  readonly unkept: readonly EntryVolume[];
  readonly vanished: readonly EntryVolume[];
}

/** `entries`: what is required and not written off. Without a snapshot no volume is known to be there. */
export function judgeVolumes(
  entries: readonly RequiredEntry[],
  snapshot: IFleetCutoverCompleteLocalNodeSnapshot | null,
): JudgedVolumes {
  const present = new Set(snapshot?.volumes.map((volume) => volume.name));
  const swarms = new Set<string>();
  const kept = new Set<string>();
  for (const container of snapshot?.containers ?? []) {
    const into = isOutsideSwarm(container) ? (keeps(container) ? kept : null) : swarms;
    for (const { type, name } of container.mounts) if (type === 'volume' && name !== null) into?.add(name);
  }
  const unkept: EntryVolume[] = [];
  const vanished: EntryVolume[] = [];
  for (const { swarmServiceId, mountPath, volumeName, anonymous } of entries) {
    if (volumeName === null) continue;
    const volume = { swarmServiceId, mountPath, volumeName };
    if (!present.has(volumeName)) vanished.push(volume);
    else if (anonymous && swarms.has(volumeName) && !kept.has(volumeName)) unkept.push(volume);
  }
  return { unkept, vanished };
}

function isOutsideSwarm({ swarmTaskId, swarmServiceId }: IObservedContainer): boolean {
  return swarmTaskId === null && swarmServiceId === null;
}

function keeps({ state }: IObservedContainer): boolean {
  return state === 'created' || state === 'running' || state === 'paused';
}
