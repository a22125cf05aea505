/**
 * The README, line by line. Every command line has a step in one of the two tables below: it is run here, in the README's
 * order and against a service of its own, or it is named where it is run. A line without a step fails, and so does a step
 * without a line.
 */
import { createServer, type Server } from 'node:http';
import { access, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse, stringify } from 'yaml';
import { settingNames } from '../../src/config.js';
import { createDatabase } from '../support/database.js';
import { replay } from '../support/docker-engine.js';
import { projectRoot } from '../support/installed-package.js';
import { blockCommands, inlineCommands, localLinks, readReadme, tableNames } from '../support/readme.js';
import { type Going, openReadmeWorld, type ReadmeWorld } from '../support/readme-world.js';

const readme = await readReadme();

let world: ReadmeWorld;
let service: Going | undefined;
let engine: Server | undefined;
let token = '';

beforeAll(async () => {
  world = await openReadmeWorld();
}, 300_000);
afterAll(async () => {
  await new Promise((resolve) => (engine === undefined ? resolve(undefined) : engine.close(resolve)));
  await world.close();
}, 60_000);

type Step = (line: string) => Promise<void>;

/** By the literal line of the README. */
const steps: Record<string, Step> = {
  'npm start': async (line) => {
    const keys = `k1:${Buffer.alloc(32, 7).toString('base64')}\n`;
    await world.write('keys', keys);
    world.environment['KEY_ENCRYPTION_KEYS_FILE'] = join(world.directory, 'keys');
    service = world.start(line);
    const log = await service.says(/Server listening at http:\/\/[^"]+/);
    world.substitutions.set('http://127.0.0.1:8080', /Server listening at (http:\/\/[^"]+)/.exec(log)?.[1] ?? '');
  },

  'node dist/cli/main.js host bootstrap --organization acme --principal ada': async (line) => {
    const { code, stdout } = await world.run(line);
    expect(code).toBe(0);
    token = stdout.trim();
    expect(token).toMatch(/^fc\.ad-[0-9a-f]{32}\.[A-Za-z0-9_-]{43}$/);
  },

  'curl http://127.0.0.1:8080/health': async (line) => {
    expect(JSON.parse((await world.run(line)).stdout)).toEqual({ status: 'up' });
  },

  'curl http://127.0.0.1:8080/readiness': async (line) => {
    const readiness = JSON.parse((await world.run(line)).stdout) as object;
    expect(readiness).toMatchObject({ ready: true, migrations: 'exact', separation: 'full', database: 'embedded' });
  },

  'export FLEET_CUTOVER_URL=http://127.0.0.1:8080 FLEET_CUTOVER_CLUSTER=c1 FLEET_CUTOVER_TOKEN=…': async (line) => {
    world.environment['TOKEN_OF_ADA'] = token;
    const { stdout } = await world.run(`${line.replace('…', '"$TOKEN_OF_ADA"')}; env`);
    for (const name of ['FLEET_CUTOVER_URL', 'FLEET_CUTOVER_CLUSTER', 'FLEET_CUTOVER_TOKEN']) {
      const value = new RegExp(`^${name}=(.+)$`, 'm').exec(stdout)?.[1];
      expect(value).toBeDefined();
      world.environment[name] = value ?? '';
    }
  },

  'fleet-cutover cluster create c1 --controller k1 --namespace prod': async (line) => {
    const { code, stdout } = await world.run(line);
    expect([code, stdout]).toEqual([0, expect.stringContaining('c1')]);
  },

  'fleet-cutover fleet import fleet.json --secrets-file tokens.json': async (line) => {
    const document = readme.match(/`(\{"nodes".*?\})`/)?.[1];
    await world.write('fleet.json', document ?? '');
    const { code, stdout } = await world.run(line);
    expect(code).toBe(0);
    expect(stdout).toContain('nodes: 1 created, 0 there already');
    expect((await stat(join(world.directory, 'tokens.json'))).mode & 0o777).toBe(0o600);
    // Idempotent: the second run makes nothing.
    const again = await world.run(line.replace('tokens.json', 'no-tokens.json'));
    expect(again.stdout).toContain('nodes: 0 created, 1 there already');
  },

  'fleet-cutover agent spark --node n1 --token-file token --docker /var/run/docker.sock --pallet-dir .data/pallet/n1':
    async (line) => {
      const { secrets } = JSON.parse(await world.read('tokens.json')) as {
        secrets: { kind: string; secret: string }[];
      };
      await world.write('token', secrets.find((each) => each.kind === 'node-token')?.secret ?? '');
      const socket = join(world.directory, 'docker.sock');
      const answer = await replay('manager');
      engine = createServer((request, response) => {
        void answer(request.url ?? '').then(({ status, body }) => response.writeHead(status).end(body));
      });
      await new Promise<void>((resolve) => engine?.listen(socket, resolve));
      world.substitutions.set('/var/run/docker.sock', socket);
      const agent = world.start(line);
      await agent.says(/ reported .*/);
      const { code, stderr } = await agent.end('SIGINT');
      expect([code, stderr.includes(await world.read('token'))]).toEqual([0, false]);
    },

  'fleet-cutover targets accept n1': async (line) => {
    expect((await world.run(line)).code).toBe(0);
  },

  'fleet-cutover scope suggest --out scope.yaml': async (line) => {
    const { code, stdout } = await world.run(line);
    expect([code, stdout]).toEqual([0, expect.stringContaining('40 services')]);
  },

  // The file as its administrator leaves it: of this swarm nothing moves.
  'fleet-cutover scope apply scope.yaml --dry-run': async (line) => {
    const unconfirmed = await world.run(line);
    expect([unconfirmed.code, unconfirmed.stderr]).toEqual([2, expect.stringContaining('is not confirmed')]);
    const file = parse(await world.read('scope.yaml')) as { services: object[]; [name: string]: unknown };
    const services = file.services.map((service) => ({
      ...service,
      ...{ class: 'excluded', serviceId: null, reason: 'stays', mounts: [], confirmed: true },
    }));
    const coreflow = { state: 'none', reason: 'there is none' };
    await world.write('scope.yaml', stringify({ ...file, coreflow, services }));
    const { code, stdout, stderr } = await world.run(line);
    expect([code, stdout], stderr).toEqual([0, expect.stringContaining('dry run')]);
    expect((await world.run(line.replace(' --dry-run', ''))).code).toBe(0);
  },

  'scope suggest --from scope.yaml --out scope.yaml': async (line) => {
    const { code, stdout, stderr } = await world.run(`fleet-cutover ${line}`);
    expect([code, stdout], stderr).toEqual([0, expect.stringContaining('40 stated already')]);
  },

  'fleet-cutover blockers': async (line) => {
    expect(await world.run(line)).toMatchObject({ code: 0, stderr: '' });
  },

  'fleet-cutover required --state missing': async (line) => {
    const { code, stdout } = await world.run(line);
    expect([code, stdout]).toEqual([0, expect.stringMatching(/^derivation \S+ generation \d+/)]);
  },

  'fleet-cutover prepare': async (line) => {
    const { code, stdout } = await world.run(line);
    expect([code, stdout]).toEqual([0, expect.stringContaining('complete')]);
  },

  'fleet-cutover state': async (line) => {
    const { code, stdout } = await world.run(line);
    expect([code, stdout]).toEqual([
      0,
      expect.stringMatching(/^phase +swarm \(generation 1\)\ninventory +\S+ generation 1 /),
    ]);
    expect(stdout).toMatch(/aggregate .* complete/);
  },

  'fleet-cutover explain': async (line) => {
    const { code, stdout } = await world.run(line);
    expect([code, stdout]).toEqual([0, expect.stringContaining('scope-complete')]);
  },

  'fleet-cutover advance --to draining --dry-run': async (line) => {
    const { code, stdout } = await world.run(line);
    // The agent above has reported once, before it knew the runtime.
    expect([code, stdout]).toEqual([1, expect.stringContaining('UNMET  targets-observed')]);
    expect((await world.run('fleet-cutover state')).stdout).toMatch(/^phase +swarm /);
  },

  'fleet-cutover watch': async (line) => {
    const watch = world.start(line);
    await watch.says(/phase swarm \(generation 1\)/);
    expect((await watch.end('SIGINT')).code).toBe(0);
  },

  // It gets as far as a service without a spec lets it; what it does in phase pallet, test/cli/ingress.test.ts tells.
  'fleet-cutover ingress prepare --service sv-…': async (line) => {
    const listed = await world.run('fleet-cutover service list --json');
    const { services } = JSON.parse(listed.stdout) as { services: { serviceId: string }[] };
    world.substitutions.set('sv-…', services[0]?.serviceId ?? '');
    const { code, stderr } = await world.run(line);
    expect([code, stderr]).toEqual([1, expect.stringContaining('refused: ')]);
  },

  'fleet-cutover verify --cluster c1': async (line) => {
    const { code, stdout } = await world.run(line);
    expect([code, stdout]).toEqual([0, expect.stringMatching(/^clean/)]);
  },

  'fleet-cutover export --cluster c1 --out c1.ndjson.gz': async (line) => {
    expect((await world.run(line)).code).toBe(0);
  },

  'fleet-cutover verify c1.ndjson.gz': async (line) => {
    const { code, stdout } = await world.run(line);
    expect([code, stdout]).toEqual([0, expect.stringMatching(/^clean/)]);
  },

  'fleet-cutover host reseal': async (line) => {
    const { code, stderr } = await world.run(line);
    expect([code, stderr]).toEqual([0, '0 secrets are sealed under k1 now.\n']);
  },

  'fleet-cutover --help': async (line) => {
    const { code, stdout } = await world.run(line);
    expect([code, stdout]).toEqual([0, expect.stringContaining('Commands:')]);
  },

  'fleet-cutover openapi': async (line) => {
    expect(JSON.parse((await world.run(line)).stdout)).toMatchObject({
      openapi: expect.stringMatching(/^3\.1/) as string,
    });
  },

  'config show': async (line) => {
    const { code, stdout } = await world.run(`fleet-cutover ${line}`);
    expect([code, stdout]).toEqual([0, expect.stringContaining('FLEET_CUTOVER_URL')]);
    expect(stdout).not.toContain(token);
  },

  'npm ci && npm run demo': async () => {
    // Without `npm ci`: the dependencies of this very run are installed.
    const { code, stdout } = await world.run('npm run demo');
    expect(code).toBe(0);
    const last = stdout.trimEnd().split('\n').at(-1) ?? '';
    expect(JSON.parse(last)).toMatchObject({ phase: 'pallet', secretCanary: '0 hits', lostAnswerReplayed: true });
  },
};

interface Elsewhere {
  /** A file that does it, and a text in it that shows how. */
  readonly file: string;
  readonly shows: string;
  readonly why: string;
}

/** Lines that are not run here. */
const elsewhere: Record<string, Elsewhere> = {
  'npm ci && npm test': { file: '.ci/run', shows: 'npm ci && npm test', why: 'it is what runs this test' },
  'npm run bench -- --json --scale small': {
    file: 'test/bench/main.ts',
    shows: 'npm run bench',
    why: 'it takes a minute of a machine that does nothing else; no test runs it',
  },
  'npm run faults -- --scale small': {
    file: 'test/race/faults-kills.test.ts',
    shows: 'faults',
    why: 'the tests test/race/faults-*.test.ts run the same faults; the program itself takes minutes',
  },
  'npm run demo -- --capture DIR': {
    file: 'src/demo/main.ts',
    shows: '--capture <dir>',
    why: 'the demo is run above with the capture that it has by default',
  },
  'advance --to draining': { file: 'test/database/phases.test.ts', shows: "'draining'", why: 'needs a whole fleet' },
  'advance --to switching': { file: 'test/database/phases.test.ts', shows: "'switching'", why: 'needs a whole fleet' },
  'advance --to pallet': { file: 'test/database/phases.test.ts', shows: "'pallet'", why: 'needs a whole fleet' },
  'npm run build': {
    file: 'test/support/readme-world.ts',
    shows: "'tsconfig.build.json'",
    why: 'its compiler is run for this test',
  },
  'agent spark': {
    file: 'test/cli/readme.test.ts',
    shows: 'agent spark --node n1',
    why: 'it is run above with its options',
  },
  'scope apply': { file: 'test/cli/scope.test.ts', shows: "'apply'", why: 'it is run above with its file' },
  'ingress prepare': { file: 'test/cli/ingress.test.ts', shows: "'prepare'", why: 'needs a cluster in phase pallet' },
};

/** Names of programs alone, which the lines above call. */
const names: readonly string[] = ['node dist/cli/main.js'];

const isRun = (line: string) => Object.hasOwn(steps, line);

describe('the README’s commands', () => {
  const lines = [...blockCommands(readme), ...inlineCommands(readme)].filter((line) => !names.includes(line));

  it('each have one step, and every step its line', () => {
    expect(lines.filter((line) => !isRun(line) && !Object.hasOwn(elsewhere, line))).toEqual([]);
    expect([...Object.keys(steps), ...Object.keys(elsewhere)].filter((line) => !lines.includes(line))).toEqual([]);
    expect(Object.keys(elsewhere).filter(isRun)).toEqual([]);
  });

  // The service is started by one line and used by those that follow; the demo brings its own and comes last.
  const inOrder = [...new Set(lines.filter(isRun))];
  const begin = (line: string) => (line.includes('demo') ? 1 : 0);
  for (const line of inOrder.sort((left, right) => begin(left) - begin(right))) {
    it(line, { timeout: 180_000 }, () => steps[line]!(line));
  }

  it('end with a service that ends on SIGTERM', { timeout: 60_000 }, async () => {
    const ended = await service?.end('SIGTERM');
    expect(ended).toMatchObject({ code: 0 });
    expect(ended?.stdout.includes(token)).toBe(false);
  });

  it.each(Object.entries(elsewhere))('%s: elsewhere', async (line, { file, shows, why }) => {
    expect(await readFile(join(projectRoot, file), 'utf8')).toContain(shows);
    console.log(`not run here: ${line}\n  ${why} (${file})`);
  });
});

describe('the README', () => {
  it('stays short', () => {
    expect(readme.split('\n').length).toBeLessThan(250);
  });

  it('links to what is there', async () => {
    const anchors = new Set(
      [...readme.matchAll(/^#+ (.+)$/gm)].map(([, title = '']) =>
        title
          .toLowerCase()
          .replace(/[^\p{L}\p{N} _-]/gu, '')
          .replaceAll(' ', '-'),
      ),
    );
    for (const target of localLinks(readme)) {
      const [path = '', anchor] = target.split('#');
      if (path !== '') await expect(access(join(projectRoot, path)), target).resolves.toBeUndefined();
      else expect([...anchors], target).toContain(anchor);
    }
    // Files that it names in passing.
    for (const [, path = ''] of readme.matchAll(/`((?:src|test|migrations)\/[\w./-]+)`/g)) {
      await expect(access(join(projectRoot, path)), path).resolves.toBeUndefined();
    }
  });

  it('has a row for every setting, and a setting for every row', () => {
    const named = tableNames(readme, 'variable').filter((name) => name === name.toUpperCase());
    // Named in the row of the setting that stands in for it.
    const inline = [...readme.matchAll(/`(KEY_ENCRYPTION_KEYS)`/g)].map(([, name = '']) => name);
    expect([...new Set([...named, ...inline])].sort()).toEqual([...settingNames].sort());
  });

  it('has a row for every view, and a view for every row', async () => {
    const database = await createDatabase();
    try {
      const { rows } = await database.owner.query<{ name: string }>(
        "select 'operator.' || viewname as name from pg_views where schemaname = 'operator'",
      );
      expect(tableNames(readme, 'view').sort()).toEqual(rows.map((row) => row.name).sort());
    } finally {
      await database.drop();
    }
  });
});
