/** `explain`, `advance` and `watch` against the real service. */
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ageText } from '../../src/cli/gate-lines.js';
import type { MethodResponse } from '../../src/contract/methods.js';
import { runCommand, spawnProgram } from '../support/command-line.js';
import { type Cutover, cutover } from '../support/cutover.js';
import { createFleet } from '../support/fleet.js';
import { startService, type TestService } from '../support/service.js';
import { localSnapshot, managerSnapshot, swarmNode } from '../support/snapshots.js';

type Explanation = MethodResponse<'explainFleetCutover'>;

let service: TestService;
let environment: Record<string, string>;
let state: string;
let made = 0;

beforeAll(async () => {
  service = await startService({ logLevel: 'warn' });
  state = await mkdtemp(join(tmpdir(), 'fleet-cutover-explain-'));
  environment = {
    FLEET_CUTOVER_URL: service.url,
    FLEET_CUTOVER_TOKEN: service.token,
    FLEET_CUTOVER_STATE_DIR: state,
  };
});
afterAll(async () => {
  await service.close();
  await rm(state, { recursive: true });
});

function newCutover(): Promise<Cutover> {
  made += 1;
  return cutover(service, `cli-${made}`);
}

const run = (...args: string[]) => runCommand(environment, args);

describe('explain', () => {
  it('shows every gate, what is missing and who acts next', async () => {
    const { clusterId } = await newCutover();
    const result = await run('explain', '--cluster', clusterId);
    expect(result).toMatchObject({ code: 0, stderr: '' });
    expect(result.stdout).toMatch(/^phase swarm \(generation 1\); next: draining, \d of 6 gates are not met\n/);
    expect(result.stdout).toMatch(/^ {2}UNMET {2}targets-accepted +1 missing; administrator acts next$/m);
    expect(result.stdout).toMatch(/^ {2}met {4}no-quarantine$/m);
    expect(result.stdout).toContain('- no target set was accepted');
  });

  it('shows coverage with what remains, and the evidence with its age', async () => {
    const cut = await newCutover();
    await cut.bringTo('draining');
    await cut.reportAll();
    await cut.prepare();
    await cut.hold(0, 0);
    const { stdout } = await run('explain', '--cluster', cut.clusterId);
    const { coverage } = await cut.explain();
    expect(coverage.remaining).toBeGreaterThan(0);
    expect(stdout).toContain(
      `coverage: ${coverage.covered} of ${coverage.total} pages, ${coverage.completeNodes} of ${coverage.targetNodes} ` +
        `nodes complete; ${coverage.remaining} reports remain, 1 came within the last minute`,
    );
    expect(stdout).toMatch(/UNMET {2}coverage-complete +\d+ missing; pallet acts next/);
    expect(stdout).toMatch(new RegExp(`evidence: ${(await cut.aggregate()).id} generation \\d+`));
    const asJson = JSON.parse((await run('explain', '--cluster', cut.clusterId, '--json')).stdout) as Explanation;
    expect(asJson.gates.filter((gate) => !gate.met).map((gate) => gate.code)).toEqual(
      (await cut.unmet()).map((gate) => gate.code),
    );
  });

  it('is about one node, service or handoff', async () => {
    const cut = await newCutover();
    await cut.bringTo('draining');
    await cut.prepare();
    const node = cut.nodeIds[1]!;
    const about = await run('explain', '--cluster', cut.clusterId, '--node', node);
    expect(about.stdout).toContain('(met ones are not shown)');
    expect(about.stdout).toContain(`[node ${node}]`);
    const [entry] = (await cut.fleet.entries()).filter((each) => each.nodeId === node);
    expect(about.stdout).toContain(`${node}/${entry!.id} ${entry!.serviceName} ${entry!.mountPath}: prepared`);
    const handoff = await run('explain', '--cluster', cut.clusterId, '--handoff', `${node}/${entry!.id}`);
    expect(handoff.stdout).toMatch(/^required volumes:\n {2}.*: prepared \(generation 1\)$/m);
    const owned = await run('explain', '--cluster', cut.clusterId, '--service', entry!.serviceId, '--json');
    expect((JSON.parse(owned.stdout) as Explanation).entries.map((each) => each.id)).toContain(entry!.id);
  });

  it('is about a node that is not among the first of those that are missing something', async () => {
    const nodes = Array.from({ length: 12 }, (_, index) => `n${String(index).padStart(2, '0')}`);
    const fleet = await createFleet(service, { clusterId: 'cli-wide', nodes });
    await fleet.reported('n00', { local: localSnapshot(), manager: managerSnapshot({ nodes: [swarmNode('sn-n00')] }) });
    await fleet.classified({});
    expect((await fleet.accept(nodes)).status).toBe(200);
    const whole = JSON.parse((await run('explain', '--cluster', 'cli-wide', '--json')).stdout) as Explanation;
    const unobserved = whole.gates.find((gate) => gate.code === 'targets-observed')!;
    expect([unobserved.missingCount, unobserved.missing.length]).toEqual([12, 10]);
    const last = JSON.parse(
      (await run('explain', '--cluster', 'cli-wide', '--node', 'n11', '--json')).stdout,
    ) as Explanation;
    expect(last.gates).toMatchObject([
      { code: 'targets-observed', met: false, missingCount: 1, missing: [{ nodeId: 'n11' }] },
    ]);
  });

  it('refuses what it cannot be about', async () => {
    const { clusterId } = await newCutover();
    const unknown = await run('explain', '--cluster', clusterId, '--node', 'nobody');
    expect(unknown).toMatchObject({ code: 1, stdout: '' });
    expect(unknown.stderr).toContain('record-unknown');
    expect((await run('explain', '--cluster', clusterId, '--handoff', 'no-slash')).code).toBe(2);
    expect((await run('explain', '--cluster', clusterId, '--node', 'a', '--service', 'b')).code).toBe(2);
    expect((await run('explain')).code).toBe(2);
  });
});

describe('advance', () => {
  it('prints what is unmet, changes nothing and ends with 1', async () => {
    const cut = await newCutover();
    const result = await run('advance', '--cluster', cut.clusterId, '--to', 'draining');
    expect(result.code).toBe(1);
    expect(result.stdout).toMatch(/UNMET {2}targets-accepted +1 missing; administrator acts next/);
    expect(result.stderr).toContain('There is no way back');
    expect(result.stderr).toContain('gate-unmet');
    expect(await cut.phase()).toBe('swarm');
    const asJson = await run('advance', '--cluster', cut.clusterId, '--to', 'draining', '--json');
    expect(asJson).toMatchObject({ code: 1, stdout: '' });
    expect(asJson.stderr.trim().split('\n').at(-1)).toContain('"gates":[{');
  });

  it('checks without moving with --dry-run, then moves, and a repeat of it is a replay', async () => {
    const cut = await newCutover();
    await cut.readyFor('draining');
    const dry = await run('advance', '--cluster', cut.clusterId, '--to', 'draining', '--dry-run');
    expect(dry).toMatchObject({ code: 0 });
    expect(dry.stdout).toContain('every gate is met\ndry run: nothing was changed\n');
    expect(await cut.phase()).toBe('swarm');
    const args = ['advance', '--cluster', cut.clusterId, '--to', 'draining', '--mutation-id', 'mu-advance'];
    const done = await run(...args);
    expect(done).toMatchObject({ code: 0 });
    expect(done.stdout).toContain('phase draining (generation 2)');
    expect(await cut.phase()).toBe('draining');
    const again = await run(...args);
    expect(again).toMatchObject({ code: 0 });
    expect(again.stdout).toContain('replay: done before');
  });

  it('skips no phase, and knows no other', async () => {
    const { clusterId } = await newCutover();
    const skipped = await run('advance', '--cluster', clusterId, '--to', 'pallet');
    expect(skipped).toMatchObject({ code: 1 });
    expect(skipped.stderr).toContain('pallet does not follow swarm');
    expect((await run('advance', '--cluster', clusterId, '--to', 'docker')).code).toBe(2);
  });
});

describe('watch', () => {
  it('says what is there, then every change, until it is interrupted', async () => {
    const cut = await newCutover();
    await cut.readyFor('draining');
    const child = spawnProgram(environment, ['watch', '--cluster', cut.clusterId]);
    const ended = once(child, 'exit');
    const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
    expect((await lines.next()).value).toMatch(/ now phase swarm \(generation 1\), .*coverage 0\/\d+$/);
    await cut.advance('draining');
    expect((await lines.next()).value).toMatch(/ changed: runtime; phase draining \(generation 2\), /);
    child.kill('SIGINT');
    expect(await ended).toEqual([0, null]);
  }, 60_000);

  it('of no such cluster is refused', async () => {
    const result = await run('watch', '--cluster', 'nobody');
    expect(result).toMatchObject({ code: 1, stdout: '' });
    expect(result.stderr).toContain('cluster-unknown');
  });
});

describe('an age', () => {
  it.each<[number, string]>([
    [0, '0 ms'],
    [999, '999 ms'],
    [1000, '1 s'],
    [59_999, '59 s'],
    [60_000, '1 min'],
    [7_200_000, '2 h'],
    [172_800_001, '2 d'],
  ])('of %d ms is %s', (ms, text) => {
    expect(ageText(ms)).toBe(text);
  });
});
