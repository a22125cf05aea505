import { createHash } from 'node:crypto';
import { sql } from 'kysely';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { bareDigest } from '../../src/contract/digest.js';
import { qb } from '../../src/db/query.js';
import { inTransaction } from '../../src/db/transaction.js';
import { digestText, genesisDigest, organizationChainId, rowDigest } from '../../src/features/audit/chain.js';
import { auditCte, mutationContext, type WrittenAuditRow } from '../../src/features/audit/mutation.js';
import { RefusalCounter } from '../../src/features/audit/refusal-counter.js';
import { mutationId, startService, type TestService } from '../support/service.js';

let service: TestService;
let operator: string;
let colleague: string;
beforeAll(async () => {
  service = await startService();
  for (const clusterId of ['one', 'two']) {
    await service.done('createCluster', {
      mutationId: mutationId(),
      clusterId,
      controllerId: 'c',
      runtimeNamespace: 'n',
    });
  }
  const issue = async (principalId: string, role: 'administrator' | 'operator') =>
    (await service.done('issueAdministratorToken', { mutationId: mutationId(), principalId, role })).secrets[0]
      ?.secret ?? '';
  operator = await issue('olga', 'operator');
  colleague = await issue('carl', 'administrator');
});
afterAll(() => service.close());

interface Row {
  chain_id: string;
  seq: string;
  chain_digest: Buffer;
  row_digest: Buffer;
  organization_id: string;
  cluster_id: string | null;
  mutation_id: string;
  credential_id: string;
  principal_id: string;
  method: string;
  request_digest: string;
  result: string;
  at: string;
}

async function chain(chainId: string): Promise<Row[]> {
  const { rows } = await service.database.owner.query<Row>(
    'select * from control.audit_rows where chain_id = $1 order by seq',
    [chainId],
  );
  return rows;
}

async function count(table: string): Promise<number> {
  const { rows } = await service.database.owner.query<{ count: number }>(`select count(*)::int from control.${table}`);
  return rows[0]?.count ?? -1;
}

const registration = (nodeId: string) => ({
  mutationId: mutationId(),
  clusterId: 'one',
  nodeId,
  corestorePublicKey: null,
});

describe('the chain', () => {
  it('can be recomputed from the rows, row digests and links, and the answers showed its heads', async () => {
    const made = await service.done('registerNode', registration('chained'));
    for (const chainId of ['one', 'two', organizationChainId('acme')]) {
      let previous = genesisDigest(chainId);
      const rows = await chain(chainId);
      expect(rows.length).toBeGreaterThan(0);
      rows.forEach((row, index) => {
        expect(Number(row.seq)).toBe(index + 1);
        const facts = rowDigest({
          chainId,
          organizationId: row.organization_id,
          clusterId: row.cluster_id,
          mutationId: row.mutation_id,
          credentialId: row.credential_id,
          principalId: row.principal_id,
          method: row.method,
          requestDigest: row.request_digest,
          resultDigest: bareDigest(JSON.parse(row.result)),
          at: Number(row.at),
        });
        expect(row.row_digest).toEqual(facts);
        previous = createHash('sha256').update(previous).update(facts).digest();
        expect(row.chain_digest).toEqual(previous);
      });
      if (chainId === 'one') expect(made.audit).toEqual({ chainId, seq: rows.length, digest: digestText(previous) });
    }
  });

  it('has no gap and no fork after many concurrent mutations', async () => {
    const before = (await chain('two')).length;
    const answers = await Promise.all(
      Array.from({ length: 24 }, (_, index) =>
        service.done('registerNode', { ...registration(`storm-${index}`), clusterId: 'two' }),
      ),
    );
    const seqs = answers.map((answer) => answer.audit?.seq ?? 0).sort((left, right) => left - right);
    expect(seqs).toEqual(Array.from({ length: 24 }, (_, index) => before + 1 + index));
    const rows = await chain('two');
    let previous = genesisDigest('two');
    for (const row of rows) {
      previous = createHash('sha256').update(previous).update(row.row_digest).digest();
      expect(row.chain_digest).toEqual(previous);
    }
  });

  it('refuses the service’s login to change or remove a row', async () => {
    for (const statement of [
      'update control.audit_rows set method = method',
      'delete from control.audit_rows',
      'truncate control.audit_rows',
      'delete from control.audit_heads',
    ]) {
      await expect(service.database.db.pool.query(statement)).rejects.toThrow(/permission denied/);
    }
    await expect(service.database.owner.query('delete from control.audit_rows')).rejects.toThrow(/immutable/);
  });

  it('writes nothing where the chain has no head', async () => {
    await service.done('createCluster', {
      mutationId: mutationId(),
      clusterId: 'headless',
      controllerId: 'c',
      runtimeNamespace: 'n',
    });
    await service.database.owner.query(`delete from control.audit_heads where chain_id = 'headless'`);
    const answer = await service.call('registerNode', { ...registration('headless-node'), clusterId: 'headless' });
    expect([answer.status, answer.body.code, answer.body.mutationOutcome]).toEqual([500, 'internal', 'not-applied']);
    const { rows } = await service.database.owner.query(`select from control.nodes where node_id = 'headless-node'`);
    expect(rows).toEqual([]);
  });

  it('audits a guarded statement only where its guard holds, also under contention', async () => {
    await service.database.owner.query(`create table control.guarded (id int primary key, value int not null)`);
    await service.database.owner.query(`grant all on control.guarded to fleet_cutover_service`);
    await service.database.owner.query(`insert into control.guarded values (1, 0)`);
    const caller = { organizationId: 'acme', principalId: 'alice', credentialId: 'x' };
    const before = (await chain('one')).length;
    const write = (expected: number) =>
      inTransaction(service.deps, 'guarded', (tx) => {
        const context = mutationContext(caller, 'guarded', 'one', { mutationId: mutationId() }, service.deps.clock);
        const swapped = sql<boolean>`(select count(*) from swapped) = 1`;
        return tx.commitWith(
          sql<WrittenAuditRow>`
            with swapped as (
              update control.guarded set value = value + 1 where id = 1 and value = ${expected} returning value
            ), ${auditCte(context, { expected }, swapped)}
            select seq, chain_digest from audit_row`.compile(qb),
        );
      });
    const other = (index: number) => service.done('registerNode', registration(`beside-${index}`));
    const rounds = [0, 1, 2, 3, 4].map((expected) => Promise.all(Array.from({ length: 6 }, () => write(expected))));
    const [beside, ...written] = await Promise.all([Promise.all([0, 1, 2, 3, 4, 5].map(other)), ...rounds]);
    const { rows } = await service.database.owner.query<{ value: number }>('select value from control.guarded');
    const audited = written.flat().filter((result) => result.length === 1).length;
    expect(audited).toBe(rows[0]?.value);
    expect(audited).toBeGreaterThan(0);
    expect((await chain('one')).length).toBe(before + audited + beside.length);
  });
});

describe('replay', () => {
  it('answers the recorded result without the secrets, and does nothing', async () => {
    const request = registration('replayed');
    const first = await service.done('registerNode', request);
    expect(first.secrets).toHaveLength(2);
    const rows = await count('audit_rows');
    const again = await service.done('registerNode', request);
    expect(again).toEqual({ ...first, replayed: true, secrets: [] });
    expect(await count('audit_rows')).toBe(rows);
  });

  it('is the same for a body with its keys in another order, and for another credential of the same principal', async () => {
    const request = registration('reordered');
    const first = await service.done('registerNode', request, colleague);
    const reversed = Object.fromEntries(Object.entries(request).toReversed()) as typeof request;
    expect((await service.done('registerNode', reversed, colleague)).node).toEqual(first.node);
    const credentialId = colleague.split('.')[1] ?? '';
    const rotated = await service.done('rotateAdministratorToken', { mutationId: mutationId(), credentialId });
    colleague = rotated.secrets[0]?.secret ?? '';
    expect(await service.done('registerNode', request, colleague)).toMatchObject({ replayed: true });
  });

  it('says whether the result is still current', async () => {
    await service.done('registerNode', registration('moving'));
    const rotation = { mutationId: mutationId(), clusterId: 'one', nodeId: 'moving', kind: 'node-token' } as const;
    await service.done('rotateNodeCredential', rotation);
    expect(await service.done('rotateNodeCredential', rotation)).toMatchObject({ replayed: true, current: true });
    await service.done('rotateNodeCredential', { ...rotation, mutationId: mutationId() });
    expect(await service.done('rotateNodeCredential', rotation)).toMatchObject({
      replayed: true,
      current: false,
      credential: { newestGeneration: 2 },
    });
  });

  it('refuses the id to another body, method, and principal', async () => {
    const request = registration('claimed');
    await service.done('registerNode', request);
    const { nodeId, clusterId } = request;
    const answers = [
      await service.call('registerNode', { ...request, corestorePublicKey: 'a'.repeat(64) }),
      await service.call('revokeNode', { mutationId: request.mutationId, clusterId, nodeId }),
      await service.call('createService', { mutationId: request.mutationId, name: 'x' }),
      await service.call('registerNode', request, colleague),
    ];
    for (const answer of answers) {
      expect([answer.status, answer.body.code]).toEqual([422, 'mutation-id-reused']);
      expect(answer.body).toMatchObject({ mutationOutcome: 'not-applied', retrySafe: false });
    }
  });

  it('keeps the ids of organizations apart', async () => {
    const other = await service.organization('other-of-replay');
    const shared = mutationId();
    const here = await service.done('createService', { mutationId: shared, name: 'same' });
    const there = await service.done('createService', { mutationId: shared, name: 'same' }, other);
    expect(there.replayed).toBe(false);
    expect(there.service.serviceId).not.toBe(here.service.serviceId);
  });

  it('comes after authorization: another organization, an operator and nobody get no replay', async () => {
    const request = registration('authorized');
    await service.done('registerNode', request);
    const other = await service.organization('other-of-authorization');
    const codes = [
      (await service.call('registerNode', request, other)).body.code,
      (await service.call('registerNode', request, operator)).body.code,
      (await service.call('registerNode', request, 'fc.x.y')).body.code,
    ];
    expect(codes).toEqual(['cluster-unknown', 'role-refused', 'credential-refused']);
  });

  it.each([
    [
      'createCluster',
      () => ({ mutationId: mutationId(), clusterId: 'twin', controllerId: 'c', runtimeNamespace: 'n' }),
    ],
    ['registerNode', () => registration('twin-node')],
    ['createService', () => ({ mutationId: mutationId(), name: 'twin' })],
    ['issueAdministratorToken', () => ({ mutationId: mutationId(), principalId: 'twin', role: 'operator' as const })],
    [
      'importFleet',
      () => ({
        mutationId: mutationId(),
        clusterId: 'one',
        nodes: [{ nodeId: 'twin-2', corestorePublicKey: null }],
        services: [],
        specs: [],
      }),
    ],
  ] as const)('gives equal concurrent requests one effect: %s', async (method, body) => {
    const request = body();
    const answers = await Promise.all(Array.from({ length: 8 }, () => service.done(method, request as never)));
    expect(answers.filter((answer) => !answer.replayed)).toHaveLength(1);
    const results = answers.map((answer) => ({
      ...answer,
      replayed: true,
      ...('secrets' in answer ? { secrets: [] } : {}),
    }));
    for (const result of results) expect(result).toEqual(results[0]);
  });

  it('gives one of two different mutations with one id, under different locks, the effect', async () => {
    const shared = mutationId();
    const [one, two] = await Promise.all([
      service.call('registerNode', { ...registration('lock-a'), mutationId: shared }),
      service.call('registerNode', { ...registration('lock-b'), mutationId: shared, clusterId: 'two' }),
    ]);
    expect([one.status, two.status].sort()).toEqual([200, 422]);
    const { rows } = await service.database.owner.query(
      `select from control.nodes where node_id in ('lock-a', 'lock-b')`,
    );
    expect(rows).toHaveLength(1);
  });

  it('does not record a refusal: the same id may be used for a better request', async () => {
    const shared = mutationId();
    const refused = await service.call('registerNode', { ...registration('chained'), mutationId: shared });
    expect(refused.body.code).toBe('node-exists');
    expect((await service.done('registerNode', { ...registration('better'), mutationId: shared })).replayed).toBe(
      false,
    );
  });
});

describe('a dry run', () => {
  it('answers the same, gives no secret, and writes nothing at all', async () => {
    const snapshot = async () =>
      Promise.all(['nodes', 'credentials', 'audit_rows', 'services', 'service_spec_heads'].map(count));
    const before = await snapshot();
    const request = { ...registration('dry'), dryRun: true };
    const dry = await service.done('registerNode', request);
    expect(dry).toMatchObject({ dryRun: true, replayed: false, current: true, audit: null, secrets: [] });
    expect(await snapshot()).toEqual(before);
    const wet = await service.done('registerNode', { ...request, dryRun: false });
    expect(wet.node).toEqual(dry.node);
    expect(wet).toMatchObject({ dryRun: false, replayed: false });
  });

  it('refuses what the mutation would refuse, and replays what was done', async () => {
    const exists = await service.call('registerNode', { ...registration('chained'), dryRun: true });
    expect([exists.status, exists.body.code]).toEqual([409, 'node-exists']);
    const request = registration('wet');
    const done = await service.done('registerNode', request);
    const dry = await service.done('registerNode', { ...request, dryRun: true });
    expect(dry).toEqual({ ...done, replayed: true, dryRun: true, audit: null, secrets: [] });
  });
});

describe('refusals', () => {
  interface Counted {
    principal_id: string;
    method: string;
    code: string;
    chain_id: string;
    count: string;
    chain_seq: string;
  }

  async function counted(principal: string): Promise<Counted[]> {
    const { rows } = await service.database.owner.query<Counted>(
      `select principal_id, method, code, chain_id, sum(count) as count, max(chain_seq) as chain_seq
         from control.refusal_counts where principal_id = $1 group by 1, 2, 3, 4 order by 3`,
      [principal],
    );
    return rows;
  }

  it('are counted per principal, method and code, with the chain’s position', async () => {
    const issued = await service.done('issueAdministratorToken', {
      mutationId: mutationId(),
      principalId: 'refused',
      role: 'administrator',
    });
    const token = issued.secrets[0]?.secret ?? '';
    const position = (await chain('one')).length;
    for (let times = 0; times < 3; times += 1) await service.call('registerNode', registration('chained'), token);
    await service.call('registerNode', { ...registration('x'), clusterId: 'nowhere' }, token);
    await service.call('registerNode', { nonsense: true } as never, token);
    await expect.poll(async () => (await counted('refused')).length).toBe(3);
    const rows = await counted('refused');
    const own = organizationChainId('acme');
    expect(rows.map((row) => [row.method, row.code, row.chain_id, Number(row.count)])).toEqual([
      ['registerNode', 'body-schema', own, 1],
      ['registerNode', 'cluster-unknown', own, 1],
      ['registerNode', 'node-exists', 'one', 3],
    ]);
    expect(Number(rows[2]?.chain_seq)).toBe(position);
  });

  it('count an operator who tries to change something', async () => {
    await service.call('registerNode', registration('by-operator'), operator);
    await expect.poll(async () => (await counted('olga')).map((row) => row.code)).toContain('role-refused');
  });

  it('never hold up the reply: what can’t be written is kept and written with the next', async () => {
    let broken = true;
    const failures: unknown[] = [];
    const deps = {
      ...service.deps,
      faults: {
        at: () => {
          if (broken) throw new Error('away');
        },
      },
    };
    const counter = new RefusalCounter(deps, (error) => failures.push(error));
    const refusal = {
      organizationId: 'acme',
      principalId: 'kept',
      method: 'm',
      code: 'node-exists',
      clusterId: 'one',
    } as const;
    counter.count(refusal);
    counter.count(refusal);
    await counter.drain();
    expect(failures.length).toBeGreaterThan(0);
    broken = false;
    counter.count(refusal);
    await counter.drain();
    expect((await counted('kept')).map((row) => Number(row.count))).toEqual([3]);
  });
});
