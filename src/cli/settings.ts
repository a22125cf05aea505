/**
 * Where the service is, whose token is used and which cluster is meant, if the command doesn't say it: each setting comes
 * from the option, else from the environment, else from the configuration file.
 */
import { dirname, isAbsolute, join, resolve } from 'node:path';
import { readFile } from 'node:fs/promises';
import { AdministratorToken } from '../contract/fleet.js';
import { isIdentifier } from '../features/auth/credential.js';
import { type JsonObject, jsonPointer } from '../contract/strict-json.js';
import { parseObject } from './json-input.js';
import { UsageError } from './output.js';

export type Environment = Readonly<Record<string, string | undefined>>;

/** What a command line may say about the connection. */
export interface ConnectionOptions {
  readonly config?: string | undefined;
  readonly url?: string | undefined;
  readonly tokenFile?: string | undefined;
  readonly caFile?: string | undefined;
  readonly allowPlainHttp?: true | undefined;
  readonly cluster?: string | undefined;
}

/** A value, and the words for where it came from. */
export interface Setting<T> {
  readonly value: T;
  readonly from: string;
}

export interface Settings {
  /** The configuration file that was read; null where there is none. */
  readonly file: string | null;
  readonly url: Setting<string> | null;
  readonly tokenFile: Setting<string> | null;
  readonly caFile: Setting<string> | null;
  readonly allowPlainHttp: Setting<boolean> | null;
  readonly cluster: Setting<string> | null;
  /** The token itself is in this variable of the environment; null where it isn't, or where the command names a file. */
  readonly tokenVariable: string | null;
}

export const tokenVariable = 'FLEET_CUTOVER_TOKEN';

/** @throws UsageError that names the file and key, or the variable, and never shows a value */
export async function readSettings(options: ConnectionOptions, environment: Environment): Promise<Settings> {
  const named = await configurationFile(options, environment);
  const file = named === null ? null : checkFile(named.path, named.content);
  const path = named?.path ?? null;
  const pick = <T>(option: T | undefined, flag: string, variable: string, read: (text: string) => T, filed?: T) => {
    if (option !== undefined) return { value: option, from: `option ${flag}` };
    const text = environment[variable];
    if (text !== undefined && text !== '') return { value: read(text), from: `environment ${variable}` };
    return filed === undefined || path === null ? null : { value: filed, from: `file ${path}` };
  };
  const asIs = (text: string) => text;
  const tokenInEnvironment = (environment[tokenVariable] ?? '') !== '';
  if (options.tokenFile === undefined && tokenInEnvironment && (environment['FLEET_CUTOVER_TOKEN_FILE'] ?? '') !== '')
    throw new UsageError('FLEET_CUTOVER_TOKEN and FLEET_CUTOVER_TOKEN_FILE exclude each other');
  const tokenFile = pick(options.tokenFile, '--token-file', 'FLEET_CUTOVER_TOKEN_FILE', asIs, file?.tokenFile);
  const useVariable = options.tokenFile === undefined && tokenInEnvironment;
  return {
    file: path,
    url: pick(options.url, '--url', 'FLEET_CUTOVER_URL', asIs, file?.url),
    tokenFile: useVariable ? null : tokenFile,
    caFile: pick(options.caFile, '--ca-file', 'FLEET_CUTOVER_CA_FILE', asIs, file?.caFile),
    allowPlainHttp: pick<boolean>(
      options.allowPlainHttp,
      '--allow-plain-http',
      'FLEET_CUTOVER_ALLOW_PLAIN_HTTP',
      flag,
      file?.allowPlainHttp,
    ),
    cluster: pick(options.cluster, '--cluster', 'FLEET_CUTOVER_CLUSTER', asIs, file?.cluster),
    tokenVariable: useVariable ? tokenVariable : null,
  };
}

/** The cluster that is meant. Throws UsageError where nothing says it. */
export function clusterOf({ cluster }: Settings): string {
  if (cluster === null)
    throw new UsageError(
      'no cluster: give --cluster, FLEET_CUTOVER_CLUSTER, or cluster in the configuration file (`fleet-cutover config show`)',
    );
  if (!isIdentifier(cluster.value)) throw new UsageError(`the cluster (${cluster.from}) is not an identifier`);
  return cluster.value;
}

function flag(text: string): boolean {
  if (text === 'true' || text === '1') return true;
  if (text === 'false' || text === '0') return false;
  throw new UsageError('FLEET_CUTOVER_ALLOW_PLAIN_HTTP has to be true or false');
}

/** The file that is named, else the usual one if it exists. */
async function configurationFile(
  { config }: ConnectionOptions,
  environment: Environment,
): Promise<{ path: string; content: Uint8Array } | null> {
  const named = config ?? (environment['FLEET_CUTOVER_CONFIG'] || undefined);
  const path = named ?? userFile(environment, 'XDG_CONFIG_HOME', '.config', 'config.json');
  if (path === null) return null;
  try {
    return { path, content: await readFile(path) };
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : 'failed';
    if (named === undefined && (code === 'ENOENT' || code === 'ENOTDIR')) return null;
    throw new UsageError(`the configuration file ${path} cannot be read (${code})`);
  }
}

/** A file of this program below a directory of the user's (XDG base directories); null where the environment names none. */
export function userFile(
  environment: Environment,
  variable: string,
  underHome: string,
  ...names: string[]
): string | null {
  const base = environment[variable];
  if (base !== undefined && isAbsolute(base)) return join(base, 'fleet-cutover', ...names);
  const home = environment['HOME'];
  return home === undefined || !isAbsolute(home) ? null : join(home, underHome, 'fleet-cutover', ...names);
}

interface FileSettings {
  readonly url?: string;
  readonly tokenFile?: string;
  readonly caFile?: string;
  readonly allowPlainHttp?: boolean;
  readonly cluster?: string;
}

const kinds = {
  url: 'string',
  tokenFile: 'string',
  caFile: 'string',
  allowPlainHttp: 'boolean',
  cluster: 'string',
} as const satisfies Record<keyof FileSettings, 'string' | 'boolean'>;

const tokenShape = new RegExp(AdministratorToken.pattern ?? '');

/** Paths in it are relative to its own directory. */
function checkFile(path: string, content: Uint8Array): FileSettings {
  const what = `the configuration file ${path}`;
  const document: JsonObject = parseObject(content, what);
  for (const [key, value] of Object.entries(document)) {
    if (typeof value === 'string' && tokenShape.test(value.trim()))
      throw new UsageError(
        `${what} holds a token in ${shown(key)}: put it into a file of its own and name that as tokenFile`,
      );
    if (key === 'token')
      throw new UsageError(`${what} has the key token: no token belongs there; name its file as tokenFile`);
    if (!Object.hasOwn(kinds, key))
      throw new UsageError(`${what} has the unknown key ${shown(key)}; there are: ${Object.keys(kinds).join(', ')}`);
    const kind = kinds[key as keyof FileSettings];
    if (typeof value !== kind || value === '')
      throw new UsageError(
        `${what}: ${key} has to be ${kind === 'string' ? 'a text that is not empty' : 'true or false'}`,
      );
  }
  const settings = document as FileSettings;
  const beside = (name: string) => resolve(dirname(path), name);
  return {
    ...settings,
    ...(settings.tokenFile === undefined ? {} : { tokenFile: beside(settings.tokenFile) }),
    ...(settings.caFile === undefined ? {} : { caFile: beside(settings.caFile) }),
  };
}

/** A key as it may be shown: never one that could be a secret or could move a terminal's cursor. */
const shown = (key: string) => jsonPointer([key]).slice(1);
