import type { IObservedSpecMount } from '../../contract/observation.js';
import { CensusFailure } from './census-failure.js';

const mountTypes = [
  'volume',
  'bind',
  'tmpfs',
  'npipe',
  'cluster',
  'image',
] as const satisfies IObservedSpecMount['type'][];

/** @throws CensusFailure `engine-error` for a type that the contract doesn't have: nobody knows whether it persists */
export function mountTypeOf(text: string): IObservedSpecMount['type'] {
  const type = mountTypes.find((known) => known === text);
  if (type === undefined) throw new CensusFailure('engine-error', 'a mount has an unknown type');
  return type;
}
