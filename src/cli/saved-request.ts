/**
 * What a mutation asks for, kept from before it is sent. A repeat is a replay only with exactly the same payload, and the
 * references in it have moved when the mutation was applied: so the repeat sends what was saved, and reads nothing.
 *
 * One file of mode 0600 per method and mutation id, below `FLEET_CUTOVER_STATE_DIR`, else `$XDG_STATE_HOME/fleet-cutover`,
 * else `~/.local/state/fleet-cutover`. No request of the owner API holds a secret.
 */
import { randomBytes } from 'node:crypto';
import { link, mkdir, open, readdir, readFile, stat, unlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { canonicalizeStrictJson } from '../contract/canonical-json.js';
import type { TMethodName } from '../contract/methods.js';
import { isJsonObject, type JsonObject } from '../contract/strict-json.js';
import { parseObject } from './json-input.js';
import { UsageError } from './output.js';
import { type Environment, userFile } from './settings.js';

export interface SavedRequest {
  /** The command with its arguments and its own options: a repeat is of the same command. */
  readonly intent: JsonObject;
  readonly request: JsonObject;
}

/** Files that are kept, newest first: far more than anybody repeats. */
const kept = 200;

/** Where the request of this mutation is or would be; null where the environment has no place for it. */
export function savedRequestPath(environment: Environment, method: TMethodName, mutationId: string): string | null {
  const name = `${method}.${mutationId}.json`;
  const named = environment['FLEET_CUTOVER_STATE_DIR'];
  if (named !== undefined && named !== '') return join(named, 'requests', name);
  return userFile(environment, 'XDG_STATE_HOME', join('.local', 'state'), 'requests', name);
}

/** Null where nothing was saved. Throws UsageError for a file that can't be read or is none of ours. */
export async function readSavedRequest(path: string): Promise<SavedRequest | null> {
  let content: Uint8Array;
  try {
    content = await readFile(path);
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return null;
    throw new UsageError(`the saved request ${path} cannot be read (${codeOf(error)})`);
  }
  const { intent, request } = parseObject(content, `the saved request ${path}`);
  if (!isJsonObject(intent) || !isJsonObject(request)) throw new UsageError(`${path} is not a saved request`);
  return { intent, request };
}

/**
 * Saves it durably, unless the same mutation id has one: the file is whole or not there, and never replaced.
 *
 * @returns false where another process was first
 * @throws Error with a `code` of the file system
 */
export async function saveRequest(path: string, saved: SavedRequest): Promise<boolean> {
  const directory = dirname(path);
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const draft = join(directory, `.${randomBytes(8).toString('hex')}`);
  try {
    const file = await open(draft, 'wx', 0o600);
    try {
      await file.writeFile(`${canonicalizeStrictJson(saved)}\n`);
      await file.sync();
    } finally {
      await file.close();
    }
    await link(draft, path);
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return false;
    throw error;
  } finally {
    await forgetRequest(draft);
  }
  await prune(directory);
  return true;
}

export async function forgetRequest(path: string): Promise<void> {
  await unlink(path).catch(() => {}); // at worst it is pruned later
}

async function prune(directory: string): Promise<void> {
  const names = (await readdir(directory)).filter((name) => name.endsWith('.json'));
  if (names.length <= kept) return;
  const aged = await Promise.all(
    names.map(async (name) => ({
      path: join(directory, name),
      at: await stat(join(directory, name)).then(
        ({ mtimeMs }) => mtimeMs,
        () => 0,
      ),
    })),
  );
  aged.sort((left, right) => right.at - left.at);
  for (const { path } of aged.slice(kept)) await forgetRequest(path);
}

export function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : 'failed';
}
