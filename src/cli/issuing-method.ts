/** Methods whose answer tells tokens. */
import { Option } from '@commander-js/extra-typings';
import type { AdministratorClient } from '../client/administrator-client.js';
import { type MethodRequest, type MethodResponse, methods, type TMethodName } from '../contract/methods.js';
import type { CommandHost } from './command-host.js';
import { withSecretsFile } from './secrets-file.js';

export const secretsFileOption = () => new Option('--secrets-file <file>', 'new file (mode 0600) for issued tokens');

export type IssuingMethod = {
  [N in TMethodName]: MethodResponse<N> extends { secrets: unknown[] } ? N : never;
}[TMethodName];

/** A dry run issues nothing that would be of use: its secrets are dropped. */
export function issuing<N extends IssuingMethod>(
  client: AdministratorClient,
  method: N,
  request: MethodRequest<N>,
  secretsFile: string,
) {
  const isDryRun = (request as { dryRun?: boolean }).dryRun === true;
  return withSecretsFile(secretsFile, async () => {
    const answer = await client.call(method, request);
    return isDryRun ? { ...answer, secrets: [] } : answer;
  });
}

/** The method's answer has a `secrets` member. */
export function isIssuing(method: TMethodName): method is IssuingMethod {
  return 'secrets' in methods[method].response.properties;
}

/** A replay tells no token, which would otherwise look like a loss. */
export function warnOfReplay(host: CommandHost, { replayed }: { readonly replayed: boolean }): void {
  if (replayed) host.stderr('replay: done before; tokens are told only once, a lost one is rotated\n');
}
