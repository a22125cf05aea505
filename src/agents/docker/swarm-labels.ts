/** The labels by which Swarm marks a task's container, and with which it is joined to the task and the service. */
import { Identifier } from '../../contract/schema.js';
import type { IEngineContainer } from './answers.js';

const identifier = new RegExp(Identifier.pattern ?? '');

export function swarmTaskIdOf(container: IEngineContainer): string | null {
  return identifierLabel(container, 'com.docker.swarm.task.id');
}

export function swarmServiceIdOf(container: IEngineContainer): string | null {
  return identifierLabel(container, 'com.docker.swarm.service.id');
}

/** Anybody may put such a label on a container: a value that can be no id of Swarm's is no mark. */
function identifierLabel(container: IEngineContainer, label: string): string | null {
  const value = Object.hasOwn(container.Config.Labels ?? {}, label) ? container.Config.Labels?.[label] : undefined;
  return value !== undefined && identifier.test(value) ? value : null;
}
