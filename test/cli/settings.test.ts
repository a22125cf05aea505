/** Configuration: option, else environment, else file. */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { answerJson, type AnsweringServer, openAnsweringServer } from '../support/answering-server.js';
import { type Environment, runCommand } from '../support/command-line.js';

const token = (id: string) => `fc.${id}.${'canary'.padEnd(43, 'x')}`;

let home: string;
let server: AnsweringServer;
beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), 'fleet-cutover-settings-'));
  server = await openAnsweringServer((_request, response) => answerJson(response, { clusters: [] }));
});
afterEach(async () => {
  await server.close();
  await rm(home, { recursive: true });
});

async function file(path: string, content: unknown): Promise<string> {
  const whole = join(home, path);
  await mkdir(dirname(whole), { recursive: true });
  await writeFile(whole, typeof content === 'string' ? content : JSON.stringify(content));
  return whole;
}

const run = (environment: Environment, ...args: string[]) => runCommand(environment, args);
const show = async (environment: Environment, ...args: string[]) => {
  const shown = await run(environment, 'config', 'show', '--json', ...args);
  expect(shown).toMatchObject({ code: 0, stderr: '' });
  return JSON.parse(shown.stdout) as {
    file: string | null;
    settings: Record<string, { value: unknown; from: string } | null>;
  };
};

describe('the configuration', () => {
  it('is read from the usual place, and is all that a command needs', async () => {
    await file('.config/fleet-cutover/admin.token', `${token('filed')}\n`);
    const path = await file('.config/fleet-cutover/config.json', { url: server.url, tokenFile: 'admin.token' });
    expect(await run({ HOME: home }, 'cluster', 'list')).toMatchObject({
      stdout: 'no clusters\n',
      stderr: '',
      code: 0,
    });
    expect(server.requests[0]!.headers.authorization).toBe(`Bearer ${token('filed')}`);
    expect(await show({ HOME: home })).toEqual({
      file: path,
      settings: {
        url: { value: server.url, from: `file ${path}` },
        token: null,
        tokenFile: { value: join(home, '.config/fleet-cutover/admin.token'), from: `file ${path}` },
        caFile: null,
        allowPlainHttp: null,
        cluster: null,
      },
    });
  });

  it('is in XDG_CONFIG_HOME where that is named, and another file where one is', async () => {
    const xdg = await file('xdg/fleet-cutover/config.json', { cluster: 'of-xdg' });
    const named = await file('named.json', { cluster: 'named' });
    const other = await file('other.json', { cluster: 'other' });
    await file('.config/fleet-cutover/config.json', { cluster: 'of-home' });
    const environment = { HOME: home, XDG_CONFIG_HOME: join(home, 'xdg') };
    expect((await show(environment)).file).toBe(xdg);
    expect((await show({ ...environment, XDG_CONFIG_HOME: 'not/absolute' })).settings['cluster']!.value).toBe(
      'of-home',
    );
    expect((await show({ ...environment, FLEET_CUTOVER_CONFIG: named })).file).toBe(named);
    expect((await show({ ...environment, FLEET_CUTOVER_CONFIG: named }, '--config', other)).file).toBe(other);
    expect((await show({})).file).toBeNull();
  });

  it('gives way to the environment, and both to an option', async () => {
    const config = await file('c.json', {
      url: 'https://filed.example',
      cluster: 'filed',
      allowPlainHttp: true,
      caFile: 'ca.pem',
    });
    const environment = {
      FLEET_CUTOVER_CONFIG: config,
      FLEET_CUTOVER_URL: 'https://environment.example',
      FLEET_CUTOVER_CLUSTER: 'environment',
      FLEET_CUTOVER_ALLOW_PLAIN_HTTP: 'false',
      FLEET_CUTOVER_TOKEN: token('secret'),
    };
    const { settings } = await show(environment, '--url', 'https://option.example');
    expect(settings).toEqual({
      url: { value: 'https://option.example', from: 'option --url' },
      token: { value: null, from: 'environment FLEET_CUTOVER_TOKEN' },
      tokenFile: null,
      caFile: { value: join(home, 'ca.pem'), from: `file ${config}` },
      allowPlainHttp: { value: false, from: 'environment FLEET_CUTOVER_ALLOW_PLAIN_HTTP' },
      cluster: { value: 'environment', from: 'environment FLEET_CUTOVER_CLUSTER' },
    });
    const text = await run(environment, 'config', 'show');
    expect(text.stdout).toMatch(/^token +set, not shown {2}\(environment FLEET_CUTOVER_TOKEN\)$/m);
    expect(text.stdout).toMatch(/^tokenFile +not set$/m);
    expect(text.stdout + JSON.stringify(settings)).not.toContain('canary');
  });

  it.each<[string, unknown, string]>([
    ['an unknown key', { urls: 'x' }, 'unknown key urls'],
    ['a key twice', '{"url":"https://a.example","url":"https://b.example"}', 'duplicate-key'],
    ['__proto__', '{"__proto__":{"url":"https://a.example"}}', 'forbidden-key'],
    ['a wrong type', { allowPlainHttp: 'yes' }, 'allowPlainHttp has to be true or false'],
    ['a number for a text', { cluster: 1 }, 'cluster has to be a text'],
    ['an empty text', { url: '' }, 'url has to be a text'],
    ['null', { tokenFile: null }, 'tokenFile has to be a text'],
    ['a token', { token: token('t') }, 'holds a token in token'],
    ['a token that has not its shape', { token: 'canary' }, 'no token belongs there'],
    ['a token as the name of its file', { tokenFile: token('t') }, 'holds a token in tokenFile'],
    ['a token under any other key', { bearer: token('t') }, 'holds a token in bearer'],
    ['a token as a key', { [token('t')]: '' }, 'unknown key *'],
    ['no object', [], 'is not a JSON object'],
    ['no JSON', 'url: x', 'strict JSON refused'],
    ['nothing', '', 'strict JSON refused'],
  ])('with %s is refused, with its name and without what it holds', async (_what, content, message) => {
    const config = await file('c.json', content);
    for (const command of [
      ['config', 'show'],
      ['cluster', 'list'],
    ]) {
      const result = await run({ FLEET_CUTOVER_CONFIG: config, FLEET_CUTOVER_URL: server.url }, ...command);
      expect(result).toMatchObject({ code: 2, stdout: '' });
      expect(result.stderr).toContain(config);
      expect(result.stderr).toContain(message);
      expect(result.stderr).not.toContain('canary');
    }
    expect(server.requests).toHaveLength(0);
  });

  it('that is named and not there is refused, the usual one is not missed', async () => {
    const missing = join(home, 'missing.json');
    const ways: [Environment, string[]][] = [
      [{ FLEET_CUTOVER_CONFIG: missing }, []],
      [{ HOME: home }, ['--config', missing]],
    ];
    for (const [environment, named] of ways) {
      const result = await run(environment, 'config', 'show', ...named);
      expect(result.code).toBe(2);
      expect(result.stderr).toContain(`${missing} cannot be read (ENOENT)`);
    }
    expect((await show({ HOME: home })).file).toBeNull();
    await mkdir(join(home, '.config/fleet-cutover/config.json'), { recursive: true });
    expect((await run({ HOME: home }, 'config', 'show')).stderr).toContain('EISDIR');
  });

  it('shows no password of a URL', async () => {
    const result = await run({ FLEET_CUTOVER_URL: 'https://ada:canary@cloudly.example' }, 'config', 'show');
    expect(result).toMatchObject({ code: 2, stdout: '' });
    expect(result.stderr).not.toContain('canary');
  });
});

describe('the environment', () => {
  it('names the token or its file, not both; an option goes before', async () => {
    const path = await file('token', token('filed'));
    const both = { FLEET_CUTOVER_URL: server.url, FLEET_CUTOVER_TOKEN: token('e'), FLEET_CUTOVER_TOKEN_FILE: path };
    const refused = await run(both, 'cluster', 'list');
    expect(refused).toMatchObject({ code: 2, stdout: '' });
    expect(refused.stderr).toContain('exclude each other');
    expect((await run(both, 'cluster', 'list', '--token-file', path)).code).toBe(0);
    expect((await run({ FLEET_CUTOVER_URL: server.url, FLEET_CUTOVER_TOKEN_FILE: path }, 'cluster', 'list')).code).toBe(
      0,
    );
    expect(server.requests.map((request) => request.headers.authorization)).toEqual([
      `Bearer ${token('filed')}`,
      `Bearer ${token('filed')}`,
    ]);
  });

  it('says plainly whether plain http is permitted', async () => {
    const environment = { FLEET_CUTOVER_URL: 'http://cloudly.example', FLEET_CUTOVER_TOKEN: token('e') };
    const refused = await run({ ...environment, FLEET_CUTOVER_ALLOW_PLAIN_HTTP: 'perhaps' }, 'cluster', 'list');
    expect([refused.code, refused.stderr]).toEqual([2, expect.stringContaining('has to be true or false')]);
    expect((await run({ ...environment, FLEET_CUTOVER_ALLOW_PLAIN_HTTP: '0' }, 'cluster', 'list')).stderr).toContain(
      'without https',
    );
  });
});

describe('the cluster', () => {
  it('is needed, and named where it comes from', async () => {
    const environment = { FLEET_CUTOVER_URL: server.url, FLEET_CUTOVER_TOKEN: token('e') };
    const none = await run(environment, 'node', 'list');
    expect(none).toMatchObject({ code: 2, stdout: '' });
    expect(none.stderr).toContain('give --cluster, FLEET_CUTOVER_CLUSTER');
    const bad = await run({ ...environment, FLEET_CUTOVER_CLUSTER: '../x' }, 'node', 'list');
    expect([bad.code, bad.stderr]).toEqual([2, expect.stringContaining('environment FLEET_CUTOVER_CLUSTER')]);
    expect(server.requests).toHaveLength(0);
  });

  it('that is configured is not meant where credentials of the organization are listed', async () => {
    await server.close();
    server = await openAnsweringServer((_request, response) =>
      answerJson(response, { credentials: [], nextCursor: null }),
    );
    const environment = {
      FLEET_CUTOVER_URL: server.url,
      FLEET_CUTOVER_TOKEN: token('e'),
      FLEET_CUTOVER_CLUSTER: 'configured',
    };
    expect((await run(environment, 'credential', 'list')).stdout).toBe('no credentials\n');
    await run(environment, 'credential', 'list', '--cluster', 'c2');
    expect(server.requests.map((request) => request.json['clusterId'])).toEqual([null, 'c2']);
  });
});
