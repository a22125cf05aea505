import { describe, expect, it } from 'vitest';
import { type ClusterFacts, deriveCluster } from '../../src/features/volume-handoff/derive-cluster.js';
import { nodeTask, scope, scopeService } from '../support/snapshots.js';

const derive = (over: Partial<ClusterFacts> = {}) =>
  deriveCluster({ scope: scope(), services: [], managerIncomplete: null, tasks: [], ...over });
const codes = (over: Partial<ClusterFacts>) =>
  derive(over).blockers.map(({ record }) =>
    [record.code, record.swarmServiceId ?? record.swarmTaskId].filter(Boolean).join(' '),
  );
const loose = (service: string, over: Parameters<typeof nodeTask>[1] & { swarmState?: string | null } = {}) => {
  const { swarmState = null, ...rest } = over;
  return { ...nodeTask(service, rest), swarmState };
};

describe('a cluster', () => {
  it('has nothing to say when all is said', () => {
    expect(derive()).toEqual({ blockers: [], verdicts: [] });
  });

  it('lacks a scope, which is the only thing to say about services then', () => {
    const services = [{ swarmServiceId: 'a', name: 'A' }];
    const { blockers } = derive({ scope: null, services, tasks: [loose('a')] });
    expect(blockers.map((each) => each.record)).toEqual([
      {
        id: expect.stringMatching(/^bl-[0-9a-f]{40}$/),
        code: 'scope-missing',
        nodeId: null,
        swarmServiceId: null,
        swarmTaskId: null,
        containerName: null,
        target: null,
        volumeName: null,
        entry: null,
        detail: 'no scope was accepted yet',
      },
    ]);
  });

  it('blocks for each service without a class', () => {
    const services = ['a', 'b', 'c'].map((id) => ({ swarmServiceId: id, name: `the ${id}` }));
    expect(codes({ services, scope: scope({ services: [scopeService('b')] }) })).toEqual([
      'service-unclassified a',
      'service-unclassified c',
    ]);
  });

  it('blocks while Coreflow is undetermined', () => {
    expect(codes({ scope: scope({ coreflow: { state: 'undetermined' } }) })).toEqual(['coreflow-undetermined']);
    expect(codes({ scope: scope({ coreflow: { state: 'classified' } }) })).toEqual([]);
  });

  it.each([
    ['truncated', 'task-limit'],
    ['engine-error', 'snapshot-incomplete'],
    ['engine-unreachable', 'snapshot-incomplete'],
    ['inconsistent', 'snapshot-incomplete'],
    ['timeout', 'snapshot-incomplete'],
  ])('blocks for a newer manager snapshot that is incomplete: %s', (reason, code) => {
    expect(codes({ managerIncomplete: reason })).toEqual([code]);
    expect(codes({ managerIncomplete: reason, scope: null })).toEqual([code, 'scope-missing']);
    expect(derive({ managerIncomplete: reason }).blockers[0]?.record.detail).toContain(reason);
  });
});

describe('tasks on no fleet node', () => {
  const verdictOf = (task: ReturnType<typeof loose>) => {
    const { verdicts } = derive({ tasks: [task], scope: scope({ services: [scopeService('a')] }) });
    return verdicts.map(({ verdict, reason, nodeId }) => `${verdict} ${reason} ${String(nodeId)}`);
  };

  it('are judged without a node', () => {
    const unassigned = { state: 'pending', swarmNodeId: null, containerId: null } as const;
    expect(verdictOf(loose('a', unassigned))).toEqual(['not-started never-assigned null']);
    expect(verdictOf(loose('a', { ...unassigned, containerId: 'c' }))).toEqual(['unknown container-without-node null']);
    expect(verdictOf(loose('a', { swarmState: 'ready' }))).toEqual(['unknown no-local-report null']);
    expect(verdictOf(loose('a', { swarmState: 'down' }))).toEqual(['unknown node-down null']);
    expect(verdictOf(loose('a', { swarmState: null }))).toEqual(['unknown node-removed null']);
    expect(verdictOf(loose('a', { swarmState: 'ready', state: 'orphaned' }))).toEqual(['unknown orphaned null']);
  });

  it('block where they are unknown, unless their service is excluded', () => {
    const tasks = ['a', 'b', 'c', 'd', 'unclassified'].map((service) => loose(service, { swarmState: 'down' }));
    const services = [
      scopeService('a'),
      scopeService('b', { class: 'excluded' }),
      scopeService('c', { class: 'ingress' }),
      scopeService('d', { class: 'coreflow' }),
    ];
    const derived = derive({ tasks, scope: scope({ services, coreflow: { state: 'classified' } }) });
    expect(derived.blockers.map(({ record }) => [record.code, record.swarmTaskId, record.detail])).toEqual(
      ['a.1', 'c.1', 'd.1', 'unclassified.1'].map((task) => [
        'task-unknown',
        task,
        'the task cannot be judged: node-down',
      ]),
    );
    expect(derived.verdicts).toHaveLength(5);
  });

  it('do not block where they have not started', () => {
    const tasks = [loose('a', { state: 'pending', swarmNodeId: null, containerId: null })];
    expect(codes({ tasks, scope: scope({ services: [scopeService('a')] }) })).toEqual([]);
  });
});
