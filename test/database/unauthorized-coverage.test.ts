import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { sparkSwarmNodeContracts } from '../../src/contract/limits.js';
import { methodPath } from '../../src/contract/method.js';
import { methodNames, methods, mutationNames } from '../../src/contract/methods.js';
import { mutationId, startService, type TestService } from '../support/service.js';

/**
 * Over the whole table of methods, without an exception: a method that is added is refused to whoever may not call it, or
 * this fails.
 */
let service: TestService;
let operator: string;
let nodeToken: string;
beforeAll(async () => {
  service = await startService();
  const issued = await service.done('issueAdministratorToken', {
    mutationId: mutationId(),
    principalId: 'olga',
    role: 'operator',
  });
  operator = issued.secrets[0]?.secret ?? '';
  await service.done('createCluster', {
    mutationId: mutationId(),
    clusterId: 'c',
    controllerId: 'c',
    runtimeNamespace: 'n',
  });
  const node = { mutationId: mutationId(), clusterId: 'c', nodeId: 'n', corestorePublicKey: null };
  nodeToken = (await service.done('registerNode', node)).secrets[0]?.secret ?? '';
});
afterAll(() => service.close());

async function post(path: string, authorization: string | undefined, body = '{"clusterId":"c"}') {
  const response = await fetch(service.url + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...(authorization === undefined ? {} : { authorization }) },
    body,
  });
  const problem = (await response.json()) as { code: string; mutationOutcome?: string };
  return { status: response.status, code: problem.code, mutationOutcome: problem.mutationOutcome };
}

describe.each(methodNames)('%s', (name) => {
  const path = methodPath(methods[name]);
  const outcome = methods[name].mutation ? 'not-applied' : undefined;

  it('is refused without a credential', async () => {
    expect(await post(path, undefined)).toEqual({ status: 401, code: 'credential-missing', mutationOutcome: outcome });
  });

  it('is refused with a wrong credential, a node’s and a revoked one', async () => {
    const wrong = `${service.token.slice(0, -1)}${service.token.endsWith('A') ? 'B' : 'A'}`;
    for (const token of [wrong, nodeToken, `fc.n.${nodeToken}`]) {
      const answer = await post(path, `Bearer ${token}`);
      expect(['credential-refused', 'rate-limited']).toContain(answer.code);
      expect([401, 429]).toContain(answer.status);
      expect(answer.mutationOutcome).toBe(outcome);
    }
  });

  it('is not parsed for somebody who is not authenticated', async () => {
    expect((await post(path, undefined, '{{{')).code).toBe('credential-missing');
    expect((await post(path, `Bearer ${service.token}`, '{{{')).code).toBe('body-invalid-json');
  });
});

describe.each(mutationNames)('%s', (name) => {
  it('is refused to an operator', async () => {
    const answer = await post(methodPath(methods[name]), `Bearer ${operator}`);
    expect(answer).toEqual({ status: 403, code: 'role-refused', mutationOutcome: 'not-applied' });
  });
});

describe('queries', () => {
  it('may be asked by operators: they are refused for their body, not for their role', async () => {
    for (const name of methodNames.filter((each) => !methods[each].mutation)) {
      expect((await post(methodPath(methods[name]), `Bearer ${operator}`, '[]')).code).toBe('body-schema');
    }
  });
});

describe.each(
  Object.entries(sparkSwarmNodeContracts).flatMap(([name, contract]) =>
    typeof contract === 'number' ? [] : [[name, contract.endpoint] as const],
  ),
)('Spark’s %s', (_name, endpoint) => {
  it('is refused without and with a wrong credential', async () => {
    expect(await post(endpoint, undefined, '{}')).toMatchObject({ status: 401, code: 'credential-missing' });
    for (const nodeId of ['n', 'unknown']) {
      const body = JSON.stringify({ nodeId, nodeToken: 'A'.repeat(43) });
      const answer = await post(endpoint, `Bearer ${service.token}`, body);
      expect([401, 429]).toContain(answer.status);
      expect(['credential-refused', 'rate-limited']).toContain(answer.code);
    }
  });
});
