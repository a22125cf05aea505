import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { clusterServiceSpecRecord, type IClusterServiceSpecContent } from '../../src/contract/fleet.js';
import { fleetCutoverRuntimeRecord } from '../../src/contract/runtime.js';
import { type Reference, referenceOf } from '../../src/contract/schema.js';
import { authenticateNode } from '../../src/features/auth/facts.js';
import { Secret } from '../../src/secret.js';
import { mutationId, someDigest, startService, type TestService } from '../support/service.js';

let service: TestService;
beforeAll(async () => {
  service = await startService();
});
afterAll(() => service.close());

const clusterId = 'berlin';
const content = (over: Partial<IClusterServiceSpecContent> = {}): IClusterServiceSpecContent => ({
  imageDigest: someDigest('image'),
  mounts: [],
  secretInputs: [],
  publishedPorts: [],
  placement: [],
  ...over,
});

const registerNode = (nodeId: string, corestorePublicKey: string | null = null) =>
  service.done('registerNode', { mutationId: mutationId(), clusterId, nodeId, corestorePublicKey });

/** What Spark would be told with this token. */
async function nodeLogin(nodeId: string, token: string): Promise<string> {
  const actor = await authenticateNode(service.deps, nodeId, new Secret(token));
  return actor.kind === 'node' ? actor.state : actor.problem.code;
}

describe('clusters', () => {
  it('creates a cluster with its runtime in phase swarm and a chain of its own', async () => {
    const made = await service.done('createCluster', {
      mutationId: mutationId(),
      clusterId,
      controllerId: 'controller',
      runtimeNamespace: 'apps',
    });
    expect(made).toMatchObject({
      replayed: false,
      current: true,
      dryRun: false,
      audit: { chainId: clusterId, seq: 1 },
    });
    expect(made.cluster).toMatchObject({ clusterId, organizationId: 'acme', controllerEpoch: 1, swarmId: null });
    expect(made.runtime).toMatchObject({ generation: 1, phase: 'swarm', predecessor: null, clusterId });
    expect(fleetCutoverRuntimeRecord.validate(made.runtime)).toEqual([]);
    const { rows } = await service.database.owner.query(
      `select (select record from control.runtime_revisions where cluster_id = $1) as runtime,
              (select blocker_count from control.derivation_heads where cluster_id = $1) as blockers,
              (select state from control.aggregate_heads where cluster_id = $1) as aggregate`,
      [clusterId],
    );
    expect(JSON.parse(rows[0].runtime)).toEqual(made.runtime);
    expect(rows[0]).toMatchObject({ blockers: '1', aggregate: 'absent' });
  });

  it('refuses a cluster that exists, here or in another organization, and ids of organizations’ chains', async () => {
    const facts = { clusterId, controllerId: 'controller', runtimeNamespace: 'apps' };
    const other = await service.organization('other-of-clusters');
    const again = await service.call('createCluster', { mutationId: mutationId(), ...facts });
    const foreign = await service.call('createCluster', { mutationId: mutationId(), ...facts }, other);
    const chain = await service.call('createCluster', {
      mutationId: mutationId(),
      ...facts,
      clusterId: `org-${'0'.repeat(40)}`,
    });
    expect([again, foreign, chain].map((answer) => [answer.status, answer.body.code])).toEqual([
      [409, 'cluster-exists'],
      [409, 'cluster-exists'],
      [422, 'fleet-refused'],
    ]);
    expect(again.body).toMatchObject({ mutationOutcome: 'not-applied', retrySafe: false });
  });

  it('lists and reads the organization’s clusters only', async () => {
    const other = await service.organization('other-of-reads');
    expect((await service.done('listClusters', {})).clusters.map((each) => each.clusterId)).toEqual([clusterId]);
    expect((await service.done('listClusters', {}, other)).clusters).toEqual([]);
    expect((await service.done('readCluster', { clusterId })).cluster.clusterId).toBe(clusterId);
    expect((await service.call('readCluster', { clusterId }, other)).body.code).toBe('cluster-unknown');
  });
});

describe('nodes', () => {
  it('registers a node with two secrets, of which the first is Spark’s', async () => {
    const made = await registerNode('node-1', 'a'.repeat(64));
    expect(made.node).toMatchObject({
      nodeId: 'node-1',
      state: 'active',
      tokenGeneration: 1,
      sessionCredentialGeneration: 1,
      corestorePublicKeyGeneration: 1,
      lastReport: null,
      localSnapshot: null,
    });
    expect(made.secrets.map((each) => each.credentialId.slice(0, 3))).toEqual(['nt-', 'ns-']);
    expect(await nodeLogin('node-1', made.secrets[0]?.secret ?? '')).toBe('active');
    expect(await nodeLogin('node-1', made.secrets[1]?.secret ?? '')).toBe('credential-refused');
  });

  it('refuses a node id that exists, equal or not, in whichever cluster', async () => {
    await service.done('createCluster', {
      mutationId: mutationId(),
      clusterId: 'paris',
      controllerId: 'controller',
      runtimeNamespace: 'apps',
    });
    const request = { nodeId: 'node-1', corestorePublicKey: 'a'.repeat(64) };
    for (const where of [clusterId, 'paris']) {
      const answer = await service.call('registerNode', { mutationId: mutationId(), clusterId: where, ...request });
      expect([answer.status, answer.body.code]).toEqual([409, 'node-exists']);
    }
  });

  it('rotates a lost token: the used one works until the new one is used', async () => {
    const first = (await registerNode('node-rotated')).secrets[0]?.secret ?? '';
    expect(await nodeLogin('node-rotated', first)).toBe('active');
    const rotation = { clusterId, nodeId: 'node-rotated', kind: 'node-token' } as const;
    const lost = await service.done('rotateNodeCredential', { mutationId: mutationId(), ...rotation });
    const newest = await service.done('rotateNodeCredential', { mutationId: mutationId(), ...rotation });
    expect(newest.credential).toMatchObject({ newestGeneration: 3, usedGeneration: 1, kind: 'node-token' });
    expect(await nodeLogin('node-rotated', first)).toBe('active');
    expect(await nodeLogin('node-rotated', lost.secrets[0]?.secret ?? '')).toBe('credential-refused');
    expect(await nodeLogin('node-rotated', newest.secrets[0]?.secret ?? '')).toBe('active');
    expect(await nodeLogin('node-rotated', first)).toBe('credential-refused');
  });

  it('revokes a node at once, says so only to the right token, and issues nothing for it any more', async () => {
    const token = (await registerNode('node-revoked')).secrets[0]?.secret ?? '';
    const request = { clusterId, nodeId: 'node-revoked' };
    const revoked = await service.done('revokeNode', { mutationId: mutationId(), ...request });
    expect(revoked.node.state).toBe('revoked');
    expect(await nodeLogin('node-revoked', token)).toBe('node-revoked');
    expect(await nodeLogin('node-revoked', 'x'.repeat(43))).toBe('credential-refused');
    const again = await service.done('revokeNode', { mutationId: mutationId(), ...request });
    expect(again.node.state).toBe('revoked');
    const rotation = await service.call('rotateNodeCredential', {
      mutationId: mutationId(),
      ...request,
      kind: 'node-session',
    });
    expect([rotation.status, rotation.body.code]).toEqual([403, 'node-revoked']);
  });

  it('releases a quarantine with new credentials and forgets the reporter’s session', async () => {
    const old = (await registerNode('node-cloned')).secrets[0]?.secret ?? '';
    const request = { clusterId, nodeId: 'node-cloned' };
    const early = await service.call('releaseNodeQuarantine', { mutationId: mutationId(), ...request });
    expect([early.status, early.body.code]).toEqual([422, 'quarantine-absent']);
    expect(await nodeLogin('node-cloned', old)).toBe('active');
    await service.database.owner.query(
      `update control.nodes set state = 'quarantined', quarantine_reason = 'two reporters', reporter_session_id = 's-1',
         observation_sequence = 7, reported_state = 'member', received_at = 1 where node_id = 'node-cloned'`,
    );
    expect(await nodeLogin('node-cloned', old)).toBe('quarantined');
    const listed = await service.done('listNodes', { clusterId, cursor: 'node-a', limit: 1 });
    expect(listed.nodes[0]).toMatchObject({
      nodeId: 'node-cloned',
      state: 'quarantined',
      quarantineReason: 'two reporters',
      lastReport: { reporterSessionId: 's-1', observationSequence: 7, state: 'member' },
    });
    const released = await service.done('releaseNodeQuarantine', { mutationId: mutationId(), ...request });
    expect(released.node).toMatchObject({
      state: 'active',
      quarantineReason: null,
      lastReport: null,
      tokenGeneration: 2,
      sessionCredentialGeneration: 2,
    });
    expect(released.secrets.map((each) => each.credentialId.slice(0, 3))).toEqual(['nt-', 'ns-']);
    expect(await nodeLogin('node-cloned', old)).toBe('credential-refused');
    expect(await nodeLogin('node-cloned', released.secrets[0]?.secret ?? '')).toBe('active');
  });

  it('confirms only the swarm node id that was reported, and that no other node has', async () => {
    await registerNode('node-rejoined');
    await registerNode('node-holder');
    const request = { clusterId, nodeId: 'node-rejoined', swarmNodeId: 'swarm-2' };
    const absent = await service.call('confirmNodeRejoin', { mutationId: mutationId(), ...request });
    expect([absent.status, absent.body.code]).toEqual([422, 'rejoin-absent']);
    const report = `update control.nodes set swarm_node_id = $2, reported_swarm_node_id = $3 where node_id = $1`;
    await service.database.owner.query(report, ['node-rejoined', 'swarm-1', 'swarm-2']);
    await service.database.owner.query(report, ['node-holder', 'swarm-2', null]);
    const taken = await service.call('confirmNodeRejoin', { mutationId: mutationId(), ...request });
    expect([taken.status, taken.body.code]).toEqual([409, 'swarm-node-taken']);
    await service.database.owner.query(report, ['node-holder', null, null]);
    const confirmed = await service.done('confirmNodeRejoin', { mutationId: mutationId(), ...request });
    expect(confirmed.node).toMatchObject({ swarmNodeId: 'swarm-2', reportedSwarmNodeId: null });
  });

  it('raises the key’s generation only where the key is another one', async () => {
    await registerNode('node-keyed');
    const put = (corestorePublicKey: string) =>
      service.done('setCorestorePublicKey', {
        mutationId: mutationId(),
        clusterId,
        nodeId: 'node-keyed',
        corestorePublicKey,
      });
    expect((await put('b'.repeat(64))).node.corestorePublicKeyGeneration).toBe(1);
    expect((await put('b'.repeat(64))).node.corestorePublicKeyGeneration).toBe(1);
    expect((await put('c'.repeat(64))).node).toMatchObject({
      corestorePublicKey: 'c'.repeat(64),
      corestorePublicKeyGeneration: 2,
    });
  });

  it('answers node-unknown for a node of another cluster', async () => {
    const answer = await service.call('revokeNode', { mutationId: mutationId(), clusterId: 'paris', nodeId: 'node-1' });
    expect([answer.status, answer.body.code]).toEqual([404, 'node-unknown']);
  });

  it('lists nodes in byte order, page by page', async () => {
    const ids: string[] = [];
    let cursor: string | null = null;
    do {
      const page: Awaited<ReturnType<typeof service.done<'listNodes'>>> = await service.done('listNodes', {
        clusterId,
        cursor,
        limit: 2,
      });
      expect(page.nodes.length).toBeLessThanOrEqual(2);
      ids.push(...page.nodes.map((node) => node.nodeId));
      cursor = page.nextCursor;
    } while (cursor !== null);
    expect(ids).toEqual([...ids].sort());
    expect(ids).toContain('node-1');
    expect(new Set(ids).size).toBe(ids.length);
  });
});

describe('services and specs', () => {
  it('creates a service once per name and retires it for good', async () => {
    const { service: made } = await service.done('createService', { mutationId: mutationId(), name: 'shop' });
    expect(made).toMatchObject({ name: 'shop', state: 'live', spec: null });
    const twice = await service.call('createService', { mutationId: mutationId(), name: 'shop' });
    expect([twice.status, twice.body.code]).toEqual([422, 'fleet-refused']);
    const retired = await service.done('retireService', { mutationId: mutationId(), serviceId: made.serviceId });
    expect(retired.service.state).toBe('retired');
    const taken = await service.call('createService', { mutationId: mutationId(), name: 'shop' });
    expect([taken.status, taken.body.code]).toEqual([422, 'fleet-refused']);
    const spec = {
      mutationId: mutationId(),
      clusterId,
      serviceId: made.serviceId,
      expectedSpec: null,
      spec: content(),
    };
    expect((await service.call('putServiceSpec', spec)).body.code).toBe('spec-refused');
  });

  it('writes specs by compare-and-swap, sorted, each revision naming its predecessor', async () => {
    const { service: made } = await service.done('createService', { mutationId: mutationId(), name: 'blog' });
    const put = (expectedSpec: Reference | null, spec: IClusterServiceSpecContent) =>
      service.call('putServiceSpec', {
        mutationId: mutationId(),
        clusterId,
        serviceId: made.serviceId,
        expectedSpec,
        spec,
      });
    const mounts = [
      { mountPath: '/var/log', readOnly: false },
      { mountPath: '/data', readOnly: true },
    ];
    const first = await put(null, content({ mounts, placement: ['node-1'] }));
    expect(first.status).toBe(200);
    expect(first.body.spec).toMatchObject({ generation: 1, predecessor: null });
    expect(first.body.spec.mounts.map((mount) => mount.mountPath)).toEqual(['/data', '/var/log']);
    expect(clusterServiceSpecRecord.validate(first.body.spec)).toEqual([]);

    const blind = await put(null, content());
    expect([blind.status, blind.body.code, blind.body.expectation]).toEqual([409, 'spec-stale', 'expectedSpec']);
    expect(blind.body.current).toEqual(referenceOf(first.body.spec));
    expect(blind.body).toMatchObject({ mutationOutcome: 'not-applied', retrySafe: false });

    const equal = await put(
      referenceOf(first.body.spec),
      content({ mounts: mounts.toReversed(), placement: ['node-1'] }),
    );
    expect(equal.body.spec).toEqual(first.body.spec);

    const second = await put(referenceOf(first.body.spec), content({ imageDigest: someDigest('image 2') }));
    expect(second.body.spec).toMatchObject({ generation: 2, predecessor: referenceOf(first.body.spec) });
    expect(second.body.spec.id).toBe(first.body.spec.id);

    const read = { clusterId, serviceId: made.serviceId };
    expect(await service.done('readServiceSpec', { ...read, generation: null })).toEqual({
      spec: second.body.spec,
      state: 'held',
    });
    expect((await service.done('readServiceSpec', { ...read, generation: 1 })).spec).toEqual(first.body.spec);
    expect((await service.call('readServiceSpec', { ...read, generation: 3 })).body.code).toBe('record-unknown');
    const listed = await service.done('listServices', { clusterId, cursor: null, limit: 1000 });
    const blog = listed.services.find((each) => each.name === 'blog');
    expect(blog?.spec).toEqual(referenceOf(second.body.spec));
  });

  it('refuses what occurs twice, and placement on strangers', async () => {
    const { service: made } = await service.done('createService', { mutationId: mutationId(), name: 'wiki' });
    const port = { protocol: 'tcp', port: 80, targetPort: 8080 } as const;
    const spec = content({ publishedPorts: [port, { ...port, targetPort: 1 }], placement: ['node-1', 'nowhere'] });
    const answer = await service.call('putServiceSpec', {
      mutationId: mutationId(),
      clusterId,
      serviceId: made.serviceId,
      expectedSpec: null,
      spec,
    });
    expect([answer.status, answer.body.code]).toEqual([422, 'spec-refused']);
    expect(answer.body.errors).toEqual([
      'the published port tcp/00080 occurs twice',
      'the cluster has no node nowhere',
    ]);
  });

  it('lets exactly one of two concurrent writers through', async () => {
    const { service: made } = await service.done('createService', { mutationId: mutationId(), name: 'race' });
    const answers = await Promise.all(
      ['a', 'b', 'c', 'd'].map((text) =>
        service.call('putServiceSpec', {
          mutationId: mutationId(),
          clusterId,
          serviceId: made.serviceId,
          expectedSpec: null,
          spec: content({ imageDigest: someDigest(text) }),
        }),
      ),
    );
    expect(answers.map((answer) => answer.status).sort()).toEqual([200, 409, 409, 409]);
  });

  it('notices a spec whose row was edited', async () => {
    const { service: made } = await service.done('createService', { mutationId: mutationId(), name: 'edited' });
    const put = { clusterId, serviceId: made.serviceId };
    await service.done('putServiceSpec', { mutationId: mutationId(), ...put, expectedSpec: null, spec: content() });
    const { owner } = service.database;
    await owner.query('alter table control.service_spec_revisions disable trigger user');
    await owner.query(
      `update control.service_spec_revisions set record = replace(record, $2, $3) where service_id = $1`,
      [made.serviceId, someDigest('image'), someDigest('evil')],
    );
    await owner.query('alter table control.service_spec_revisions enable trigger user');
    const answer = await service.call('readServiceSpec', { ...put, generation: null });
    expect([answer.status, answer.body.code]).toEqual([500, 'record-corrupt']);
  });
});

describe('registerCoreflowRelay', () => {
  it('names one relay per cluster; the same again issues the next generation', async () => {
    const register = (swarmServiceId: string) =>
      service.call('registerCoreflowRelay', { mutationId: mutationId(), clusterId, swarmServiceId });
    const first = await register('relay-1');
    expect(first.body.credential).toMatchObject({ kind: 'coreflow-relay', subjectId: 'relay-1', newestGeneration: 1 });
    const again = await register('relay-1');
    expect(again.body.credential).toMatchObject({
      credentialId: first.body.credential.credentialId,
      newestGeneration: 2,
    });
    const other = await register('relay-2');
    expect([other.status, other.body.code]).toEqual([422, 'fleet-refused']);
    await service.database.owner.query(`update control.credentials set revoked = true where kind = 'coreflow-relay'`);
    expect((await register('relay-1')).body.code).toBe('fleet-refused');
  });
});
