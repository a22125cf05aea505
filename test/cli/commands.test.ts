/** The administrator's commands against the real service: what they do, how they fail, and how they are repeated. */
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { exitCodes } from '../../src/cli/output.js';
import type { MethodResponse, TMethodName } from '../../src/contract/methods.js';
import { methodPath } from '../../src/contract/method.js';
import { methods } from '../../src/contract/methods.js';
import { openAnswerProxy } from '../../src/demo/answer-proxy.js';
import { answerJson, openAnsweringServer } from '../support/answering-server.js';
import { type Environment, runCommand, spawnProgram, startProgram } from '../support/command-line.js';
import { type Cutover, cutover } from '../support/cutover.js';
import { mutationId, someDigest, startService, type TestService } from '../support/service.js';

let service: TestService;
let directory: string;
let environment: Environment;
let operator: string;
let second: string;

beforeAll(async () => {
  service = await startService({ logLevel: 'warn' });
  directory = await mkdtemp(join(tmpdir(), 'fleet-cutover-commands-'));
  environment = {
    FLEET_CUTOVER_URL: service.url,
    FLEET_CUTOVER_TOKEN: service.token,
    FLEET_CUTOVER_STATE_DIR: directory,
  };
  const issue = async (principalId: string, role: 'operator' | 'administrator') => {
    const answer = await service.done('issueAdministratorToken', { mutationId: mutationId(), principalId, role });
    return answer.secrets[0]!.secret;
  };
  operator = await issue('olga', 'operator');
  second = await issue('bob', 'administrator');
});
afterAll(async () => {
  await service.close();
  await rm(directory, { recursive: true });
});

const run = (...args: string[]) => runCommand(environment, args);
/** A command that has to succeed. */
async function done(...args: string[]): Promise<string> {
  const result = await run(...args);
  if (result.code !== 0) throw new Error(`${args.join(' ')}: ${result.stderr}`);
  return result.stdout;
}
/** Its answer; the type names the method whose answer it is. */
async function answer<N extends TMethodName>(...args: string[]): Promise<MethodResponse<N>> {
  const text = await done(...args, '--json');
  expect(text.trimEnd().split('\n')).toHaveLength(1);
  return JSON.parse(text) as MethodResponse<N>;
}
const file = async (name: string, content: unknown): Promise<string> => {
  const path = join(directory, name);
  await writeFile(path, JSON.stringify(content));
  return path;
};
let secretFiles = 0;
const secrets = () => ['--secrets-file', join(directory, `secrets-${(secretFiles += 1)}`)];
const lastSecrets = async () =>
  JSON.parse(await readFile(join(directory, `secrets-${secretFiles}`), 'utf8')) as { secrets: { secret: string }[] };
const saved = () => readdir(join(directory, 'requests'));
const idIn = (stderr: string) => /mutation id: (\S+)/.exec(stderr)![1]!;
const lines = (text: string) => text.trimEnd().split('\n');

describe('owner rows', () => {
  const cluster = ['--cluster', 'east'];

  it('clusters are created, listed and shown', async () => {
    const create = ['cluster', 'create', 'east', '--controller', 'k1', '--namespace', 'prod'];
    expect(await done(...create, '--dry-run')).toContain('dry run: nothing was changed');
    expect(lines(await done('cluster', 'list'))).toEqual(['no clusters']);
    expect(await done(...create)).toMatch(/^cluster +east$/m);
    expect(lines(await done('cluster', 'list'))).toEqual([
      'CLUSTER  CONTROLLER  EPOCH  NAMESPACE  SWARM',
      'east     k1          1      prod       -',
    ]);
    const shown = await answer<'readCluster'>('cluster', 'show', ...cluster);
    expect(shown).toEqual(await service.done('readCluster', { clusterId: 'east' }));
    const again = await run('cluster', 'create', 'east', '--controller', 'k2', '--namespace', 'prod');
    expect([again.code, again.stderr]).toEqual([1, expect.stringContaining('look at the one that is there')]);
  });

  it('nodes are registered, their credentials rotated and revoked; tokens are in the file alone', async () => {
    const text = await done('node', 'register', 'n1', ...cluster, ...secrets());
    expect(text).toContain(`2 tokens are in ${join(directory, `secrets-${secretFiles}`)} and nowhere else`);
    const issued = await lastSecrets();
    expect(issued.secrets).toHaveLength(2);
    for (const { secret } of issued.secrets) expect(text).not.toContain(secret);
    const rotate = ['node', 'rotate-credential', 'n1', '--kind', 'node-session', ...cluster];
    expect(await done(...rotate, ...secrets())).toMatch(/generation 2, not used yet/);
    expect((await run(...rotate)).code).toBe(exitCodes.usage);
    expect((await run('node', 'rotate-credential', 'n1', '--kind', 'all', ...cluster, ...secrets())).code).toBe(2);
    const key = 'ab'.repeat(32);
    expect(await done('node', 'set-corestore-key', 'n1', '--key', key, ...cluster)).toContain(key);
    expect((await run('node', 'set-corestore-key', 'n1', '--key', 'short', ...cluster)).code).toBe(2);
    expect((await run('node', 'release-quarantine', 'n1', ...cluster, ...secrets())).stderr).toContain(
      'quarantine-absent',
    );
    const rejoin = await run('node', 'confirm-rejoin', 'n1', '--swarm-node', 'sn', ...cluster);
    expect([rejoin.code, rejoin.stderr]).toEqual([1, expect.stringContaining('rejoin-absent')]);
    expect(await done('node', 'revoke', 'n1', ...cluster)).toMatch(/^state +revoked$/m);
    expect(lines(await done('node', 'list', ...cluster))[1]).toMatch(/^n1 +revoked +- +never +-$/);
  });

  it('services and their specs', async () => {
    const { service: made } = await answer<'createService'>('service', 'create', 'web');
    const content = {
      imageDigest: someDigest('web'),
      mounts: [{ mountPath: '/data', readOnly: false }],
      secretInputs: [],
      publishedPorts: [{ protocol: 'tcp', port: 80, targetPort: 8080 }],
      placement: [],
    };
    const put = ['spec', 'put', made.serviceId, await file('spec.json', content), ...cluster];
    const none = await run('spec', 'show', made.serviceId, ...cluster);
    expect([none.code, none.stderr]).toEqual([1, expect.stringContaining('record-unknown')]);
    const first = await run(...put);
    expect(first.stderr).toMatch(/^expects spec=none$/m);
    expect(first.stdout).toMatch(/^port +80\/tcp to 8080$/m);
    await file('spec.json', { ...content, publishedPorts: [] });
    const next = await answer<'putServiceSpec'>(...put);
    expect([next.spec.generation, next.spec.publishedPorts]).toEqual([2, []]);
    expect(await done('spec', 'show', made.serviceId, '--generation', '1', ...cluster)).toContain('80/tcp');
    for (const generation of ['0', '-1', '1.5', 'x', '99999999999999999999'])
      expect((await run('spec', 'show', made.serviceId, '--generation', generation, ...cluster)).code).toBe(2);
    await file('spec.json', { ...content, more: 1 });
    expect(await run(...put)).toMatchObject({ code: 2, stdout: '' });
    expect(await done('service', 'list', ...cluster)).toMatch(/web +live +generation 2$/m);
    expect(await done('service', 'retire', made.serviceId)).toMatch(/^state +retired$/m);
  });

  it('tokens are issued, rotated and revoked, and listed without their secret', async () => {
    const issued = await answer<'issueAdministratorToken'>(
      'token',
      'issue',
      'carol',
      '--role',
      'operator',
      ...secrets(),
    );
    const { credentialId } = issued.credential;
    expect(JSON.stringify(issued)).not.toContain((await lastSecrets()).secrets[0]!.secret);
    expect(await done('token', 'rotate', credentialId, ...secrets())).toContain('generation 2, not used yet');
    expect(await done('token', 'revoke', credentialId)).toMatch(/^state +revoked$/m);
    expect(await done('credential', 'list')).toMatch(
      new RegExp(`^${credentialId} +administrator +carol +operator +revoked$`, 'm'),
    );
    expect(
      lines(await done('credential', 'list', ...cluster))
        .slice(1)
        .join(),
    ).not.toContain('administrator');
  });

  it('lists go through all pages, and stop where they are told to', async () => {
    for (const nodeId of ['n2', 'n3', 'n4']) await done('node', 'register', nodeId, ...cluster, ...secrets());
    const whole = await answer<'listNodes'>('node', 'list', ...cluster);
    expect(whole.nodes.map((node) => node.nodeId)).toEqual(['n1', 'n2', 'n3', 'n4']);
    expect(whole.nextCursor).toBeNull();
    const some = await answer<'listNodes'>('node', 'list', '--limit', '3', ...cluster);
    expect([some.nodes, some.nextCursor]).toEqual([whole.nodes.slice(0, 3), 'n3']);
    expect(lines(await done('node', 'list', '--limit', '3', ...cluster)).at(-1)).toBe('… there are more than these 3');
    for (const limit of ['0', 'x', '-1'])
      expect((await run('node', 'list', '--limit', limit, ...cluster)).code).toBe(2);
  });

  it('a relay is registered, and revoked for good', async () => {
    expect((await run('relay', 'revoke', ...cluster)).stderr).toContain('name the relay first with `relay register`');
    expect(await done('relay', 'register', 'swarm-relay', ...cluster, ...secrets())).toContain('coreflow-relay');
    expect(await done('relay', 'revoke', ...cluster)).toContain('is revoked for good');
  });
});

describe('lists of many pages', () => {
  it('are one document, with what all pages say once', async () => {
    const digest = someDigest('d');
    const reference = (generation: number) => ({ id: 'ms-1', generation, digest });
    const verdict = (name: string) => ({
      swarmTaskId: name,
      swarmServiceId: 'web',
      nodeId: null,
      verdict: 'live' as const,
      reason: 'ok',
    });
    // The second page is of a newer snapshot the first time: the list begins anew.
    const generations = [1, 2, 2, 2];
    const server = await openAnsweringServer(({ json, count }, response) =>
      answerJson(response, {
        managerSnapshot: reference(generations[count - 1]!),
        verdicts: [verdict(json['cursor'] === null ? 'a' : 'b')],
        nextCursor: json['cursor'] === null ? 'after-a' : null,
      }),
    );
    try {
      const result = await runCommand({ ...environment, FLEET_CUTOVER_URL: server.url }, [
        'tasks',
        '--cluster',
        'c',
        '--json',
      ]);
      expect(JSON.parse(result.stdout)).toEqual({
        managerSnapshot: reference(2),
        verdicts: [verdict('a'), verdict('b')],
        nextCursor: null,
      });
      expect(server.requests).toHaveLength(4);
    } finally {
      await server.close();
    }
  });
});

describe('a cutover', () => {
  let cut: Cutover;
  let here: string[];

  beforeAll(async () => {
    cut = await cutover(service, 'west');
    here = ['--cluster', 'west'];
  });

  it('shows what was reported and said', async () => {
    expect(await done('inventory', 'show', ...here)).toMatch(/^app-0 +\S+ +replicated +1 +1 +/m);
    const scope = await answer<'readFleetCutoverScope'>('scope', 'show', ...here);
    expect(scope).toEqual(await service.done('readFleetCutoverScope', { clusterId: 'west', scope: null }));
    expect(await done('scope', 'show', ...here)).toMatch(/^relay +coreflow +- +- +-$/m);
    expect(await done('tasks', ...here)).toMatch(/^app-0\.1 +app-0 +west-n0 +live +container-exists$/m);
    expect(lines(await done('tasks', '--verdict', 'unknown', ...here))).toEqual(['no verdicts']);
    expect((await run('tasks', '--verdict', 'dead', ...here)).code).toBe(2);
    expect(await done('blockers', ...here)).toContain('node-not-targeted');
    expect(lines(await done('uncovered', ...here))).toEqual(['no volumes']);
    expect(await done('aggregate', 'show', ...here)).toBe('no aggregate yet\n');
    expect((await run('aggregate', 'page', '0', ...here)).stderr).toContain('has no aggregate yet');
    expect((await run('targets', 'show', ...here)).stderr).toContain('record-unknown');
  });

  it('takes targets, and says what was expected of them', async () => {
    const accept = ['targets', 'accept', ...cut.nodeIds, ...here];
    const first = await run(...accept);
    expect(first).toMatchObject({ code: 0 });
    expect(first.stderr).toMatch(/^expects runtime=rt-[0-9a-f]{40}:1:sha256:[0-9a-f]{64}\nexpects targetSet=none$/m);
    expect(await done('targets', 'show', ...here)).toContain('west-n2');
  });

  it('refuses what is pinned and not current, and takes what is', async () => {
    const { targetSet } = await answer<'readFleetCutoverTargetSet'>('targets', 'show', ...here);
    const accept = ['targets', 'accept', ...cut.nodeIds, ...here];
    const other = await run(...accept, '--expect', `targetSet=1:${someDigest('other')}`);
    expect([other.code, other.stderr]).toEqual([1, expect.stringContaining('target-set-stale')]);
    expect(other.stderr).toContain(targetSet.digest);
    expect((await run(...accept, '--expect', 'targetSet=none')).stderr).toContain('target-set-stale');
    const pinned = `targetSet=${targetSet.generation}:${targetSet.digest}`;
    expect((await run(...accept, '--expect', pinned, '--dry-run')).code).toBe(0);
    const whole = `targetSet=${targetSet.id}:${targetSet.generation}:${targetSet.digest}`;
    expect((await run(...accept, '--expect', whole, '--dry-run')).code).toBe(0);
    for (const wrong of ['scope=none', 'targetSet=1', 'targetSet', `targetSet=0:${targetSet.digest}`, ''])
      expect((await run(...accept, '--expect', wrong)).code).toBe(2);
    expect((await run(...accept, '--expect', pinned, '--expect', pinned)).code).toBe(2);
  });

  it('shows, removes and rederives handoffs', async () => {
    await cut.prepare();
    const page = await answer<'readFleetCutoverVolumeHandoffPage'>('aggregate', 'page', '0', ...here);
    expect(page.page.handoffs).toHaveLength(3);
    expect((await run('aggregate', 'page', '1', ...here)).stderr).toContain('page-unknown');
    const [first] = page.page.handoffs;
    const name = `${first!.nodeId}/${first!.id}`;
    expect(await done('handoff', 'show', name, ...here)).toMatch(/^mount path +\/data\/0\d$/m);
    const remove = ['handoff', 'remove', name, ...here];
    expect((await run('handoff', 'remove', 'no-slash', ...here)).code).toBe(2);
    expect(await done(...remove, '--dry-run')).toContain(`${name}: removed`);
    const removed = await run(...remove);
    expect(removed.stdout).toContain('handoffs   2 of 3 required');
    // What it looked up first is not there any more: the repeat asks for nothing and sends what was sent.
    const again = await run(...remove, '--mutation-id', idIn(removed.stderr));
    expect(again).toMatchObject({ code: 0 });
    expect(again.stdout).toContain('replay: done before');
    const gone = await run(...remove);
    expect([gone.code, gone.stderr]).toEqual([1, expect.stringContaining('removals[0] entry-absent')]);
    await cut.prepare();
    const before = (await cut.aggregate()).generation;
    expect(await done('aggregate', 'rederive', ...here)).toMatch(/^state +complete$/m);
    expect(
      (await answer<'readFleetCutoverVolumeHandoffAggregate'>('aggregate', 'show', ...here)).aggregate!.generation,
    ).toBe(before + 1);
  });

  it('writes off by two administrators', async () => {
    const [entry] = await cut.fleet.entries();
    const cases = [
      ['node', cut.nodeIds[2]!],
      ['volume', `${entry!.nodeId}/${entry!.id}`],
    ];
    for (const [kind, what] of cases) {
      const command = ['write-off', kind!, what!, ...here, '--verified', 'looked at the rack'];
      const stated = await run(...command);
      expect([stated.code, stated.stderr]).toEqual([2, expect.stringContaining('give --reason')]);
      const early = await run(...command, '--confirm', `1:${someDigest('none')}`);
      expect([early.code, early.stderr]).toEqual([2, expect.stringContaining('no proposal')]);
      const proposed = await done(...command, '--reason', 'burnt');
      const [, confirm] = /--confirm (\S+)/.exec(proposed)!;
      expect((await run(...command, '--confirm', confirm!)).stderr).toContain('write-off-refused');
      const bob = { ...environment, FLEET_CUTOVER_TOKEN: second };
      const other = await runCommand(bob, [...command, '--confirm', `1:${someDigest('other')}`]);
      expect([other.code, other.stderr]).toEqual([1, expect.stringContaining('write-off-stale')]);
      const confirmed = await runCommand(bob, [...command, '--confirm', confirm!.replace(/^[^:]+:/, '')]);
      expect(confirmed.stdout).toMatch(/^state +confirmed by alice and bob$/m);
      expect(confirmed.stdout).toMatch(/^reason +burnt$/m);
    }
    expect(
      (await run('write-off', 'volume', `${entry!.nodeId}/nothing`, ...here, '--verified', 'x', '--reason', 'y')).code,
    ).toBe(1);
  });
});

describe('a refusal', () => {
  const json = (stderr: string) =>
    (JSON.parse(lines(stderr).at(-1)!) as { error: { kind: string; next: string; problem?: { code: string } } }).error;

  it('says what to do: no service, no token, a wrong one, a role, a cluster', async () => {
    const { FLEET_CUTOVER_URL: _url, ...noUrl } = environment as Record<string, string>;
    const { FLEET_CUTOVER_TOKEN: _token, ...noToken } = environment as Record<string, string>;
    const cases: [Environment, string[], number, string][] = [
      [noUrl, ['cluster', 'list'], 2, 'no service: give --url'],
      [noToken, ['cluster', 'list'], 2, 'no token: set FLEET_CUTOVER_TOKEN'],
      [{ ...environment, FLEET_CUTOVER_TOKEN: 'secret' }, ['cluster', 'list'], 2, 'not an administrator’s'],
      [
        { ...environment, FLEET_CUTOVER_TOKEN: `fc.no.${'x'.repeat(43)}` },
        ['cluster', 'list'],
        1,
        'credential-refused',
      ],
      [
        { ...environment, FLEET_CUTOVER_TOKEN: operator },
        ['service', 'create', 'x'],
        1,
        'use the token of an administrator',
      ],
      [environment, ['state', '--cluster', 'nowhere'], 1, 'with `cluster list`'],
      [environment, ['aggregate', 'rederive', '--cluster', 'nowhere'], 1, 'cluster-unknown'],
      [environment, ['node', 'list', '--cluster', 'no space'], 2, 'not an identifier'],
      [environment, ['service', 'create', ''], 2, 'nothing was sent'],
    ];
    for (const [where, args, code, text] of cases) {
      const result = await runCommand(where, args);
      expect([args.join(' '), result.code, result.stdout]).toEqual([args.join(' '), code, '']);
      expect(result.stderr).toContain(text);
      expect(result.stderr).toContain('next: ');
      const asJson = json((await runCommand(where, [...args, '--json'])).stderr);
      expect(asJson.kind).toBe(code === 2 ? 'usage' : 'refused');
    }
    expect((await runCommand({ ...environment, FLEET_CUTOVER_TOKEN: operator }, ['cluster', 'list'])).code).toBe(0);
  });

  it('of a service that nobody reaches is 3', async () => {
    const closed = await openAnsweringServer(() => {});
    await closed.close();
    const result = await runCommand({ ...environment, FLEET_CUTOVER_URL: closed.url }, ['cluster', 'list']);
    expect(result).toMatchObject({ code: 3, stdout: '' });
    expect(result.stderr).toContain('ECONNREFUSED');
    expect(result.stderr).toContain('check the URL and that the service runs');
  });

  it('tells another version of the service: one without the method, one that answers more', async () => {
    const old = await openAnsweringServer((_request, response) => {
      response.writeHead(404, { 'content-type': 'application/problem+json' });
      response.end('{"type":"urn:x","title":"No","status":404,"code":"route-unknown"}');
    });
    const newer = await openAnswerProxy(service.url, ({ body }) => body.replace(/^\{/, '{"shard":1,'));
    const codeless = await openAnsweringServer((_request, response) => {
      response.writeHead(409, { 'content-type': 'application/problem+json' });
      response.end('{"type":"urn:x","title":"New","status":409,"code":"quorum-stale\\u001b[31m"}');
    });
    try {
      const at = (url: string) => runCommand({ ...environment, FLEET_CUTOVER_URL: url }, ['cluster', 'list']);
      const without = await at(old.url);
      expect([without.code, without.stderr]).toEqual([1, expect.stringContaining('older or newer than this program')]);
      const more = await at(newer.url);
      expect([more.code, more.stderr]).toEqual([3, expect.stringContaining('of this program’s version')]);
      const unknown = await at(codeless.url);
      expect([unknown.code, unknown.stderr]).toEqual([1, expect.stringContaining('quorum-stale\\u001b[31m (409)')]);
      expect(unknown.stderr).not.toContain('\u001b');
      expect(unknown.stderr).toContain('read what is current');
    } finally {
      for (const each of [old, newer, codeless]) await each.close();
    }
  });
});

describe('a name', () => {
  it('with control characters moves no cursor, and is the same as JSON', async () => {
    const name = 'web\u001b[2J\u009b31m\nfake-service  live';
    await service.done('createService', { mutationId: mutationId(), name });
    await service.done('createCluster', {
      mutationId: mutationId(),
      clusterId: 'named',
      controllerId: 'k',
      runtimeNamespace: 'n',
    });
    const text = await done('service', 'list', '--cluster', 'named');
    // eslint-disable-next-line no-control-regex
    expect(text.replaceAll('\n', '')).not.toMatch(/[\u0000-\u001f\u007f-\u009f]/);
    expect(text).toContain('web\\u001b[2J\\u009b31m\\u000afake-service');
    const asJson = await done('service', 'list', '--cluster', 'named', '--json');
    expect(asJson).not.toMatch(/\u009b/);
    const { services } = JSON.parse(asJson) as MethodResponse<'listServices'>;
    expect(services.map((each) => each.name)).toContain(name);
  });
});

describe('a repeat', () => {
  const here = ['--cluster', 'again'];
  let cut: Cutover;

  beforeAll(async () => {
    cut = await cutover(service, 'again');
  });

  /** Loses every answer of a method, although the service has acted. */
  async function losing<T>(method: TMethodName, work: (lost: Environment) => Promise<T>): Promise<T> {
    const path = methodPath(methods[method]);
    const proxy = await openAnswerProxy(service.url, (each) => (each.path === path ? null : each.body));
    try {
      return await work({ ...environment, FLEET_CUTOVER_URL: proxy.url });
    } finally {
      await proxy.close();
    }
  }

  it('of a change whose answer was lost tells what became of it, although all references moved', async () => {
    const accept = ['targets', 'accept', ...cut.nodeIds, ...here];
    const lost = await losing('acceptFleetCutoverTargetSet', (at) => runCommand(at, accept));
    expect(lost).toMatchObject({ code: 3, stdout: '' });
    expect(lost.stderr).toContain('repeat the same command with the same mutation id');
    const id = idIn(lost.stderr);
    const path = join(directory, 'requests', `acceptFleetCutoverTargetSet.${id}.json`);
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    expect((await stat(join(directory, 'requests'))).mode & 0o777).toBe(0o700);
    // Another administrator goes on meanwhile.
    expect((await cut.accept(cut.nodeIds.slice(0, 2))).status).toBe(200);
    const again = await run(...accept, '--mutation-id', id);
    expect(again).toMatchObject({ code: 0 });
    expect(again.stderr).toContain('repeats the earlier attempt as it was sent');
    expect(again.stdout).toContain('replay: done before, and no longer the latest');
    const asJson = await answer<'acceptFleetCutoverTargetSet'>(...accept, '--mutation-id', id);
    expect(asJson).toMatchObject({ replayed: true, current: false, targetSet: { generation: 1 } });
    expect((await cut.fleet.state()).targetSet!.generation).toBe(2);
  });

  it('is of the same command, and of what it expected', async () => {
    const accept = ['targets', 'accept', ...here, ...cut.nodeIds];
    const first = await run(...accept, '--mutation-id', 'mu-mine');
    expect(first).toMatchObject({ code: 0 });
    const [expected] = /(?<=expects )targetSet=\S+/.exec(first.stderr)!;
    const fewer = await run('targets', 'accept', cut.nodeIds[0]!, ...here, '--mutation-id', 'mu-mine');
    expect([fewer.code, fewer.stderr]).toEqual([2, expect.stringContaining('another arguments')]);
    const elsewhere = await run('targets', 'accept', ...cut.nodeIds, '--cluster', 'west', '--mutation-id', 'mu-mine');
    expect([elsewhere.code, elsewhere.stderr]).toEqual([2, expect.stringContaining('another clusterId')]);
    expect((await run(...accept, '--mutation-id', 'mu-mine', '--expect', 'targetSet=none')).code).toBe(2);
    expect((await run(...accept, '--mutation-id', 'mu-mine', '--expect', expected)).code).toBe(0);
    expect((await run(...accept, '--mutation-id', '../../x')).code).toBe(2);
    await writeFile(join(directory, 'requests', 'acceptFleetCutoverTargetSet.mu-broken.json'), '{"intent":{}');
    const broken = await run(...accept, '--mutation-id', 'mu-broken');
    expect([broken.code, broken.stderr]).toEqual([2, expect.stringContaining('strict JSON refused')]);
  });

  it('works where nothing was saved, with what was expected pinned', async () => {
    const { FLEET_CUTOVER_STATE_DIR: _state, ...nowhere } = environment as Record<string, string>;
    const accept = ['targets', 'accept', ...cut.nodeIds, ...here];
    const first = await runCommand(nowhere, accept);
    expect(first).toMatchObject({ code: 0 });
    expect(first.stderr).toContain('the request is not saved (set FLEET_CUTOVER_STATE_DIR)');
    const id = ['--mutation-id', idIn(first.stderr)];
    const moved = await runCommand(nowhere, [...accept, ...id]);
    expect([moved.code, moved.stderr]).toEqual([1, expect.stringContaining('mutation-id-reused')]);
    const pins = [...first.stderr.matchAll(/^expects (\S+)$/gm)].flatMap(([, pin]) => ['--expect', pin!]);
    const again = await runCommand(nowhere, [...accept, ...id, ...pins]);
    expect(again.stdout).toContain('replay: done before');
    const unwritable = await file('a-file', {});
    const other = await runCommand({ ...environment, FLEET_CUTOVER_STATE_DIR: unwritable }, accept);
    expect([other.code, other.stderr]).toEqual([0, expect.stringContaining('not saved (ENOTDIR)')]);
  });

  it('of a change that was refused decides anew, and of a dry run there is none', async () => {
    const before = await saved();
    const advance = ['advance', '--to', 'switching', ...here, '--mutation-id', 'mu-early'];
    expect((await run(...advance)).stderr).toContain('phase-order');
    expect(await saved()).toEqual(before);
    await run('targets', 'accept', ...cut.nodeIds, ...here, '--dry-run', '--mutation-id', 'mu-dry');
    expect(await saved()).toEqual(before);
    // The id is free: what is current now is read.
    expect((await run('targets', 'accept', ...cut.nodeIds, ...here, '--mutation-id', 'mu-dry')).stdout).not.toContain(
      'replay',
    );
  });

  it('never tells a token twice', async () => {
    const register = ['node', 'register', 'lost', ...here];
    const lost = await losing('registerNode', (at) => runCommand(at, [...register, ...secrets()]));
    expect(lost.code).toBe(3);
    await expect(lastSecrets()).rejects.toThrow('ENOENT');
    const again = await run(...register, ...secrets(), '--mutation-id', idIn(lost.stderr));
    expect(again).toMatchObject({ code: 0 });
    expect(again.stderr).toContain('a lost one is rotated');
    await expect(lastSecrets()).rejects.toThrow('ENOENT');
  });

  it('is kept for the latest mutations only', async () => {
    const requests = join(directory, 'requests');
    for (let count = 0; count < 210; count += 1)
      await writeFile(join(requests, `createService.old-${count}.json`), '{}', { mode: 0o600 });
    const { stderr } = await run('targets', 'accept', ...cut.nodeIds, ...here);
    const names = await saved();
    expect(names).toHaveLength(200);
    expect(names).toContain(`acceptFleetCutoverTargetSet.${idIn(stderr)}.json`);
  });
});

describe('the program', () => {
  it('keeps results and words apart, and its exit code says how it ended', async () => {
    const [made, refused, usage] = await Promise.all([
      startProgram(environment, ['service', 'create', 'process', '--json']).ended,
      startProgram(environment, ['state', '--cluster', 'nowhere', '--json']).ended,
      startProgram(environment, ['targets', 'accept', 'n', '--expect', 'x']).ended,
    ]);
    expect(made).toMatchObject({ code: 0, stderr: expect.stringMatching(/^mutation id: \S+\n$/) });
    expect(JSON.parse(made.stdout)).toMatchObject({ replayed: false, service: { name: 'process' } });
    expect(refused).toMatchObject({ code: 1, stdout: '' });
    expect(JSON.parse(refused.stderr)).toMatchObject({ error: { problem: { code: 'cluster-unknown' } } });
    expect(usage).toMatchObject({ code: 2, stdout: '', stderr: expect.stringContaining('--expect has to be') });
  }, 60_000);

  it('ends quietly, and as it would have, when nobody reads its results', async () => {
    const closing = async (args: string[]) => {
      const child = spawnProgram(environment, args);
      child.stdout.destroy();
      let stderr = '';
      child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
      const [code] = (await once(child, 'close')) as [number | null];
      return { code, stderr };
    };
    const watch = spawnProgram(environment, ['watch', '--cluster', 'again', '--json']);
    const ended = once(watch, 'close');
    const [read, refused] = await Promise.all([
      closing(['credential', 'list', '--json']),
      // It prints what is unmet before it is refused.
      closing(['advance', '--to', 'draining', '--cluster', 'named']),
      once(watch.stdout, 'data'),
    ]);
    expect(read).toEqual({ code: 0, stderr: '' });
    expect([refused.code, refused.stderr]).toEqual([1, expect.stringContaining('gate-unmet')]);
    // A watch has nothing else to do than to tell: it ends.
    watch.stdout.destroy();
    expect((await cut('again')).status).toBe(200);
    expect((await ended)[0]).toBe(0);
  }, 60_000);

  /** A change that a watch of the cluster tells. */
  async function cut(clusterId: string) {
    const { runtime, scope, aggregate } = await service.done('readFleetCutoverState', { clusterId });
    const reference = ({ id, generation, digest }: typeof runtime) => ({ id, generation, digest });
    return service.call('rederiveFleetCutoverVolumeHandoffs', {
      mutationId: mutationId(),
      clusterId,
      runtime: reference(runtime),
      scope: scope!,
      expectedAggregate:
        aggregate === null ? null : { id: aggregate.id, generation: aggregate.generation, digest: aggregate.digest },
    });
  }
});
