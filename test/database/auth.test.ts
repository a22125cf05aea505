import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Db } from '../../src/db/pool.js';
import { authenticateAdministrator, authenticateNode } from '../../src/features/auth/facts.js';
import { bootstrap, revokeOnHost } from '../../src/features/auth/host-operations.js';
import { isRefused } from '../../src/refusal.js';
import { Secret } from '../../src/secret.js';
import { mutationId, startService, type TestService } from '../support/service.js';

let service: TestService;
beforeAll(async () => {
  service = await startService();
  await service.done('createCluster', {
    mutationId: mutationId(),
    clusterId: 'auth',
    controllerId: 'c',
    runtimeNamespace: 'n',
  });
});
afterAll(() => service.close());

/** `administrator` or `operator`, or the refusal's code. */
async function login(token: string): Promise<string> {
  const actor = await authenticateAdministrator(service.deps, `Bearer ${token}`);
  return isRefused(actor) ? actor.problem.code : actor.role;
}

const credentialOf = (token: string): string => token.split('.')[1] ?? '';
const issue = async (principalId: string, role: 'administrator' | 'operator' = 'administrator', by = service.token) => {
  const issued = await service.done('issueAdministratorToken', { mutationId: mutationId(), principalId, role }, by);
  return issued.secrets[0]?.secret ?? '';
};
const rotate = async (token: string) => {
  const rotated = await service.done('rotateAdministratorToken', {
    mutationId: mutationId(),
    credentialId: credentialOf(token),
  });
  return rotated.secrets[0]?.secret ?? '';
};

describe('tokens of administrators', () => {
  it('accepts the whole token and nothing like it', async () => {
    const token = await issue('whole');
    expect(await login(token)).toBe('administrator');
    const flipped = token.slice(0, -1) + (token.endsWith('A') ? 'B' : 'A');
    for (const wrong of [
      flipped,
      `${token}A`,
      token.slice(0, -1),
      token.replace('fc.', 'fd.'),
      `fc.${token}`,
      '',
      'null',
    ]) {
      expect(await login(wrong)).toBe('credential-refused');
    }
    expect(await authenticateAdministrator(service.deps, undefined)).toMatchObject({
      problem: { code: 'credential-missing' },
    });
    expect(await authenticateAdministrator(service.deps, `Basic ${token}`)).toMatchObject({
      problem: { code: 'credential-refused' },
    });
    expect(await authenticateAdministrator(service.deps, `bearer ${token}`)).toMatchObject({ kind: 'administrator' });
  });

  it('keeps no token and no secret in the database', async () => {
    const token = await issue('hashed');
    const { rows } = await service.database.owner.query<{ text: string }>(
      'select c::text as text from control.credentials as c union all select r::text from control.audit_rows as r',
    );
    const secret = token.split('.')[2] ?? '';
    expect(rows.some((row) => row.text.includes(secret))).toBe(false);
  });

  it('accepts the newest and the last used generation through five rotations', async () => {
    let used = await issue('rotated');
    expect(await login(used)).toBe('administrator');
    for (let round = 0; round < 5; round += 1) {
      const lost = await rotate(used);
      const newest = await rotate(used);
      expect(await login(lost)).toBe('credential-refused');
      expect(await login(used)).toBe('administrator');
      expect(await login(newest)).toBe('administrator');
      expect(await login(used)).toBe('credential-refused');
      expect(await login(newest)).toBe('administrator');
      used = newest;
    }
    const { rows } = await service.database.owner.query(
      'select newest_generation, used_generation from control.credentials where credential_id = $1',
      [credentialOf(used)],
    );
    expect(rows[0]).toEqual({ newest_generation: '11', used_generation: '11' });
  });

  it('accepts all of many concurrent first uses of a new generation', async () => {
    const first = await issue('concurrent');
    expect(await login(first)).toBe('administrator');
    const newest = await rotate(first);
    const logins = await Promise.all(Array.from({ length: 40 }, () => login(newest)));
    expect(new Set(logins)).toEqual(new Set(['administrator']));
    expect(await login(first)).toBe('credential-refused');
  });

  it('writes nothing for a token that was used before', async () => {
    const token = await issue('quiet');
    await login(token);
    const version = async () =>
      (await service.database.owner.query('select xmin from control.credentials where subject_id = $1', ['quiet']))
        .rows[0];
    const before = await version();
    await Promise.all([login(token), login(token), login(token)]);
    expect(await version()).toEqual(before);
  });

  it('issues one living token per principal', async () => {
    await issue('single');
    const again = await service.call('issueAdministratorToken', {
      mutationId: mutationId(),
      principalId: 'single',
      role: 'operator',
    });
    expect([again.status, again.body.code]).toEqual([409, 'principal-exists']);
  });

  it('revokes all generations at once, and may revoke again', async () => {
    const token = await issue('revoked');
    const newest = await rotate(token);
    const request = { credentialId: credentialOf(token) };
    const { credential } = await service.done('revokeAdministratorToken', { mutationId: mutationId(), ...request });
    expect(credential).toMatchObject({ revoked: true, newestGeneration: 2 });
    expect([await login(token), await login(newest)]).toEqual(['credential-refused', 'credential-refused']);
    const answer = await service.call('listClusters', {}, token);
    expect([answer.status, answer.body.code]).toEqual([401, 'credential-refused']);
    expect(
      (await service.done('revokeAdministratorToken', { mutationId: mutationId(), ...request })).credential.revoked,
    ).toBe(true);
    const rotation = await service.call('rotateAdministratorToken', { mutationId: mutationId(), ...request });
    expect([rotation.status, rotation.body.code]).toEqual([404, 'credential-unknown']);
    expect(await issue('revoked')).toMatch(/^fc\./);
  });

  it('does not see credentials of other organizations', async () => {
    const other = await service.organization('other-of-tokens');
    for (const method of ['rotateAdministratorToken', 'revokeAdministratorToken'] as const) {
      const request = { mutationId: mutationId(), credentialId: credentialOf(service.token) };
      const answer = await service.call(method, request, other);
      expect([answer.status, answer.body.code]).toEqual([404, 'credential-unknown']);
    }
    const listed = await service.done('listCredentials', { clusterId: null, cursor: null, limit: 1000 }, other);
    expect(listed.credentials.map((each) => each.credentialId)).toEqual([credentialOf(other)]);
  });

  it('lists states of credentials page by page, without hashes', async () => {
    const all = await service.done('listCredentials', { clusterId: null, cursor: null, limit: 1000 });
    expect(all.nextCursor).toBeNull();
    const first = await service.done('listCredentials', { clusterId: null, cursor: null, limit: 2 });
    const second = await service.done('listCredentials', { clusterId: null, cursor: first.nextCursor, limit: 1000 });
    expect([...first.credentials, ...second.credentials]).toEqual(all.credentials);
    expect(Object.keys(all.credentials[0] ?? {})).not.toContain('newestHash');
  });
});

describe('the last administrator', () => {
  it('cannot be revoked by the API, an operator beside it does not count', async () => {
    const token = await service.organization('lonely', 'root');
    await issue('watcher', 'operator', token);
    const revoke = (credentialId: string, by: string) =>
      service.call('revokeAdministratorToken', { mutationId: mutationId(), credentialId }, by);
    const last = await revoke(credentialOf(token), token);
    expect([last.status, last.body.code]).toEqual([422, 'last-administrator']);
    const second = await issue('second', 'administrator', token);
    expect((await revoke(credentialOf(token), token)).status).toBe(200);
    expect((await revoke(credentialOf(second), second)).body.code).toBe('last-administrator');
  });

  it('survives two administrators who revoke each other at once', async () => {
    const one = await service.organization('duel', 'one');
    const two = await issue('two', 'administrator', one);
    const answers = await Promise.all([
      service.call('revokeAdministratorToken', { mutationId: mutationId(), credentialId: credentialOf(two) }, one),
      service.call('revokeAdministratorToken', { mutationId: mutationId(), credentialId: credentialOf(one) }, two),
    ]);
    const { rows } = await service.database.owner.query(
      `select count(*)::int as alive from control.credentials where organization_id = 'duel' and not revoked`,
    );
    expect(rows[0].alive).toBe(1);
    expect(answers.map((answer) => answer.status)).toContain(200);
  });

  it('may be revoked on the host, where a new one is issued', async () => {
    const token = await service.organization('locked-out', 'root');
    expect(await revokeOnHost(service.deps, credentialOf(token))).toEqual({ credentialId: credentialOf(token) });
    expect(await login(token)).toBe('credential-refused');
    const again = await service.organization('locked-out', 'root');
    expect(await login(again)).toBe('administrator');
    expect(await revokeOnHost(service.deps, 'nobody')).toMatchObject({ problem: { code: 'credential-unknown' } });
  });
});

describe('bootstrap on the host', () => {
  it('refuses a second administrator unless it is asked for one', async () => {
    const input = { organizationId: 'booted', principalId: 'first', additional: false };
    expect(isRefused(await bootstrap(service.deps, input))).toBe(false);
    const refused = await bootstrap(service.deps, { ...input, principalId: 'second' });
    expect(refused).toMatchObject({ problem: { code: 'principal-exists' } });
    const additional = await bootstrap(service.deps, { ...input, principalId: 'second', additional: true });
    expect(isRefused(additional)).toBe(false);
    const twice = await bootstrap(service.deps, { ...input, additional: true });
    expect(twice).toMatchObject({ problem: { code: 'principal-exists' } });
  });

  it('issues one token to many who begin the same organization at once', async () => {
    const outcomes = await Promise.all(
      Array.from({ length: 6 }, (_, index) =>
        bootstrap(service.deps, { organizationId: 'rush', principalId: `p-${index}`, additional: false }),
      ),
    );
    expect(outcomes.filter((outcome) => !isRefused(outcome))).toHaveLength(1);
  });

  it('is audited in the organization’s chain under the principal host', async () => {
    const { rows } = await service.database.owner.query(
      `select method, principal_id, seq from control.audit_rows where organization_id = 'booted' order by seq`,
    );
    expect(rows).toEqual([
      { method: 'hostBootstrap', principal_id: 'host', seq: '1' },
      { method: 'hostBootstrap', principal_id: 'host', seq: '2' },
    ]);
  });
});

describe('nodes', () => {
  it('answers an unknown node and a wrong token alike', async () => {
    const register = { mutationId: mutationId(), clusterId: 'auth', nodeId: 'known', corestorePublicKey: null };
    const { secrets } = await service.done('registerNode', register);
    const token = new Secret(secrets[0]?.secret ?? '');
    const unknown = await authenticateNode(service.deps, 'unknown', token);
    const wrong = await authenticateNode(service.deps, 'known', new Secret('A'.repeat(43)));
    expect(unknown).toEqual(wrong);
    expect(unknown).toMatchObject({ problem: { code: 'credential-refused' } });
    for (const strange of ['', '\0', 'x'.repeat(200), '\ud800']) {
      expect(await authenticateNode(service.deps, strange, token)).toEqual(wrong);
      expect(await authenticateNode(service.deps, 'known', new Secret(strange))).toEqual(wrong);
    }
    expect(await authenticateNode(service.deps, 'known', token)).toEqual({
      kind: 'node',
      clusterId: 'auth',
      organizationId: 'acme',
      nodeId: 'known',
      state: 'active',
      aggregate: { generation: 0, digest: null, state: 'absent', completeGeneration: 0 },
    });
  });
});

describe('revocation', () => {
  it('applies to every authentication that begins after it was committed, under load', async () => {
    const victim = await issue('victim');
    await login(victim);
    const accepted: number[] = [];
    let running = true;
    const attack = async () => {
      while (running) {
        const began = performance.now();
        if ((await login(victim)) === 'administrator') accepted.push(began);
      }
    };
    const attackers = Array.from({ length: 16 }, attack);
    await sleep(50);
    await service.done('revokeAdministratorToken', { mutationId: mutationId(), credentialId: credentialOf(victim) });
    const revokedAt = performance.now();
    await sleep(50);
    running = false;
    await Promise.all(attackers);
    expect(accepted.length).toBeGreaterThan(0);
    expect(accepted.filter((began) => began > revokedAt)).toEqual([]);
  });

  it('shares queries among concurrent authentications', async () => {
    const token = await issue('shared');
    await login(token);
    const { db } = service.deps;
    let queries = 0;
    const counting: Db = {
      ...db,
      pool: new Proxy(db.pool, {
        get(pool, key) {
          if (key === 'connect') queries += 1;
          const value: unknown = Reflect.get(pool, key);
          return typeof value === 'function' ? value.bind(pool) : value;
        },
      }),
    };
    const deps = { ...service.deps, db: counting };
    const actors = await Promise.all(
      Array.from({ length: 200 }, () => authenticateAdministrator(deps, `Bearer ${token}`)),
    );
    expect(actors.every((actor) => !isRefused(actor))).toBe(true);
    expect(queries).toBeLessThanOrEqual(2);
  });
});
