import { readFile, stat } from 'node:fs/promises';
import { dirname } from 'node:path';

/** The user that the server runs as, where that is not the user of this process. Postgres refuses to run as root. */
export interface Account {
  readonly uid: number;
  readonly gid: number;
}

/** By long custom the ids of `nobody`, also where no file says so, as in minimal images. */
const NOBODY: Account = { uid: 65_534, gid: 65_534 };

/**
 * The account for a server whose cluster directory may exist already: undefined unless this process is root; then the
 * owner of the cluster, else `postgres`, else `nobody`, whichever comes first.
 */
export async function serverAccount(cluster: string): Promise<Account | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  const owner = await stat(cluster).catch(() => undefined);
  if (owner !== undefined && owner.uid !== 0) return { uid: owner.uid, gid: owner.gid };
  const users = await readFile('/etc/passwd', 'utf8').catch(() => '');
  return accountNamed(users, 'postgres') ?? accountNamed(users, 'nobody') ?? NOBODY;
}

function accountNamed(users: string, name: string): Account | undefined {
  const fields = users
    .split('\n')
    .map((line) => line.split(':'))
    .find((line) => line[0] === name);
  const uid = Number(fields?.[2]);
  const gid = Number(fields?.[3]);
  return uid > 0 && gid > 0 ? { uid, gid } : undefined;
}

/** The first directory on the way to `path`, from the root, that the account may not pass; undefined where it reaches it. */
export async function obstacle(account: Account | undefined, path: string): Promise<string | undefined> {
  if (account === undefined) return undefined;
  for (const directory of ancestors(path)) {
    const { uid, gid, mode } = await stat(directory);
    const executeBit = uid === account.uid ? 0o100 : gid === account.gid ? 0o010 : 0o001;
    if ((mode & executeBit) === 0) return directory;
  }
  return undefined;
}

function ancestors(path: string): string[] {
  const parent = dirname(path);
  return parent === path ? [path] : [...ancestors(parent), parent];
}
