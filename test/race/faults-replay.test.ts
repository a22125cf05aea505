import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  buildFaultFleet,
  type FaultFleet,
  nextReport,
  prepareBody,
  statementOf,
  upsertOf,
} from '../support/fault-fleet.js';
import {
  type AnswerBody,
  observationPath,
  openRawClient,
  oracleMutationId,
  ownerPath,
  type RawAnswer,
  type RawClient,
} from '../support/oracle-http.js';
import { bareDigestOf, canonicalText, sealedDigestOf } from '../support/oracle-digest.js';
import { startService, type TestService } from '../support/service.js';

let service: TestService;
let client: RawClient;
let fleet: FaultFleet;
beforeAll(async () => {
  service = await startService({ logLevel: 'warn' });
  client = openRawClient(service.url, service.token);
  fleet = await buildFaultFleet(client, 'once', { nodes: 2, volumesPerNode: 3 });
});
afterAll(async () => {
  await client.close();
  await service.close();
});

const times = 50;

function atOnce(send: () => Promise<RawAnswer>): Promise<RawAnswer[]> {
  return Promise.all(Array.from({ length: times }, send));
}

async function count(table: string, where = 'true'): Promise<number> {
  const { rows } = await service.database.owner.query<{ count: string }>(
    `select count(*) from control.${table} where ${where}`,
  );
  return Number(rows[0]?.count);
}

/** 49 of the answers say that they are a replay; secrets stand in the other one alone. */
function expectOneEffect(answers: readonly RawAnswer[]): AnswerBody {
  expect(answers.map((answer) => answer.status)).toEqual(Array(times).fill(200));
  const first = answers.filter((answer) => answer.body.replayed === false);
  expect(first).toHaveLength(1);
  const bare = (body: AnswerBody) => {
    const { replayed: _replayed, secrets: _secrets, ...rest } = body;
    return canonicalText(rest);
  };
  expect(new Set(answers.map((answer) => bare(answer.body)))).toHaveLength(1);
  for (const { body } of answers) if (body.replayed) expect(body.secrets ?? []).toEqual([]);
  return first[0]?.body;
}

describe('50 identical mutations at once', () => {
  it('prepare once', async () => {
    const body = prepareBody(fleet, { expectedAggregate: null, upserts: [upsertOf(fleet.keys[0]!)] });
    const answers = await atOnce(() => client.owner('prepareFleetCutoverVolumeHandoffs', body));
    const answer = expectOneEffect(answers);
    expect(answer.aggregate.generation).toBe(1);
    expect(await count('aggregate_revisions', `cluster_id = 'once'`)).toBe(1);
    expect(await count('audit_rows', `mutation_id = '${body.mutationId}'`)).toBe(1);
  });

  it('classify once', async () => {
    const { clusterId, runtime, scope } = fleet;
    const manager = await client.done('readFleetCutoverManagerSnapshot', { clusterId, snapshot: null });
    const statement = statementOf(fleet, 'said again');
    const body = {
      mutationId: oracleMutationId(),
      clusterId,
      runtime,
      inventory: manager.reference,
      expectedScope: scope,
      statement,
    };
    const answer = expectOneEffect(await atOnce(() => client.owner('classifyFleetCutoverScope', body)));
    expect(answer.scope.generation).toBe(scope.generation + 1);
    expect(await count('scope_revisions', `cluster_id = 'once'`)).toBe(2);
  });

  it('issue one token, and show it once', async () => {
    const body = { mutationId: oracleMutationId(), principalId: 'bea', role: 'operator' };
    const answer = expectOneEffect(await atOnce(() => client.owner('issueAdministratorToken', body)));
    expect(answer.secrets).toHaveLength(1);
    expect(await count('credentials', `subject_id = 'bea'`)).toBe(1);
  });

  it('create one service', async () => {
    const body = { mutationId: oracleMutationId(), name: 'fifty' };
    expectOneEffect(await atOnce(() => client.owner('createService', body)));
    expect(await count('services', `name = 'fifty'`)).toBe(1);
  });

  it('take a report once, with one receipt for all', async () => {
    const node = fleet.nodes[1]!;
    node.volumes += 1;
    const report = nextReport(fleet, node);
    const before = await count('local_snapshots', `node_id = '${node.nodeId}'`);
    const answers = await atOnce(() => client.spark(observationPath, report));
    expect(answers.map((answer) => answer.status)).toEqual(Array(times).fill(200));
    expect(new Set(answers.map((answer) => answer.text))).toHaveLength(1);
    expect(await count('local_snapshots', `node_id = '${node.nodeId}'`)).toBe(before + 1);
  });

  it('refuse the whole flood where the first would be refused', async () => {
    const body = prepareBody(fleet, { expectedAggregate: null, upserts: [upsertOf(fleet.keys[0]!)] });
    const answers = await atOnce(() => client.owner('prepareFleetCutoverVolumeHandoffs', body));
    expect(new Set(answers.map((answer) => `${answer.status} ${answer.body.code}`))).toEqual(
      new Set(['409 scope-stale']),
    );
    expect(await count('audit_rows', `mutation_id = '${body.mutationId}'`)).toBe(0);
  });
});

describe('the race at the insert of the mutation id', () => {
  /** Creating clusters takes no common lock but the organization's; specs of two clusters none at all. */
  const clusters = ['left', 'right', 'middle', 'far'];
  beforeAll(async () => {
    for (const clusterId of clusters) {
      await client.done('createCluster', {
        mutationId: oracleMutationId(),
        clusterId,
        controllerId: 'c',
        runtimeNamespace: 'r',
      });
    }
  });

  it('gives one id to one request, whatever chain it stands in', async () => {
    const attempts: number[] = [];
    const deps = service.deps as { onTransaction?: (name: string, outcome: string, tries: number) => void };
    deps.onTransaction = (name, _outcome, tries) => void (name === 'registerNode' && attempts.push(tries));
    for (let round = 0; round < 40; round += 1) {
      const mutationId = `same-${round}`;
      const answers = await Promise.all(
        clusters.map((clusterId) =>
          client.owner('registerNode', {
            mutationId,
            clusterId,
            nodeId: `${clusterId}-${round}`,
            corestorePublicKey: null,
          }),
        ),
      );
      const outcomes = answers.map((answer) => `${answer.status} ${answer.body.code ?? ''}`).sort();
      expect(outcomes).toEqual(['200 ', ...Array(clusters.length - 1).fill('422 mutation-id-reused')]);
      expect(await count('audit_rows', `mutation_id = '${mutationId}'`)).toBe(1);
      expect(await count('nodes', `node_id like '%-${round}' and cluster_id = any('{${clusters.join(',')}}')`)).toBe(1);
    }
    delete deps.onTransaction;
    // Else the insert was never raced: all had found the row by looking.
    expect(Math.max(...attempts)).toBeGreaterThan(1);
  });

  it('replays what was inserted between the look-up and the insert', async () => {
    const { owner } = service.database;
    const mutationId = `held-${randomBytes(4).toString('hex')}`;
    const request = { mutationId, clusterId: 'left', nodeId: 'held-node', corestorePublicKey: null };
    const holder = await owner.connect();
    await holder.query('begin');
    // The unique index makes the service's insert wait for this row's end.
    const { rows } = await holder.query<{ organization_id: string; request_digest: string }>(
      'select organization_id, request_digest from control.audit_rows limit 1',
    );
    const facts = {
      chainId: 'elsewhere',
      organizationId: rows[0]!.organization_id,
      clusterId: null,
      mutationId,
      credentialId: 'ad-somebody',
      principalId: 'somebody',
      method: 'createService',
      requestDigest: rows[0]!.request_digest,
      resultDigest: bareDigestOf({}),
      at: 1,
    };
    const digest = Buffer.from(sealedDigestOf('fleet-cutover-audit-row', facts).slice('sha256:'.length), 'hex');
    await holder.query(
      `insert into control.audit_rows (chain_id, seq, chain_digest, row_digest, organization_id, mutation_id, credential_id,
         principal_id, method, request_digest, result, at)
       values ('elsewhere', 1, $1, $1, $2, $3, 'ad-somebody', 'somebody', 'createService', $4, '{}', 1)`,
      [digest, facts.organizationId, mutationId, facts.requestDigest],
    );
    const answering = client.owner('registerNode', request);
    await waitForLock(mutationId);
    await holder.query('commit');
    holder.release();
    const answer = await answering;
    expect([answer.status, answer.body.code, answer.body.mutationOutcome]).toEqual([
      422,
      'mutation-id-reused',
      'not-applied',
    ]);
    expect(await count('nodes', `node_id = 'held-node'`)).toBe(0);
  });

  it('goes on where the other one gave up', async () => {
    const { owner } = service.database;
    const mutationId = `gone-${randomBytes(4).toString('hex')}`;
    const holder = await owner.connect();
    await holder.query('begin');
    await holder.query(
      `insert into control.audit_rows
         select 'elsewhere', 2, chain_digest, row_digest, organization_id, cluster_id, $1, credential_id, 'somebody', method, request_digest, result, at
           from control.audit_rows limit 1`,
      [mutationId],
    );
    const answering = client.send(
      ownerPath('registerNode'),
      JSON.stringify({ mutationId, clusterId: 'left', nodeId: 'gone-node', corestorePublicKey: null }),
    );
    await waitForLock(mutationId);
    await holder.query('rollback');
    holder.release();
    expect((await answering).status).toBe(200);
    expect(await count('nodes', `node_id = 'gone-node'`)).toBe(1);
  });

  async function waitForLock(mutationId: string): Promise<void> {
    for (let tries = 0; tries < 1000; tries += 1) {
      const { rows } = await service.database.owner.query(
        `select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database() and query like '%audit_row%'`,
      );
      if (rows.length > 0) return;
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
    throw new Error(`nobody waits for ${mutationId}`);
  }
});
