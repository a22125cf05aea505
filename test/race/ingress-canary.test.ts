/**
 * Every launcher bearer that the service ever makes is recorded where it is drawn, also of attempts that fail. Attempts fail
 * at every point of the transaction and at every table that it writes; afterwards neither a bearer nor the key that seals it
 * may be found in anything that was said, kept or shown.
 */
import { randomBytes } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { inspect } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readConfig } from '../../src/config.js';
import { sparkSwarmObservationRequestRecord } from '../../src/contract/observation.js';
import { referenceOf } from '../../src/contract/schema.js';
import { inTransaction } from '../../src/db/transaction.js';
import { newSecret, parseAuthorization } from '../../src/features/auth/credential.js';
import { issueCredentials, rotate } from '../../src/features/auth/issuing.js';
import { readSparkBody } from '../../src/features/auth/spark-body.js';
import { type KeyRing, open, parseKeyRing, seal } from '../../src/features/ingress/sealing.js';
import { readKeyRing } from '../../src/key-ring.js';
import { type Random, systemRandom } from '../../src/random.js';
import { isRefused } from '../../src/refusal.js';
import { Secret } from '../../src/secret.js';
import { cutConnections } from '../support/kill-connections.js';
import { isBackgroundPoint, PointHook } from '../support/kill-points.js';
import { type IngressStage, ingressStage, launcherLogin } from '../support/pallet-phase.js';
import { mutationId, startService, type TestService } from '../support/service.js';

const keyBytes = randomBytes(32);
const ring: KeyRing = [{ keyId: 'k1', key: new Secret(keyBytes.toString('base64')) }];
const hook = new PointHook();
/** Of 32 random bytes that the service drew while it prepared: the bearers. */
const drawn: Buffer[] = [];
const answers: string[] = [];
let recording = false;
let service: TestService;
let stage: IngressStage;

const recorder: Random = {
  bytes: (length) => {
    const bytes = systemRandom.bytes(length);
    if (recording && length === 32) drawn.push(bytes);
    return bytes;
  },
};

beforeAll(async () => {
  service = await startService({ logLevel: 'trace', keyRing: ring, faults: hook });
  Object.assign(service.deps, { random: recorder });
  stage = await ingressStage(service, 'canary');
  recording = true;
});
afterAll(() => service.close());

/** The text that its holder sends, the bytes that it stands for, and how either is shown elsewhere. */
function spellings(bytes: Buffer): string[] {
  const text = bytes.toString('base64url');
  const shown = (raw: Buffer) => [raw.toString('hex'), raw.toString('base64').replace(/=+$/, ''), [...raw].join(',')];
  return [text, ...shown(bytes), ...shown(Buffer.from(text))];
}

function holders(place: string, text: string): string[] {
  const lower = text.toLowerCase();
  const secrets = [...drawn.map((bytes, index) => [`bearer ${index}`, bytes] as const), ['the key', keyBytes] as const];
  return secrets.flatMap(([what, bytes]) =>
    spellings(bytes).some((spelling) => lower.includes(spelling.toLowerCase())) ? [`${place}: ${what}`] : [],
  );
}

async function tables(): Promise<[place: string, text: string][]> {
  const { owner } = service.database;
  const { rows } = await owner.query<{ name: string }>(
    `select format('%I.%I', table_schema, table_name) as name from information_schema.tables
      where table_schema not in ('pg_catalog', 'information_schema') order by 1`,
  );
  const texts: [string, string][] = [];
  for (const { name } of [...rows, { name: 'pg_stat_activity' }, { name: 'pg_prepared_statements' }]) {
    const content = await owner.query<{ row: string }>(`select t::text as row from ${name} as t`);
    texts.push([`table ${name}`, content.rows.map(({ row }) => row).join('\n')]);
  }
  return texts;
}

async function databaseLog(): Promise<string> {
  try {
    const { rows } = await service.database.owner.query<{ text: string }>(
      'select pg_read_file(pg_current_logfile()) as text',
    );
    return rows[0]?.text ?? '';
  } catch {
    return '';
  }
}

/** Arguments of every process, and on Linux the environment of this one, in which the service runs. */
async function processes(): Promise<string> {
  const pids = await readdir('/proc').catch(() => []);
  const lines = await Promise.all(
    pids.filter((name) => /^\d+$/.test(name)).map((pid) => readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')),
  );
  return [...lines, process.argv.join(' '), inspect(process.env)].join('\n');
}

async function findings(): Promise<string[]> {
  return [
    ...holders('log', service.log()),
    ...answers.flatMap((answer) => holders('answer', answer)),
    ...holders('processes', await processes()),
    ...holders('database log', await databaseLog()),
    ...(await tables()).flatMap(([place, text]) => holders(place, text)),
  ];
}

async function heard<T extends { status: number; headers: Headers; body: unknown }>(answering: Promise<T>): Promise<T> {
  const answer = await answering;
  answers.push(JSON.stringify(answer.body), inspect(answer.headers));
  return answer;
}

const prepare = async () => heard(stage.prepare());

describe('a leak that is planted on purpose', () => {
  it('is found in each of the places, in each spelling', async () => {
    const leak = randomBytes(32);
    drawn.push(leak);
    const { owner } = service.database;
    try {
      for (const spelling of spellings(leak)) expect(holders('x', `a ${spelling} b`)).toEqual(['x: bearer 0']);
      expect(holders('x', inspect(ring[0]!.key.reveal()))).toEqual(['x: the key']);
      service.app.log.trace({ leak: leak.toString('base64url') }, 'planted');
      answers.push(leak.toString('hex'));
      await owner.query('create table control.leaks as select $1::bytea as bytes', [leak]);
      expect(await findings()).toEqual(
        expect.arrayContaining(['log: bearer 0', 'answer: bearer 0', 'table control.leaks: bearer 0']),
      );
    } finally {
      await owner.query('drop table if exists control.leaks');
      drawn.length = 0;
      answers.length = 0;
    }
  });
});

describe('bearers', () => {
  it('are made, used, rotated, replayed and revoked', async () => {
    for (let round = 1; round <= 3; round += 1) {
      const request = await stage.request();
      const first = await heard(service.call('prepareFleetCutoverIngress', request));
      expect(first.status).toBe(200);
      expect((await heard(service.call('prepareFleetCutoverIngress', request))).body.replayed).toBe(true);
      await heard(stage.prepare({ dryRun: true }));
      const { credential } = first.body.designation;
      const bearer = await stage.bearer(ring, first.body.designation);
      expect(drawn.some((bytes) => bytes.toString('base64url') === bearer.reveal())).toBe(true);
      expect(await launcherLogin(service, credential.credentialId, bearer)).toBe(round);
    }
    // 3 that count, and 3 of dry runs.
    expect(drawn).toHaveLength(6);
    await heard(service.call('readFleetCutoverIngressDesignation', { clusterId: 'canary', designation: null }));
    await heard(service.call('listCredentials', { clusterId: 'canary', cursor: null, limit: 1000 }));
    await heard(service.call('explainFleetCutover', { clusterId: 'canary', subject: { kind: 'cluster' } }));
    expect((await heard(stage.revoke())).status).toBe(200);
    expect((await prepare()).status).toBe(200);
    for (const path of ['/metrics', '/readiness', '/health', '/openapi.json']) {
      const response = await fetch(service.url + path);
      answers.push(await response.text(), inspect(response.headers));
    }
  });

  it('are sent where they do not belong', async () => {
    const bearer = await stage.bearer(ring, (await stage.designation())!);
    const body = JSON.stringify({ clusterId: 'canary', designation: null, bearer: bearer.reveal() });
    for (const authorization of [`Bearer ${bearer.reveal()}`, `Bearer fc.il-1.${bearer.reveal()}`, service.token]) {
      const response = await fetch(`${service.url}/requests/fleetcutover/readFleetCutoverIngressDesignation`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', authorization },
        body,
      });
      expect(response.status).toBe(401);
      answers.push(await response.text());
    }
    await heard(service.call('readFleetCutoverIngressDesignation', JSON.parse(body)));
  });

  it('are drawn in attempts that fail at every point of the transaction', async () => {
    const points = (await hook.record(async () => expect((await prepare()).status).toBe(200))).filter(
      (point) => point.startsWith('prepareFleetCutoverIngress:') && !isBackgroundPoint(point),
    );
    expect(points.length).toBeGreaterThan(12);
    expect(points.slice(-2).map((point) => point.split(':')[1])).toEqual(['commit', 'committed']);
    const before = drawn.length;
    const faults = {
      thrown: () => {
        throw new Error('interrupted');
      },
      cut: () => cutConnections(service.database.db),
    };
    for (const point of points) {
      for (const [what, fault] of Object.entries(faults)) {
        const request = await stage.request();
        hook.arm(point, fault);
        const first = await heard(service.call('prepareFleetCutoverIngress', request));
        expect(hook.disarm(), `${what} at ${point}`).toBe(true);
        // Whatever became of it, the same request then has its effect once.
        const again = await heard(service.call('prepareFleetCutoverIngress', request));
        expect([again.status, first.status === 200 || first.body.code !== undefined], `${what} at ${point}`).toEqual([
          200,
          true,
        ]);
        const generation = (request.expectedDesignation?.generation ?? 0) + 1;
        expect((await stage.designation())?.generation).toBe(generation);
      }
    }
    expect(drawn.length).toBeGreaterThan(before + points.length);
  });

  it('are revoked once, where the revocation fails at every point of its transaction', async () => {
    const revocation = async () => {
      const designation = (await stage.designation()) ?? (await stage.prepared()).designation;
      return {
        mutationId: mutationId(),
        clusterId: stage.clusterId,
        runtime: await stage.cut.runtime(),
        expectedDesignation: referenceOf(designation),
      };
    };
    const request = await revocation();
    const points = (await hook.record(() => service.done('revokeFleetCutoverIngressCredential', request))).filter(
      (point) => point.startsWith('revokeFleetCutoverIngressCredential:'),
    );
    expect(points.length).toBeGreaterThan(5);
    for (const point of points) {
      const { designation } = await stage.prepared();
      const again = await revocation();
      hook.arm(point, () => cutConnections(service.database.db));
      await heard(service.call('revokeFleetCutoverIngressCredential', again));
      expect(hook.disarm(), point).toBe(true);
      const done = await heard(service.call('revokeFleetCutoverIngressCredential', again));
      expect([done.status, done.body.credential.revoked], point).toEqual([200, true]);
      expect(done.body.credential.credentialId).toBe(designation.credential.credentialId);
      const bearer = await stage.bearer(ring, designation);
      expect(await launcherLogin(service, designation.credential.credentialId, bearer)).toBe('credential-refused');
    }
    await stage.prepared();
  });

  it('are drawn in attempts that fail at every table that is written', async () => {
    const { owner } = service.database;
    for (const table of [
      'credentials',
      'sealed_secrets',
      'service_spec_heads',
      'service_spec_revisions',
      'ingress_designation_heads',
      'ingress_designation_revisions',
      'audit_rows',
    ]) {
      await owner.query(`alter table control.${table} add constraint teased check (false) not valid`);
      try {
        const before = drawn.length;
        const answer = await prepare();
        expect([answer.status, answer.body.code, answer.body.mutationOutcome], table).toEqual([
          500,
          'internal',
          'not-applied',
        ]);
        expect(drawn.length).toBe(before + 1);
      } finally {
        await owner.query(`alter table control.${table} drop constraint teased`);
      }
    }
    expect((await prepare()).status).toBe(200);
  });

  it('are found nowhere, and neither is the key', async () => {
    expect(drawn.length).toBeGreaterThan(40);
    expect(answers.length).toBeGreaterThan(100);
    expect(service.log()).toContain('interrupted');
    expect(await findings()).toEqual([]);
  });
});

describe('what the core holds', () => {
  const shownBy = (value: unknown): string[] => [
    inspect(value, { depth: 12, showHidden: true, maxArrayLength: null, maxStringLength: null }),
    JSON.stringify(value) ?? '',
    String(value),
    `${value as string}`,
    inspect({ ...(value as object) }, { depth: 12, showHidden: true }),
  ];

  it('shows no bearer, token or key when it is printed', async () => {
    const issued = await inTransaction(service.deps, 'canary', async (tx) => {
      const order = { kind: 'administrator', organizationId: 'acme', clusterId: null, role: 'operator' } as const;
      const [first] = await issueCredentials(tx, service.deps.random, [{ ...order, subjectId: 'canary' }]);
      const second = await rotate(tx, service.deps.random, first!.row.credential_id);
      return [first!, second];
    });
    const bearer = drawn.at(-1)!.toString('base64url');
    const binding = { clusterId: 'c', serviceId: 's', credentialId: 'i', generation: 1 };
    const sealed = seal(ring, service.deps.random, binding, new Secret(bearer));
    const config = readConfig({ KEY_ENCRYPTION_KEYS: `k1:${ring[0]!.key.reveal()}` });
    const nodeToken = drawn[0]!.toString('base64url');
    const body = stage.cut.fleet.body(
      stage.cut.nodeIds[0]!,
      { state: 'unknown', reason: 'docker-unreachable' },
      { token: nodeToken },
    );
    const read = readSparkBody(sparkSwarmObservationRequestRecord, Buffer.from(JSON.stringify(body)));
    if (isRefused(read)) throw new Error(JSON.stringify(read.problem));
    for (const [what, value] of Object.entries({
      issued,
      fresh: newSecret(recorder),
      sealed,
      opened: open(ring, binding, sealed),
      presented: parseAuthorization(`Bearer fc.ad-1.${bearer}`),
      ring,
      parsed: parseKeyRing(config.keys?.kind === 'environment' ? config.keys.keys : new Secret('')),
      fromConfig: await readKeyRing(config.keys),
      config,
      deps: { clock: service.deps.clock, random: service.deps.random },
      spark: read,
    })) {
      for (const text of shownBy(value)) expect(holders(what, text)).toEqual([]);
    }
  });

  it('is told to its holder in the first answer of other credentials, and not in what is recorded', async () => {
    const request = { mutationId: mutationId(), principalId: 'oskar', role: 'operator' } as const;
    const first = await service.done('issueAdministratorToken', request);
    expect(first.secrets[0]?.secret).toMatch(/^fc\.ad-[0-9a-f]{32}\.[A-Za-z0-9_-]{43}$/);
    expect((await service.done('issueAdministratorToken', request)).secrets).toEqual([]);
    expect((await tables()).flatMap(([place, text]) => holders(place, text))).toEqual([]);
  });
});
