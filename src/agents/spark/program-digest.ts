import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { bareDigest, bytesDigest, type TSha256Digest } from '../../contract/digest.js';
import { compareText } from '../../contract/schema.js';

/** Bare digest of the names and bytes of all files under a directory: which build of a program runs. */
export async function programDigest(directory: string): Promise<TSha256Digest> {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  const paths = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  const files = await Promise.all(
    paths.map(async (path) => ({
      path: path.slice(directory.length).replaceAll('\\', '/'),
      digest: bytesDigest(await readFile(path)),
    })),
  );
  return bareDigest(files.sort((left, right) => compareText(left.path, right.path)));
}
