/** Nothing of a person's is overwritten but the file that was read, as it was read, and that as a whole. */
import { randomBytes } from 'node:crypto';
import { readFile, rename, unlink, writeFile } from 'node:fs/promises';
import { UsageError } from '../output.js';

/** @throws UsageError also where the file exists */
export async function writeNewFile(path: string, text: string): Promise<void> {
  await writeFile(path, text, { flag: 'wx' }).catch((error: unknown) => {
    throw unwritable(path, error);
  });
}

/**
 * In place of what was read of it.
 *
 * @throws UsageError also where it is not what was read any more: an editor may have saved it meanwhile
 */
export async function replaceFile(path: string, read: Uint8Array, text: string): Promise<void> {
  const beside = `${path}.${randomBytes(6).toString('hex')}.new`;
  try {
    await writeFile(beside, text, { flag: 'wx' });
    try {
      if (!(await readFile(path)).equals(read))
        throw new UsageError(`${path} was changed while this ran, and is left as it is: run it again`);
      await rename(beside, path);
    } catch (error) {
      await unlink(beside);
      throw error;
    }
  } catch (error) {
    throw error instanceof UsageError ? error : unwritable(path, error);
  }
}

function unwritable(path: string, error: unknown): UsageError {
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  return new UsageError(
    code === 'EEXIST'
      ? `${path} exists: name a new file, or keep its answers with --from ${path}`
      : `${path} cannot be written${code === '' ? '' : ` (${code})`}`,
  );
}
