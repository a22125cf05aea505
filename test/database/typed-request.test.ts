/** The envelope, as the real package `@api.global/typedrequest` sends it over real HTTP. */
import { TypedRequest, TypedResponseError, TypedTarget } from '@api.global/typedrequest';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { fleetCutoverContract, sparkSwarmNodeContracts } from '../../src/contract/limits.js';
import type { IProblemDocument } from '../../src/contract/problems.js';
import {
  methods,
  methodNames,
  type MethodRequest,
  type MethodResponse,
  type TMethodName,
} from '../../src/contract/methods.js';
import { maximumTypedRequestBytes } from '../../src/contract/typed-request.js';
import { mutationId, startService, type TestService } from '../support/service.js';

let service: TestService;
let operator: string;
beforeAll(async () => {
  service = await startService();
  const issued = await service.done('issueAdministratorToken', {
    mutationId: mutationId(),
    principalId: 'olga',
    role: 'operator',
  });
  operator = issued.secrets[0]?.secret ?? '';
  const cluster = { clusterId: 'c', controllerId: 'c', runtimeNamespace: 'n' };
  await service.done('createCluster', { mutationId: mutationId(), ...cluster });
  // The package writes every error that it is answered to the console.
  vi.spyOn(console, 'error').mockImplementation(() => {});
});
afterAll(async () => {
  vi.restoreAllMocks();
  await service.close();
});

interface Typed<N extends TMethodName> {
  method: N;
  request: MethodRequest<N> & { identity?: { jwt: string } };
  response: MethodResponse<N>;
}

/** The package's own way: it posts by itself, and no header can be set. */
function fire<N extends TMethodName>(method: N, request: MethodRequest<N>, token: string | undefined = service.token) {
  const typed = new TypedRequest<Typed<N>>(`${service.url}/typedrequest`, method);
  return typed.fire({ ...request, identity: { jwt: token } });
}

/** Its other way: a target that does the sending, and sets the header. */
function fireWithHeader<N extends TMethodName>(method: N, request: MethodRequest<N>, token = service.token) {
  const target = new TypedTarget({
    postMethod: async (payload) => (await post(JSON.stringify(payload), `Bearer ${token}`)).body as never,
  });
  return new TypedRequest<Typed<N>>(target, method).fire(request);
}

/** What the package throws. */
async function thrown(firing: Promise<unknown>): Promise<{ text: string; problem: IProblemDocument }> {
  const error: unknown = await firing.then(
    () => undefined,
    (reason: unknown) => reason,
  );
  expect(error).toBeInstanceOf(TypedResponseError);
  const { errorText, errorData } = error as TypedResponseError;
  return { text: errorText, problem: errorData as IProblemDocument };
}

async function post(body: string, authorization = '') {
  const response = await fetch(`${service.url}/typedrequest`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...(authorization === '' ? {} : { authorization }) },
    body,
  });
  const answer = (await response.json()) as { code?: string; error?: { text: string; data: IProblemDocument } };
  return {
    status: response.status,
    headers: response.headers,
    body: answer as Record<string, unknown> & typeof answer,
  };
}

const bearer = () => `Bearer ${service.token}`;

/** Status, and the code of the envelope's error or of the problem. */
async function codeOf(body: unknown, authorization = bearer()): Promise<string> {
  const { status, body: answer } = await post(typeof body === 'string' ? body : JSON.stringify(body), authorization);
  return `${status} ${answer.error?.data.code ?? answer.code ?? 'done'}`;
}

const registration = (nodeId: string) => ({
  mutationId: mutationId(),
  clusterId: 'c',
  nodeId,
  corestorePublicKey: null,
});

describe('the package’s client', () => {
  it('asks a query, with the token in the request and in the header', async () => {
    const direct = await service.done('readCluster', { clusterId: 'c' });
    expect(await fire('readCluster', { clusterId: 'c' })).toEqual(direct);
    expect(await fire('readCluster', { clusterId: 'c' }, operator)).toEqual(direct);
    expect(await fireWithHeader('readCluster', { clusterId: 'c' })).toEqual(direct);
  });

  it('does a mutation once, and is answered its replay on either way', async () => {
    const request = registration('n1');
    const first = await fire('registerNode', request);
    expect(first).toMatchObject({ replayed: false, current: true, node: { nodeId: 'n1' } });
    expect(first.secrets.map(({ kind }) => kind)).toEqual(['node-token', 'node-session']);
    const again = await fireWithHeader('registerNode', request);
    expect(again).toEqual({ ...first, replayed: true, secrets: [] });
    // The token is no part of what is recorded: at the method's own path it is the same mutation.
    expect(await service.done('registerNode', request)).toEqual(again);
    const { rows } = await service.database.owner.query<{ principal_id: string; method: string }>(
      `select principal_id, method from control.audit_rows where mutation_id = $1`,
      [request.mutationId],
    );
    expect(rows).toEqual([{ principal_id: 'alice', method: 'registerNode' }]);
  });

  it('is told which mutation id was used for something else, and that nothing was applied', async () => {
    const request = registration('n2');
    await fire('registerNode', request);
    const { text, problem } = await thrown(fire('registerNode', { ...request, nodeId: 'n3' }));
    expect(problem).toMatchObject({ code: 'mutation-id-reused', status: 422, mutationOutcome: 'not-applied' });
    expect(text).toContain('mutation-id-reused');
  });

  it('is told what is current where its expectation failed', async () => {
    const { runtime } = await service.done('readFleetCutoverState', { clusterId: 'c' });
    const stale = { ...runtime, digest: `sha256:${'0'.repeat(64)}` as const };
    const advance = { mutationId: mutationId(), clusterId: 'c', to: 'draining' as const };
    const reference = { id: stale.id, generation: stale.generation, digest: stale.digest };
    const { problem } = await thrown(fire('advanceFleetCutoverPhase', { ...advance, runtime: reference }));
    expect(problem).toMatchObject({
      code: 'runtime-stale',
      status: 409,
      current: { id: runtime.id, generation: runtime.generation, digest: runtime.digest },
      mutationOutcome: 'not-applied',
    });
  });

  it('is refused with a wrong token, without one, and where the role does not permit it', async () => {
    const wrong = `${service.token.slice(0, -1)}${service.token.endsWith('A') ? 'B' : 'A'}`;
    expect((await thrown(fire('readCluster', { clusterId: 'c' }, wrong))).problem.code).toBe('credential-refused');
    expect((await thrown(fireWithHeader('readCluster', { clusterId: 'c' }, wrong))).problem.code).toBe(
      'credential-refused',
    );
    const bare = new TypedRequest<Typed<'readCluster'>>(`${service.url}/typedrequest`, 'readCluster');
    expect((await thrown(bare.fire({ clusterId: 'c' }))).problem.code).toBe('credential-missing');
    const { problem } = await thrown(fire('registerNode', registration('n4'), operator));
    expect(problem).toMatchObject({ code: 'role-refused', mutationOutcome: 'not-applied' });
  });

  it('calls no endpoint of Spark’s, no stream and no unknown method', async () => {
    const endpoints = Object.entries(sparkSwarmNodeContracts).flatMap(([name, contract]) =>
      typeof contract === 'number' ? [] : [name, contract.endpoint],
    );
    expect(endpoints).toHaveLength(6);
    for (const name of endpoints) {
      const { problem } = await thrown(fire(name as TMethodName, {} as never));
      expect(problem).toMatchObject({ code: 'route-unknown', detail: expect.stringContaining('Spark') as string });
    }
    for (const name of ['##VirtualStream##', 'readClusters', 'toString', '__proto__', 'constructor', '']) {
      expect((await thrown(fire(name as TMethodName, {} as never))).problem.code).toBe('route-unknown');
    }
  });
});

describe('the envelope', () => {
  const envelope = (request: unknown, more: object = {}) => ({
    method: 'readCluster',
    request,
    response: null,
    ...more,
  });

  it('is answered with its method and its correlation, and without its request', async () => {
    const sent = envelope(
      { clusterId: 'c', identity: { jwt: service.token, name: 'ada', role: 'admin' } },
      { correlation: { id: 'one-1', phase: 'request' } },
    );
    const { status, body } = await post(JSON.stringify(sent));
    expect([status, Object.keys(body).sort()]).toEqual([
      200,
      ['correlation', 'localData', 'method', 'request', 'response'],
    ]);
    expect(body).toMatchObject({
      method: 'readCluster',
      request: null,
      localData: null,
      correlation: { id: 'one-1', phase: 'response' },
    });
    expect(JSON.stringify(body)).not.toContain(service.token);
    const refused = await post(JSON.stringify({ ...sent, request: { identity: { jwt: service.token } } }));
    expect(refused.body).toMatchObject({
      response: null,
      correlation: { id: 'one-1', phase: 'response' },
      error: { data: { code: 'body-schema' } },
    });
  });

  it('takes the token from one place, or the same from several', async () => {
    const inside = { clusterId: 'c', identity: { jwt: service.token } };
    const authInfo = { jwt: service.token };
    expect(await codeOf(envelope({ clusterId: 'c' }, { authInfo }), '')).toBe('200 done');
    expect(await codeOf(envelope(inside, { authInfo }))).toBe('200 done');
    expect(await codeOf(envelope(inside, { authInfo: { jwt: operator } }), '')).toBe('200 credential-refused');
    expect(await codeOf(envelope(inside), `Bearer ${operator}`)).toBe('200 credential-refused');
    expect(await codeOf(envelope({ clusterId: 'c', identity: { jwt: 'x'.repeat(600) } }), '')).toBe(
      '200 body-invalid-json',
    );
  });

  it('is strict JSON of its schema: no key twice, no prototype, nothing besides', async () => {
    const method = '"method":"readCluster"';
    expect(await codeOf('')).toBe('400 body-invalid-json');
    expect(await codeOf('[]')).toBe('400 body-invalid-json');
    expect(await codeOf('{"request":{}}')).toBe('400 body-schema');
    expect(await codeOf('{"method":7,"request":{}}')).toBe('400 body-invalid-json');
    expect(await codeOf(`{${method},${method},"request":{"clusterId":"c"}}`)).toBe('400 body-invalid-json');
    expect(await codeOf(`{${method},"request":{"clusterId":"c"},"request":{"clusterId":"c"}}`)).toBe(
      '400 body-invalid-json',
    );
    expect(await codeOf(`{${method},"request":{"clusterId":"c","clusterId":"d"}}`)).toBe('200 body-invalid-json');
    expect(await codeOf(`{${method},"request":{"clusterId":"c","__proto__":{}}}`)).toBe('200 body-invalid-json');
    expect(await codeOf(`{${method},"request":{"clusterId":"c"},"__proto__":{}}`)).toBe('200 body-invalid-json');
    const twice = `{${method},"request":{"clusterId":"c","identity":{"jwt":"a"},"identity":{"jwt":"b"}}}`;
    expect(await codeOf(twice, '')).toBe('200 body-invalid-json');
    for (const request of [null, [], 'c', 7]) expect(await codeOf(envelope(request))).toBe('200 body-schema');
    expect(await codeOf({ method: 'readCluster' })).toBe('200 body-schema');
    expect(await codeOf(envelope({ clusterId: 'c', more: 1 }))).toBe('200 body-schema');
    for (const more of [
      { localData: {} },
      { serverData: { jwtValid: true } },
      { response: {} },
      { correlation: { id: 'x', phase: 'response' } },
      { correlation: 'x' },
    ]) {
      expect([more, await codeOf(envelope({ clusterId: 'c' }, more))]).toEqual([more, '200 body-schema']);
    }
    expect(await codeOf(envelope({ clusterId: 'c\0' }))).toBe('200 body-schema');
  });

  it('is not parsed for somebody who is not authenticated', async () => {
    expect(await codeOf('{"method":"readCluster","request":{{{"}', '')).toBe('400 body-invalid-json');
    expect(await codeOf('{"method":"readCluster","request":{"clusterId":tru}}', '')).toBe('200 credential-missing');
  });

  it('holds the named method to its own byte limit, and everybody to the largest', async () => {
    const limit = methods.readCluster.maximumRequestBytes;
    const padded = (bytes: number) => `{"method":"readCluster","request":{"clusterId":"c"${' '.repeat(bytes - 17)}}}`;
    expect(await codeOf(padded(limit))).toBe('200 done');
    expect(await codeOf(padded(limit + 1))).toBe('200 body-too-large');
    const upserts = { method: 'prepareFleetCutoverVolumeHandoffs', request: { clusterId: 'c' } };
    const mutation = await post(`${JSON.stringify(upserts).slice(0, -2)}${' '.repeat(262_144)}}}`, bearer());
    expect(mutation.body).toMatchObject({
      error: { data: { code: 'body-too-large', mutationOutcome: 'not-applied' } },
    });
    expect(fleetCutoverContract.maximumPreparedVolumeHandoffMutationEntries).toBe(32);
    expect(maximumTypedRequestBytes).toBeGreaterThan(
      Math.max(...methodNames.map((name) => methods[name].maximumRequestBytes)),
    );
  });

  it('that is large is read only for who shows a token in the header', async () => {
    const scope = `{"method":"classifyFleetCutoverScope","request":{"clusterId":"c"${' '.repeat(400_000)}}}`;
    expect(await codeOf(scope)).toBe('200 body-schema');
    const withoutHeader = await post(scope);
    expect([withoutHeader.status, withoutHeader.body.code]).toEqual([413, 'body-too-large']);
    const wrong = await post(scope, 'Bearer fc.ad-none.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA');
    expect([wrong.status, wrong.body.code]).toEqual([401, 'credential-refused']);
  });

  it('leaves no name to a method’s own request that the envelope takes away', () => {
    expect(methodNames.filter((name) => 'identity' in methods[name].request.properties)).toEqual([]);
  });

  it('slows down who tries tokens, and says how long', async () => {
    const guess = { clusterId: 'c', identity: { jwt: `fc.ad-guess.${'A'.repeat(43)}` } };
    const answers: string[] = [];
    for (let tries = 0; tries < 24; tries += 1) answers.push(await codeOf(envelope(guess), ''));
    expect(answers.at(0)).toBe('200 credential-refused');
    expect(answers.at(-1)).toBe('200 rate-limited');
    const last = await post(JSON.stringify(envelope(guess)));
    expect(Number(last.headers.get('retry-after'))).toBeGreaterThan(0);
    expect(service.log()).not.toContain(service.token);
  });
});
