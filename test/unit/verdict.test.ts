import { describe, expect, it } from 'vitest';
import { swarmTaskStates, type TSwarmTaskState } from '../../src/contract/observation.js';
import { judgeTask, type TaskNode } from '../../src/features/inventory/verdict.js';

const reported: TaskNode = { kind: 'reported', swarmState: 'ready' };
const unreported: TaskNode = { kind: 'unreported', swarmState: 'ready' };
const unassigned: TaskNode = { kind: 'unassigned' };
const on = (swarmState: string | null, kind: 'reported' | 'unreported' = 'reported'): TaskNode => ({
  kind,
  swarmState,
});

type ContainerState = Parameters<typeof judgeTask>[2][number]['state'];
const task = (state: TSwarmTaskState, containerId: string | null = 'c-1', swarmNodeId: string | null = 'n-1') => ({
  state,
  containerId,
  swarmNodeId,
});
const judge = (given: ReturnType<typeof task>, node: TaskNode, ...states: ContainerState[]) => {
  const { verdict, reason } = judgeTask(
    given,
    node,
    states.map((state) => ({ state })),
  );
  return `${verdict}: ${reason}`;
};

describe('a task without a node', () => {
  it('never started, unless anything says that it had a container', () => {
    expect(judge(task('pending', null, null), unassigned)).toBe('not-started: never-assigned');
    expect(judge(task('running', 'c-1', null), unassigned)).toBe('unknown: container-without-node');
    expect(judge(task('pending', null, null), unassigned, 'exited')).toBe('unknown: container-without-node');
  });
});

describe('a task of a node that nobody can ask', () => {
  it.each([
    ['a node that Swarm forgot', on(null), 'unknown: node-removed'],
    ['a forgotten node that no fleet node is bound to', on(null, 'unreported'), 'unknown: node-removed'],
    ['a node that is down', on('down'), 'unknown: node-down'],
    ['a disconnected node', on('disconnected'), 'unknown: node-disconnected'],
    ['a node of unknown state', on('unknown'), 'unknown: node-unknown'],
    ['a node that no Spark reports', unreported, 'unknown: no-local-report'],
  ] as const)('%s', (_name, node, expected) => {
    for (const state of swarmTaskStates.filter((each) => each !== 'orphaned' && each !== 'remove')) {
      for (const containers of [[], ['running'], ['exited']] as ContainerState[][]) {
        expect(judge(task(state), node, ...containers)).toBe(expected);
        expect(judge(task(state, null), node, ...containers)).toBe(expected);
      }
    }
  });
});

describe('a task that Swarm gave up', () => {
  it.each([
    ['orphaned', 'unknown: orphaned'],
    ['remove', 'unknown: removed'],
  ] as const)('%s is unknown whatever is seen of it', (state, expected) => {
    for (const node of [reported, unreported, on('down'), on(null)]) {
      expect(judge(task(state), node)).toBe(expected);
      expect(judge(task(state), node, 'exited')).toBe(expected);
      expect(judge(task(state, null), node, 'running')).toBe(expected);
    }
  });
});

describe('a non-terminal task of a reporting node', () => {
  const states = ['new', 'pending', 'assigned', 'accepted', 'preparing', 'ready', 'starting', 'running'] as const;

  it.each(states)('%s is live while its container exists, also when that has just exited', (state) => {
    const kinds = ['created', 'running', 'paused', 'restarting', 'removing', 'exited', 'dead'] as const;
    for (const kind of kinds) {
      expect(judge(task(state), reported, kind)).toBe('live: container-exists');
      expect(judge(task(state, null), reported, kind)).toBe('live: container-exists');
    }
  });

  it.each(['new', 'pending', 'assigned', 'accepted', 'preparing'] as const)(
    '%s has not started where Swarm made no container yet',
    (state) => {
      expect(judge(task(state, null), reported)).toBe(`not-started: still-${state}`);
      expect(judge(task(state), reported)).toBe('unknown: container-not-found');
    },
  );

  it.each(['ready', 'starting', 'running'] as const)('%s is unknown where its container is not found', (state) => {
    expect(judge(task(state, null), reported)).toBe('unknown: container-not-found');
    expect(judge(task(state), reported)).toBe('unknown: container-not-found');
  });
});

describe('a terminal task of a reporting node', () => {
  const states = ['complete', 'shutdown', 'failed', 'rejected'] as const;

  it.each(states)('%s is stopped when its container does not run', (state) => {
    for (const kind of ['created', 'removing', 'exited', 'dead'] as const) {
      expect(judge(task(state), reported, kind)).toBe('stopped: container-exited');
    }
  });

  it.each(states)('%s is unknown when its container runs', (state) => {
    for (const kind of ['running', 'paused', 'restarting'] as const) {
      expect(judge(task(state), reported, kind)).toBe('unknown: terminal-but-running');
      expect(judge(task(state), reported, 'exited', kind)).toBe('unknown: terminal-but-running');
    }
  });

  it.each(states)('%s is stopped when the container that it had is gone', (state) => {
    expect(judge(task(state), reported)).toBe('stopped: container-gone');
  });

  it('never started when it never had a container', () => {
    expect(judge(task('rejected', null), reported)).toBe('not-started: rejected');
    for (const state of ['complete', 'shutdown', 'failed'] as const) {
      expect(judge(task(state, null), reported)).toBe('not-started: never-had-a-container');
    }
  });
});
