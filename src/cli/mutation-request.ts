/** Ids of mutations on the command line. */
import { Option } from '@commander-js/extra-typings';
import { newMutationId } from '../client/mutation-id.js';
import { isIdentifier } from '../features/auth/credential.js';
import type { CommandHost } from './command-host.js';
import { UsageError } from './output.js';

export const mutationIdOption = () => new Option('--mutation-id <id>', 'id of an earlier attempt that is repeated');

/** A given id is a repeat; a new one is told before it is used, so that what follows can be repeated even after a crash. */
export function mutationIdOf(host: CommandHost, given: string | undefined): string {
  const id = given ?? newMutationId();
  if (given === undefined) host.stderr(`mutation id: ${id}\n`);
  return id;
}

/** It names a file, too. Throws UsageError. */
export function demandMutationId(id: string): void {
  if (!isIdentifier(id))
    throw new UsageError('--mutation-id has to be 1 to 128 letters, digits and . _ : - with a letter or digit first');
}
