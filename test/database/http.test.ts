import { once } from 'node:events';
import { type IncomingMessage, request as httpRequest } from 'node:http';
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { sparkSwarmNodeContracts } from '../../src/contract/limits.js';
import { methodPath } from '../../src/contract/method.js';
import { methods } from '../../src/contract/methods.js';
import { openPool } from '../../src/db/pool.js';
import { mutationId, startService, type TestService } from '../support/service.js';

let service: TestService;
beforeAll(async () => {
  service = await startService();
  await service.done('createCluster', {
    mutationId: mutationId(),
    clusterId: 'c',
    controllerId: 'c',
    runtimeNamespace: 'n',
  });
});
afterAll(() => service.close());

interface Reply {
  readonly status: number;
  readonly headers: IncomingMessage['headers'];
  readonly body: Record<string, unknown>;
}

interface Sending {
  readonly method?: string;
  readonly headers?: Record<string, string>;
  /** Sent one after the other, in a chunked body. */
  readonly chunks?: readonly (string | Buffer)[];
  readonly body?: string | Buffer;
  readonly token?: string;
}

async function send(path: string, sending: Sending = {}): Promise<Reply> {
  const { method = 'POST', headers = {}, chunks, body, token = service.token } = sending;
  const length: Record<string, string> =
    body === undefined ? {} : { 'content-length': String(Buffer.byteLength(body)) };
  const request = httpRequest(service.url + path, {
    method,
    headers: { 'content-type': 'application/json', authorization: `Bearer ${token}`, ...length, ...headers },
  });
  const answered = new Promise<IncomingMessage>((resolve, reject) => {
    request.on('response', resolve);
    // Who is refused before the body has gone may be unable to write the rest of it; the answer is there all the same.
    request.on('error', (error) => setTimeout(reject, 1_000, error));
  });
  for (const chunk of chunks ?? []) request.write(chunk);
  request.end(body);
  const response = await answered;
  const text = (await response.toArray()).join('');
  return { status: response.statusCode ?? 0, headers: response.headers, body: text === '' ? {} : JSON.parse(text) };
}

const createService = methodPath(methods.createService);
const code = async (path: string, sending: Sending): Promise<unknown> => (await send(path, sending)).body.code;

/** A valid body of exactly so many bytes. */
function bodyOf(bytes: number): string {
  const body = JSON.stringify({ mutationId: mutationId(), name: 'padded', dryRun: true });
  return body.slice(0, -1) + ' '.repeat(bytes - body.length) + '}';
}

describe('bytes', () => {
  const limit = methods.createService.maximumRequestBytes;

  it('takes exactly the limit, with and without a Content-Length', async () => {
    expect((await send(createService, { body: bodyOf(limit) })).status).toBe(200);
    const body = bodyOf(limit);
    expect((await send(createService, { chunks: [body.slice(0, 1000), body.slice(1000)] })).status).toBe(200);
  });

  it('refuses one byte more, with and without a Content-Length', async () => {
    const refusal = { status: 413, body: { code: 'body-too-large', mutationOutcome: 'not-applied' } };
    expect(await send(createService, { body: bodyOf(limit + 1) })).toMatchObject(refusal);
    const body = bodyOf(limit + 1);
    expect(await send(createService, { chunks: [body.slice(0, limit), body.slice(limit)] })).toMatchObject(refusal);
  });

  it('refuses by Content-Length before the body has arrived', async () => {
    const request = httpRequest(service.url + createService, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        authorization: `Bearer ${service.token}`,
        'content-length': String(1024 ** 3),
      },
    });
    request.on('error', () => {});
    request.write('{');
    const [response] = (await once(request, 'response')) as [IncomingMessage];
    expect(response.statusCode).toBe(413);
    request.destroy();
  });

  it('has each method’s own limit', async () => {
    const path = methodPath(methods.importFleet);
    const document = { mutationId: mutationId(), clusterId: 'c', nodes: [], services: [], specs: [], dryRun: true };
    const body = JSON.stringify(document);
    const padded = (bytes: number): string => body.slice(0, -1) + ' '.repeat(bytes - body.length) + '}';
    expect((await send(path, { body: padded(4_194_304) })).status).toBe(200);
    expect((await send(path, { body: padded(4_194_305) })).status).toBe(413);
  });
});

describe('strict JSON', () => {
  const valid = `{"mutationId":"m-strict","name":"strict"`;
  it.each([
    ['nothing', ''],
    ['white space', '  '],
    ['cut', valid],
    ['a duplicate key', `${valid},"name":"other"}`],
    ['a duplicate key, escaped', `${valid},"n\\u0061me":"other"}`],
    ['__proto__', `${valid},"__proto__":{}}`],
    ['__proto__, escaped', `${valid},"\\u005f_proto__":{}}`],
    ['a lone surrogate', `{"mutationId":"m-strict","name":"\\ud800"}`],
    ['-0', `${valid},"x":-0}`],
    ['a fraction', `${valid},"x":1.5}`],
    ['an exponent', `${valid},"x":1e3}`],
    ['2^53', `${valid},"x":9007199254740993}`],
    ['depth', `${valid},"x":${'['.repeat(40)}${']'.repeat(40)}}`],
    ['two documents', `${valid}}{}`],
    ['a comment', `${valid}/**/}`],
    ['NaN', `${valid},"x":NaN}`],
  ])('refuses %s', async (_what, body) => {
    const reply = await send(createService, { body });
    expect([reply.status, reply.body.code]).toEqual([400, 'body-invalid-json']);
    expect(reply.body.mutationOutcome).toBe('not-applied');
  });

  it('refuses wrong UTF-8 and a byte order mark', async () => {
    const bytes = Buffer.from(`${valid}}`);
    const broken = Buffer.concat([bytes.subarray(0, -2), Buffer.from([0xc3]), bytes.subarray(-2)]);
    expect(await code(createService, { body: broken })).toBe('body-invalid-json');
    expect(await code(createService, { body: Buffer.concat([Buffer.from([0xef, 0xbb, 0xbf]), bytes]) })).toBe(
      'body-invalid-json',
    );
  });
});

describe('the closed schema', () => {
  const refused = async (body: unknown): Promise<string[]> => {
    const reply = await send(createService, { body: JSON.stringify(body) });
    expect([reply.status, reply.body.code]).toEqual([400, 'body-schema']);
    return reply.body.errors as string[];
  };

  it('converts nothing, fills nothing in, and drops nothing', async () => {
    expect(await refused({ mutationId: 'm', name: 5 })).toEqual(['createService /name expected string']);
    expect(await refused({ mutationId: 'm', name: null })).toHaveLength(1);
    expect((await refused({ mutationId: 'm' })).length).toBeGreaterThan(0);
    expect(await refused({ mutationId: 'm', name: 'x', extra: 1 })).toEqual([
      'createService /extra unexpected property',
    ]);
    expect((await refused({ mutationId: 'm', name: 'x', dryRun: 'true' })).length).toBeGreaterThan(0);
    expect((await refused([])).length).toBeGreaterThan(0);
    expect((await refused('createService')).length).toBeGreaterThan(0);
    expect((await refused({ mutationId: 'm/..', name: 'x' })).length).toBeGreaterThan(0);
  });

  it('takes "constructor" and "toString" for the unknown keys that they are', async () => {
    expect(await refused({ mutationId: 'm', name: 'x', constructor: 1, toString: 2 })).toHaveLength(2);
  });

  it('names at most eight errors, of a large body one, each short', async () => {
    for (const [length, count] of [
      [1_000, 8],
      [5_000, 1],
    ] as const) {
      const keys = Array.from({ length: 50 }, (_, index) => [`${'k'.repeat(length)}${index}`, 1]);
      const body = JSON.stringify(Object.fromEntries(keys));
      const reply = await send(methodPath(methods.importFleet), { body });
      const errors = reply.body.errors as string[];
      expect(errors).toHaveLength(count);
      expect(Math.max(...errors.map((error) => error.length))).toBeLessThanOrEqual(256);
    }
  });

  it('refuses U+0000, which Postgres can’t store, but not the text of its escape', async () => {
    expect(await refused({ mutationId: 'm', name: 'a\0b' })).toHaveLength(1);
    const fine = await service.done('createService', { mutationId: mutationId(), name: 'a\\u0000b' });
    expect(fine.service.name).toBe('a\\u0000b');
  });
});

describe('what is no such request', () => {
  it('takes only JSON in UTF-8, uncompressed', async () => {
    const body = bodyOf(200);
    const strange: Record<string, string>[] = [
      { 'content-type': 'text/plain' },
      { 'content-type': 'application/x-www-form-urlencoded' },
      { 'content-type': 'application/json; charset=latin1' },
      { 'content-encoding': 'gzip' },
      { 'content-type': 'nonsense' },
    ];
    for (const headers of strange) {
      const reply = await send(createService, { body, headers });
      expect([reply.status, reply.body.code, reply.body.mutationOutcome]).toEqual([415, 'media-type', 'not-applied']);
    }
    expect(
      (await send(createService, { body, headers: { 'content-type': 'application/json; charset=UTF-8' } })).status,
    ).toBe(200);
  });

  it('answers an unknown route with a problem, and reads no body for it', async () => {
    for (const path of [
      '/',
      '/requests/fleet/nothing',
      '/requests/fleet/createService/',
      '/REQUESTS/fleet/createService',
      '/%zz',
    ]) {
      const reply = await send(path, { body: '{"not": json' });
      expect([reply.status, reply.body.code]).toEqual([404, 'route-unknown']);
      expect(reply.headers['content-type']).toContain('application/problem+json');
    }
  });

  it('names the verb of a route that takes another one', async () => {
    for (const method of ['GET', 'PUT', 'DELETE', 'PATCH']) {
      const reply = await send(createService, { method, ...(method === 'GET' ? {} : { body: '{}' }) });
      expect([reply.status, reply.body.code, reply.headers.allow]).toEqual([405, 'method-not-allowed', 'POST']);
    }
    const health = await send('/health', { body: '{}' });
    expect([health.status, health.headers.allow]).toEqual([405, 'GET']);
  });

  it('answers what is no HTTP, and headers without end, without falling over', async () => {
    const { hostname, port } = new URL(service.url);
    for (const bytes of ['nonsense\r\n\r\n', `GET / HTTP/1.1\r\nx: ${'y'.repeat(40_000)}\r\n\r\n`]) {
      const socket = connect(Number(port), hostname);
      socket.on('error', () => {});
      socket.end(bytes);
      const text = (await socket.toArray()).join('');
      expect(text).toMatch(/^HTTP\/1\.1 4\d\d /);
    }
    expect((await send('/health', { method: 'GET' })).status).toBe(200);
  });
});

describe('failing credentials', () => {
  it('are slowed down with Retry-After, while a valid token passes', async () => {
    const wrong = `fc.nobody.${'A'.repeat(43)}`;
    const replies: Reply[] = [];
    for (let times = 0; times < 30; times += 1) replies.push(await send(createService, { token: wrong, body: '{}' }));
    const limited = replies.filter((reply) => reply.status === 429);
    expect(limited.length).toBeGreaterThan(5);
    expect(replies[0]?.status).toBe(401);
    expect(limited[0]?.body).toMatchObject({ code: 'rate-limited', mutationOutcome: 'not-applied', retrySafe: true });
    expect(Number(limited[0]?.headers['retry-after'])).toBeGreaterThan(0);
    expect((await send(createService, { body: bodyOf(100) })).status).toBe(200);
  });
});

describe('large bodies', () => {
  const path = methodPath(methods.importFleet);
  const observationPath = sparkSwarmNodeContracts.swarmObservation.endpoint;
  const large = (document: object): string => `${JSON.stringify(document).slice(0, -1)}${' '.repeat(66_000)}}`;
  /** The one, or the other to whom has failed often: other tests have, from this address. */
  const refusedCredential = ['credential-refused', 'rate-limited'];
  const strangers = { nodeId: 'nobody', nodeToken: 'A'.repeat(43) };

  /** While `during` runs, two bodies of another organization have both places, and wait in the database. */
  async function whileTakingTurns(organization: string, during: () => Promise<void>): Promise<void> {
    const token = await service.organization(organization);
    const cluster = { clusterId: organization, controllerId: organization, runtimeNamespace: 'n' };
    await service.done('createCluster', { mutationId: mutationId(), ...cluster }, token);
    const holder = await service.database.owner.connect();
    await holder.query('begin');
    await holder.query('select from control.organizations where organization_id = $1 for update', [organization]);
    const document = { clusterId: organization, nodes: [], services: [], specs: [] };
    const inside = [1, 2].map(() => send(path, { body: large({ ...document, mutationId: mutationId() }), token }));
    try {
      await vi.waitUntil(async () => {
        const waiting = await service.database.owner.query(
          `select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
        );
        return waiting.rowCount === 2;
      });
      await during();
    } finally {
      await holder.query('rollback');
      holder.release();
    }
    expect((await Promise.all(inside)).map((reply) => reply.status)).toEqual([200, 200]);
  }

  it('outrun no revocation while they wait for their turn', async () => {
    const principal = { principalId: 'waiting', role: 'administrator' } as const;
    const issued = await service.done('issueAdministratorToken', { mutationId: mutationId(), ...principal });
    const { secret, credentialId } = issued.secrets[0]!;
    const document = { mutationId: mutationId(), clusterId: 'c', nodes: [], services: [{ name: 'late' }], specs: [] };
    let late: Promise<Reply> | undefined;
    let others: Promise<Reply>[] = [];
    await whileTakingTurns('turns', async () => {
      late = send(path, { body: large(document), token: secret });
      others = Array.from({ length: 64 }, () => send(path, { body: large({}) }));
      // There are 64 places to wait in: one of 65 is told to come back, once all the others wait.
      const refused = await Promise.race([late, ...others]);
      expect(refused).toMatchObject({ status: 503, headers: { 'retry-after': '1' }, body: { code: 'unavailable' } });
      await service.done('revokeAdministratorToken', { mutationId: mutationId(), credentialId });
    });
    const { body } = (await late)!;
    expect(refusedCredential).toContain(body.code);
    expect(body.mutationOutcome).toBe('not-applied');
    const statuses = (await Promise.all(others)).map((reply) => reply.status).sort();
    expect(statuses).toEqual([...Array<number>(63).fill(400), 503]);
    const services = await service.database.owner.query(`select from control.services where name = 'late'`);
    expect(services.rowCount).toBe(0);
  });

  it('of strangers take nobody’s turn', async () => {
    await whileTakingTurns('strangers', async () => {
      const envelope = { method: 'readCluster', request: { identity: { jwt: `fc.nobody.${'A'.repeat(43)}` } } };
      const reports = Array.from({ length: 70 }, () => send(observationPath, { body: large(strangers) }));
      const envelopes = Array.from({ length: 70 }, () =>
        send('/typedrequest', { body: large(envelope), headers: { authorization: '' } }),
      );
      const codes = (await Promise.all([...reports, ...envelopes])).map(
        ({ body }) => body.code ?? (body.error as { data: { code: string } }).data.code,
      );
      expect(codes).toHaveLength(140);
      expect(codes.filter((each) => !refusedCredential.includes(each as string))).toEqual([]);
    });
  });

  it('of strangers are received up to a bound, and then refused at once', async () => {
    const { hostname, port } = new URL(service.url);
    const head = ['host: x', 'connection: close', 'content-type: application/json', 'content-length: 4194304'];
    // Twice: what was counted is given back.
    for (const round of [1, 2]) {
      // 32 MiB from one address: eight of these, and not nine.
      const sockets = Array.from({ length: 9 }, () => connect(Number(port), hostname));
      try {
        const answers = sockets.map(async (socket) => (await socket.toArray()).join(''));
        for (const socket of sockets) {
          socket.write(`POST ${observationPath} HTTP/1.1\r\n${head.join('\r\n')}\r\n\r\n`);
          socket.write(Buffer.alloc(4_194_303, ' '));
        }
        const [index, refused] = await Promise.race(answers.map(async (answer, at) => [at, await answer] as const));
        expect([round, refused.slice(0, 12)]).toEqual([round, 'HTTP/1.1 503']);
        expect(refused).toMatch(/retry-after: 1\r\n/i);
        expect(refused).toContain('"retrySafe":true');
        // Small ones, and owners, who are known before, are not concerned.
        expect([401, 429]).toContain((await send(observationPath, { body: JSON.stringify(strangers) })).status);
        expect((await send(path, { body: large({}) })).status).toBe(400);
        const others = sockets.filter((_, at) => at !== index);
        for (const socket of others) socket.write(' ');
        const complete = (await Promise.all(answers)).filter((_, at) => at !== index);
        expect(complete.map((answer) => answer.slice(0, 12))).toEqual(Array(8).fill('HTTP/1.1 400'));
      } finally {
        for (const socket of sockets) socket.destroy();
      }
    }
  });

  it('are told their first error only, wherever it is', async () => {
    const document = { mutationId: 'm', clusterId: 'c', nodes: [], specs: [] };
    const errors = async (services: unknown[], more: object = {}): Promise<unknown> =>
      (await send(path, { body: large({ ...document, services, ...more }) })).body.errors;
    const services = Array.from({ length: 4_000 }, (_, index): unknown => ({ name: `s-${index}` }));
    expect(await errors(services, { one: 1, other: 2 })).toEqual(['importFleet /one unexpected property']);
    expect(await errors([...services, ...services])).toEqual([
      'importFleet /services expected array length to be less or equal to 4096',
    ]);
    expect(await errors([...services, { name: 7 }, { name: 8 }])).toEqual([
      'importFleet /services/4000/name expected string',
    ]);
    expect(await errors([{ name: 'x', 'a/b~c': 1 }])).toEqual(['importFleet /services/0/a~1b~0c unexpected property']);
    expect(await errors([{}])).toEqual(['importFleet /services/0/name expected required property']);
    expect(await errors([], { nodes: [{ nodeId: 'n', corestorePublicKey: 7 }] })).toEqual([
      'importFleet /nodes/0/corestorePublicKey expected union value',
    ]);
    expect((await send(path, { body: `[${' '.repeat(66_000)}]` })).body.errors).toEqual([
      'importFleet / expected object',
    ]);
  });
});

describe('health and readiness', () => {
  it('are up and ready', async () => {
    expect((await send('/health', { method: 'GET' })).body).toEqual({ status: 'up' });
    const ready = await send('/readiness', { method: 'GET' });
    expect(ready.status).toBe(200);
    expect(ready.body).toMatchObject({
      ready: true,
      stopping: false,
      reachable: true,
      separation: 'full',
      database: 'embedded',
    });
  });

  it('is not ready once the shutdown began', async () => {
    service.setStopping(true);
    const reply = await send('/readiness', { method: 'GET' });
    service.setStopping(false);
    expect([reply.status, reply.body.ready, reply.body.stopping]).toEqual([503, false, true]);
  });

  it('is not ready where the database has other migrations', async () => {
    const { owner } = service.database;
    await owner.query('grant select on control.migrations to fleet_cutover_service');
    expect((await send('/readiness', { method: 'GET' })).body.migrations).toBe('exact');
    await owner.query(`insert into control.migrations values (99, 'later', repeat('0', 64), now())`);
    const reply = await send('/readiness', { method: 'GET' });
    expect([reply.status, reply.body.migrations]).toEqual([503, 'different']);
    await owner.query('delete from control.migrations where number = 99');
  });
});

describe('a database that can’t answer', () => {
  it('makes mutations 503, not applied and retry-safe, with Retry-After', async () => {
    const { owner } = service.database;
    const holder = await owner.connect();
    await holder.query('begin');
    await holder.query(`select from control.organizations where organization_id = 'acme' for update`);
    const answer = await service.call('createService', { mutationId: mutationId(), name: 'waiting' });
    await holder.query('rollback');
    holder.release();
    expect([answer.status, answer.body.code]).toEqual([503, 'unavailable']);
    expect(answer.body).toMatchObject({ mutationOutcome: 'not-applied', retrySafe: true });
    expect(answer.headers.get('retry-after')).toBe('1');
  });

  it('says that the outcome is unknown where the answer to COMMIT was lost; the repeat tells', async () => {
    let lose = true;
    const faults = {
      at(point: string) {
        if (point !== 'createService:committed' || !lose) return;
        lose = false;
        throw new Error('the connection is gone');
      },
    };
    const other = await startService({ faults });
    try {
      const request = { mutationId: mutationId(), name: 'unknown' };
      const lost = await other.call('createService', request);
      expect([lost.status, lost.body.code]).toEqual([503, 'outcome-unknown']);
      expect(lost.body).toMatchObject({ mutationOutcome: 'unknown', retrySafe: true });
      expect(await other.done('createService', request)).toMatchObject({
        replayed: true,
        service: { name: 'unknown' },
      });
    } finally {
      await other.close();
    }
  });

  it('tells nothing of an error but that it happened, and logs no values', async () => {
    const { owner } = service.database;
    await owner.query(`alter table control.services add constraint teased check (name <> 'teaser-canary')`);
    const answer = await service.call('createService', { mutationId: mutationId(), name: 'teaser-canary' });
    await owner.query('alter table control.services drop constraint teased');
    expect(answer.status).toBe(500);
    expect(answer.body).toEqual({
      type: 'urn:serve.zone:fleet-cutover:internal',
      title: 'The service failed',
      status: 500,
      code: 'internal',
      mutationOutcome: 'not-applied',
    });
    expect(service.log()).toContain('teased');
    expect(service.log()).not.toContain('teaser-canary');
  });

  it('is not ready without its database', async () => {
    const other = await startService();
    const unreachable = openPool({
      url: other.database.serviceUrl,
      size: 1,
      statementTimeoutMs: 1000,
      lockTimeoutMs: 1000,
    });
    await unreachable.close();
    await other.database.db.close();
    const reply = await fetch(`${other.url}/readiness`);
    expect([reply.status, ((await reply.json()) as { reachable: boolean }).reachable]).toEqual([503, false]);
    expect((await fetch(`${other.url}/health`)).status).toBe(200);
    await other.app.close();
  });
});

describe('answers', () => {
  it('that the schema does not allow are never sent, nor silently stripped', async () => {
    const { owner } = service.database;
    await owner.query(`update control.clusters set runtime_namespace = 'not an identifier!' where cluster_id = 'c'`);
    const answer = await service.call('readCluster', { clusterId: 'c' });
    await owner.query(`update control.clusters set runtime_namespace = 'n' where cluster_id = 'c'`);
    expect([answer.status, answer.body.code]).toEqual([500, 'internal']);
    expect(JSON.stringify(answer.body)).not.toContain('not an identifier!');
    expect(service.log()).toContain('ResponseSchemaError');
  });
});

describe('slow senders', () => {
  it('are cut off with 408', async () => {
    const other = await startService({ requestTimeoutMs: 300 });
    const { hostname, port } = new URL(other.url);
    const socket = connect(Number(port), hostname);
    socket.on('error', () => {});
    const head = [
      `POST ${createService} HTTP/1.1`,
      'host: x',
      `authorization: Bearer ${other.token}`,
      'content-type: application/json',
      'content-length: 1000',
    ];
    socket.write(`${head.join('\r\n')}\r\n\r\n{`);
    const text = (await socket.toArray()).join('');
    expect(text).toMatch(/^HTTP\/1\.1 408 /);
    expect(text).toContain('request-timeout');
    await other.close();
  });
});

describe('the log', () => {
  it('has one line per request, and at trace level no token, header, body or query', async () => {
    const canary = 'canary-7f3a';
    const issued = await service.done('issueAdministratorToken', {
      mutationId: mutationId(),
      principalId: `${canary}-principal`,
      role: 'administrator',
    });
    const fresh = issued.secrets[0]?.secret ?? '';
    await service.call('listClusters', {}, fresh);
    await send(`/requests/fleet/${canary}-path?token=${canary}`, { body: `{"x":"${canary}-body"}` });
    await send(`${createService}?token=${canary}-query`, {
      body: `{"x":"${canary}-body"}`,
      headers: { 'x-canary': canary },
    });
    await send(createService, { body: `{"x":"${canary}-broken`, token: `fc.${canary}.${'A'.repeat(43)}` });
    await sleep(20);
    const log = service.log();
    for (const token of [
      service.token,
      fresh,
      fresh.split('.')[2] ?? '',
      'Bearer',
      `${canary}-path`,
      `${canary}-body`,
      `${canary}-query`,
      `${canary}-broken`,
    ]) {
      expect(log).not.toContain(token);
    }
    const lines = log
      .split('\n')
      .filter((line) => line.includes('"msg":"request"'))
      .map((line) => JSON.parse(line));
    expect(lines).toContainEqual(
      expect.objectContaining({
        method: 'POST',
        path: '/requests/fleet/listClusters',
        status: 200,
        principal: `${canary}-principal`,
      }),
    );
    expect(lines).toContainEqual(expect.objectContaining({ path: 'unknown', status: 404 }));
    expect(lines.every((line) => typeof line.ms === 'number')).toBe(true);
  });
});

describe('closing', () => {
  it('lets requests under way finish', async () => {
    const other = await startService();
    const holder = await other.database.owner.connect();
    await holder.query('begin');
    await holder.query(`select from control.organizations where organization_id = 'acme' for update`);
    const pending = other.call('createService', { mutationId: mutationId(), name: 'late' });
    await sleep(100);
    const closing = other.app.close();
    await sleep(50);
    await holder.query('rollback');
    holder.release();
    expect((await pending).status).toBe(200);
    await closing;
    await expect(fetch(other.url)).rejects.toThrow();
    await other.close();
  });
});
