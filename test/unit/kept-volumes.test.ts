import { describe, expect, it } from 'vitest';
import { isAnonymousVolumeName } from '../../src/contract/mount.js';
import { containerStates, type IObservedContainer } from '../../src/contract/observation.js';
import { judgeVolumes } from '../../src/features/volume-handoff/kept-volumes.js';
import {
  bindMount,
  container,
  localSnapshot,
  requiredEntry,
  taskContainer,
  volume,
  volumeMount,
  volumeSource,
} from '../support/snapshots.js';

const name = 'a'.repeat(64);
const other = 'b'.repeat(64);
const mount = volumeMount(name);
const app = taskContainer('app', [mount]);
const keeps = (over: Partial<IObservedContainer> = {}) =>
  container('keeper', { state: 'created', mounts: [volumeMount(name, '/keep', { readWrite: false })], ...over });

/** Of the entry of one anonymous volume, on a node that has it. */
function judged(containers: readonly IObservedContainer[], volumes = [name]) {
  const snapshot = localSnapshot({ containers: [...containers], volumes: volumes.map((each) => volume(each)) });
  const { unkept, vanished } = judgeVolumes([requiredEntry('app', mount)], snapshot);
  return [unkept.map((each) => each.volumeName), vanished.map((each) => each.volumeName)];
}
const safe: string[][] = [[], []];
const unkept = [[name], []];
const vanished = [[], [name]];

describe('an anonymous volume', () => {
  const cases: [string, readonly IObservedContainer[], string[][]][] = [
    ['of a task without a keeper goes with it', [app], unkept],
    ['stays with a container that was created and never started', [app, keeps()], safe],
    ['stays with a read-write mount of it, too', [app, keeps({ mounts: [volumeMount(name)] })], safe],
    [
      'stays with a container among whose volumes it is',
      [app, keeps({ mounts: [volumeMount(other), volumeMount(name, '/k')] })],
      safe,
    ],
    ['is not kept by a container that mounts another', [app, keeps({ mounts: [volumeMount(other)] })], unkept],
    ['is not kept by a bind of its directory', [app, keeps({ mounts: [bindMount(volumeSource(name))] })], unkept],
    ['is not kept by another task of its service', [app, taskContainer('app', [mount], { ordinal: 2 })], unkept],
    ['is not kept by a task of another service', [app, taskContainer('other', [mount])], unkept],
    [
      'is not kept by a container that says which task it is and not of which service',
      [app, keeps({ swarmTaskId: 't' })],
      unkept,
    ],
    [
      'is not kept by a container that says of which service it is and not which task',
      [app, keeps({ swarmServiceId: 's' })],
      unkept,
    ],
    ['needs nothing once no container of Swarm mounts it', [], safe],
    ['needs nothing once its keeper is gone after the task', [container('web')], safe],
    ['of a task that ended goes with it still', [{ ...app, state: 'exited' }], unkept],
  ];
  it.each(cases)('%s', (_name, containers, expected) => {
    expect(judged(containers)).toEqual(expected);
  });

  it.each(containerStates.map((state) => [state, ['created', 'running', 'paused'].includes(state)] as const))(
    'with a keeper that is %s is kept: %s',
    (state, kept) => {
      expect(judged([app, keeps({ state })])).toEqual(kept ? safe : unkept);
      expect(judged([{ ...app, state }])).toEqual(unkept);
    },
  );

  it('is gone where the node does not have it, whoever is said to mount it', () => {
    for (const containers of [[], [app], [app, keeps()]]) expect(judged(containers, [other])).toEqual(vanished);
  });
});

describe('volumes of all kinds', () => {
  const named = volumeMount('data', '/data');
  const entries = [requiredEntry('app', named), requiredEntry('app', mount), requiredEntry('app', bindMount('/srv'))];

  it('that are named need no keeper and can be gone; binds have no volume', () => {
    const containers = [taskContainer('app', [named, volumeMount(name, '/b'), bindMount('/srv', '/c')])];
    const here = localSnapshot({ containers, volumes: [volume('data'), volume(name)] });
    expect(judgeVolumes(entries, here)).toEqual({
      unkept: [{ swarmServiceId: 'app', mountPath: '/data', volumeName: name }],
      vanished: [],
    });
    const gone = judgeVolumes(entries, localSnapshot({ volumes: [volume('srv')] }));
    expect(gone).toEqual({
      unkept: [],
      vanished: [
        { swarmServiceId: 'app', mountPath: '/data', volumeName: 'data' },
        { swarmServiceId: 'app', mountPath: '/data', volumeName: name },
      ],
    });
  });

  it('are not known to be there without a snapshot', () => {
    expect(judgeVolumes(entries, null).vanished).toHaveLength(2);
    expect(judgeVolumes([], null)).toEqual({ unkept: [], vanished: [] });
  });

  it.each([
    [name, true],
    ['0123456789abcdef'.repeat(4), true],
    ['a'.repeat(63), false],
    ['a'.repeat(65), false],
    ['A'.repeat(64), false],
    ['g'.repeat(64), false],
    [`${'a'.repeat(64)}\n`, false],
    ['', false],
  ])('are anonymous by their name: %j is %s', (each, expected) => {
    expect(isAnonymousVolumeName(each)).toBe(expected);
  });
});
