import { inspect } from 'node:util';
import { afterEach, describe, expect, it } from 'vitest';
import { type AdministratorClient, createAdministratorClient } from '../../src/client/administrator-client.js';
import { ContractViolationError, ProblemError, TransportError } from '../../src/client/errors.js';
import { newMutationId } from '../../src/client/mutation-id.js';
import { bareDigest } from '../../src/contract/digest.js';
import { methodPath } from '../../src/contract/method.js';
import { methodNames, methods } from '../../src/contract/methods.js';
import { refuse, refuseStale } from '../../src/contract/problems.js';
import { ContractError } from '../../src/contract/record.js';
import { Identifier } from '../../src/contract/schema.js';
import { Secret } from '../../src/secret.js';
import {
  answerJson,
  type Answering,
  answerProblem,
  answerText,
  openAnsweringServer,
} from '../support/answering-server.js';

const canary = 'canary'.padEnd(43, 'x');
const token = new Secret(`fc.cred-1.${canary}`);

const open: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const each of open.splice(0).reverse()) await each.close();
});

async function serve(answering: Answering, options: { requestTimeoutMs?: number; attempts?: number } = {}) {
  const server = await openAnsweringServer(answering);
  const { requestTimeoutMs = 10_000, attempts = 4 } = options;
  const repetition = { attempts, firstDelayMs: 1, maximumDelayMs: 1500 };
  const client = createAdministratorClient({ url: server.url, token, repetition, requestTimeoutMs });
  open.push(server, client);
  return { server, client };
}

const service = { serviceId: 'sv-1', name: 'web', state: 'live', spec: null } as const;
const audit = { chainId: 'org-1', seq: 1, digest: bareDigest(1) };
const created = (more: object = {}) => ({ service, replayed: false, current: true, dryRun: false, audit, ...more });
const createService = (client: AdministratorClient, mutationId = 'mu-1') =>
  client.createService({ mutationId, name: 'web' });

const thrown = (work: Promise<unknown>) =>
  work.then(
    () => undefined,
    (error: unknown) => error,
  );

describe('the client', () => {
  it('has a function for every method, which goes to the method’s path', async () => {
    const { server, client } = await serve((_request, response) =>
      answerProblem(response, refuse('role-refused').problem),
    );
    for (const name of methodNames) expect(client[name]).toBeTypeOf('function');
    expect(await thrown(client.listClusters({}))).toBeInstanceOf(ProblemError);
    expect(server.requests[0]?.path).toBe(methodPath(methods.listClusters));
    expect(server.requests[0]?.headers.authorization).toBe(`Bearer ${token.reveal()}`);
  });

  it('gives the same by name as by value', async () => {
    const { server, client } = await serve((_request, response) => answerJson(response, { clusters: [] }));
    expect(await client.call('listClusters', {})).toEqual(await client.listClusters({}));
    expect(server.requests[0]?.body).toEqual(server.requests[1]?.body);
  });

  it('sends nothing that the contract does not allow', async () => {
    const { server, client } = await serve((_request, response) => answerJson(response, created()));
    const wrong: unknown[] = [
      { name: 'web' },
      { mutationId: 'mu-1', name: '' },
      { mutationId: 'mu-1', name: 'web', more: 1 },
      { mutationId: ' mu', name: 'web' },
      {
        mutationId: 'mu-1',
        get name() {
          return 'web';
        },
      },
    ];
    for (const request of wrong) {
      expect(await thrown(client.createService(request as never))).toBeInstanceOf(ContractError);
    }
    expect(server.requests).toHaveLength(0);
  });

  it('sends no more bytes than the method takes', async () => {
    const { server, client } = await serve((_request, response) =>
      answerProblem(response, refuse('fleet-refused').problem),
    );
    const services = Array.from({ length: 4096 }, (_, index) => ({ name: `${index}`.padEnd(255, 'é') }));
    const specs = services.map(({ name }) => ({
      serviceName: name,
      spec: {
        imageDigest: bareDigest(1),
        mounts: [],
        secretInputs: [],
        publishedPorts: [],
        placement: ['n'.repeat(128), 'm'.repeat(128)],
      },
    }));
    const request = { mutationId: 'mu-1', clusterId: 'c', nodes: [], services, specs };
    expect(await thrown(client.importFleet(request))).toBeInstanceOf(ContractError);
    expect(await thrown(client.importFleet({ ...request, specs: [] }))).toBeInstanceOf(ProblemError);
    expect(server.requests).toHaveLength(1);
  });

  it('makes mutation ids that are identifiers, each a new one', () => {
    const ids = new Set(Array.from({ length: 100 }, newMutationId));
    expect(ids.size).toBe(100);
    for (const id of ids) expect(id).toMatch(new RegExp(Identifier.pattern ?? ''));
  });
});

describe('an answer', () => {
  it.each([
    ['an unknown member', JSON.stringify({ clusters: [], more: 1 })],
    ['a missing member', '{}'],
    ['a member twice', '{"clusters":[],"clusters":[]}'],
    ['__proto__', '{"clusters":[],"__proto__":{}}'],
    ['no JSON', '<html>'],
    ['nothing', ''],
    ['a fraction', '{"clusters":[1.5]}'],
    ['a byte order mark', '\ufeff{"clusters":[]}'],
  ])('with %s violates the contract', async (_what, text) => {
    const { server, client } = await serve((_request, response) => answerText(response, text));
    expect(await thrown(client.listClusters({}))).toBeInstanceOf(ContractViolationError);
    expect(server.requests).toHaveLength(1);
  });

  it.each([
    ['another status', 202, 'application/json', '{"clusters":[]}'],
    ['another media type', 200, 'text/html', '{"clusters":[]}'],
    ['a page of another server', 404, 'text/html', '<html>'],
    ['a redirect', 302, 'text/html', ''],
    ['no problem document', 409, 'application/problem+json', '{"code":"x"}'],
    [
      'another status than its document',
      409,
      'application/problem+json',
      '{"type":"t","title":"t","status":404,"code":"x"}',
    ],
  ])('of %s violates the contract', async (_what, status, type, text) => {
    const { client } = await serve(
      (_request, response) => void response.writeHead(status, { 'content-type': type }).end(text),
    );
    expect(await thrown(client.listClusters({}))).toBeInstanceOf(ContractViolationError);
  });
});

describe('a refusal', () => {
  it('is the whole problem document, typed', async () => {
    const current = { id: 'sp-1', generation: 4, digest: bareDigest(4) };
    const stale = refuseStale('spec-stale', 'expectedSpec', current).problem;
    const { server, client } = await serve((_request, response) =>
      answerProblem(response, stale, { 'retry-after': '7' }),
    );
    const error = await thrown(createService(client));
    expect(error).toBeInstanceOf(ProblemError);
    expect(error).toMatchObject({
      code: 'spec-stale',
      status: 409,
      expectation: 'expectedSpec',
      current,
      entries: [],
      mutationOutcome: 'not-applied',
      retrySafe: false,
      retryAfterSeconds: 7,
    });
    expect(server.requests).toHaveLength(1);
  });

  it('names entries, and takes codes that are not known yet', async () => {
    const entries = [{ list: 'upserts', index: 3, code: 'entry-not-required' }];
    const document = { type: 'urn:x', title: 'New', status: 422, code: 'brand-new', entries };
    const { client } = await serve((_request, response) => {
      response
        .writeHead(422, { 'content-type': 'application/problem+json; charset=utf-8' })
        .end(JSON.stringify(document));
    });
    expect(await thrown(createService(client))).toMatchObject({ code: 'brand-new', entries });
  });
});

describe('a mutation whose answer is lost', () => {
  it('is repeated byte for byte, and the replay tells the outcome', async () => {
    let applied = false;
    const { server, client } = await serve((_request, response) => {
      if (applied) return answerJson(response, created({ replayed: true }));
      applied = true;
      return void response.destroy();
    });
    expect(await createService(client)).toMatchObject({ replayed: true, service });
    expect(server.requests).toHaveLength(2);
    expect(server.requests[1]?.body).toEqual(server.requests[0]?.body);
  });

  it.each([
    [
      '503 outcome-unknown',
      (response: Parameters<Answering>[1]) =>
        answerProblem(response, refuse('outcome-unknown', { mutationOutcome: 'unknown', retrySafe: true }).problem),
    ],
    [
      '503 unavailable',
      (response: Parameters<Answering>[1]) =>
        answerProblem(response, refuse('unavailable', { mutationOutcome: 'not-applied', retrySafe: true }).problem),
    ],
    [
      'a gateway’s 502',
      (response: Parameters<Answering>[1]) =>
        void response.writeHead(502, { 'content-type': 'text/html' }).end('<html>'),
    ],
    ['a timeout', () => undefined],
  ])('to %s is repeated', async (_what, fail) => {
    const { server, client } = await serve(
      ({ count }, response) => (count < 3 ? fail(response) : answerJson(response, created({ replayed: true }))),
      { requestTimeoutMs: 300 },
    );
    expect(await createService(client)).toMatchObject({ replayed: true });
    expect(server.requests).toHaveLength(3);
  });

  it('ends after so many attempts with an unknown outcome', async () => {
    const { server, client } = await serve((_request, response) => void response.destroy());
    expect(await thrown(createService(client))).toMatchObject({ code: 'connection-lost', outcome: 'unknown' });
    expect(server.requests).toHaveLength(4);
  });

  it('stays unknown when later attempts do not reach the service', async () => {
    const { server, client } = await serve((_request, response) => {
      response.destroy();
      server.server.close();
      server.server.closeAllConnections();
    });
    const error = await thrown(createService(client));
    expect(error).toMatchObject({ code: 'connection-failed', outcome: 'unknown', systemCode: 'ECONNREFUSED' });
  });

  it('stays unknown when the repeat is refused before the replay is looked up', async () => {
    const { client } = await serve(({ count }, response) =>
      count === 1 ? void response.destroy() : answerProblem(response, refuse('credential-refused').problem),
    );
    const error = (await thrown(createService(client))) as TransportError;
    expect(error).toBeInstanceOf(TransportError);
    expect(error).toMatchObject({ code: 'outcome-unresolved', outcome: 'unknown' });
    expect(error.cause).toMatchObject({ code: 'credential-refused' });
  });

  it('was not applied when the repeat is refused by a compare, twice', async () => {
    const stale = refuseStale('spec-stale', 'expectedSpec', null).problem;
    const { server, client } = await serve(({ count }, response) =>
      count === 1 ? void response.destroy() : answerProblem(response, stale),
    );
    expect(await thrown(createService(client))).toMatchObject({ code: 'spec-stale', mutationOutcome: 'not-applied' });
    expect(server.requests).toHaveLength(3);
  });

  it('was applied when the first refusal was decided while it committed', async () => {
    const stale = refuseStale('spec-stale', 'expectedSpec', null).problem;
    const { client } = await serve(({ count }, response) => {
      if (count === 1) return void response.destroy();
      return count === 2 ? answerProblem(response, stale) : answerJson(response, created({ replayed: true }));
    });
    expect(await createService(client)).toMatchObject({ replayed: true });
  });

  it('is not repeated sooner than Retry-After says, nor where that is beyond patience', async () => {
    const busy = refuse('unavailable', { mutationOutcome: 'not-applied', retrySafe: true }).problem;
    const { client } = await serve(({ count }, response) =>
      count === 1 ? answerProblem(response, busy, { 'retry-after': '1' }) : answerJson(response, created()),
    );
    const begun = performance.now();
    await createService(client);
    expect(performance.now() - begun).toBeGreaterThan(990);

    const impatient = await serve((_request, response) => answerProblem(response, busy, { 'retry-after': '60' }));
    expect(await thrown(createService(impatient.client))).toMatchObject({ code: 'unavailable', retryAfterSeconds: 60 });
    expect(impatient.server.requests).toHaveLength(1);
  });

  it('is not repeated when the caller ends it', async () => {
    const ending = new AbortController();
    const { server, client } = await serve((_request, response) => {
      response.destroy();
      ending.abort();
    });
    const error = await thrown(client.createService({ mutationId: 'mu-1', name: 'web' }, { signal: ending.signal }));
    expect(error).toMatchObject({ code: 'aborted', outcome: 'unknown' });
    expect(server.requests).toHaveLength(1);
  });

  it('is not repeated when the answer came and violates the contract', async () => {
    const { server, client } = await serve((_request, response) => answerJson(response, created({ more: 1 })));
    expect(await thrown(createService(client))).toBeInstanceOf(ContractViolationError);
    expect(server.requests).toHaveLength(1);
  });
});

describe('a lost read', () => {
  it('is repeated, and a refusal of the repeat is the refusal', async () => {
    const { client } = await serve(({ count }, response) =>
      count === 1 ? void response.destroy() : answerProblem(response, refuse('credential-refused').problem),
    );
    expect(await thrown(client.listClusters({}))).toMatchObject({ code: 'credential-refused' });
  });
});

describe('the token', () => {
  it('is in nothing that the client throws or shows', async () => {
    const answers: Answering[] = [
      (_request, response) => answerProblem(response, refuse('credential-refused').problem),
      (_request, response) => void response.destroy(),
      (_request, response) => answerText(response, 'no JSON'),
      (_request, response) => answerText(response, JSON.stringify({ clusters: [], more: 1 })),
    ];
    for (const answering of answers) {
      const { client } = await serve(answering, { attempts: 1 });
      const error = await thrown(client.listClusters({}));
      const shown =
        inspect([error, client], { depth: 20, showHidden: true }) + JSON.stringify([error, client]) + String(error);
      expect(shown).not.toContain(canary);
    }
  });

  it('of another kind is not sent', async () => {
    const server = await openAnsweringServer((_request, response) => answerJson(response, { clusters: [] }));
    const client = createAdministratorClient({ url: server.url, token: new Secret(`canary\r\nx: y`) });
    open.push(server, client);
    const error = await thrown(client.listClusters({}));
    expect(error).toBeInstanceOf(ContractError);
    expect(inspect(error)).not.toContain('canary\r');
    expect(server.requests).toHaveLength(0);
  });
});
