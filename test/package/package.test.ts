/** The packed project, installed elsewhere: what users of `fleet-cutover/contract`, `/client`, `/agents` and the command get. */
import { cp, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createContext, runInContext } from 'node:vm';
import { build as bundle, createLogger } from 'vite';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  type InstalledPackage,
  installPackage,
  projectRoot,
  runProgram,
  typescript,
} from '../support/installed-package.js';
import { type ServiceProcess, startServiceProcess } from '../support/kill-process.js';

const fixtures = join(projectRoot, 'test', 'fixtures');
const vectors = join(projectRoot, 'test', 'vectors');

let installed: InstalledPackage;
let packageDirectory: string;
let service: ServiceProcess | undefined;
let token = '';

beforeAll(async () => {
  installed = await installPackage();
  packageDirectory = join(installed.directory, 'node_modules', 'fleet-cutover');
  await cp(join(fixtures, 'consumer'), installed.directory, { recursive: true });
}, 300_000);

afterAll(async () => {
  service?.child.kill('SIGTERM');
  await service?.ended;
  await installed?.remove();
});

const run = { timeout: 120_000 };
const tool = (name: string) => join(projectRoot, 'node_modules', '.bin', name);

describe.concurrent('the tarball', () => {
  it('holds the built program, its migrations and nothing of the workshop', async () => {
    const sources = (await readdir(join(projectRoot, 'src'), { recursive: true })).filter(
      (name) => name.endsWith('.ts') && !name.startsWith('demo'),
    );
    const built = sources.flatMap((name) => ['.js', '.d.ts'].map((end) => `dist/${name.replace(/\.ts$/, end)}`));
    const migrations = (await readdir(join(projectRoot, 'migrations'))).map((name) => `migrations/${name}`);
    expect([...built, ...migrations].filter((path) => !installed.files.includes(path))).toEqual([]);
    const foreign = /^(?!dist\/(?!demo\/)|migrations\/|LICENSE$|README\.md$|package\.json$)|\.map$|\.tsbuildinfo$/;
    expect(installed.files.filter((path) => foreign.test(path))).toEqual([]);
  });

  it('is published as publint wants it', run, async () => {
    const checked = await runProgram(tool('publint'), [installed.tarball, '--strict'], { cwd: projectRoot });
    expect(checked).toMatchObject({ code: 0 });
    expect(checked.stdout).toContain('All good!');
  });

  // The package has no CommonJS form: `esm-only` leaves out the resolutions that ask for one.
  it('resolves with its types wherever modules do', run, async () => {
    const args = [installed.tarball, '--profile', 'esm-only', '--format', 'json'];
    const checked = await runProgram(tool('attw'), args, { cwd: projectRoot });
    expect(checked).toMatchObject({ code: 0 });
    const { analysis } = JSON.parse(checked.stdout) as { analysis: { entrypoints: Record<string, object> } };
    expect(Object.keys(analysis.entrypoints).sort()).toEqual(
      ['./agents', './client', './contract', './package.json'].sort(),
    );
  });
});

describe.concurrent('the published modules', () => {
  it('the contract exports every record, its type, and its checks', async () => {
    const directory = join(projectRoot, 'src', 'contract');
    const names = (await readdir(directory)).filter((name) => name.endsWith('.ts') && name !== 'contract.ts');
    const published = await readFile(join(directory, 'contract.ts'), 'utf8');
    const missing: string[] = [];
    for (const name of names) {
      const text = await readFile(join(directory, name), 'utf8');
      const declared = text.matchAll(
        /^export (?:const|function|async function|type|interface|class) ([IT][A-Z]\w+|(?:validate|snapshot|bind)\w+|(?!define)\w+(?:Record|Error))\b/gm,
      );
      for (const [, each] of declared) {
        if (!new RegExp(`\\b${each}\\b`).test(published)) missing.push(`${name}: ${each}`);
      }
    }
    expect(missing).toEqual([]);
  });

  it('only what is named is in reach', run, async () => {
    const reach = async (path: string) => {
      const script = `import(${JSON.stringify(path)}).then(() => console.log('in reach'), (error) => console.log(error.code))`;
      return (await runProgram(process.execPath, ['-e', script], { cwd: installed.directory })).stdout.trim();
    };
    expect(await reach('fleet-cutover/contract')).toBe('in reach');
    expect(await reach('fleet-cutover')).toBe('ERR_PACKAGE_PATH_NOT_EXPORTED');
    expect(await reach('fleet-cutover/dist/service.js')).toBe('ERR_PACKAGE_PATH_NOT_EXPORTED');
  });

  it('the contract loads where only typebox and noble are', run, async () => {
    const alone = await mkdtemp(join(tmpdir(), 'fleet-cutover-contract-'));
    try {
      const target = join(alone, 'node_modules', 'fleet-cutover');
      await cp(join(packageDirectory, 'dist', 'contract'), join(target, 'dist', 'contract'), { recursive: true });
      await cp(join(packageDirectory, 'package.json'), join(target, 'package.json'));
      for (const name of ['@sinclair/typebox', '@noble/hashes']) {
        const at = join(alone, 'node_modules', name);
        await cp(join(projectRoot, 'node_modules', name), at, { recursive: true });
      }
      const script = `import('fleet-cutover/contract').then((contract) => console.log(contract.bareDigest(null)))`;
      const loaded = await runProgram(process.execPath, ['-e', script], { cwd: alone });
      expect(loaded).toMatchObject({ code: 0, stderr: '' });
      expect(loaded.stdout.trim()).toBe((await digestVectors()).find((each) => each.value === null)?.bare);
    } finally {
      await rm(alone, { recursive: true, force: true });
    }
  });

  it('the contract bundles for a browser, and computes there what it computes here', run, async () => {
    const warnings: string[] = [];
    const logger = createLogger('warn');
    const output = await bundle({
      root: installed.directory,
      configFile: false,
      customLogger: { ...logger, warn: (text) => warnings.push(text), warnOnce: (text) => warnings.push(text) },
      build: {
        write: false,
        minify: false,
        lib: { entry: join(packageDirectory, 'dist', 'contract', 'contract.js'), formats: ['iife'], name: 'contract' },
      },
    });
    const [first] = Array.isArray(output) ? output : [output];
    const chunk = first !== undefined && 'output' in first ? first.output[0] : undefined;
    if (chunk === undefined) throw new Error('nothing was bundled');
    expect(warnings).toEqual([]);
    expect(chunk.imports).toEqual([]);
    // A realm with nothing but the language and what every browser has of the encodings.
    const realm = createContext({ TextEncoder, TextDecoder });
    runInContext(chunk.code, realm);
    for (const { value, bare } of await digestVectors()) {
      const text = JSON.stringify(JSON.stringify(value));
      expect(runInContext(`contract.bareDigest(JSON.parse(${text}))`, realm)).toBe(bare);
    }
    expect(runInContext('typeof process + typeof Buffer + typeof require', realm)).toBe('undefined'.repeat(3));
  });

  it('the contract compiles for a browser without a type of Node', run, async () => {
    const directory = join(packageDirectory, 'dist', 'contract');
    const declarations = (await readdir(directory)).filter((name) => name.endsWith('.d.ts'));
    for (const name of declarations) {
      expect(await readFile(join(directory, name), 'utf8'), name).not.toMatch(
        /reference types|['"]node:|\bBuffer\b|\bNodeJS\b/,
      );
    }
    expect(await compile('tsconfig.browser.json')).toEqual({ code: 0, stdout: '', stderr: '' });
  });

  it('all three compile under strict NodeNext', run, async () => {
    expect(await compile('tsconfig.json')).toEqual({ code: 0, stdout: '', stderr: '' });
  });
});

const compile = (project: string) =>
  runProgram(process.execPath, [typescript, '-p', project], { cwd: installed.directory });

describe('the installed program', () => {
  const command = (args: readonly string[], environment: Record<string, string> = {}) =>
    runProgram(join(installed.directory, 'node_modules', '.bin', 'fleet-cutover'), args, {
      cwd: installed.directory,
      environment,
    });

  it('says how it is called', run, async () => {
    const help = await command(['--help']);
    expect(help).toMatchObject({ code: 0, stderr: '' });
    for (const each of ['host', 'agent', 'call', 'verify'])
      expect(help.stdout).toMatch(new RegExp(`^  ${each}\\b`, 'm'));
    expect((await command(['nonsense'])).code).toBe(2);
  });

  it('finds its migrations and begins an organization on the embedded server', run, async () => {
    const environment = { EMBEDDED_DATA_DIR: join(installed.directory, 'postgres') };
    const { length } = await readdir(join(projectRoot, 'migrations'));
    const migrated = await command(['host', 'migrate'], environment);
    expect(migrated).toMatchObject({ code: 0 });
    const numbers = Array.from({ length }, (_, index) => index + 1);
    expect(migrated.stderr).toBe(`applied ${numbers.join(', ')}; separation: full\n`);
    const begun = await command(['host', 'bootstrap', '--organization', 'acme', '--principal', 'ada'], environment);
    expect(begun).toMatchObject({ code: 0 });
    expect(begun.stdout).toMatch(/^fc\.ad-[0-9a-f]{32}\.[A-Za-z0-9_-]{43}\n$/);
    token = begun.stdout.trim();
  });

  it('serves a program that was compiled against the published modules', run, async () => {
    const environment = { EMBEDDED_DATA_DIR: join(installed.directory, 'postgres') };
    service = await startServiceProcess({ environment, builtIn: packageDirectory });
    const used = await runProgram(process.execPath, ['out/use.js', vectors, join(fixtures, 'swarm', 'manager')], {
      cwd: installed.directory,
      environment: { SERVICE_URL: service.url, SERVICE_TOKEN: token },
    });
    expect(used).toMatchObject({ code: 0, stderr: '' });
    expect(JSON.parse(used.stdout)).toEqual({
      vectorCount: expect.any(Number) as number,
      refusal: 'cluster-unknown',
      unreachable: true,
      node: 'manager',
    });
    service.child.kill('SIGTERM');
    expect(await service.ended).toEqual({ code: 0, signal: null });
  });
});

async function digestVectors(): Promise<{ value: unknown; bare: string }[]> {
  const { values } = JSON.parse(await readFile(join(vectors, 'digests.json'), 'utf8')) as {
    values: { value: unknown; bare: string }[];
  };
  return values;
}
