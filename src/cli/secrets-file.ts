/** Issued tokens, once, into a file that only its owner reads. */
import type { IIssuedSecret } from '../contract/fleet.js';
import { type FileHandle, open, unlink } from 'node:fs/promises';
import { UsageError } from './output.js';

interface Answer {
  readonly secrets: readonly IIssuedSecret[];
}

export type WithoutSecrets<T extends Answer> = Omit<T, 'secrets'> & {
  readonly secrets: readonly Omit<IIssuedSecret, 'secret'>[];
};

/**
 * Runs `work` and writes the secrets of its answer to a new file of mode 0600, as `{ "secrets": [...] }`. The file is made
 * before anything is asked for, so that what is issued has a place; without secrets to write it is removed again.
 *
 * @returns the answer with which credentials were issued, without their secrets
 * @throws UsageError for a file that exists or can't be made, before `work` began; Error for issued secrets that could not be written
 */
export async function withSecretsFile<T extends Answer>(
  path: string,
  work: () => Promise<T>,
): Promise<WithoutSecrets<T>> {
  const file = await createNew(path);
  let written = false;
  try {
    const answer = await work();
    if (answer.secrets.length > 0) {
      await writeSecrets(file, path, answer);
      written = true;
    }
    return {
      ...answer,
      secrets: answer.secrets.map(({ secret: _secret, ...shown }) => shown),
    };
  } finally {
    await file.close();
    if (!written) await unlink(path);
  }
}

async function writeSecrets(file: FileHandle, path: string, { secrets }: Answer): Promise<void> {
  try {
    await file.writeFile(`${JSON.stringify({ secrets }, null, 2)}\n`);
    await file.sync();
  } catch {
    const ids = secrets.map(({ credentialId }) => credentialId).join(', ');
    throw new Error(`done, but the tokens could not be written to ${path} and are lost: rotate ${ids}`);
  }
}

async function createNew(path: string): Promise<FileHandle> {
  try {
    return await open(path, 'wx', 0o600);
  } catch (error) {
    const exists = error instanceof Error && 'code' in error && error.code === 'EEXIST';
    throw new UsageError(exists ? `${path} exists: name a new file for the tokens` : `${path} cannot be created`);
  }
}
