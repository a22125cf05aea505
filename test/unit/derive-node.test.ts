import { Value } from '@sinclair/typebox/value';
import { describe, expect, it } from 'vitest';
import { FleetCutoverBlocker } from '../../src/contract/derivation.js';
import { isWellFormed } from '../../src/contract/strict-json.js';
import type {
  IObservedContainer,
  IObservedContainerMount,
  IObservedSpecMount,
} from '../../src/contract/observation.js';
import type { IFleetCutoverScopeService, IFleetCutoverScopeStatement, TMountClass } from '../../src/contract/scope.js';
import { deriveNode, type NodeFacts, type RequiredEntry } from '../../src/features/volume-handoff/derive-node.js';
import {
  bindMount,
  boundVolumeMount,
  container,
  driverOptions,
  entryKey,
  localSnapshot,
  nodeFacts,
  nodeTask,
  requiredEntry,
  scope,
  scopeService,
  specMount,
  taskContainer,
  testNodeId,
  volume,
  volumeMount,
  volumeSource,
} from '../support/snapshots.js';

interface Given extends Partial<Omit<NodeFacts, 'scope' | 'snapshot'>> {
  readonly containers?: readonly IObservedContainer[];
  readonly volumes?: readonly string[];
  readonly services?: readonly IFleetCutoverScopeService[];
  readonly statement?: Partial<IFleetCutoverScopeStatement>;
}

/** Services that containers name and the statement does not are applications. */
function derive({ containers = [], volumes = [], services, statement = {}, ...facts }: Given) {
  const named = new Set(containers.flatMap((each) => each.swarmServiceId ?? []));
  const derived = deriveNode(
    nodeFacts({
      snapshot: localSnapshot({ containers: [...containers], volumes: volumes.map((name) => volume(name)) }),
      scope: scope({ services: [...(services ?? [...named].map((id) => scopeService(id)))], ...statement }),
      ...facts,
    }),
  );
  for (const { record } of derived.blockers) expect([...Value.Errors(FleetCutoverBlocker, record)]).toEqual([]);
  return derived;
}
/** `<service> <source> <destination>` of the entries. */
const entriesOf = (derived: ReturnType<typeof derive>) =>
  derived.entries.map((entry) => `${entry.serviceId} ${entry.source} ${entry.mountPath}`).sort();
/** `<code> <other side> <target> [key]` of the blockers. */
const blockersOf = (derived: ReturnType<typeof derive>) =>
  derived.blockers
    .map(({ record }) => {
      const entry = derived.entries.find(
        (each) =>
          each.serviceId === record.entry?.serviceId && each.mountIdentityDigest === record.entry.mountIdentityDigest,
      );
      const other = record.swarmServiceId ?? record.containerName ?? record.volumeName;
      const words = [
        record.code,
        record.swarmTaskId ?? other,
        record.target,
        entry && `[${entry.serviceId} ${entry.mountPath}]`,
      ];
      return words.filter((each) => each !== null && each !== undefined).join(' ');
    })
    .sort();
const anonymous = 'a'.repeat(64);

describe('what a mount makes', () => {
  const mounted = (mount: IObservedContainerMount, service: Partial<IFleetCutoverScopeService> = {}) => {
    const derived = derive({ containers: [taskContainer('a', [mount])], services: [scopeService('a', service)] });
    return { entries: entriesOf(derived), blockers: blockersOf(derived) };
  };
  const entry = (source: string) => ({ entries: [`sv-a ${source} /data`], blockers: [] });
  const nothing = { entries: [], blockers: [] };
  const blocked = (code: string) => ({ entries: [], blockers: [`${code} a /data`] });

  it.each([
    ['a named volume', volumeMount('v'), entry(volumeSource('v'))],
    ['an anonymous volume', volumeMount(anonymous), entry(volumeSource(anonymous))],
    ['a bind', bindMount('/srv/data'), entry('/srv/data')],
    ['a volume of a host directory', boundVolumeMount('v', '/srv/v'), entry(volumeSource('v'))],
    [
      'a volume of a disk',
      volumeMount('v', '/data', { options: driverOptions({ type: 'ext4' }) }),
      entry(volumeSource('v')),
    ],
    ['a read-only bind', bindMount('/srv/data', '/data', { readWrite: false }), nothing],
    ['a tmpfs', bindMount('', '/data', { type: 'tmpfs' }), nothing],
    ['a named pipe', bindMount('pipe', '/data', { type: 'npipe' }), nothing],
    ['an image', bindMount('image', '/data', { type: 'image' }), nothing],
    ['a plugin’s volume', volumeMount('v', '/data', { driver: 'rexray' }), blocked('driver-unclassified')],
    ['a volume without a driver', volumeMount('v', '/data', { driver: null }), blocked('driver-unclassified')],
    ['a cluster volume', volumeMount('v', '/data', { type: 'cluster' }), blocked('driver-unclassified')],
    [
      'a plugin’s volume, read-only',
      volumeMount('v', '/data', { driver: 'x', readWrite: false }),
      blocked('driver-unclassified'),
    ],
    ['a volume without a source', volumeMount('v', '/data', { source: '' }), blocked('source-empty')],
    [
      'a read-only volume without a source',
      volumeMount('v', '/data', { source: '', readWrite: false }),
      blocked('source-empty'),
    ],
    ['a bind without a source', bindMount(''), blocked('source-empty')],
    [
      'a read-only volume that no key covers',
      volumeMount('v', '/data', { readWrite: false }),
      blocked('read-only-uncovered'),
    ],
  ])('%s', (_name, mount, expected) => {
    expect(mounted(mount)).toEqual(expected);
  });

  it.each(['nfs', 'nfs4', 'cifs', 'smb3', 'smbfs', 'ceph', 'glusterfs', '9p', 'tmpfs'])(
    'the local driver’s %s needs a class',
    (type) => {
      const mount = volumeMount('v', '/data', { options: driverOptions({ type }) });
      expect(mounted(mount)).toEqual(blocked('driver-unclassified'));
      for (const kind of ['external', 'ephemeral'] as const) {
        expect(mounted(mount, { mounts: [{ target: '/data', class: kind, reason: 'r' }] })).toEqual(nothing);
      }
    },
  );

  const classed = (kind: TMountClass) => ({ mounts: [{ target: '/data', class: kind, reason: 'r' }] });
  const plugin = (readWrite: boolean) => volumeMount('v', '/data', { driver: 'x', readWrite });
  const sourceless = (readWrite: boolean) => volumeMount('v', '/data', { source: '', readWrite });

  it.each(['external', 'ephemeral', 'host-path'] as const)('a class %s of its target settles it', (kind) => {
    const mounts = [plugin(true), plugin(false), sourceless(true), sourceless(false), bindMount(''), volumeMount('v')];
    for (const mount of [...mounts, volumeMount('v', '/data', { readWrite: false })]) {
      expect(mounted(mount, classed(kind))).toEqual(nothing);
    }
  });

  it('a class is of one target', () => {
    const elsewhere = { mounts: [{ target: '/other', class: 'external', reason: 'r' } as const] };
    expect(mounted(volumeMount('v'), elsewhere)).toEqual(entry(volumeSource('v')));
  });

  it('a class shared-read-only settles what is read only, and nothing that is written', () => {
    for (const mount of [plugin(false), sourceless(false), volumeMount('v', '/data', { readWrite: false })]) {
      expect(mounted(mount, classed('shared-read-only'))).toEqual(nothing);
    }
    expect(mounted(volumeMount('v'), classed('shared-read-only'))).toEqual(entry(volumeSource('v')));
    expect(mounted(plugin(true), classed('shared-read-only'))).toEqual(blocked('driver-unclassified'));
    expect(mounted(sourceless(true), classed('shared-read-only'))).toEqual(blocked('source-empty'));
    const ingress = { class: 'ingress', ...classed('shared-read-only') } as const;
    expect(mounted(volumeMount('v'), ingress)).toEqual(blocked('ingress-persistent-mount'));
  });

  it('of an ingress blocks where it is persistent', () => {
    const ingress = (mount: IObservedContainerMount, mounts: IFleetCutoverScopeService['mounts'] = []) =>
      mounted(mount, { class: 'ingress', mounts });
    for (const mount of [volumeMount('v'), bindMount('/srv'), volumeMount(anonymous)]) {
      expect(ingress(mount)).toEqual(blocked('ingress-persistent-mount'));
      expect(ingress(mount, [{ target: '/data', class: 'host-path', reason: 'r' }])).toEqual(nothing);
    }
    expect(ingress(volumeMount('v', '/data', { driver: 'x' }))).toEqual(blocked('driver-unclassified'));
    expect(ingress(bindMount('/srv', '/data', { readWrite: false }))).toEqual(nothing);
    expect(ingress(bindMount('', '/data', { type: 'tmpfs' }))).toEqual(nothing);
  });

  it('of any other class, of none, or outside Swarm makes nothing', () => {
    const mounts = [volumeMount('v'), volumeMount('w', '/w', { driver: 'x' }), volumeMount('x', '/x', { source: '' })];
    const services = [scopeService('out', { class: 'excluded' }), scopeService('relay', { class: 'coreflow' })];
    for (const each of [
      taskContainer('out', mounts),
      taskContainer('relay', mounts),
      taskContainer('q', mounts),
      container('c', { mounts }),
    ]) {
      const derived = derive({ containers: [each], services });
      expect([entriesOf(derived), blockersOf(derived)]).toEqual([[], []]);
    }
  });

  it('is an entry with all that a handoff takes from it', () => {
    const named = volumeMount('v');
    const nameless = volumeMount(anonymous, '/b');
    const bind = bindMount('/srv', '/c');
    const { entries } = derive({ containers: [taskContainer('a', [named, nameless, bind])] });
    const expected = [named, nameless, bind].map((mount) => requiredEntry('a', mount));
    expect(entries).toEqual(expected.sort((left, right) => (left.handoffId < right.handoffId ? -1 : 1)));
    expect(expected.map((each) => [each.volumeName, each.anonymous])).toEqual(
      expect.arrayContaining([
        ['v', false],
        [anonymous, true],
        [null, false],
      ]),
    );
  });
});

describe('one key or two (invariants 1 and 2)', () => {
  it('counts every container, running or not', () => {
    const states = ['created', 'running', 'paused', 'restarting', 'removing', 'exited', 'dead'] as const;
    const containers = states.map((state, index) =>
      taskContainer('a', [volumeMount(`v${index}`)], { ordinal: index + 1, state }),
    );
    expect(derive({ containers }).entries).toHaveLength(states.length);
  });

  it('is one for the same mount of two tasks of a service', () => {
    const containers = [1, 2].map((ordinal) => taskContainer('a', [volumeMount('v')], { ordinal }));
    const derived = derive({ containers });
    expect([entriesOf(derived), blockersOf(derived)]).toEqual([[`sv-a ${volumeSource('v')} /data`], []]);
  });

  it('is two for the same volume name on two nodes', () => {
    const containers = [taskContainer('a', [volumeMount('v')])];
    const ids = ['node-1', 'node-2'].map((nodeId) =>
      derive({ containers, nodeId }).entries.map((each) => each.handoffId),
    );
    expect(ids.flat()).toHaveLength(2);
    expect(ids[0]).not.toEqual(ids[1]);
  });

  it('is two for two targets, two spellings and two services, which then overlap', () => {
    const twoTargets = derive({ containers: [taskContainer('a', [volumeMount('v', '/x'), volumeMount('v', '/y')])] });
    expect(blockersOf(twoTargets)).toEqual(['overlap-keys a /x [sv-a /y]', 'overlap-keys a /y [sv-a /x]']);
    const spellings = derive({
      containers: [
        taskContainer('a', [bindMount('/srv/')], { ordinal: 1 }),
        taskContainer('a', [bindMount('/srv')], { ordinal: 2 }),
      ],
    });
    expect(spellings.entries).toHaveLength(2);
    expect(spellings.blockers).toHaveLength(2);
  });

  it('puts entries in the order of their ids', () => {
    const mounts = Array.from({ length: 20 }, (_, index) => volumeMount(`v${index}`, `/d${index}`));
    const ids = derive({ containers: [taskContainer('a', mounts)] }).entries.map((each) => each.handoffId);
    expect(ids).toEqual([...ids].sort());
  });
});

describe('an entry that was required before (invariant 3)', () => {
  const previous = [requiredEntry('a', volumeMount('v'))];
  const services = [scopeService('a')];
  const kept = [`sv-a ${volumeSource('v')} /data`];

  it('stays when its container, its volume, its tasks and the snapshot are gone', () => {
    expect(entriesOf(derive({ previous, services }))).toEqual(kept);
    const unseen = deriveNode(nodeFacts({ previous, scope: scope({ services }), snapshot: null, swarmState: null }));
    expect(entriesOf(unseen)).toEqual(kept);
  });

  it('is the same entry when the container is back', () => {
    const derived = derive({ previous, services, containers: [taskContainer('a', [volumeMount('v')])] });
    expect(derived.entries).toEqual(previous);
  });

  it('leaves by name, also while its container is there', () => {
    const statement = { releasedEntries: [entryKey(previous[0]!)] };
    expect(entriesOf(derive({ previous, services, statement }))).toEqual([]);
    const containers = [taskContainer('a', [volumeMount('v')])];
    expect(entriesOf(derive({ previous, containers, statement }))).toEqual([]);
    const elsewhere = { releasedEntries: [{ ...entryKey(previous[0]!), nodeId: 'node-2' }] };
    expect(entriesOf(derive({ previous, services, statement: elsewhere }))).toEqual(kept);
  });

  it.each([
    ['another class of the service', [scopeService('a', { class: 'excluded' })]],
    ['ingress', [scopeService('a', { class: 'ingress' })]],
    ['another owner', [scopeService('a', { serviceId: 'sv-z' })]],
    ['no word about the service', []],
    ['ephemeral', [scopeService('a', { mounts: [{ target: '/data', class: 'ephemeral', reason: 'r' }] })]],
    ['external', [scopeService('a', { mounts: [{ target: '/data', class: 'external', reason: 'r' }] })]],
    ['host-path', [scopeService('a', { mounts: [{ target: '/data', class: 'host-path', reason: 'r' }] })]],
  ])('leaves by reclassification: %s', (_name, changed) => {
    expect(entriesOf(derive({ previous, services: changed }))).toEqual([]);
  });

  it('stays under a class that makes no sense for what is written', () => {
    const shared = [scopeService('a', { mounts: [{ target: '/data', class: 'shared-read-only', reason: 'r' }] })];
    expect(entriesOf(derive({ previous, services: shared }))).toEqual(kept);
  });

  it('moves to the container’s new swarm service where the old one is given up', () => {
    const successor = [scopeService('a', { class: 'excluded' }), scopeService('b', { serviceId: 'sv-a' })];
    const { entries } = derive({ previous, services: successor, containers: [taskContainer('b', [volumeMount('v')])] });
    expect(entries).toEqual([{ ...previous[0], swarmServiceId: 'b' }]);
  });

  it('takes part in overlaps with its source, and with the directory that its volume is', () => {
    const other = container('c', { mounts: [bindMount(`${volumeSource('v')}/sub`, '/peek')] });
    expect(blockersOf(derive({ previous, services, containers: [other] }))).toEqual([
      'overlap-container c /peek [sv-a /data]',
    ]);
    const bound = deriveNode(
      nodeFacts({
        previous,
        scope: scope({ services }),
        snapshot: localSnapshot({
          containers: [container('c', { mounts: [bindMount('/srv/v', '/peek')] })],
          volumes: [volume('v', { options: driverOptions({ type: 'none', bindDevice: '/srv/v/' }) })],
        }),
      }),
    );
    expect(blockersOf(bound)).toEqual(['overlap-container c /peek [sv-a /data]']);
  });
});

describe('anonymous volumes', () => {
  const old = requiredEntry('a', volumeMount(anonymous));
  const named = requiredEntry('a', volumeMount('v', '/named'));
  const statement = { releasedAnonymousVolumes: [{ serviceId: 'sv-a', reason: 'r' }] };
  const services = [scopeService('a')];
  const mount = volumeMount(anonymous);
  const volumesOf = (given: Given) => derive({ services, statement, ...given }).entries.map((each) => each.volumeName);

  it('leave as a whole where they are old; named ones stay', () => {
    expect(volumesOf({ previous: [old, named] })).toEqual(['v']);
    expect(volumesOf({ previous: [old, named], statement: {} }).sort()).toEqual([anonymous, 'v']);
    expect(
      volumesOf({ previous: [old], statement: { releasedAnonymousVolumes: [{ serviceId: 'sv-z', reason: 'r' }] } }),
    ).toEqual([anonymous]);
  });

  it('leave when only finished tasks’ containers mount them', () => {
    const containers = [taskContainer('a', [mount], { state: 'exited' })];
    for (const state of ['complete', 'shutdown', 'failed'] as const) {
      expect(volumesOf({ containers, tasks: [nodeTask('a', { state })] })).toEqual([]);
    }
  });

  it('stay while a task that is not finished mounts them', () => {
    const containers = [taskContainer('a', [mount], { state: 'exited' })];
    for (const state of ['ready', 'starting', 'running'] as const) {
      expect(volumesOf({ containers, tasks: [nodeTask('a', { state })] })).toEqual([anonymous]);
    }
  });

  it('stay while a container of a task mounts them that the manager snapshot does not know yet', () => {
    expect(volumesOf({ containers: [taskContainer('a', [mount])], tasks: [] })).toEqual([anonymous]);
  });

  it('stay while their container runs, whatever the manager says of its task', () => {
    const containers = [taskContainer('a', [mount], { state: 'running' })];
    expect(volumesOf({ containers, tasks: [nodeTask('a', { state: 'shutdown' })] })).toEqual([anonymous]);
  });

  it('are none where the service’s spec names them', () => {
    const naming = (...mounts: IObservedSpecMount[]) =>
      volumesOf({ previous: [old], specMounts: new Map([['a', mounts]]) });
    expect(naming(specMount(anonymous, '/elsewhere'))).toEqual([anonymous]);
    expect(naming(specMount(null), specMount('v'), specMount(anonymous, '/bind', { type: 'bind' }))).toEqual([]);
    expect(volumesOf({ previous: [old], specMounts: new Map([['b', [specMount(anonymous)]]]) })).toEqual([]);
  });
});

describe('what a gate must know of volumes', () => {
  const containers = [taskContainer('a', [volumeMount(anonymous), volumeMount('v', '/named')])];
  const [entry, named] = containers[0]!.mounts.map((mount) => requiredEntry('a', mount)) as [
    RequiredEntry,
    RequiredEntry,
  ];
  const judged = (given: Given) => {
    const { unkept, vanished } = derive({ containers, volumes: [anonymous, 'v'], ...given }).gate.volumes;
    return [unkept.map((each) => each.volumeName), vanished.map((each) => each.volumeName)];
  };

  it('are those that go with their service, and those that are gone', () => {
    expect(judged({})).toEqual([[anonymous], []]);
    expect(judged({ containers: [...containers, container('k', { mounts: [volumeMount(anonymous)] })] })).toEqual([
      [],
      [],
    ]);
    expect(judged({ volumes: [anonymous] })).toEqual([[anonymous], ['v']]);
    const services = [scopeService('a')];
    expect(judged({ containers: [], services, previous: [entry, named], volumes: ['v'] })).toEqual([[], [anonymous]]);
  });

  it('are no matter where the entry is released, classed or written off', () => {
    expect(judged({ statement: { releasedEntries: [entryKey(entry)] } })).toEqual([[], []]);
    const mounts = [{ target: '/data', class: 'ephemeral' as const, reason: 'r' }];
    expect(judged({ services: [scopeService('a', { mounts })], volumes: ['v'] })).toEqual([[], []]);
    const prepared = new Set([entry.handoffId, named.handoffId]);
    const lost = (ids: RequiredEntry[], node = false) => ({
      prepared,
      writtenOff: { node, entries: new Set(ids.map((each) => each.handoffId)) },
      previous: [entry, named],
      volumes: [],
    });
    expect(judged(lost([entry]))).toEqual([[], ['v']]);
    expect(judged(lost([entry, named]))).toEqual([[], []]);
    expect(derive({ containers, ...lost([entry, named]) }).entries).toHaveLength(2);
    expect(judged(lost([], true))).toEqual([[], []]);
  });
});

describe('overlaps (invariant 4)', () => {
  const a = (...mounts: IObservedContainerMount[]) => taskContainer('a', mounts);
  const b = (...mounts: IObservedContainerMount[]) => taskContainer('b', mounts);

  it.each([
    ['equal', '/srv/x', '/srv/x'],
    ['equal but for the spelling', '/srv/x', '/srv/y/..//x/.'],
    ['nested', '/srv/x', '/srv/x/y/z'],
    ['nested the other way', '/srv/x/y/z', '/srv/x'],
    ['the root', '/', '/srv/x'],
  ])('block both keys of two services: %s', (_name, left, right) => {
    const derived = derive({ containers: [a(bindMount(left)), b(bindMount(right))] });
    expect(blockersOf(derived)).toEqual(['overlap-keys a /data [sv-b /data]', 'overlap-keys b /data [sv-a /data]']);
    expect(derived.entries).toHaveLength(2);
  });

  it('compare whole names', () => {
    const derived = derive({
      containers: [
        a(bindMount('/data')),
        b(bindMount('/database'), bindMount('/data-2', '/y'), bindMount('/dat', '/z')),
      ],
    });
    expect(blockersOf(derived)).toEqual([]);
  });

  it('block two keys of one service', () => {
    const derived = derive({ containers: [a(bindMount('/srv/x', '/x'), bindMount('/srv/x/y', '/y'))] });
    expect(blockersOf(derived)).toEqual(['overlap-keys a /x [sv-a /y]', 'overlap-keys a /y [sv-a /x]']);
  });

  it('do not block a key for another container of its own service', () => {
    const readOnly = volumeMount('v', '/again', { readWrite: false });
    const derived = derive({
      containers: [a(volumeMount('v'), readOnly, bindMount('/var/lib/docker', '/host', { readWrite: false }))],
    });
    expect([entriesOf(derived), blockersOf(derived)]).toEqual([[`sv-a ${volumeSource('v')} /data`], []]);
  });

  it.each([
    ['excluded', { class: 'excluded' }],
    ['coreflow', { class: 'coreflow' }],
    ['ingress, of a host path', { class: 'ingress', mounts: [{ target: '/data', class: 'host-path', reason: 'r' }] }],
    [
      'application, of a host path',
      { class: 'application', mounts: [{ target: '/data', class: 'host-path', reason: 'r' }] },
    ],
  ] as const)('block a key for a container of another service: %s', (_name, other) => {
    const services = [scopeService('a'), scopeService('b', other as Partial<IFleetCutoverScopeService>)];
    const derived = derive({ containers: [a(volumeMount('v')), b(bindMount('/var/lib/docker/volumes'))], services });
    expect(blockersOf(derived)).toEqual(['overlap-container b /data [sv-a /data]']);
    expect(derived.blockers[0]?.record.containerName).toBeNull();
  });

  it('block a key for a container of an unclassified service, or of none, running or not', () => {
    const services = [scopeService('a')];
    const outside = container('backup', {
      state: 'exited',
      mounts: [volumeMount('v', '/backup', { readWrite: false })],
    });
    const derived = derive({
      containers: [a(volumeMount('v')), taskContainer('q', [volumeMount('v', '/q')]), outside],
      services,
    });
    expect(blockersOf(derived)).toEqual([
      'overlap-container backup /backup [sv-a /data]',
      'overlap-container q /q [sv-a /data]',
    ]);
  });

  it('count a read-only mount, which makes no entry', () => {
    const derived = derive({ containers: [a(volumeMount('v')), b(volumeMount('v', '/ro', { readWrite: false }))] });
    expect(entriesOf(derived)).toEqual([`sv-a ${volumeSource('v')} /data`]);
    expect(blockersOf(derived)).toEqual(['overlap-container b /ro [sv-a /data]']);
  });

  it('compare the directory that a volume is as a second source', () => {
    const derived = derive({
      containers: [a(boundVolumeMount('v', '/srv/v/')), b(bindMount('/srv', '/all', { readWrite: false }))],
    });
    expect(blockersOf(derived)).toEqual(['overlap-container b /all [sv-a /data]']);
    const twoNames = derive({ containers: [a(boundVolumeMount('v', '/srv/v')), b(boundVolumeMount('w', '/srv/v'))] });
    expect(blockersOf(twoNames)).toEqual(['overlap-keys a /data [sv-b /data]', 'overlap-keys b /data [sv-a /data]']);
    const outside = container('c', { mounts: [boundVolumeMount('w', '/srv/v/sub', '/c')] });
    expect(blockersOf(derive({ containers: [a(boundVolumeMount('v', '/srv/v')), outside] }))).toEqual([
      'overlap-container c /c [sv-a /data]',
    ]);
  });

  it.each(['external', 'ephemeral'] as const)('leave out mounts classed %s, empty sources and tmpfs', (kind) => {
    const services = [
      scopeService('a'),
      scopeService('b', { mounts: [{ target: '/data', class: kind, reason: 'r' }] }),
    ];
    const others = [
      b(bindMount('/srv/x'), bindMount('', '/tmp', { type: 'tmpfs' })),
      container('c', { mounts: [bindMount(''), volumeMount('v', '/v', { source: '' })] }),
    ];
    const derived = derive({ containers: [a(bindMount('/srv/x'), bindMount('/', '/root')), ...others], services });
    expect(blockersOf(derived)).toEqual(['overlap-keys a /data [sv-a /root]', 'overlap-keys a /root [sv-a /data]']);
  });

  it('say each thing once, whatever number of tasks says it', () => {
    const containers = [1, 2, 3].flatMap((ordinal) => [
      taskContainer('a', [volumeMount('v')], { ordinal }),
      taskContainer('b', [volumeMount('v', '/ro', { readWrite: false })], { ordinal }),
    ]);
    expect(derive({ containers }).blockers).toHaveLength(1);
  });

  describe('an owner that is named', () => {
    const outer = bindMount('/srv/x', '/outer');
    const inner = bindMount('/srv/x/y', '/inner');
    const owner = (...entries: ReturnType<typeof requiredEntry>[]) => ({
      overlapOwners: entries.map((each) => entryKey(each)),
    });

    it('removes the keys that overlap it, the blockers with them', () => {
      const containers = [a(outer), b(inner)];
      const outerOwns = derive({ containers, statement: owner(requiredEntry('a', outer)) });
      expect([entriesOf(outerOwns), blockersOf(outerOwns)]).toEqual([['sv-a /srv/x /outer'], []]);
      const innerOwns = derive({ containers, statement: owner(requiredEntry('b', inner)) });
      expect([entriesOf(innerOwns), blockersOf(innerOwns)]).toEqual([['sv-b /srv/x/y /inner'], []]);
    });

    it('removes keys that were required before, with or without a container', () => {
      const previous = [requiredEntry('a', outer), requiredEntry('b', inner)];
      const services = [scopeService('a'), scopeService('b')];
      const statement = owner(requiredEntry('a', outer));
      expect(entriesOf(derive({ previous, services, statement }))).toEqual(['sv-a /srv/x /outer']);
    });

    it('removes a key without a container that is the same host directory, and it is then nobody’s obstacle', () => {
      const lost = requiredEntry('b', volumeMount('w', '/lost'));
      const snapshot = localSnapshot({
        containers: [a(boundVolumeMount('v', '/srv/v')), taskContainer('c', [bindMount('/srv/v/sub', '/third')])],
        volumes: [volume('w', { options: driverOptions({ type: 'none', bindDevice: '/srv/v' }) })],
      });
      const services = ['a', 'b', 'c'].map((id) => scopeService(id));
      const derived = (overlapOwners: ReturnType<typeof entryKey>[]) =>
        deriveNode(nodeFacts({ snapshot, previous: [lost], scope: scope({ services, overlapOwners }) }));
      expect(derived([]).entries).toHaveLength(3);
      const owned = derived([entryKey(requiredEntry('a', volumeMount('v')))]);
      expect([entriesOf(owned), blockersOf(owned)]).toEqual([[`sv-a ${volumeSource('v')} /data`], []]);
    });

    it('does not own what overlaps the removed key only', () => {
      const third = bindMount('/srv/x/z', '/third');
      const derived = derive({
        containers: [a(outer), b(inner), taskContainer('c', [third])],
        statement: owner(requiredEntry('b', inner)),
      });
      expect(entriesOf(derived)).toEqual(['sv-b /srv/x/y /inner', 'sv-c /srv/x/z /third']);
      // The loser's container still mounts what holds the third key's source, and nobody settled that.
      expect(blockersOf(derived)).toEqual(['overlap-container a /outer [sv-c /third]']);
    });

    it('settles nothing about another mount of the loser on the same place, in whichever order they are found', () => {
      const written = taskContainer('b', [bindMount('/srv/x', '/data')], { ordinal: 1 });
      const read = taskContainer('b', [bindMount('/srv/x', '/data', { readWrite: false })], { ordinal: 2 });
      for (const others of [
        [written, read],
        [read, written],
      ]) {
        const derived = derive({ containers: [a(outer), ...others], statement: owner(requiredEntry('a', outer)) });
        expect([entriesOf(derived), blockersOf(derived)]).toEqual([
          ['sv-a /srv/x /outer'],
          ['overlap-container b /data [sv-a /outer]'],
        ]);
      }
    });

    it('settles nothing between two owners, on another node, or of a key that is not there', () => {
      const containers = [a(outer), b(inner)];
      const settled = (statement: Partial<IFleetCutoverScopeStatement>) =>
        derive({ containers, statement }).blockers.length;
      expect(settled(owner(requiredEntry('a', outer), requiredEntry('b', inner)))).toBe(2);
      expect(settled({ overlapOwners: [{ ...entryKey(requiredEntry('a', outer)), nodeId: 'node-2' }] })).toBe(2);
      expect(settled(owner(requiredEntry('a', bindMount('/srv/w', '/outer'))))).toBe(2);
    });

    it('is still blocked by containers without a key', () => {
      const outside = container('c', { mounts: [bindMount('/srv', '/all')] });
      const derived = derive({
        containers: [a(outer), b(inner), outside],
        statement: owner(requiredEntry('a', outer)),
      });
      expect(blockersOf(derived)).toEqual(['overlap-container c /all [sv-a /outer]']);
    });
  });

  describe('a confirmation', () => {
    const confirm = (
      mounter: IFleetCutoverScopeStatement['overlapConfirmations'][number]['mounter'],
      target: string,
      nodeId = testNodeId,
    ) => ({
      overlapConfirmations: [{ nodeId, mounter, target, reason: 'r' }],
    });
    const all = bindMount('/var/lib/docker/volumes', '/all');

    it('of a service covers all keys under its mount', () => {
      const services = [scopeService('a'), scopeService('c'), scopeService('b', { class: 'excluded' })];
      const containers = [a(volumeMount('v')), taskContainer('c', [volumeMount('w')]), b(all)];
      const with_ = (statement: Partial<IFleetCutoverScopeStatement>) =>
        blockersOf(derive({ containers, services, statement }));
      const mounter = { kind: 'service', swarmServiceId: 'b' } as const;
      expect(with_({})).toHaveLength(2);
      expect(with_(confirm(mounter, '/all'))).toEqual([]);
      expect(with_(confirm(mounter, '/other'))).toHaveLength(2);
      expect(with_(confirm(mounter, '/all', 'node-2'))).toHaveLength(2);
      expect(with_(confirm({ kind: 'container', name: 'b.1' }, '/all'))).toHaveLength(2);
    });

    it('of a container outside Swarm names the container', () => {
      const containers = [a(volumeMount('v')), container('backup', { mounts: [all] })];
      const with_ = (statement: Partial<IFleetCutoverScopeStatement>) => blockersOf(derive({ containers, statement }));
      expect(with_(confirm({ kind: 'container', name: 'backup' }, '/all'))).toEqual([]);
      expect(with_(confirm({ kind: 'container', name: 'other' }, '/all'))).toHaveLength(1);
      expect(with_(confirm({ kind: 'service', swarmServiceId: 'backup' }, '/all'))).toHaveLength(1);
    });

    it('does not settle two keys', () => {
      const containers = [a(volumeMount('v')), b(volumeMount('v', '/b'))];
      const derived = derive({ containers, statement: confirm({ kind: 'service', swarmServiceId: 'b' }, '/b') });
      expect(blockersOf(derived)).toHaveLength(2);
    });
  });
});

describe('read-only volumes', () => {
  const readOnly = (name: string, target = '/ro') => volumeMount(name, target, { readWrite: false });
  const uncovered = (given: Given) =>
    blockersOf(derive(given)).filter((each) => each.startsWith('read-only-uncovered'));

  it('are covered by a key on their source, above it, or on the directory that they are', () => {
    const a = (...mounts: IObservedContainerMount[]) => ({ containers: [taskContainer('a', mounts)] });
    expect(uncovered(a(volumeMount('v'), readOnly('v')))).toEqual([]);
    expect(uncovered(a(bindMount('/var/lib/docker/'), readOnly('v')))).toEqual([]);
    expect(uncovered(a(bindMount('/'), readOnly('v')))).toEqual([]);
    const sameDirectory = { ...boundVolumeMount('w', '/srv/x', '/ro'), readWrite: false };
    expect(uncovered(a(boundVolumeMount('v', '/srv'), sameDirectory))).toEqual([]);
    expect(uncovered(a(volumeMount('v'), readOnly('v2')))).toEqual(['read-only-uncovered a /ro']);
    expect(uncovered(a(bindMount(`${volumeSource('v')}/sub`), readOnly('v')))).toEqual(['read-only-uncovered a /ro']);
  });

  it('are covered by a key whose container is gone, not by one that left', () => {
    const previous = [requiredEntry('b', volumeMount('v'))];
    const containers = [taskContainer('a', [readOnly('v')])];
    const services = [scopeService('a'), scopeService('b')];
    expect(uncovered({ containers, services, previous })).toEqual([]);
    expect(
      uncovered({ containers, services, previous, statement: { releasedEntries: [entryKey(previous[0]!)] } }),
    ).toEqual(['read-only-uncovered a /ro']);
  });

  it('are confirmed like an overlap, or classed', () => {
    const containers = [taskContainer('a', [readOnly('v')])];
    const mounter = { kind: 'service', swarmServiceId: 'a' } as const;
    const statement = { overlapConfirmations: [{ nodeId: testNodeId, mounter, target: '/ro', reason: 'r' }] };
    expect(uncovered({ containers, statement })).toEqual([]);
    const classed = scopeService('a', { mounts: [{ target: '/ro', class: 'shared-read-only', reason: 'r' }] });
    expect(uncovered({ containers, services: [classed] })).toEqual([]);
  });

  it('of nobody’s interest are left alone', () => {
    const services = [scopeService('x', { class: 'excluded' }), scopeService('i', { class: 'ingress' })];
    const containers = [
      taskContainer('x', [readOnly('v')]),
      taskContainer('i', [readOnly('v')]),
      container('c', { mounts: [readOnly('v')] }),
    ];
    expect(blockersOf(derive({ containers, services }))).toEqual([]);
  });
});

describe('volumes that no container mounts', () => {
  const services = [scopeService('a')];
  const specMounts = new Map([['a', [specMount('redis-{{.Task.Slot}}'), specMount('plain', '/plain')]]]);

  it('block where an application’s spec names them', () => {
    const derived = derive({ services, specMounts, volumes: ['redis-1', 'redis-2', 'plain', 'orphan'] });
    expect(
      derived.blockers.map(({ record }) => [record.code, record.swarmServiceId, record.target, record.volumeName]),
    ).toEqual([
      ['volume-unmounted', 'a', '/data', 'redis-1'],
      ['volume-unmounted', 'a', '/data', 'redis-2'],
      ['volume-unmounted', 'a', '/plain', 'plain'],
    ]);
  });

  it('do not where a container mounts them, an entry has them, or they are stated dormant', () => {
    const volumes = ['redis-1', 'redis-2', 'plain'];
    const given = {
      services,
      specMounts,
      volumes,
      containers: [container('c', { state: 'exited', mounts: [volumeMount('redis-1')] })],
      previous: [requiredEntry('a', volumeMount('redis-2'))],
      statement: { dormantVolumes: [{ nodeId: testNodeId, volumeName: 'plain', reason: 'r' }] },
    };
    expect(blockersOf(derive(given))).toEqual([]);
    const elsewhere = { dormantVolumes: [{ nodeId: 'node-2', volumeName: 'plain', reason: 'r' }] };
    expect(blockersOf(derive({ ...given, statement: elsewhere }))).toEqual(['volume-unmounted a /plain']);
  });

  it.each([
    ['a classed mount', [scopeService('a', { mounts: [{ target: '/plain', class: 'external', reason: 'r' }] })]],
    ['another class of service', [scopeService('a', { class: 'excluded' })]],
    ['no word about the service', []],
  ])('do not for %s', (_name, changed) => {
    expect(blockersOf(derive({ services: changed, specMounts, volumes: ['plain'] }))).toEqual([]);
  });

  it('are nothing that a bind or an anonymous volume of a spec could be', () => {
    const mounts = new Map([['a', [specMount(null), specMount('plain', '/b', { type: 'bind' })]]]);
    expect(blockersOf(derive({ services, specMounts: mounts, volumes: ['plain', anonymous] }))).toEqual([]);
  });
});

describe('what cannot be read, told or placed (invariant 5)', () => {
  it('a target node without a snapshot', () => {
    const codes = (over: Partial<NodeFacts>) => blockersOf(deriveNode(nodeFacts({ snapshot: null, ...over })));
    expect(codes({})).toEqual(['node-unobserved']);
    expect(codes({ scope: null })).toEqual(['node-unobserved']);
    expect(codes({ targeted: false })).toEqual([]);
  });

  it.each(['engine-unreachable', 'engine-error', 'inconsistent', 'timeout', 'truncated'])(
    'a newer incomplete snapshot: %s',
    (incomplete) => {
      const containers = [taskContainer('a', [volumeMount('v')])];
      const derived = derive({ containers, incomplete });
      expect([entriesOf(derived).length, blockersOf(derived)]).toEqual([1, ['snapshot-incomplete']]);
      expect(derived.blockers[0]?.record.detail).toContain(incomplete);
      expect(blockersOf(deriveNode(nodeFacts({ incomplete, scope: null })))).toEqual(['snapshot-incomplete']);
    },
  );

  it('mounts beyond the 32nd, of whichever container', () => {
    const many = { mountsBeyond: 3 };
    const containers = [taskContainer('a', [], many), container('c', many), taskContainer('x', [], many)];
    expect(blockersOf(derive({ containers, services: [scopeService('a')] }))).toEqual([
      'mount-limit a',
      'mount-limit c',
      'mount-limit x',
    ]);
  });

  it('entries on a node outside the target set', () => {
    const containers = [taskContainer('a', [volumeMount('v')])];
    expect(blockersOf(derive({ containers, targeted: false }))).toEqual(['node-not-targeted']);
    expect(blockersOf(derive({ containers: [], targeted: false }))).toEqual([]);
  });

  it('an entry whose destination no request can name', () => {
    const targets = ['C:\\data', 'data', '/a/../b', '/a/./b', '/a//b', '/a/', '/', ''];
    for (const target of targets) {
      const derived = derive({ containers: [taskContainer('a', [volumeMount('v', target)])] });
      expect(derived.entries).toHaveLength(1);
      expect(derived.blockers.map(({ record, handoffId }) => [record.code, record.target, handoffId])).toEqual([
        ['target-invalid', target, derived.entries[0]?.handoffId],
      ]);
    }
    for (const target of ['/a', '/a/b c', '/..a', '/a...', '/ä/😀']) {
      expect(derive({ containers: [taskContainer('a', [volumeMount('v', target)])] }).blockers).toEqual([]);
    }
  });

  it('tasks that cannot be judged, unless their service is excluded', () => {
    const tasks = ['a', 'x', 'q'].map((service) => nodeTask(service));
    const services = [scopeService('a'), scopeService('x', { class: 'excluded' })];
    const derived = derive({ tasks, services });
    expect(blockersOf(derived)).toEqual(['task-unknown a.1', 'task-unknown q.1']);
    expect(derived.verdicts.map((each) => [each.nodeId, each.verdict, each.reason])).toEqual(
      tasks.map(() => [testNodeId, 'unknown', 'container-not-found']),
    );
  });

  it('nothing where all tasks can be judged', () => {
    const tasks = [
      nodeTask('a'),
      nodeTask('a', { ordinal: 2, state: 'failed' }),
      nodeTask('a', { ordinal: 3, state: 'rejected', containerId: null }),
    ];
    const containers = [taskContainer('a', []), taskContainer('a', [], { ordinal: 2, state: 'exited' })];
    const derived = derive({ tasks, containers });
    expect(derived.verdicts.map((each) => each.verdict)).toEqual(['live', 'stopped', 'not-started']);
    expect(derived.blockers).toEqual([]);
  });

  it('joins containers and tasks by the task’s label alone', () => {
    const stranger = taskContainer('a', [], { swarmTaskId: 'other' });
    expect(
      derive({ tasks: [nodeTask('a')], containers: [stranger], services: [scopeService('a')] }).verdicts[0]?.reason,
    ).toBe('container-not-found');
    const relabelled = taskContainer('b', [], { swarmTaskId: 'a.1' });
    expect(
      derive({ tasks: [nodeTask('a')], containers: [relabelled], services: [scopeService('a')] }).verdicts[0]?.verdict,
    ).toBe('live');
  });

  it('derives no entry without a scope, and judges tasks nevertheless', () => {
    const snapshot = localSnapshot({ containers: [taskContainer('a', [volumeMount('v')])] });
    const derived = deriveNode(nodeFacts({ scope: null, snapshot, tasks: [nodeTask('a')] }));
    expect([derived.entries, derived.blockers, derived.verdicts.map((each) => each.verdict)]).toEqual([
      [],
      [],
      ['live'],
    ]);
  });
});

describe('blockers', () => {
  it('have an id of their content, stable over a service’s changing containers', () => {
    const ids = (name: string, detail: string) =>
      derive({ containers: [taskContainer('a', [volumeMount('v', detail, { driver: 'x' })], { name })] }).blockers.map(
        (each) => each.record.id,
      );
    expect(ids('a.1.x', '/data')).toEqual(ids('a.1.y', '/data'));
    expect(ids('a.1.x', '/data')).not.toEqual(ids('a.1.x', '/data2'));
  });

  it('stay well-formed text of the contract’s length, however long names are and wherever they are cut', () => {
    for (const padding of ['', 'x']) {
      const target = `/${padding}${'😀'.repeat(1000)}`;
      const containers = [taskContainer('a', [volumeMount('v', target)]), taskContainer('b', [volumeMount('v', '/b')])];
      const details = derive({ containers }).blockers.map((each) => each.record.detail);
      expect(details.every((detail) => isWellFormed(detail) && detail.length <= 1024)).toBe(true);
      expect(Math.max(...details.map((detail) => detail.length))).toBeGreaterThan(1000);
    }
  });

  it('name the entry that they block', () => {
    const { blockers, entries } = derive({
      containers: [taskContainer('a', [volumeMount('v')]), container('c', { mounts: [volumeMount('v')] })],
    });
    expect(blockers).toHaveLength(1);
    const { nodeId, serviceId, mountIdentityDigest, handoffId } = entries[0]!;
    expect(blockers[0]).toMatchObject({ handoffId, record: { entry: { nodeId, serviceId, mountIdentityDigest } } });
  });
});
