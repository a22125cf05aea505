import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command, CommanderError } from '@commander-js/extra-typings';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { CommandHost } from '../../src/cli/command-host.js';
import { registerRemoteCommands } from '../../src/cli/remote-commands.js';
import { bareDigest } from '../../src/contract/digest.js';
import { sparkSwarmNodeContracts } from '../../src/contract/limits.js';
import { refuse, refuseStale } from '../../src/contract/problems.js';
import { answerJson, type Answering, answerProblem, openAnsweringServer } from '../support/answering-server.js';
import { handoffSet, referenceNamed } from '../support/handoff-set.js';
import { nothing } from '../support/page-server.js';
import { receiptOf } from '../support/spark-receipt.js';

const token = `fc.cred-1.${'canary'.padEnd(43, 'x')}`;
const issued = 'issued'.padEnd(43, 'y');

let directory: string;
const open: { close(): Promise<void> }[] = [];
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'fleet-cutover-cli-'));
});
afterEach(async () => {
  for (const each of open.splice(0).reverse()) await each.close();
  await rm(directory, { recursive: true });
});

async function run(args: string[], environment: Record<string, string> = {}) {
  const result = { stdout: '', stderr: '', code: 0 };
  const host: CommandHost = {
    environment,
    stdout: (text) => (result.stdout += text),
    stderr: (text) => (result.stderr += text),
    setExitCode: (code) => (result.code = code),
  };
  const program = new Command().exitOverride().configureOutput({ writeErr: host.stderr, writeOut: host.stdout });
  registerRemoteCommands(program, host);
  await program.parseAsync(args, { from: 'user' }).catch((error: unknown) => {
    if (!(error instanceof CommanderError)) throw error;
    result.code = 2; // as the program's entry does
  });
  return result;
}

async function serve(answering: Answering) {
  const server = await openAnsweringServer(answering);
  open.push(server);
  return { server, environment: { FLEET_CUTOVER_URL: server.url, FLEET_CUTOVER_TOKEN: token } };
}

async function file(name: string, text: string): Promise<string> {
  const path = join(directory, name);
  await writeFile(path, text);
  return path;
}

const audit = { chainId: 'org-1', seq: 1, digest: bareDigest(1) };
const answered = { replayed: false, current: true, dryRun: false, audit };
const fleet = JSON.stringify({
  nodes: [{ nodeId: 'node-a', corestorePublicKey: null }],
  services: [{ name: 'web' }],
  specs: [],
});
const imported = {
  ...answered,
  nodes: [{ nodeId: 'node-a', created: true }],
  services: [{ name: 'web', serviceId: 'sv-1', created: false }],
  specs: [],
  secrets: [{ credentialId: 'nt-1', kind: 'node-token', subjectId: 'n1', generation: 1, secret: issued }],
};

describe('fleet import', () => {
  it('sends the document and puts the tokens into the file, only', async () => {
    const { server, environment } = await serve((_request, response) => answerJson(response, imported));
    const secrets = join(directory, 'secrets.json');
    const result = await run(
      ['fleet', 'import', await file('fleet.json', fleet), '--cluster', 'c1', '--secrets-file', secrets],
      environment,
    );
    expect(result).toMatchObject({ code: 0 });
    expect(result.stdout).toContain('nodes: 1 created, 0 there already');
    expect(server.requests[0]?.json).toEqual({ ...JSON.parse(fleet), clusterId: 'c1', mutationId: expect.any(String) });
    expect(result.stderr).toContain(`mutation id: ${String(server.requests[0]?.json['mutationId'])}`);
    expect(JSON.parse(await readFile(secrets, 'utf8'))).toEqual({ secrets: imported.secrets });
    expect((await stat(secrets)).mode & 0o777).toBe(0o600);
    expect(result.stdout + result.stderr).not.toContain(issued);
  });

  it('prints no token as JSON either', async () => {
    const { environment } = await serve((_request, response) => answerJson(response, imported));
    const args = ['fleet', 'import', await file('fleet.json', fleet), '--cluster', 'c1', '--json'];
    const result = await run([...args, '--secrets-file', join(directory, 's')], environment);
    expect(JSON.parse(result.stdout)).toEqual({
      ...imported,
      secrets: [{ credentialId: 'nt-1', kind: 'node-token', subjectId: 'n1', generation: 1 }],
    });
  });

  it('sends nothing when the file for the tokens exists', async () => {
    const { server, environment } = await serve((_request, response) => answerJson(response, imported));
    const secrets = await file('secrets.json', 'precious');
    const args = ['fleet', 'import', await file('fleet.json', fleet), '--cluster', 'c1', '--secrets-file', secrets];
    expect((await run(args, environment)).code).toBe(2);
    expect(server.requests).toHaveLength(0);
    expect(await readFile(secrets, 'utf8')).toBe('precious');
  });

  it('leaves no file where no token was told: refusal, replay, dry run', async () => {
    const secrets = join(directory, 'secrets.json');
    const args = ['fleet', 'import', await file('fleet.json', fleet), '--cluster', 'c1', '--secrets-file', secrets];
    const refused = await serve((_request, response) => answerProblem(response, refuse('cluster-unknown').problem));
    expect((await run(args, refused.environment)).code).toBe(1);
    const replayed = await serve((_request, response) =>
      answerJson(response, { ...imported, replayed: true, secrets: [] }),
    );
    const replay = await run([...args, '--mutation-id', 'mu-7'], replayed.environment);
    expect(replay.stderr).toContain('rotated');
    expect(replayed.server.requests[0]?.json['mutationId']).toBe('mu-7');
    const dry = await serve((_request, response) => answerJson(response, { ...imported, dryRun: true, audit: null }));
    expect((await run([...args, '--dry-run'], dry.environment)).stdout).toContain('nothing was changed');
    expect(dry.server.requests[0]?.json['dryRun']).toBe(true);
    await expect(stat(secrets)).rejects.toThrow('ENOENT');
  });

  it.each(['{', '[]', '{"nodes":[],"nodes":[]}', '{"nodes":[],"services":[],"specs":[],"more":1}'])(
    'refuses the document %s as usage',
    async (text) => {
      const { server, environment } = await serve((_request, response) => answerJson(response, imported));
      const args = ['fleet', 'import', await file('fleet.json', text), '--cluster', 'c1'];
      const result = await run([...args, '--secrets-file', join(directory, 's')], environment);
      expect(result.code).toBe(2);
      expect(server.requests).toHaveLength(0);
    },
  );
});

describe('call', () => {
  it('calls any method and prints its answer', async () => {
    const { environment } = await serve((_request, response) => answerJson(response, { clusters: [] }));
    const result = await run(['call', 'listClusters'], environment);
    expect(result).toEqual({ stdout: '{"clusters":[]}\n', stderr: '', code: 0 });
  });

  it('takes the request from a file, and the token from one', async () => {
    const { server, environment } = await serve((_request, response) =>
      answerProblem(response, refuse('cluster-unknown').problem),
    );
    const request = await file('request.json', '{"clusterId":"c1"}');
    const args = ['call', 'readCluster', '--file', request, '--token-file', await file('token', `${token}\n`)];
    const result = await run(args, { FLEET_CUTOVER_URL: environment.FLEET_CUTOVER_URL });
    expect(result.code).toBe(1);
    expect(server.requests[0]?.headers.authorization).toBe(`Bearer ${token}`);
    expect(JSON.parse(result.stderr)).toMatchObject({
      error: { kind: 'refused', problem: { code: 'cluster-unknown' } },
    });
  });

  it('gives a mutation an id, told before, unless the request has one', async () => {
    const service = { serviceId: 'sv-1', name: 'web', state: 'live', spec: null };
    const { server, environment } = await serve((_request, response) => answerJson(response, { ...answered, service }));
    const told = await run(['call', 'createService', '--json', '{"name":"web"}'], environment);
    expect(told.stderr).toBe(`mutation id: ${String(server.requests[0]?.json['mutationId'])}\n`);
    const own = await run(['call', 'createService', '--json', '{"name":"web","mutationId":"mu-3"}'], environment);
    expect(own.stderr).toBe('');
    expect(server.requests[1]?.json['mutationId']).toBe('mu-3');
  });

  it('puts issued tokens into a file, and wants one named before it sends anything', async () => {
    const credential = {
      credentialId: 'cred-2',
      kind: 'administrator',
      subjectId: 'p',
      role: 'operator',
      newestGeneration: 1,
      usedGeneration: null,
      revoked: false,
    };
    const secrets = [
      { credentialId: 'cred-2', kind: 'administrator', subjectId: 'p2', generation: 1, secret: `fc.cred-2.${issued}` },
    ];
    const { server, environment } = await serve((_request, response) =>
      answerJson(response, { ...answered, credential, secrets }),
    );
    const args = ['call', 'issueAdministratorToken', '--json', '{"principalId":"p","role":"operator"}'];
    expect((await run(args, environment)).code).toBe(2);
    expect(server.requests).toHaveLength(0);
    const result = await run([...args, '--secrets-file', join(directory, 's')], environment);
    expect(result.code).toBe(0);
    expect(result.stdout).not.toContain(issued);
    expect(JSON.parse(await readFile(join(directory, 's'), 'utf8'))).toEqual({ secrets });
  });

  it.each([
    ['an unknown method', ['call', 'dropEverything']],
    ['no JSON', ['call', 'readCluster', '--json', '{']],
    ['another shape', ['call', 'readCluster', '--json', '{"cluster":"c"}']],
    ['two sources', ['call', 'readCluster', '--json', '{}', '--file', 'x']],
    ['no method', ['call']],
    ['an unknown option', ['call', 'listClusters', '--token', 'x']],
    ['a file that is not there', ['call', 'readCluster', '--file', '/nonexistent/x']],
  ])('refuses %s as usage', async (_what, args) => {
    const { server, environment } = await serve((_request, response) => answerJson(response, {}));
    expect((await run(args, environment)).code).toBe(2);
    expect(server.requests).toHaveLength(0);
  });
});

describe('the connection', () => {
  it('needs a service and a token', async () => {
    expect(await run(['call', 'listClusters'], {})).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('FLEET_CUTOVER_URL'),
    });
    const { environment } = await serve(() => {});
    const url = { FLEET_CUTOVER_URL: environment.FLEET_CUTOVER_URL };
    expect(await run(['call', 'listClusters'], url)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('FLEET_CUTOVER_TOKEN'),
    });
    const remote = { FLEET_CUTOVER_URL: 'http://cloudly.example', FLEET_CUTOVER_TOKEN: token };
    expect((await run(['call', 'listClusters'], remote)).code).toBe(2);
  });

  it('that fails is exit code 3, and the token is nowhere', async () => {
    const { server, environment } = await serve(() => {});
    await server.close();
    const result = await run(['call', 'createService', '--json', '{"name":"web"}'], environment);
    expect(result.code).toBe(3);
    expect(result.stdout + result.stderr).not.toContain('canary');
    expect(result.stderr).toContain('ECONNREFUSED');
  });
});

describe('state', () => {
  it('prints lines for people, and one document for programs', async () => {
    const set = handoffSet({ nodes: { 'node-a': 2 } });
    const state = {
      runtime: { ...referenceNamed('rt-1'), clusterId: 'c1', phase: 'draining', gate: null, predecessor: null },
      managerSnapshot: referenceNamed('ms-1'),
      scope: referenceNamed('sc-1'),
      scopeState: 'complete',
      targetSet: null,
      derivation: {
        ...referenceNamed('dv-1'),
        clusterId: 'c1',
        scope: null,
        targetSet: null,
        requiredCount: 5,
        blockerCount: 2,
        predecessor: null,
        changeDigest: bareDigest([]),
      },
      aggregate: set.aggregate,
      behind: true,
      missingCount: 3,
      surplusCount: 0,
      verdicts: { live: 1, notStarted: 0, stopped: 0, unknown: 0 },
      blockers: [{ code: 'task-unknown', count: 2 }],
    };
    const { environment } = await serve((_request, response) => answerJson(response, state));
    const lines = await run(['state', '--cluster', 'c1'], environment);
    expect(lines.stdout).toMatch(/phase +draining \(generation 1\)/);
    expect(lines.stdout).toMatch(/handoffs +5 required, 3 missing/);
    expect(lines.stdout).toMatch(/aggregate .*complete, behind/);
    expect(lines.stdout).toMatch(/blockers +2 task-unknown/);
    const json = await run(['state', '--cluster', 'c1', '--json'], environment);
    expect(JSON.parse(json.stdout)).toEqual(state);
  });

  it('says of a refusal what is current and what to do next', async () => {
    const stale = refuseStale('runtime-stale', 'runtime', referenceNamed('rt-1', 3)).problem;
    const { environment } = await serve((_request, response) => answerProblem(response, stale));
    const { stderr, code } = await run(['state', '--cluster', 'c1'], environment);
    expect(code).toBe(1);
    expect(stderr).toContain('refused: runtime-stale (409)');
    expect(stderr).toContain('expectation: runtime');
    expect(stderr).toContain('"generation":3');
    expect(stderr).toContain('next: somebody changed it meanwhile: look at `state`');
  });
});

describe('agent spark', () => {
  const capture = join(import.meta.dirname, '..', 'fixtures', 'swarm', 'worker');
  const nodeToken = 'canary'.padEnd(43, 'z');

  it('does one round over a capture and shows no token', async () => {
    const { server } = await serve((request, response) =>
      request.path === sparkSwarmNodeContracts.swarmObservation.endpoint
        ? answerJson(response, receiptOf(request))
        : answerJson(response, nothing(request.json as never)),
    );
    const args = [
      'agent',
      'spark',
      '--node',
      'node-a',
      '--token-file',
      await file('token', nodeToken),
      '--url',
      server.url,
    ];
    const result = await run([...args, '--capture', capture, '--state-dir', join(directory, 'state'), '--once']);
    expect(result.code).toBe(0);
    expect(result.stderr).toContain('info reported sequence=2');
    expect(result.stdout + result.stderr).not.toContain('canary');
  });

  it('that is refused ends with exit code 1', async () => {
    const { server } = await serve((_request, response) => answerProblem(response, refuse('node-quarantined').problem));
    const args = [
      'agent',
      'spark',
      '--node',
      'node-a',
      '--token-file',
      await file('token', nodeToken),
      '--url',
      server.url,
    ];
    const result = await run([...args, '--capture', capture, '--state-dir', join(directory, 'state')]);
    expect(result.code).toBe(1);
    expect(result.stderr).toContain('error stopped reason=node-quarantined');
  });

  it('needs one engine', async () => {
    const args = [
      'agent',
      'spark',
      '--node',
      'n',
      '--url',
      'http://localhost:1',
      '--token-file',
      await file('token', nodeToken),
    ];
    expect((await run(args)).code).toBe(2);
    expect((await run([...args, '--docker', '/x', '--capture', '/y'])).code).toBe(2);
    expect((await run([...args, '--docker', '/x', '--interval', 'soon'])).code).toBe(2);
  });
});
