/** `scope suggest` and `scope apply` on the captured Swarm: from nothing to a complete scope, as a person would. */
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, request as httpRequest } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { parse, parseDocument, stringify } from 'yaml';
import { capturedSource } from '../../src/agents/docker/captured-source.js';
import { observeNode } from '../../src/agents/docker/observe-node.js';
import type { IScopeFile } from '../../src/cli/scope/scope-file.js';
import { bytesDigest } from '../../src/contract/digest.js';
import { type Capture, openCapture } from '../../src/demo/capture.js';
import { environmentOf, runCommand } from '../support/command-line.js';
import { createFleet, type TestFleet } from '../support/fleet.js';
import { startService, type TestService } from '../support/service.js';

const directory = join(import.meta.dirname, '..', 'fixtures', 'swarm');
const clusterId = 'captured';
let service: TestService;
let fleet: TestFleet;
let capture: Capture;
let work: string;
let path: string;

beforeAll(async () => {
  [capture, work, service] = await Promise.all([
    openCapture(directory),
    mkdtemp(join(tmpdir(), 'scope-test-')),
    startService({ logLevel: 'warn' }),
  ]);
  path = join(work, 'scope.yaml');
  const raw = JSON.parse(await readFile(join(directory, 'manager', 'services.json'), 'utf8')) as {
    Spec: { Name: string };
  }[];
  fleet = await createFleet(service, {
    clusterId,
    nodes: ['manager', 'worker'],
    services: raw.map(({ Spec }) => Spec.Name),
  });
  const digest = bytesDigest('captured');
  for (const node of ['manager', 'worker']) {
    const observation = await observeNode(capturedSource(capture.directoryOf(node)), {
      runtime: fleet.runtime,
      pallet: null,
      spark: { bundleDigest: digest, unitDigest: digest, configurationDigest: digest, oldModeRefused: true },
    });
    const answer = await fleet.observe(node, observation);
    expect(answer.status, answer.text).toBe(200);
  }
  await fleet.accept(['manager', 'worker']);
});
afterAll(async () => {
  await service.close();
  await rm(work, { recursive: true, force: true });
});

const run = (...args: string[]) => runCommand(environmentOf(service), ['scope', ...args]);
const readScope = async () => parse(await readFile(path, 'utf8')) as IScopeFile;
const suggest = (...more: string[]) => run('suggest', '--cluster', clusterId, '--out', path, ...more);

/** As an editor does it: on the text, so that comments stay. */
async function edit(change: (text: string) => string) {
  await writeFile(path, change(await readFile(path, 'utf8')));
}
const confirmAll = (text: string) => text.replaceAll('confirmed: false', 'confirmed: true');

it('proposes what the people of the capture say, but for what only they can know', async () => {
  const end = await suggest();
  expect([end.code, end.stderr]).toEqual([0, '']);
  const file = await readScope();
  expect(file.services).toHaveLength(40);
  expect(file.services.every(({ confirmed }) => !confirmed)).toBe(true);
  const said = capture.classification!;
  const differences = file.services.flatMap(({ name, class: proposed, serviceId, mounts = [] }) => {
    const stated = said.services[name!];
    const found: string[] = [];
    if (proposed !== (stated?.class ?? 'application')) found.push(`${name}: ${proposed}`);
    if (serviceId !== fleet.owner(name!)) found.push(`${name}: owner`);
    const byTarget = new Map(mounts.map((mount) => [mount.target, mount]));
    for (const [target, mount] of Object.entries(stated?.mounts ?? {})) {
      const mine = byTarget.get(target);
      byTarget.delete(target);
      if (mine?.class !== mount.class) found.push(`${name} ${target}: ${mine?.class ?? 'data'}, not ${mount.class}`);
      else if (mine.reason === null) found.push(`${name} ${target}: ${mount.class}, the reason is open`);
    }
    for (const { target, class: mountClass } of byTarget.values())
      found.push(`${name} ${target}: ${mountClass}, not data`);
    return found;
  });
  expect(differences.sort()).toEqual([
    // Used, not owned: the directory is the host's, and why it is only used is the person's to say.
    'node-agent /host/volumes: host-path, the reason is open',
    // Nothing about /srv/hostdirs/logs shows that the agent only ships it: proposed as data, which loses nothing.
    'node-agent /logs: data, not host-path',
    // Read only and written by nobody here: who owns what is in it, a person knows.
    'shop_api /ext: shared-read-only, the reason is open',
  ]);
  expect(file.coreflow).toEqual({ state: 'undetermined' });
});

it('overwrites no file, and applies nothing that is not confirmed', async () => {
  const again = await suggest();
  expect([again.code, again.stderr.includes('exists')]).toEqual([2, true]);
  const text = await readFile(path, 'utf8');
  const refused = await run('apply', path);
  expect(refused.code).toBe(2);
  const lines = text
    .split('\n')
    .flatMap((line, index) => (line.includes('confirmed: false') && !line.startsWith('#') ? [index + 1] : []));
  const [title, ...details] = refused.stderr.trimEnd().split('\n');
  expect([title, details.pop()]).toEqual([
    `usage: ${details.length} errors in ${path}`,
    '  next: correct it; nothing was sent',
  ]);
  for (const line of lines.slice(0, 40))
    expect(details.some((detail) => detail.startsWith(`  ${path}:${line}: `))).toBe(true);
  expect((await fleet.state()).scope).toBeNull();
});

it('applies what is confirmed, shows what it changes, and repeats a lost attempt', async () => {
  await edit((text) => confirmAll(text).replace('{ state: undetermined }', "{ state: none, reason: 'no relay' }"));
  const open = await run('apply', path);
  expect([open.code, open.stderr.match(/has no reason/g)?.length]).toEqual([2, 2]);
  await edit((text) => {
    const document = parseDocument(text);
    const services = (document.toJS() as IScopeFile).services;
    services.forEach(({ name, mounts = [] }, at) => {
      mounts.forEach(({ reason }, index) => {
        if (reason === null) document.setIn(['services', at, 'mounts', index, 'reason'], 'used, not owned');
      });
      if (name === 'node-agent') {
        document.addIn(['services', at, 'mounts'], {
          target: '/logs',
          class: 'host-path',
          reason: 'shipped',
          confirmed: true,
        });
      }
    });
    return document.toString({ lineWidth: 0 });
  });
  const dry = await run('apply', path, '--dry-run', '--json');
  expect([dry.code, JSON.parse(dry.stdout)]).toMatchObject([0, { dryRun: true, state: 'complete', unclassified: [] }]);
  expect((await fleet.state()).scope).toBeNull();
  const done = await run('apply', path);
  expect(done.code).toBe(0);
  expect(done.stdout).toContain(`+ services: pg-primary: application of ${fleet.owner('pg-primary')}`);
  expect(done.stdout).toContain('unclassified: none');
  const id = /mutation id: (\S+)/.exec(done.stderr)![1]!;
  const repeated = await run('apply', path, '--mutation-id', id, '--json');
  expect([repeated.code, JSON.parse(repeated.stdout)]).toMatchObject([0, { replayed: true, current: true }]);
  const stale = await run('apply', path);
  expect([stale.code, stale.stderr.includes('scope-stale')]).toEqual([1, true]);
  expect(stale.stderr).toContain(`scope suggest --cluster ${clusterId} --from ${path}`);
});

it('renews the file: answers stay, what blocks is offered, and the scope becomes what the people of the capture say', async () => {
  const before = await readScope();
  const renewed = await suggest('--from', path, '--json');
  expect([renewed.code, JSON.parse(renewed.stdout)]).toMatchObject([
    0,
    { open: 0, toCheck: 0, stated: 40, dropped: [] },
  ]);
  const file = await readScope();
  expect(file.coreflow).toEqual(before.coreflow);
  expect(file.expectedScope).toEqual((await fleet.state()).scope);
  const said = capture.classification!;
  expect(
    file.overlapConfirmations
      .map(({ nodeId, target, reason, confirmed }) => [nodeId, target, reason, confirmed])
      .sort(),
  ).toEqual(said.overlapConfirmations!.map(({ node, target }) => [node, target, null, false]).sort());
  // The shop still mounts the other volumes that people call dormant: they are offered once it is stopped.
  const idle = said.dormantVolumes!.filter(({ volume }) => volume !== 'shop-uploads-shared');
  expect(idle).toHaveLength(1);
  expect(file.dormantVolumes).toEqual(
    idle.map(({ node, volume }) => ({ nodeId: node, volumeName: volume, reason: null, confirmed: false })),
  );
  await edit((text) => confirmAll(text).replaceAll('reason: null', 'reason: stops before the switch'));
  const done = await run('apply', path, '--json');
  expect(done.code, done.stderr).toBe(0);
  const answer = JSON.parse(done.stdout) as { state: string; changes: { change: string; list: string }[] };
  expect(answer.state).toBe('complete');
  expect(answer.changes.map(({ change, list }) => `${change} ${list}`).sort()).toEqual([
    'comes dormantVolumes',
    'comes overlapConfirmations',
    'comes overlapConfirmations',
    'comes overlapConfirmations',
  ]);
  const { blockers } = await fleet.state();
  expect(blockers.filter(({ code }) => code.startsWith('overlap') || code === 'volume-unmounted')).toEqual([]);
});

it('renews the file of one administrator without undoing what another has applied meanwhile', async () => {
  expect((await suggest('--from', path)).code).toBe(0);
  await edit((text) => confirmAll(text).replaceAll('reason: null', 'reason: stops before the switch'));
  expect((await run('apply', path)).code).toBe(0);
  const [ann, bob] = [join(work, 'ann.yaml'), join(work, 'bob.yaml')];
  for (const out of [ann, bob]) expect((await run('suggest', '--cluster', clusterId, '--out', out)).code).toBe(0);
  const editFile = async (file: string, change: (said: IScopeFile) => void) => {
    const said = parse(await readFile(file, 'utf8')) as IScopeFile;
    change(said);
    await writeFile(file, stringify(said));
    return said;
  };
  const agentOf = (said: IScopeFile) => said.services.find(({ name }) => name === 'node-agent')!;
  // To Bob the logs are data, and a volume is not dormant.
  let dormant: object | undefined;
  await editFile(bob, (said) => {
    agentOf(said).mounts = agentOf(said).mounts!.filter(({ target }) => target !== '/logs');
    dormant = said.dormantVolumes.shift();
    said.coreflow = { state: 'none', reason: 'never had one' };
  });
  // Ann has other reasons for one line and for the relay, and lets a service's anonymous volumes go.
  const serviceId = fleet.owner('pg-primary');
  const stated = await editFile(ann, (said) => {
    said.overlapConfirmations[0]!.reason = 'stopped by hand';
    said.coreflow = { state: 'none', reason: 'gone last year' };
    said.releasedAnonymousVolumes.push({ serviceId, reason: 'scratch', confirmed: true });
  });
  const applied = await run('apply', bob);
  expect(applied.code, applied.stderr).toBe(0);
  const stale = await run('apply', ann);
  expect([stale.code, stale.stderr.includes(`--from ${ann} --out ${ann}`)]).toEqual([1, true]);
  const renewed = await run('suggest', '--cluster', clusterId, '--from', ann, '--out', ann, '--json');
  expect([renewed.code, JSON.parse(renewed.stdout)]).toMatchObject([0, { conflicts: 1, toConfirmAgain: 1 }]);
  const file = parse(await readFile(ann, 'utf8')) as IScopeFile;
  expect(file.expectedScope).toEqual((await fleet.state()).scope);
  expect(agentOf(file).mounts!.map(({ target }) => target)).toEqual(['/host/volumes']);
  expect(file.dormantVolumes.filter(({ confirmed }) => !confirmed)).toEqual([
    { ...dormant, reason: null, confirmed: false },
  ]);
  expect(file.coreflow).toEqual({ state: 'none', reason: 'never had one', confirmed: false });
  expect(file.overlapConfirmations).toContainEqual(stated.overlapConfirmations[0]);
  expect(file.releasedAnonymousVolumes).toEqual([{ serviceId, reason: 'scratch', confirmed: false }]);
  const refused = await run('apply', ann);
  expect([refused.code, refused.stderr.includes('coreflow is not confirmed')]).toEqual([2, true]);
  await editFile(ann, (said) => {
    said.coreflow = { ...said.coreflow, confirmed: true };
    said.dormantVolumes = said.dormantVolumes.filter(({ confirmed }) => confirmed);
    said.releasedAnonymousVolumes[0]!.confirmed = true;
  });
  const dry = await run('apply', ann, '--dry-run', '--json');
  expect(dry.code, dry.stderr).toBe(0);
  const { changes } = JSON.parse(dry.stdout) as { changes: { change: string; list: string }[] };
  expect(changes.map(({ change, list }) => `${change} ${list}`)).toEqual([
    'changes overlapConfirmations',
    'comes releasedAnonymousVolumes',
  ]);
});

it('asks about every difference where the scope that the file was made for is not known', async () => {
  const file = join(work, 'unknown.yaml');
  const said = parse(await readFile(join(work, 'bob.yaml'), 'utf8')) as IScopeFile;
  const expectedScope = { ...said.expectedScope!, digest: bytesDigest('another') };
  await writeFile(file, stringify({ ...said, expectedScope, coreflow: { state: 'none', reason: 'other' } }));
  const end = await run('suggest', '--cluster', clusterId, '--from', file, '--out', file, '--json');
  expect([end.code, JSON.parse(end.stdout)]).toMatchObject([0, { conflicts: 1, toConfirmAgain: 0 }]);
  expect(end.stderr).toContain('is not known');
});

it('does not replace a file that was saved while it asked the service', async () => {
  const saved = `${await readFile(path, 'utf8')}# saved by an editor\n`;
  const between = createServer((request, response) => {
    const forward = async () => {
      await writeFile(path, saved);
      const { method, headers, url } = request;
      const onward = httpRequest(new URL(url!, service.url), { method, headers }, (answer) => {
        response.writeHead(answer.statusCode!, answer.headers);
        answer.pipe(response);
      });
      onward.on('error', () => response.destroy());
      request.pipe(onward);
    };
    forward().catch(() => response.destroy());
  });
  await new Promise<void>((resolve) => between.listen(0, '127.0.0.1', resolve));
  try {
    const { port } = between.address() as AddressInfo;
    const end = await suggest('--from', path, '--url', `http://127.0.0.1:${port}`);
    expect([end.code, end.stderr.includes(`${path} was changed while this ran`)]).toEqual([2, true]);
    expect(await readFile(path, 'utf8')).toBe(saved);
    expect((await readdir(work)).filter((name) => name.endsWith('.new'))).toEqual([]);
  } finally {
    between.closeAllConnections();
    between.close();
  }
});

it('refuses a file of another cluster, services that nobody knows, and files that are none', async () => {
  const other = join(work, 'other.yaml');
  await writeFile(other, (await readFile(path, 'utf8')).replace('clusterId: captured', 'clusterId: other'));
  const foreign = await run('suggest', '--cluster', clusterId, '--from', other, '--out', join(work, 'new.yaml'));
  expect([foreign.code, foreign.stderr.includes('is about cluster other')]).toEqual([2, true]);
  const text = (await readFile(path, 'utf8')).replace(/swarmServiceId: \S+/, 'swarmServiceId: nobody');
  await writeFile(other, text);
  const unknown = await run('apply', other);
  const line = text.split('\n').findIndex((each) => each.includes('nobody')) + 1;
  expect(unknown.code).toBe(2);
  expect(unknown.stderr).toContain(`${other}:${line}: nobody is no swarm service`);
  expect((await run('apply', join(work, 'none.yaml'))).code).toBe(2);
  expect((await run('apply')).code).toBe(2);
  expect((await run('suggest', '--cluster', clusterId)).code).toBe(2);
});
