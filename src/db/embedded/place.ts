import { createHash, randomBytes } from 'node:crypto';
import { chmod, chown, lstat, mkdir, open, readdir, realpath, rm, rename } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { obstacle, serverAccount, type Account } from './account.js';
import { EmbeddedError, errorCode } from './error.js';
import { processIsAlive } from './process.js';

/**
 * Where everything of one embedded server lives. Below the data directory:
 *
 *     server/              appears complete or not at all
 *       cluster/           Postgres' own directory
 *       credentials.json   passwords of owner and service, mode 0600
 *       log/               one file per weekday, overwritten after a week
 *       start.log          what the server printed before its log was open
 *     socket/              mode 0700
 *     native-<version>/    the binaries, only where those of the package can't be used as they are
 */
export interface Place {
  readonly root: string;
  readonly server: string;
  readonly cluster: string;
  readonly credentials: string;
  readonly log: string;
  readonly startLog: string;
  readonly socket: string;
  readonly account: Account | undefined;
}

/** Names of directories that are being filled, with the process that fills them. */
const STAGING = /\.new-(\d+)-[0-9a-f]+$/;

/** `sun_path` has 108 bytes on Linux and 104 on the BSDs and macOS, the terminating NUL included. */
const MAXIMUM_SOCKET_PATH = process.platform === 'linux' ? 107 : 103;

/** Where the server of a data directory is, or will be. */
export function serverDirectories(root: string): Pick<Place, 'server' | 'cluster'> {
  const server = join(root, 'server');
  return { server, cluster: join(server, 'cluster') };
}

/** Makes the data directory, finds out who the server runs as, and refuses a place that this user can't reach. */
export async function preparePlace(dataDirectory: string): Promise<Place> {
  const root = await makeRoot(dataDirectory);
  const { server, cluster } = serverDirectories(root);
  const account = await serverAccount(cluster);
  const blocked = await obstacle(account, cluster.slice(0, server.length));
  if (blocked !== undefined) {
    throw new EmbeddedError(
      'embedded-unreachable',
      `the embedded Postgres can't run as root, and its user (uid ${account?.uid}) can't enter ${blocked}. ` +
        'Set EMBEDDED_DATA_DIR to a directory below one that everybody may enter, such as /var/lib/fleet-cutover',
    );
  }
  await removeAbandoned(root);
  const socket = await makeSocketDirectory(root, account);
  return {
    root,
    server,
    cluster,
    credentials: join(server, 'credentials.json'),
    log: join(server, 'log'),
    startLog: join(server, 'start.log'),
    socket,
    account,
  };
}

/** Directories made here can be passed by the server's user; those that exist are left as they are, but for the last. */
async function makeRoot(dataDirectory: string): Promise<string> {
  const asRoot = process.getuid?.() === 0;
  try {
    await makeParents(dirname(dataDirectory), asRoot);
    await mkdir(dataDirectory).catch(ignoreExisting);
    await chmod(dataDirectory, asRoot ? 0o711 : 0o700);
  } catch (cause) {
    throw new EmbeddedError('embedded-unreachable', `the data directory ${dataDirectory} can't be made or owned`, {
      cause,
    });
  }
  return realpath(dataDirectory);
}

async function makeParents(directory: string, asRoot: boolean): Promise<void> {
  try {
    await mkdir(directory);
  } catch (error) {
    if (errorCode(error) === 'EEXIST') return;
    if (errorCode(error) !== 'ENOENT') throw error;
    await makeParents(dirname(directory), asRoot);
    return makeParents(directory, asRoot);
  }
  if (asRoot) await chmod(directory, 0o755);
}

async function makeSocketDirectory(root: string, account: Account | undefined): Promise<string> {
  const directory = socketDirectory(root);
  await mkdir(directory, { mode: 0o700 }).then(
    () => account && chown(directory, account.uid, account.gid),
    ignoreExisting,
  );
  // In the shared temporary directory anybody may have made it first, to read what is sent.
  const owner = account?.uid ?? process.getuid?.();
  const found = await lstat(directory);
  if (!found.isDirectory() || (found.uid !== owner && found.uid !== 0)) {
    throw new EmbeddedError('embedded-unreachable', `the socket directory ${directory} belongs to somebody else`);
  }
  if (account && found.uid === 0) await chown(directory, account.uid, account.gid);
  await chmod(directory, 0o700);
  return directory;
}

/** Beside the data, unless that path is too long for a socket or has a character that the setting can't carry. */
function socketDirectory(root: string): string {
  const beside = join(root, 'socket');
  const length = Buffer.byteLength(join(beside, '.s.PGSQL.5432'));
  if (length <= MAXIMUM_SOCKET_PATH && !/[,"'\\\s]/.test(beside)) return beside;
  const digest = createHash('sha256').update(root).digest('hex').slice(0, 16);
  return join(tmpdir(), `fleet-cutover-${digest}`);
}

/** A new empty directory beside `target`, to be filled and then given to {@link publish}. */
export async function makeStaging(target: string, mode: number): Promise<string> {
  const staging = `${target}.new-${process.pid}-${randomBytes(6).toString('hex')}`;
  await mkdir(staging);
  await chmod(staging, mode);
  return staging;
}

/** Makes a filled directory appear as `target` in one step. False: somebody else's was there first, ours is removed. */
export async function publish(staging: string, target: string): Promise<boolean> {
  try {
    await rename(staging, target);
  } catch (error) {
    if (errorCode(error) !== 'ENOTEMPTY' && errorCode(error) !== 'EEXIST') throw error;
    await rm(staging, { recursive: true, force: true });
    return false;
  }
  const parent = await open(dirname(target));
  await parent.sync().finally(() => parent.close());
  return true;
}

/** Removes what processes that were killed left half filled. */
async function removeAbandoned(root: string): Promise<void> {
  for (const name of await readdir(root)) {
    const pid = STAGING.exec(name)?.[1];
    if (pid !== undefined && Number(pid) !== process.pid && !(await processIsAlive(Number(pid)))) {
      await rm(join(root, name), { recursive: true, force: true });
    }
  }
}

function ignoreExisting(error: unknown): void {
  if (errorCode(error) !== 'EEXIST') throw error;
}
