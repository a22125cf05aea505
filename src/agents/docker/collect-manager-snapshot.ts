/** The census of a swarm, from one of its managers. */
import { fleetCutoverContract } from '../../contract/limits.js';
import {
  FleetCutoverCompleteManagerSnapshot,
  fleetCutoverManagerSnapshotRecord,
  type IFleetCutoverManagerSnapshot,
  ObservedSwarmService,
} from '../../contract/observation.js';
import type { Reference } from '../../contract/schema.js';
import { type Census, type CensusOptions, refuseBeyond, refuseRepeated, takeCensus } from './census.js';
import { CensusFailure } from './census-failure.js';
import { type ManagerFacts, managerSnapshotOf } from './manager-snapshot.js';
import type { DockerSource } from './source.js';
import { isLiveTask, keptTasks } from './task-retention.js';

export interface ManagerSnapshotContext extends CensusOptions {
  /** The runtime reference that was read before the census began; null before the first receipt. */
  readonly runtime: Reference | null;
}

const bounds = {
  nodes: FleetCutoverCompleteManagerSnapshot.properties.nodes.maxItems ?? 0,
  services: FleetCutoverCompleteManagerSnapshot.properties.services.maxItems ?? 0,
  tasks: FleetCutoverCompleteManagerSnapshot.properties.tasks.maxItems ?? 0,
  servicePorts: ObservedSwarmService.properties.ports.maxItems ?? 0,
  serviceMounts: ObservedSwarmService.properties.mounts.maxItems ?? 0,
};

/**
 * Nodes, services and kept tasks of the swarm that the source manages. Never throws: an error gives `complete: false`
 * with its reason and what was counted. `truncated` counts live tasks if those are over their bound, else the tasks to
 * keep.
 */
export function collectManagerSnapshot(
  source: DockerSource,
  context: ManagerSnapshotContext,
): Promise<IFleetCutoverManagerSnapshot> {
  return takeCensus(fleetCutoverManagerSnapshotRecord, context.runtime, context, async (census) => {
    const snapshot = managerSnapshotOf(await readManagerFacts(source, census), context.runtime);
    for (const { ports, mounts } of snapshot.services) {
      refuseBeyond('ports of a service', ports.length, bounds.servicePorts);
      refuseBeyond('mounts of a service', mounts.length, bounds.serviceMounts);
    }
    return snapshot;
  });
}

/**
 * Tasks first, then what they refer to: a service or node that is missing then has been removed, and its tasks are the
 * remnants that Swarm says they are; the other way round it could also be too new.
 */
async function readManagerFacts(source: DockerSource, census: Census): Promise<ManagerFacts> {
  const { Swarm: swarm } = await source.info(census.signal);
  // Also without a leader: then /info has no cluster, and neither has anybody a census.
  const swarmId = swarm.Cluster?.ID ?? '';
  if (swarmId === '') throw new CensusFailure('engine-error', 'GET /info answered without a cluster');

  const tasks = await source.tasks(census.signal);
  const services = await source.services(census.signal);
  census.count('services', services.length, bounds.services);
  census.count('tasks', tasks.filter(isLiveTask).length, fleetCutoverContract.maximumTasks);
  census.count('tasks', keptTasks(tasks).length, bounds.tasks);
  const nodes = await source.nodes(census.signal);
  refuseBeyond('nodes', nodes.length, bounds.nodes);
  for (const [what, list] of Object.entries({ node: nodes, service: services, task: tasks })) {
    refuseRepeated(
      list.map(({ ID }) => ID),
      what,
    );
  }
  return { swarmId, nodes, services, tasks };
}
