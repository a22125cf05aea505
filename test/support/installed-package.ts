/** The project as its users get it: packed, and installed into a directory that is empty but for what it depends on. */
import { execFile } from 'node:child_process';
import {
  chmod,
  copyFile,
  link,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  readlink,
  rm,
  symlink,
  writeFile,
} from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

export const projectRoot = join(import.meta.dirname, '..', '..');

export interface Ended {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface InstalledPackage {
  /** Where it is installed; readable for everybody, as an embedded server of root runs as another user. */
  readonly directory: string;
  readonly tarball: string;
  /** Paths in the tarball. */
  readonly files: readonly string[];
  remove(): Promise<void>;
}

export function runProgram(
  program: string,
  args: readonly string[],
  options: { readonly cwd: string; readonly environment?: Readonly<Record<string, string>> },
): Promise<Ended> {
  const env = { PATH: process.env.PATH, HOME: process.env.HOME, ...options.environment };
  return new Promise((resolve, reject) => {
    execFile(program, args, { cwd: options.cwd, env, maxBuffer: 64 * 1024 * 1024 }, (error, stdout, stderr) => {
      if (error !== null && typeof error.code !== 'number') reject(error);
      else resolve({ code: error === null ? 0 : Number(error.code), stdout, stderr });
    });
  });
}

export async function demandDone(ended: Promise<Ended>, what: string): Promise<Ended> {
  const { code, stdout, stderr } = await ended;
  if (code !== 0) throw new Error(`${what} ended with ${code}: ${stdout}${stderr}`);
  return { code, stdout, stderr };
}

export const typescript = join(projectRoot, 'node_modules', 'typescript', 'bin', 'tsc');

/**
 * Builds what is not built yet, packs, and installs with npm. The dependencies are those of this checkout, linked, so that
 * nothing is fetched: npm is told to stay offline, and would fail where one were missing.
 */
export async function installPackage(): Promise<InstalledPackage> {
  const directory = await mkdtemp(join(tmpdir(), 'fleet-cutover-package-'));
  await chmod(directory, 0o755);
  const built = runProgram(process.execPath, [typescript, '-b', 'tsconfig.build.json'], { cwd: projectRoot });
  await Promise.all([demandDone(built, 'the build'), linkDependencies(directory)]);
  const packed = await demandDone(
    runProgram('npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', directory], { cwd: projectRoot }),
    'npm pack',
  );
  const { filename, files } = readPacked(packed.stdout);
  await writeFile(join(directory, 'package.json'), '{ "private": true, "type": "module" }');
  const install = ['install', '--offline', '--ignore-scripts', '--no-audit', '--no-fund', '--no-package-lock'];
  await demandDone(runProgram('npm', [...install, `./${filename}`], { cwd: directory }), 'npm install');
  return {
    directory,
    tarball: join(directory, filename),
    files,
    remove: () => rm(directory, { recursive: true, force: true }),
  };
}

interface Packed {
  readonly filename: string;
  readonly files: readonly string[];
}

/** An array of packages; newer versions of npm answer with an object by name. */
function readPacked(json: string): Packed {
  const answer = JSON.parse(json) as object;
  const [first] = Object.values(answer) as { filename: string; files: { path: string }[] }[];
  if (first === undefined) throw new Error('npm pack has packed nothing');
  return { filename: first.filename, files: first.files.map((file) => file.path) };
}

/** Everything that an installation without development dependencies has, as the lock file says. */
async function linkDependencies(directory: string): Promise<void> {
  const lock = JSON.parse(await readFile(join(projectRoot, 'package-lock.json'), 'utf8')) as {
    packages: Record<string, { dev?: boolean; devOptional?: boolean }>;
  };
  const wanted = Object.entries(lock.packages).filter(([path, { dev }]) => path !== '' && dev !== true);
  const paths = new Set(wanted.map(([path]) => path));
  await Promise.all([...paths].map((path) => linkTree(join(projectRoot, path), join(directory, path))));
  const parents = new Set([...paths].map((path) => path.slice(0, path.lastIndexOf('node_modules/') + 12)));
  await Promise.all([...parents].map((parent) => linkPrograms(parent, paths, directory)));
}

/**
 * Links where it can, copies where it can't. `nested`: with the `node_modules` below. What is not there, as a dependency for
 * another platform is not, is left out.
 */
export async function linkTree(from: string, to: string, nested = false): Promise<void> {
  const entries = await readdir(from, { withFileTypes: true }).catch(() => undefined);
  if (entries === undefined) return;
  await mkdir(to, { recursive: true });
  await Promise.all(
    entries.map(async (entry) => {
      const [source, target] = [join(from, entry.name), join(to, entry.name)];
      if (entry.isDirectory()) {
        if (nested || entry.name !== 'node_modules') await linkTree(source, target, nested);
      } else if (entry.isSymbolicLink()) await symlink(await readlink(source), target);
      // npm writes its list of what is installed where it stands.
      else if (entry.name === '.package-lock.json') await copyFile(source, target);
      else await link(source, target).catch(() => copyFile(source, target));
    }),
  );
}

/** `.bin` of one `node_modules`: without it npm would take the packages for broken and fetch them. */
async function linkPrograms(parent: string, paths: ReadonlySet<string>, directory: string): Promise<void> {
  const from = join(projectRoot, parent, '.bin');
  const names = await readdir(from).catch(() => []);
  for (const name of names) {
    const target = await readlink(join(from, name)).catch(() => undefined);
    const owner = /^\.\.\/((?:@[^/]+\/)?[^/]+)\//.exec(target ?? '')?.[1];
    if (target === undefined || owner === undefined || !paths.has(`${parent}/${owner}`)) continue;
    const link = join(directory, parent, '.bin', name);
    await mkdir(dirname(link), { recursive: true });
    await symlink(target, link);
  }
}
