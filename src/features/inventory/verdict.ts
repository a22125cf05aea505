/**
 * What became of one task, judged from the accepted manager snapshot and its node's accepted local snapshot.
 *
 * 1. `live`: a non-terminal task whose container exists, whatever state that container is in.
 * 2. `not-started`: never had a container. It makes no entry and blocks only the gate to `pallet`.
 * 3. `stopped`: a terminal task whose container does not run, or is gone, by the report of its own node.
 * 4. `unknown`: everything that cannot be told. It blocks; it is never dropped and never guessed.
 */
import type { TTaskVerdict } from '../../contract/derivation.js';
import { isTerminalTaskState, type IObservedContainer, type TSwarmTaskState } from '../../contract/observation.js';

export interface JudgedTask {
  readonly state: TSwarmTaskState;
  readonly swarmNodeId: string | null;
  /** The container that Swarm says the task had. */
  readonly containerId: string | null;
}

/** What is known of the task's node. */
export type TaskNode =
  /** The task was never assigned to a node. */
  | { readonly kind: 'unassigned' }
  /** Swarm knows no such node any more, or no fleet node reports it. */
  | { readonly kind: 'unreported'; readonly swarmState: string | null }
  /** A fleet node with an accepted local snapshot, under a swarm node id that it had before it rejoined. */
  | { readonly kind: 'former' }
  /** A fleet node with an accepted local snapshot. */
  | { readonly kind: 'reported'; readonly swarmState: string | null };

export interface Verdict {
  readonly verdict: TTaskVerdict;
  readonly reason: string;
}

const running: ReadonlySet<IObservedContainer['state']> = new Set(['running', 'paused', 'restarting']);

/** Whether a container has processes, or will have again by itself. */
export function isRunning(container: Pick<IObservedContainer, 'state'>): boolean {
  return running.has(container.state);
}

/** States in which Swarm has not created a container yet. */
const beforeContainer: ReadonlySet<TSwarmTaskState> = new Set(['new', 'pending', 'assigned', 'accepted', 'preparing']);

/** `containers`: those of the node's local snapshot that carry the task's id. */
export function judgeTask(
  task: JudgedTask,
  node: TaskNode,
  containers: readonly Pick<IObservedContainer, 'state'>[],
): Verdict {
  if (node.kind === 'unassigned') {
    return task.containerId === null && containers.length === 0
      ? { verdict: 'not-started', reason: 'never-assigned' }
      : { verdict: 'unknown', reason: 'container-without-node' };
  }
  if (node.kind === 'former') {
    // Swarm keeps such tasks for months; whether anything of them is left, only the machine itself can say.
    return containers.some(isRunning)
      ? { verdict: 'unknown', reason: 'former-node-running' }
      : { verdict: 'stopped', reason: 'node-rejoined' };
  }
  if (task.state === 'orphaned') return { verdict: 'unknown', reason: 'orphaned' };
  if (task.state === 'remove') return { verdict: 'unknown', reason: 'removed' };
  if (node.swarmState === null) return { verdict: 'unknown', reason: 'node-removed' };
  if (node.swarmState !== 'ready') return { verdict: 'unknown', reason: `node-${node.swarmState}` };
  if (node.kind === 'unreported') return { verdict: 'unknown', reason: 'no-local-report' };

  if (!isTerminalTaskState(task.state)) {
    if (containers.length > 0) return { verdict: 'live', reason: 'container-exists' };
    if (task.containerId === null && beforeContainer.has(task.state)) {
      return { verdict: 'not-started', reason: `still-${task.state}` };
    }
    return { verdict: 'unknown', reason: 'container-not-found' };
  }
  if (containers.some(isRunning)) {
    return { verdict: 'unknown', reason: 'terminal-but-running' };
  }
  if (containers.length > 0) return { verdict: 'stopped', reason: 'container-exited' };
  if (task.containerId === null) {
    return { verdict: 'not-started', reason: task.state === 'rejected' ? 'rejected' : 'never-had-a-container' };
  }
  return { verdict: 'stopped', reason: 'container-gone' };
}
