/** What each node's derivation is made of, from accepted snapshots themselves rather than from rows made of them. */
import type {
  IFleetCutoverCompleteLocalNodeSnapshot,
  IFleetCutoverCompleteManagerSnapshot,
  IObservedSpecMount,
} from '../../contract/observation.js';
import type { IFleetCutoverScope, IFleetCutoverTargetSet } from '../../contract/scope.js';
import type { NodeTask } from '../volume-handoff/derive-node.js';

/** The cluster's side, read once. */
export interface DerivationEvidence {
  readonly scope: IFleetCutoverScope | null;
  readonly targets: ReadonlySet<string>;
  readonly services: readonly { readonly swarmServiceId: string; readonly name: string }[];
  readonly specMounts: ReadonlyMap<string, readonly IObservedSpecMount[]>;
  readonly managerIncomplete: string | null;
  /** By swarm node; those of nobody under null. */
  readonly tasks: ReadonlyMap<string | null, readonly NodeTask[]>;
  readonly swarmStates: ReadonlyMap<string, string>;
}

export interface NodeEvidence {
  readonly nodeId: string;
  readonly swarmNodeId: string | null;
  readonly incomplete: string | null;
  readonly generation: number;
  readonly snapshot: IFleetCutoverCompleteLocalNodeSnapshot | null;
}

export function derivationEvidence(
  scope: IFleetCutoverScope | null,
  targetSet: IFleetCutoverTargetSet | null,
  manager: IFleetCutoverCompleteManagerSnapshot | null,
  managerIncomplete: string | null,
): DerivationEvidence {
  const tasks = new Map<string | null, NodeTask[]>();
  for (const task of manager?.tasks ?? []) {
    const nodeTask = {
      swarmTaskId: task.id,
      swarmServiceId: task.serviceId,
      swarmNodeId: task.nodeId,
      state: task.state,
      containerId: task.containerId,
    };
    const known = tasks.get(task.nodeId);
    if (known === undefined) tasks.set(task.nodeId, [nodeTask]);
    else known.push(nodeTask);
  }
  const services = manager?.services ?? [];
  return {
    scope,
    targets: new Set(targetSet?.nodeIds),
    services: services.map(({ id, name }) => ({ swarmServiceId: id, name })),
    specMounts: new Map(services.map(({ id, mounts }) => [id, mounts])),
    managerIncomplete,
    tasks,
    swarmStates: new Map((manager?.nodes ?? []).map(({ id, state }) => [id, state])),
  };
}
