import { InvalidArgumentError } from '@commander-js/extra-typings';

export interface HandoffName {
  readonly nodeId: string;
  readonly id: string;
}

/** `NODE/ID`, as lists show a handoff. Throws InvalidArgumentError. */
export function parseHandoff(text: string): HandoffName {
  const [, nodeId, id] = /^([^/]+)\/([^/]+)$/.exec(text) ?? [];
  if (nodeId === undefined || id === undefined) throw new InvalidArgumentError('NODE/ID.');
  return { nodeId, id };
}
