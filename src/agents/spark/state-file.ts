/** Small JSON documents that survive the process and the machine: written whole or not at all. */
import { mkdir, open, readFile, rename } from 'node:fs/promises';
import { dirname } from 'node:path';
import { canonicalizeStrictJson } from '../../contract/canonical-json.js';
import type { ContractRecord } from '../../contract/record.js';
import { parseStrictJson } from '../../contract/strict-json.js';

/** A state file that is there and can't be trusted. It is never taken for an absent one: that would forget. */
export class StateFileError extends Error {
  override readonly name = 'StateFileError';
}

/** The checked document, or null where there is no such file. Throws {@link StateFileError}. */
export async function readStateFile<T>(path: string, record: ContractRecord<T>): Promise<T | null> {
  let value: unknown;
  try {
    value = parseStrictJson(await readFile(path));
  } catch (error) {
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return null;
    throw new StateFileError(
      `the state file ${path} cannot be read: ${error instanceof Error ? error.message : 'failed'}`,
    );
  }
  const [fault] = record.check(value);
  if (fault !== undefined) throw new StateFileError(`the state file ${path} is not one of this program: ${fault}`);
  return value as T;
}

/**
 * Replaces the file. Resolves when the new content and its name are on disk, so that what is done next may rely on it. One
 * write per path at a time.
 */
export async function writeStateFile(path: string, value: unknown): Promise<void> {
  const unfinished = `${path}.unfinished`;
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  await withFile(unfinished, 'w', async (file) => {
    await file.writeFile(canonicalizeStrictJson(value));
    await file.sync();
  });
  await rename(unfinished, path);
  await withFile(dirname(path), 'r', (directory) => directory.sync());
}

type FileHandle = Awaited<ReturnType<typeof open>>;

async function withFile(path: string, flags: 'r' | 'w', work: (file: FileHandle) => Promise<void>): Promise<void> {
  const file = await open(path, flags, 0o600);
  try {
    await work(file);
  } finally {
    await file.close();
  }
}
