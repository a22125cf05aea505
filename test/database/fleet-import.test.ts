import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { IClusterServiceSpecContent } from '../../src/contract/fleet.js';
import type { MethodRequest } from '../../src/contract/methods.js';
import { authenticateNode } from '../../src/features/auth/facts.js';
import { Secret } from '../../src/secret.js';
import { mutationId, someDigest, startService, type TestService } from '../support/service.js';

let service: TestService;
beforeAll(async () => {
  service = await startService();
  for (const clusterId of ['one', 'two', 'big']) {
    await service.done('createCluster', {
      mutationId: mutationId(),
      clusterId,
      controllerId: 'c',
      runtimeNamespace: 'n',
    });
  }
});
afterAll(() => service.close());

type Document = Omit<MethodRequest<'importFleet'>, 'mutationId' | 'clusterId' | 'dryRun'>;

const node = (nodeId: string, corestorePublicKey: string | null = null) => ({ nodeId, corestorePublicKey });
const spec = (over: Partial<IClusterServiceSpecContent> = {}): IClusterServiceSpecContent => ({
  imageDigest: someDigest('image'),
  mounts: [{ mountPath: '/data', readOnly: false }],
  secretInputs: [],
  publishedPorts: [],
  placement: [],
  ...over,
});
const importFleet = (document: Partial<Document>, clusterId = 'one', more: object = {}) =>
  service.call('importFleet', {
    mutationId: mutationId(),
    clusterId,
    nodes: [],
    services: [],
    specs: [],
    ...document,
    ...more,
  });

const fleet: Document = {
  nodes: [node('b', 'a'.repeat(64)), node('a')],
  services: [{ name: 'shop' }, { name: 'blog' }],
  specs: [
    { serviceName: 'blog', spec: spec({ placement: ['a', 'b'] }) },
    { serviceName: 'shop', spec: spec() },
  ],
};

describe('importFleet', () => {
  it('makes everything exist, in the document’s order, with two secrets for each node', async () => {
    const { status, body } = await importFleet(fleet);
    expect(status).toBe(200);
    expect(body.nodes).toEqual([
      { nodeId: 'b', created: true },
      { nodeId: 'a', created: true },
    ]);
    expect(body.services.map((each) => [each.name, each.created])).toEqual([
      ['shop', true],
      ['blog', true],
    ]);
    expect(body.specs.map((each) => [each.serviceId, each.created])).toEqual([
      [body.services[1]?.serviceId, true],
      [body.services[0]?.serviceId, true],
    ]);
    expect(body.secrets.map((each) => each.credentialId.slice(0, 2))).toEqual(['nt', 'ns', 'nt', 'ns']);
    expect(await authenticateNode(service.deps, 'b', new Secret(body.secrets[0]?.secret ?? ''))).toMatchObject({
      nodeId: 'b',
    });
    expect(await authenticateNode(service.deps, 'a', new Secret(body.secrets[2]?.secret ?? ''))).toMatchObject({
      nodeId: 'a',
    });
    expect((await service.done('listNodes', { clusterId: 'one', cursor: null, limit: 10 })).nodes).toHaveLength(2);
  });

  it('may be sent again: nothing is created, nothing is issued', async () => {
    const { status, body } = await importFleet(fleet);
    expect(status).toBe(200);
    expect([...body.nodes, ...body.services, ...body.specs].map((each) => each.created)).toEqual(Array(6).fill(false));
    expect(body.secrets).toEqual([]);
  });

  it('adds what is new beside what is there', async () => {
    const more = { ...fleet, nodes: [...fleet.nodes, node('c')], services: [...fleet.services, { name: 'wiki' }] };
    const { body } = await importFleet(more);
    expect(body.nodes.map((each) => each.created)).toEqual([false, false, true]);
    expect(body.services.map((each) => each.created)).toEqual([false, false, true]);
    expect(body.secrets).toHaveLength(2);
  });

  it('names every entry that differs by list and index, and then does nothing', async () => {
    for (const nodeId of ['elsewhere', 'foreign']) {
      await service.done('registerNode', {
        mutationId: mutationId(),
        clusterId: 'two',
        nodeId,
        corestorePublicKey: null,
      });
    }
    const { service: old } = await service.done('createService', { mutationId: mutationId(), name: 'old' });
    await service.done('retireService', { mutationId: mutationId(), serviceId: old.serviceId });
    const { status, body } = await importFleet({
      nodes: [node('new'), node('a', 'b'.repeat(64)), node('elsewhere'), node('new')],
      services: [{ name: 'fresh' }, { name: 'old' }, { name: 'fresh' }],
      specs: [
        { serviceName: 'shop', spec: spec({ imageDigest: someDigest('other') }) },
        { serviceName: 'nobody', spec: spec() },
        { serviceName: 'fresh', spec: spec({ placement: ['nowhere'] }) },
        { serviceName: 'shop', spec: spec() },
        { serviceName: 'old', spec: spec() },
        { serviceName: 'blog', spec: spec({ placement: ['foreign'] }) },
      ],
    });
    expect([status, body.code, body.mutationOutcome]).toEqual([422, 'fleet-refused', 'not-applied']);
    const named = body.entries?.map((entry) => `${entry.list}[${entry.index}] ${entry.code}`);
    expect(named).toEqual([
      'nodes[1] node-differs',
      'nodes[2] node-differs',
      'nodes[3] entry-duplicate',
      'services[1] service-retired',
      'services[2] entry-duplicate',
      'specs[0] spec-differs',
      'specs[1] service-unknown',
      'specs[2] node-unknown',
      'specs[3] entry-duplicate',
      'specs[4] service-retired',
      'specs[5] node-unknown',
      'specs[5] spec-differs',
    ]);
    expect((await service.done('listNodes', { clusterId: 'one', cursor: null, limit: 10 })).nodes).toHaveLength(3);
  });

  it('refuses a node that was revoked', async () => {
    await service.done('registerNode', {
      mutationId: mutationId(),
      clusterId: 'one',
      nodeId: 'gone',
      corestorePublicKey: null,
    });
    await service.done('revokeNode', { mutationId: mutationId(), clusterId: 'one', nodeId: 'gone' });
    const { body } = await importFleet({ nodes: [node('gone')] });
    expect(body.entries).toEqual([{ list: 'nodes', index: 0, code: 'node-differs' }]);
  });

  it('says in a replay whether all of it is still so', async () => {
    const request = { ...fleet, mutationId: mutationId(), clusterId: 'one' };
    await service.done('importFleet', request);
    expect(await service.done('importFleet', request)).toMatchObject({ replayed: true, current: true });
    await service.done('revokeNode', { mutationId: mutationId(), clusterId: 'one', nodeId: 'a' });
    expect(await service.done('importFleet', request)).toMatchObject({ replayed: true, current: false });
  });

  it('answers cluster-unknown to another organization', async () => {
    const other = await service.organization('other-of-import');
    const answer = await service.call('importFleet', { mutationId: mutationId(), clusterId: 'one', ...fleet }, other);
    expect([answer.status, answer.body.code]).toEqual([404, 'cluster-unknown']);
  });

  it('gives a node id that two clusters claim at once to one of them', async () => {
    const answers = await Promise.all(
      ['one', 'two', 'one', 'two'].map((clusterId) => importFleet({ nodes: [node('wanted')] }, clusterId)),
    );
    const created = answers.filter((answer) => answer.status === 200 && answer.body.nodes[0]?.created === true);
    expect(created).toHaveLength(1);
    expect(answers.every((answer) => [200, 409, 422].includes(answer.status))).toBe(true);
  });

  it('takes 4,096 nodes, services and specs in one transaction, and the same again', async () => {
    const numbers = Array.from({ length: 4096 }, (_, index) => index);
    const document: Document = {
      nodes: numbers.map((index) => node(`big-${index}`)),
      services: numbers.map((index) => ({ name: `big-${index}` })),
      specs: numbers.map((index) => ({ serviceName: `big-${index}`, spec: spec({ placement: [`big-${index}`] }) })),
    };
    const request = { mutationId: mutationId(), clusterId: 'big', ...document };
    const started = performance.now();
    const first = await service.done('importFleet', request);
    const took = performance.now() - started;
    expect(first.secrets).toHaveLength(8192);
    expect(first.specs.every((each) => each.created)).toBe(true);
    const replayed = await service.done('importFleet', request);
    expect(replayed).toMatchObject({ replayed: true, current: true, secrets: [] });
    const again = await importFleet(document, 'big');
    expect(again.body.specs.some((each) => each.created)).toBe(false);
    console.log(`import of 4,096 nodes, services and specs: ${Math.round(took)} ms`);
  });
});
