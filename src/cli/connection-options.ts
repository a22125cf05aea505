/** How a command reaches the service. Tokens come from the environment or a file, never from the command line. */
import { readFile } from 'node:fs/promises';
import { type Command, type OptionValues, Option } from '@commander-js/extra-typings';
import type { TransportOptions } from '../client/transport.js';
import { Secret } from '../secret.js';
import { UsageError } from './output.js';
import { type ConnectionOptions, type Environment, readSettings, type Settings, tokenVariable } from './settings.js';

export type { ConnectionOptions, Environment } from './settings.js';

export const configOption = () =>
  new Option(
    '--config <file>',
    'configuration (default: FLEET_CUTOVER_CONFIG, or ~/.config/fleet-cutover/config.json)',
  );
export const urlOption = () =>
  new Option('--url <url>', 'the service; https, unless on this machine (default: FLEET_CUTOVER_URL)');
export const tokenFileOption = () =>
  new Option('--token-file <file>', 'file with the token (default: FLEET_CUTOVER_TOKEN of the environment)');
export const caFileOption = () => new Option('--ca-file <file>', 'PEM of a private certificate authority');
export const plainHttpOption = () =>
  new Option('--allow-plain-http', 'permit http to another machine on a trusted network');
export const clusterOption = () => new Option('--cluster <id>', 'the cluster (default: FLEET_CUTOVER_CLUSTER)');

/** The options with which a command reaches the service. */
export function addServiceOptions<A extends unknown[], O extends OptionValues>(command: Command<A, O>) {
  return command
    .addOption(urlOption())
    .addOption(caFileOption())
    .addOption(plainHttpOption())
    .addOption(configOption());
}

/** Those, and whose token it uses. */
export function addConnectionOptions<A extends unknown[], O extends OptionValues>(command: Command<A, O>) {
  return addServiceOptions(command.addOption(tokenFileOption()));
}

/** @throws UsageError */
export async function transportOptions(
  options: ConnectionOptions,
  environment: Environment,
): Promise<TransportOptions> {
  return await transportOf(await readSettings(options, environment));
}

/** @throws UsageError */
export async function transportOf({ url, caFile, allowPlainHttp }: Settings): Promise<TransportOptions> {
  if (url === null) throw new UsageError('no service: give --url, FLEET_CUTOVER_URL, or url in the configuration file');
  return {
    url: url.value,
    allowPlainHttp: allowPlainHttp?.value === true,
    ...(caFile === null ? {} : { certificateAuthority: await readText(caFile.value) }),
  };
}

/** The administrator's token: of the file where one is named, else of the environment. Throws UsageError. */
export async function administratorToken(options: ConnectionOptions, environment: Environment): Promise<Secret> {
  return await tokenOf(await readSettings(options, environment), environment);
}

/** @throws UsageError */
export async function tokenOf({ tokenFile }: Settings, environment: Environment): Promise<Secret> {
  if (tokenFile !== null) return await tokenFromFile(tokenFile.value);
  const token = environment[tokenVariable];
  if (token === undefined || token === '')
    throw new UsageError(`no token: set ${tokenVariable}, give --token-file, or tokenFile in the configuration file`);
  return new Secret(token.trim());
}

/** A file that holds one token and, at most, white space around it. Throws UsageError. */
export async function tokenFromFile(path: string): Promise<Secret> {
  const token = (await readText(path)).trim();
  if (token === '') throw new UsageError(`${path} holds no token`);
  return new Secret(token);
}

async function readText(path: string): Promise<string> {
  return new TextDecoder().decode(await readInput(path));
}

/** A file that the caller names. Throws UsageError. */
export async function readInput(path: string): Promise<Uint8Array> {
  try {
    return await readFile(path);
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? ` (${String(error.code)})` : '';
    throw new UsageError(`${path} cannot be read${code}`);
  }
}
