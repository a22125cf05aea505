/**
 * Which tasks a manager snapshot keeps. Swarm remembers the last few tasks of every slot, and one that is rejected
 * again and again leaves a trail of tasks that never had a container: of those the newest says what there is to say.
 */
import { isTerminalTaskState, swarmTaskStates, type TSwarmTaskState } from '../../contract/observation.js';
import { compareText } from '../../contract/schema.js';
import type { IEngineTask } from './answers.js';
import { CensusFailure } from './census-failure.js';

/** @throws CensusFailure `engine-error` for a state that the contract doesn't have: it could be a live one */
export function taskState(text: string): TSwarmTaskState {
  const state = swarmTaskStates.find((known) => known === text);
  if (state === undefined) throw new CensusFailure('engine-error', 'a task is in an unknown state');
  return state;
}

export function isLiveTask(task: IEngineTask): boolean {
  return !isTerminalTaskState(taskState(task.Status.State));
}

/** The container that Swarm says the task has or had, or null. */
export function taskContainerId(task: IEngineTask): string | null {
  const id = task.Status.ContainerStatus?.ContainerID ?? '';
  return id === '' ? null : id;
}

/**
 * Every non-terminal task, every task that has or had a container, and of the rest the newest per service, slot and
 * node.
 */
export function keptTasks(tasks: readonly IEngineTask[]): IEngineTask[] {
  const kept: IEngineTask[] = [];
  const newest = new Map<string, IEngineTask>();
  for (const task of tasks) {
    if (isLiveTask(task) || taskContainerId(task) !== null) {
      kept.push(task);
      continue;
    }
    const place = `${task.ServiceID} ${task.Slot ?? 0} ${task.NodeID ?? ''}`;
    const other = newest.get(place);
    if (other === undefined || byAge(other, task) < 0) newest.set(place, task);
  }
  return [...kept, ...newest.values()];
}

/** Older first; of two made in one instant the id decides, so that the order of the list doesn't. */
function byAge(left: IEngineTask, right: IEngineTask): number {
  return compareText(instant(left.CreatedAt), instant(right.CreatedAt)) || compareText(left.ID, right.ID);
}

/**
 * Go's RFC 3339 time in UTC without its `Z`: Go omits a fraction's trailing zeros, so that such texts sort as times.
 */
function instant(text: string): string {
  if (!/^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?Z$/.test(text)) {
    throw new CensusFailure('engine-error', 'a task has no valid time of creation');
  }
  return text.slice(0, -1);
}
