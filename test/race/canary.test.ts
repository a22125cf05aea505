/**
 * Secrets are planted wherever one can be sent, everything that the service says and keeps is gathered at the most talkative
 * level, and none of them may be found there. First it is shown that each of the places would give one away.
 */
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { capturedSource } from '../../src/agents/docker/captured-source.js';
import { observeNode } from '../../src/agents/docker/observe-node.js';
import {
  buildFaultFleet,
  type FaultFleet,
  nextReport,
  prepareAllKeys,
  prepareBody,
  protocol,
  upsertOf,
} from '../support/fault-fleet.js';
import { exportedText } from '../support/forged-evidence.js';
import {
  observationPath,
  openRawClient,
  oracleMutationId,
  ownerPath,
  pagePath,
  type RawAnswer,
  type RawClient,
} from '../support/oracle-http.js';
import { startService, type TestService } from '../support/service.js';

/** By what it is. Each is a well-formed secret that nothing else resembles. */
const planted = new Map<string, string>();
/** All that was answered, but for the first answers that exist to show a secret. */
const answers: string[] = [];
let service: TestService;
let client: RawClient;
let fleet: FaultFleet;

beforeAll(async () => {
  service = await startService({ logLevel: 'trace' });
  client = openRawClient(service.url, service.token);
  fleet = await buildFaultFleet(client, 'canary', { nodes: 2, volumesPerNode: 4 });
  await prepareAllKeys(client, fleet);
});
afterAll(async () => {
  await client.close();
  await service.close();
});

function plant(what: string, secret = `Canary${what.replace(/\W/g, '')}${'A'.repeat(43)}`.slice(0, 43)): string {
  planted.set(what, secret);
  return secret;
}

function heard(answer: RawAnswer): RawAnswer {
  answers.push(answer.text, JSON.stringify(answer.headers));
  return answer;
}

/** As it is, and as bytes are shown. */
function spellings(secret: string): string[] {
  const bytes = Buffer.from(secret);
  return [secret, bytes.toString('hex'), bytes.toString('base64').replace(/=+$/, ''), encodeURIComponent(secret)];
}

function holders(place: string, text: string): string[] {
  const lower = text.toLowerCase();
  return [...planted].flatMap(([what, secret]) =>
    spellings(secret).some((spelling) => text.includes(spelling) || lower.includes(spelling.toLowerCase()))
      ? [`${place}: ${what}`]
      : [],
  );
}

/** Every column of every table of ours, each row as Postgres writes it. */
async function tables(): Promise<[place: string, text: string][]> {
  const { owner } = service.database;
  const { rows } = await owner.query<{ name: string }>(
    `select format('%I.%I', table_schema, table_name) as name from information_schema.tables
      where table_schema not in ('pg_catalog', 'information_schema') order by 1`,
  );
  const texts: [string, string][] = [];
  for (const { name } of rows) {
    const content = await owner.query<{ row: string }>(`select t::text as row from ${name} as t`);
    texts.push([`table ${name}`, content.rows.map(({ row }) => row).join('\n')]);
  }
  const activity = await owner.query<{ row: string }>(
    `select a::text as row from pg_stat_activity as a where pid <> pg_backend_pid()`,
  );
  texts.push(['pg_stat_activity', activity.rows.map(({ row }) => row).join('\n')]);
  return texts;
}

/** What Postgres itself has logged; empty where this login may not read it, as on a server of somebody else. */
async function databaseLog(): Promise<string> {
  const { owner } = service.database;
  try {
    const { rows } = await owner.query<{ text: string }>('select pg_read_file(pg_current_logfile()) as text');
    return rows[0]?.text ?? '';
  } catch {
    return '';
  }
}

/** Arguments and, of this user's processes, nothing else: the environment is the owner's own. */
async function processList(): Promise<string> {
  if (process.platform !== 'linux') return execFileSync('ps', ['axww', '-o', 'args='], { encoding: 'utf8' });
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  const lines = await Promise.all(pids.map((pid) => readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')));
  return lines.join('\n');
}

async function findings(): Promise<string[]> {
  return [
    ...holders('log', service.log()),
    ...holders('answer', answers.join('\n')),
    ...holders('process list', await processList()),
    ...holders('database log', await databaseLog()),
    ...(await tables()).flatMap(([place, text]) => holders(place, text)),
    ...holders('exported evidence', await exportedText(service.deps, fleet.clusterId)),
  ];
}

describe('a leak that is planted on purpose', () => {
  it('is found in each of the places', async () => {
    const leak = plant('leak');
    const { owner } = service.database;
    const child: ChildProcess = spawn(process.execPath, ['-e', 'setTimeout(() => {}, 60000)', leak], {
      stdio: 'ignore',
    });
    try {
      await once(child, 'spawn');
      service.app.log.trace({ leak }, 'planted');
      // An unknown key is named in the refusal.
      heard(await client.owner('createService', { mutationId: oracleMutationId(), name: 'x', [leak]: 1 }));
      await owner.query('create table control.leaks (as_text text, as_bytes bytea, as_json jsonb)');
      await owner.query('insert into control.leaks (as_text) values ($1)', [leak]);
      await owner.query(`do $$ begin raise log '${leak}'; end $$`);
      await owner.query('update control.nodes set fence_store_id = $1 where node_id = $2', [
        leak,
        fleet.nodes[0]!.nodeId,
      ]);
      const found = await findings();
      expect(found).toContain('log: leak');
      expect(found).toContain('answer: leak');
      expect(found).toContain('process list: leak');
      expect(found).toContain('table control.leaks: leak');
      expect(found).toContain('exported evidence: leak');
      if ((await databaseLog()) !== '') expect(found).toContain('database log: leak');
      for (const [column, value] of [
        ['as_bytes', Buffer.from(leak)],
        ['as_json', JSON.stringify({ deep: [leak] })],
      ] as const) {
        await owner.query('delete from control.leaks');
        await owner.query(`insert into control.leaks (${column}) values ($1)`, [value]);
        expect(await findings()).toContain('table control.leaks: leak');
      }
    } finally {
      child.kill('SIGKILL');
      await owner.query('drop table if exists control.leaks');
      await owner.query('update control.nodes set fence_store_id = null where fence_store_id = $1', [leak]);
      planted.clear();
      answers.length = 0;
    }
  });
});

describe('secrets', () => {
  it('are planted wherever one can be sent', async () => {
    plant('administrator’s token', service.token.split('.')[2]!);
    for (const [index, node] of fleet.nodes.entries()) plant(`node token ${index}`, node.token);
    await issueEverything();
    await sendWrongBearers();
    await sendBrokenRequests();
    await sendWhatFails();
    await reportSecretsOfDocker();
    expect(planted.size).toBeGreaterThan(10);
    expect(answers.length).toBeGreaterThan(30);
    for (const secret of planted.values()) expect(secret.length).toBeGreaterThanOrEqual(24);
  });

  it('are found nowhere', async () => {
    // The counts of refusals are written beside the answers.
    await service.app.close();
    expect(await findings()).toEqual([]);
    expect(service.log().split('\n').length).toBeGreaterThan(50);
  });
});

/** Tokens of every kind, each then used, repeated and ended. */
async function issueEverything(): Promise<void> {
  const { clusterId } = fleet;
  const issue = async (method: string, body: object): Promise<string> => {
    const request = { mutationId: oracleMutationId(), ...body };
    const { secrets, ...rest } = await client.done(method, request);
    for (const [index, each] of secrets.entries()) plant(`${method} ${index}`, each.secret.split('.').at(-1));
    answers.push(JSON.stringify(rest));
    heard(await client.owner(method, request));
    return secrets[0].secret;
  };
  const operator = await issue('issueAdministratorToken', { principalId: 'olga', role: 'operator' });
  heard(await client.owner('readFleetCutoverState', { clusterId }, operator));
  heard(await client.owner('createService', { mutationId: oracleMutationId(), name: 'no' }, operator));
  await issue('rotateAdministratorToken', { credentialId: operator.split('.')[1] });
  heard(
    await client.owner('revokeAdministratorToken', {
      mutationId: oracleMutationId(),
      credentialId: operator.split('.')[1],
    }),
  );
  heard(await client.owner('readFleetCutoverState', { clusterId }, operator));
  await issue('registerNode', { clusterId, nodeId: 'canary-n9', corestorePublicKey: null });
  await issue('rotateNodeCredential', { clusterId, nodeId: 'canary-n9', kind: 'node-session' });
  await issue('registerCoreflowRelay', { clusterId, swarmServiceId: 'relay' });
  heard(await client.owner('listCredentials', { clusterId, cursor: null, limit: 100 }));
}

async function sendWrongBearers(): Promise<void> {
  const wrong = plant('wrong bearer');
  const { clusterId, nodes } = fleet;
  for (const authorization of [`Bearer ${wrong}`, `Bearer fc.ad-1.${wrong}`, `Basic ${wrong}`, wrong]) {
    heard(await client.send(ownerPath('readFleetCutoverState'), JSON.stringify({ clusterId }), { authorization }));
  }
  const body = { ...nextReport(fleet, nodes[0]!), nodeToken: plant('wrong node token') };
  heard(await client.spark(observationPath, body));
  heard(
    await client.spark(pagePath, {
      nodeId: nodes[0]!.nodeId,
      nodeToken: body.nodeToken,
      protocol,
      aggregate: null,
      pageIndex: 0,
    }),
  );
}

/** Whatever the service says of a body that it can't read. */
async function sendBrokenRequests(): Promise<void> {
  const misplaced = plant('misplaced token');
  const { clusterId, nodes } = fleet;
  const valid = JSON.stringify(nextReport(fleet, nodes[1]!));
  const bodies = [
    valid.slice(0, -20),
    `${valid}${valid}`,
    valid.replace('"protocol"', '"protocoll"'),
    valid.replace('"major":32', '"major":31'),
    valid.replace('"state":"member"', `"state":"${misplaced}"`),
    `{"nodeToken":"${misplaced}","nodeToken":"${misplaced}"}`,
    `{"nodeToken":${JSON.stringify(misplaced.repeat(20))}}`,
    valid + ' '.repeat(5_000_000),
  ];
  for (const path of [observationPath, pagePath, ownerPath('createService'), ownerPath('readCluster')]) {
    for (const body of bodies) heard(await client.send(path, body));
    heard(await client.send(`${path}?token=${misplaced}`, '{}'));
    heard(await client.send(`${path}/${misplaced}`, '{}'));
    heard(
      await client.send(path, misplaced, {
        'content-type': `text/${misplaced}`,
        'x-api-key': misplaced,
        cookie: misplaced,
      }),
    );
  }
  heard(await client.owner('createService', { mutationId: oracleMutationId(), name: 'x', dryRun: misplaced }));
  heard(await client.owner('listServices', { clusterId, cursor: null, limit: misplaced }));
  const { hostname, port } = new URL(service.url);
  for (const bytes of [
    `${misplaced}\r\n\r\n`,
    `GET /${misplaced} HTTP/9.9\r\n\r\n`,
    `POST / HTTP/1.1\r\n${misplaced}: ${misplaced}\0\r\n\r\n`,
  ]) {
    const socket = connect(Number(port), hostname);
    socket.on('error', () => {});
    socket.end(bytes);
    answers.push((await socket.toArray()).join(''));
  }
  heard(await client.send('/metrics', undefined, {}, 'GET'));
  heard(await client.send('/readiness', undefined, {}, 'GET'));
}

/** Errors of the database carry values, and the stack knows the request. */
async function sendWhatFails(): Promise<void> {
  const { owner } = service.database;
  await owner.query(`alter table control.audit_rows add constraint teased check (mutation_id not like 'teased-%')`);
  const { aggregate } = await client.done('readFleetCutoverVolumeHandoffAggregate', {
    clusterId: fleet.clusterId,
    aggregate: null,
  });
  const { id, generation, digest } = aggregate;
  const change = { expectedAggregate: { id, generation, digest }, upserts: [upsertOf(fleet.keys[0]!, 4)] };
  heard(
    await client.owner('prepareFleetCutoverVolumeHandoffs', { ...prepareBody(fleet, change), mutationId: 'teased-1' }),
  );
  const token = { mutationId: 'teased-2', principalId: 'pia', role: 'operator' };
  heard(await client.owner('issueAdministratorToken', token));
  await owner.query('alter table control.audit_rows drop constraint teased');
  // Insert of a report that fails in the middle of it.
  await owner.query(
    `alter table control.reporter_sessions add constraint teased check (observation_sequence < 1) not valid`,
  );
  heard(await client.spark(observationPath, nextReport(fleet, fleet.nodes[1]!, 'failing')));
  await owner.query('alter table control.reporter_sessions drop constraint teased');
}

/** Docker’s own secrets, as they stand in its answers: the agent leaves them where they are. */
async function reportSecretsOfDocker(): Promise<void> {
  const secrets = {
    option: plant('driver option'),
    label: plant('label value'),
    env: plant('environment variable'),
    key: plant('label key'),
  };
  const directory = await mkdtemp(join(tmpdir(), 'fleet-cutover-canary-'));
  try {
    await cp(join(import.meta.dirname, '..', 'fixtures', 'swarm', 'manager'), directory, { recursive: true });
    const tainted = await taint(directory, secrets);
    expect(Math.min(...Object.values(tainted))).toBeGreaterThan(0);
    const body = await observeNode(capturedSource(directory), {
      runtime: null,
      pallet: null,
      spark: nextReport(fleet, fleet.nodes[0]!).observation.fleetCutoverLocalNodeSnapshot.spark,
    });
    expect(body.state).toBe('member');
    const { done, owner } = { done: client.done, owner: client.owner };
    const clusterId = 'docker';
    await done('createCluster', {
      mutationId: oracleMutationId(),
      clusterId,
      controllerId: 'c',
      runtimeNamespace: 'r',
    });
    const registered = await done('registerNode', {
      mutationId: oracleMutationId(),
      clusterId,
      nodeId: 'docker-n0',
      corestorePublicKey: null,
    });
    // Which of the two is the node's token, its holder knows.
    for (const { secret } of registered.secrets) {
      const observation = { reporterSessionId: 'docker', observationSequence: 1, observedAt: 1, ...body };
      answers.push(JSON.stringify(observation));
      heard(await client.spark(observationPath, { nodeId: 'docker-n0', nodeToken: secret, protocol, observation }));
    }
    const read = heard(await owner('readFleetCutoverManagerSnapshot', { clusterId, snapshot: null }));
    expect([read.status, read.body.snapshot.services.length > 20]).toEqual([200, true]);
    heard(await owner('listFleetCutoverUncoveredVolumes', { clusterId, cursor: null, limit: 1000 }));
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

interface DockerSecrets {
  readonly option: string;
  readonly label: string;
  readonly env: string;
  readonly key: string;
}

/** Puts them into every answer that has a place for them; counts the places. */
async function taint(
  directory: string,
  secrets: DockerSecrets,
): Promise<Record<'options' | 'labels' | 'environments', number>> {
  const tainted = { options: 0, labels: 0, environments: 0 };
  const visit = (value: unknown): void => {
    if (typeof value !== 'object' || value === null) return;
    for (const [key, member] of Object.entries(value)) {
      const holder = value as Record<string, unknown>;
      if (key === 'Labels' && typeof member === 'object' && member !== null && !Array.isArray(member)) {
        Object.assign(member, { 'canary.label': secrets.label, [secrets.key]: 'x' });
        tainted.labels += 1;
      } else if (
        key === 'Options' &&
        typeof member === 'object' &&
        member !== null &&
        !Array.isArray(member) &&
        'o' in member
      ) {
        const options = member as Record<string, string>;
        options['o'] = `${options['o']},username=u,password=${secrets.option}`;
        options[secrets.option] = secrets.option;
        tainted.options += 1;
      } else if (key === 'Env' && Array.isArray(member)) {
        holder[key] = [...(member as string[]), `PASSWORD=${secrets.env}`];
        tainted.environments += 1;
      } else visit(member);
    }
  };
  for (const entry of await readdir(directory, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile() || !entry.name.endsWith('.json') || entry.name === 'index.json') continue;
    const path = join(entry.parentPath, entry.name);
    const value: unknown = JSON.parse(await readFile(path, 'utf8'));
    visit(value);
    await writeFile(path, JSON.stringify(value));
  }
  return tainted;
}
