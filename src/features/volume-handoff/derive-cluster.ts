/**
 * What the derivation says about a cluster as a whole: blockers that are no single node's, and verdicts of tasks that
 * are on no fleet node.
 */
import type { IFleetCutoverTaskVerdict } from '../../contract/derivation.js';
import type { IFleetCutoverScope } from '../../contract/scope.js';
import { judgeTask } from '../inventory/verdict.js';
import { type Blocker, makeBlocker, type NodeTask } from './derive-node.js';

export interface ClusterFacts {
  readonly scope: IFleetCutoverScope | null;
  /** Services of the latest accepted manager snapshot. */
  readonly services: readonly { readonly swarmServiceId: string; readonly name: string }[];
  /** Reason of a newer incomplete manager snapshot. */
  readonly managerIncomplete: string | null;
  /** Tasks that are on no fleet node, with the state of their swarm node (null where Swarm knows none). */
  readonly tasks: readonly (NodeTask & { readonly swarmState: string | null })[];
}

export interface ClusterDerivation {
  readonly blockers: readonly Blocker[];
  readonly verdicts: readonly IFleetCutoverTaskVerdict[];
}

export function deriveCluster(facts: ClusterFacts): ClusterDerivation {
  const blockers: Blocker[] = [];
  const verdicts = facts.tasks.map((task) => ({
    swarmTaskId: task.swarmTaskId,
    swarmServiceId: task.swarmServiceId,
    nodeId: null,
    ...judgeTask(
      task,
      task.swarmNodeId === null ? { kind: 'unassigned' } : { kind: 'unreported', swarmState: task.swarmState },
      [],
    ),
  }));
  if (facts.managerIncomplete !== null) {
    const code = facts.managerIncomplete === 'truncated' ? 'task-limit' : 'snapshot-incomplete';
    blockers.push(makeBlocker(code, `the latest manager snapshot is incomplete: ${facts.managerIncomplete}`, {}));
  }
  const { scope } = facts;
  if (scope === null) {
    blockers.push(makeBlocker('scope-missing', 'no scope was accepted yet', {}));
    return { blockers, verdicts };
  }
  const classes = new Map(scope.services.map((service) => [service.swarmServiceId, service.class]));
  for (const service of facts.services) {
    if (classes.has(service.swarmServiceId)) continue;
    blockers.push(
      makeBlocker('service-unclassified', `service ${service.name} has no class`, {
        swarmServiceId: service.swarmServiceId,
      }),
    );
  }
  if (scope.coreflow.state === 'undetermined') {
    blockers.push(
      makeBlocker(
        'coreflow-undetermined',
        'the scope does not say which service is Coreflow, or that there is none',
        {},
      ),
    );
  }
  for (const verdict of verdicts) {
    if (verdict.verdict !== 'unknown' || classes.get(verdict.swarmServiceId) === 'excluded') continue;
    blockers.push(
      makeBlocker('task-unknown', `the task cannot be judged: ${verdict.reason}`, {
        swarmServiceId: verdict.swarmServiceId,
        swarmTaskId: verdict.swarmTaskId,
      }),
    );
  }
  return { blockers, verdicts };
}
