/** How a command reaches the service. Tokens come from the environment or a file, never from the command line. */
import { readFile } from 'node:fs/promises';
import { Option } from '@commander-js/extra-typings';
import type { TransportOptions } from '../client/transport.js';
import { Secret } from '../secret.js';
import { UsageError } from './output.js';

export const urlOption = () =>
  new Option('--url <url>', 'the service; https, unless on this machine').env('FLEET_CUTOVER_URL');
export const tokenFileOption = () =>
  new Option('--token-file <file>', 'file with the token (default: FLEET_CUTOVER_TOKEN of the environment)');
export const caFileOption = () => new Option('--ca-file <file>', 'PEM of a private certificate authority');
export const plainHttpOption = () =>
  new Option('--allow-plain-http', 'permit http to another machine on a trusted network');

export type Environment = Readonly<Record<string, string | undefined>>;

export interface ConnectionOptions {
  readonly url?: string | undefined;
  readonly tokenFile?: string | undefined;
  readonly caFile?: string | undefined;
  readonly allowPlainHttp?: true | undefined;
}

/** @throws UsageError */
export async function transportOptions(
  options: ConnectionOptions,
  environment: Environment,
): Promise<TransportOptions> {
  const url = options.url ?? environment['FLEET_CUTOVER_URL'];
  if (url === undefined || url === '') throw new UsageError('no service: give --url or FLEET_CUTOVER_URL');
  return {
    url,
    allowPlainHttp: options.allowPlainHttp === true,
    ...(options.caFile === undefined ? {} : { certificateAuthority: await readText(options.caFile) }),
  };
}

/** The administrator's token: of the file where one is named, else of the environment. Throws UsageError. */
export async function administratorToken(options: ConnectionOptions, environment: Environment): Promise<Secret> {
  if (options.tokenFile !== undefined) return await tokenFromFile(options.tokenFile);
  const token = environment['FLEET_CUTOVER_TOKEN'];
  if (token === undefined || token === '')
    throw new UsageError('no token: set FLEET_CUTOVER_TOKEN or give --token-file');
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
