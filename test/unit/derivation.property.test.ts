/**
 * The derivation against a second one, written from the rules alone: every pair of mounts is looked at, paths are lists of
 * names, keys are their own text. It shares nothing with the first but the shapes of its input.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  containerStates,
  type IObservedContainer,
  type IObservedContainerMount,
  swarmTaskStates,
} from '../../src/contract/observation.js';
import { mountClasses, serviceClasses } from '../../src/contract/scope.js';
import { deriveNode, type NodeDerivation, type NodeFacts } from '../../src/features/volume-handoff/derive-node.js';
import {
  bindMount,
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
  testNodeId,
  volume,
  volumeMount,
  volumeSource,
} from '../support/snapshots.js';

// The second derivation ---------------------------------------------------------------------------------------------

interface Key {
  readonly name: string;
  readonly serviceId: string;
  readonly swarmServiceId: string;
  readonly target: string;
  readonly volumeName: string | null;
  readonly mountIdentityDigest: string;
  readonly paths: string[][];
}

interface Mounted {
  readonly container: IObservedContainer;
  readonly mount: IObservedContainerMount;
  readonly paths: string[][];
  /** The key that it makes or would make. */
  readonly key: string | null;
}

function segments(path: string): string[] {
  let result: string[] = [];
  for (const name of path.split('/')) {
    if (name === '..') result = result.slice(0, -1);
    else if (name !== '' && name !== '.') result = [...result, name];
  }
  return result;
}
const contains = (outer: string[], inner: string[]) => outer.every((name, index) => inner[index] === name);
const touches = (left: string[][], right: string[][]) =>
  left.some((one) => right.some((other) => contains(one, other) || contains(other, one)));
const pathsOf = (source: string, device: string | null | undefined) =>
  [source, device].filter((path) => path !== undefined && path !== null && path !== '').map((path) => segments(path!));

interface Expected {
  readonly keys: string[];
  readonly blockers: string[];
  readonly verdicts: string[];
}

function blocker(
  code: string,
  about: Partial<Record<'service' | 'task' | 'container' | 'target' | 'volume' | 'key', string | null>>,
) {
  return [code, about.service, about.task, about.container, about.target, about.volume, about.key]
    .map((each) => each ?? '-')
    .join(' | ');
}

function expectedOf(facts: NodeFacts): Expected {
  const { snapshot } = facts;
  const verdicts = facts.tasks.map((task) => `${task.swarmTaskId} ${expectedVerdict(facts, task)}`);
  const blockers = new Set<string>();
  if (snapshot === null && facts.targeted) blockers.add(blocker('node-unobserved', {}));
  if (facts.incomplete !== null) blockers.add(blocker('snapshot-incomplete', {}));
  const statement = facts.scope;
  if (statement === null) return { keys: [], blockers: [...blockers], verdicts };

  const service = (id: string | null) => statement.services.find((each) => each.swarmServiceId === id);
  const classOf = (id: string | null, target: string) =>
    service(id)?.mounts.find((each) => each.target === target)?.class;
  const confirmed = (each: Mounted) =>
    statement.overlapConfirmations.some(({ nodeId, mounter, target }) => {
      if (nodeId !== facts.nodeId || target !== each.mount.destination) return false;
      if (each.container.swarmServiceId === null)
        return mounter.kind === 'container' && mounter.name === each.container.name;
      return mounter.kind === 'service' && mounter.swarmServiceId === each.container.swarmServiceId;
    });
  const names = (list: readonly { nodeId: string; serviceId: string; mountIdentityDigest: string }[], key: Key) =>
    list.some(
      (each) =>
        each.nodeId === facts.nodeId &&
        each.serviceId === key.serviceId &&
        each.mountIdentityDigest === key.mountIdentityDigest,
    );

  for (const task of facts.tasks) {
    const isUnknown = expectedVerdict(facts, task) === 'unknown';
    if (isUnknown && service(task.swarmServiceId)?.class !== 'excluded') {
      blockers.add(blocker('task-unknown', { service: task.swarmServiceId, task: task.swarmTaskId }));
    }
  }

  const keys = new Map<string, Key>();
  const addKey = (
    swarmServiceId: string,
    serviceId: string,
    source: string,
    mount: IObservedContainerMount,
    device: string | null | undefined,
  ) => {
    const name = [serviceId, source, mount.destination].join(' ');
    const { mountIdentityDigest } = requiredEntry(swarmServiceId, mount);
    const known = keys.get(name);
    const paths = [...(known?.paths ?? []), ...pathsOf(source, device)];
    keys.set(name, {
      name,
      serviceId,
      swarmServiceId,
      target: mount.destination,
      volumeName: mount.name,
      mountIdentityDigest,
      paths,
    });
    return name;
  };
  const mounted: Mounted[] = [];
  for (const each of snapshot?.containers ?? []) {
    const owner = service(each.swarmServiceId);
    if (each.mountsBeyond > 0)
      blockers.add(blocker('mount-limit', { service: each.swarmServiceId, container: each.name }));
    for (const mount of each.mounts) {
      if (['tmpfs', 'npipe', 'image'].includes(mount.type)) continue;
      const stated = classOf(each.swarmServiceId, mount.destination);
      if (stated === 'external' || stated === 'ephemeral') continue;
      const settled = stated !== undefined && !(stated === 'shared-read-only' && mount.readWrite);
      const remote =
        mount.type === 'cluster' ||
        (mount.type === 'volume' &&
          (mount.driver !== 'local' ||
            ['nfs', 'nfs4', 'cifs', 'smb3', 'smbfs', 'ceph', 'glusterfs', '9p', 'tmpfs'].includes(
              mount.options?.type ?? '',
            )));
      const about = { service: each.swarmServiceId, target: mount.destination };
      const application = owner?.class === 'application';
      const ingress = owner?.class === 'ingress';
      let key: string | null = null;
      if ((application || ingress) && !settled) {
        if (remote) blockers.add(blocker('driver-unclassified', about));
        else if (ingress && mount.readWrite) blockers.add(blocker('ingress-persistent-mount', about));
        else if (application && mount.source === '') blockers.add(blocker('source-empty', about));
        else if (application && mount.readWrite) {
          key = addKey(each.swarmServiceId!, owner.serviceId!, mount.source, mount, mount.options?.bindDevice);
        }
      }
      mounted.push({ container: each, mount, paths: pathsOf(mount.source, mount.options?.bindDevice), key });
    }
  }

  const observed = new Set(keys.keys());
  for (const entry of facts.previous) {
    const name = [entry.serviceId, entry.source, entry.mountPath].join(' ');
    if (observed.has(name)) continue;
    const owner = service(entry.swarmServiceId);
    const stated = classOf(entry.swarmServiceId, entry.mountPath);
    const settled = stated !== undefined && stated !== 'shared-read-only';
    if (owner?.class !== 'application' || owner.serviceId !== entry.serviceId || settled) continue;
    const device = snapshot?.volumes.find((each) => each.name === entry.volumeName)?.options?.bindDevice;
    const mount = { ...bindMount(entry.source, entry.mountPath), name: entry.volumeName };
    addKey(entry.swarmServiceId, entry.serviceId, entry.source, mount, device);
  }
  for (const key of [...keys.values()]) {
    const isAnonymous = key.volumeName !== null && /^[0-9a-f]{64}$/.test(key.volumeName);
    const old = (snapshot?.containers ?? []).every((each) => {
      if (each.swarmTaskId === null || !each.mounts.some((mount) => mount.name === key.volumeName)) return true;
      const task = facts.tasks.find((candidate) => candidate.swarmTaskId === each.swarmTaskId);
      const finished = task !== undefined && swarmTaskStates.indexOf(task.state) > swarmTaskStates.indexOf('running');
      return finished && !['running', 'paused', 'restarting'].includes(each.state);
    });
    const releasedAsOld =
      isAnonymous && old && statement.releasedAnonymousVolumes.some((each) => each.serviceId === key.serviceId);
    if (releasedAsOld || names(statement.releasedEntries, key)) keys.delete(key.name);
  }
  const yielded = new Set<string>();
  for (const loser of keys.values()) {
    for (const winner of keys.values()) {
      if (winner === loser || !touches(loser.paths, winner.paths)) continue;
      if (names(statement.overlapOwners, winner) && !names(statement.overlapOwners, loser)) yielded.add(loser.name);
    }
  }
  for (const name of yielded) keys.delete(name);

  for (const key of keys.values()) {
    if (key.target !== `/${segments(key.target).join('/')}`) {
      blockers.add(blocker('target-invalid', { service: key.swarmServiceId, target: key.target, key: key.name }));
    }
    for (const other of keys.values()) {
      if (other === key || !touches(key.paths, other.paths)) continue;
      blockers.add(blocker('overlap-keys', { service: other.swarmServiceId, target: other.target, key: key.name }));
    }
    for (const other of mounted) {
      if (other.key !== null && keys.has(other.key)) continue;
      if (other.container.swarmServiceId === key.swarmServiceId || !touches(key.paths, other.paths) || confirmed(other))
        continue;
      if (other.key !== null && yielded.has(other.key) && names(statement.overlapOwners, key)) continue;
      const { swarmServiceId, name } = other.container;
      const about = {
        service: swarmServiceId,
        container: swarmServiceId === null ? name : null,
        target: other.mount.destination,
      };
      blockers.add(blocker('overlap-container', { ...about, key: key.name }));
    }
  }
  for (const each of mounted) {
    const { mount, container: mounter } = each;
    const isPlain =
      mount.type === 'volume' && mount.driver === 'local' && !['nfs', 'tmpfs'].includes(mount.options?.type ?? '');
    const counts =
      isPlain && !mount.readWrite && mount.source !== '' && service(mounter.swarmServiceId)?.class === 'application';
    if (!counts || classOf(mounter.swarmServiceId, mount.destination) !== undefined || confirmed(each)) continue;
    const covered = [...keys.values()].some((key) =>
      key.paths.some((outer) => each.paths.some((inner) => contains(outer, inner))),
    );
    if (!covered)
      blockers.add(blocker('read-only-uncovered', { service: mounter.swarmServiceId, target: mount.destination }));
  }
  for (const each of snapshot?.volumes ?? []) {
    const isMounted = snapshot!.containers.some((one) => one.mounts.some((mount) => mount.name === each.name));
    const hasKey = [...keys.values()].some((key) => key.volumeName === each.name);
    const dormant = statement.dormantVolumes.some((one) => one.nodeId === facts.nodeId && one.volumeName === each.name);
    if (isMounted || hasKey || dormant) continue;
    for (const owner of statement.services.filter((one) => one.class === 'application')) {
      for (const mount of facts.specMounts.get(owner.swarmServiceId) ?? []) {
        if (
          mount.type !== 'volume' ||
          mount.source === null ||
          classOf(owner.swarmServiceId, mount.target) !== undefined
        )
          continue;
        const [head, tail] = mount.source.split('{{.Task.Slot}}');
        const matches =
          tail === undefined
            ? each.name === mount.source
            : each.name.startsWith(head!) && each.name.endsWith(tail) && each.name.length > head!.length + tail.length;
        if (matches)
          blockers.add(
            blocker('volume-unmounted', { service: owner.swarmServiceId, target: mount.target, volume: each.name }),
          );
      }
    }
  }
  if (keys.size > 0 && !facts.targeted) blockers.add(blocker('node-not-targeted', {}));
  return { keys: [...keys.keys()].sort(), blockers: [...blockers].sort(), verdicts };
}

function expectedVerdict(facts: NodeFacts, task: NodeFacts['tasks'][number]): string {
  const containers = (facts.snapshot?.containers ?? []).filter((each) => each.swarmTaskId === task.swarmTaskId);
  if (facts.snapshot === null || facts.swarmState !== 'ready') return 'unknown';
  switch (task.state) {
    case 'remove':
    case 'orphaned':
      return 'unknown';
    case 'complete':
    case 'shutdown':
    case 'failed':
    case 'rejected':
      if (containers.some((each) => ['running', 'paused', 'restarting'].includes(each.state))) return 'unknown';
      return containers.length === 0 && task.containerId === null ? 'not-started' : 'stopped';
    case 'ready':
    case 'starting':
    case 'running':
      return containers.length > 0 ? 'live' : 'unknown';
    case 'new':
    case 'pending':
    case 'assigned':
    case 'accepted':
    case 'preparing':
      if (containers.length > 0) return 'live';
      return task.containerId === null ? 'not-started' : 'unknown';
  }
}

// The first one, in the same words ----------------------------------------------------------------------------------

function inWords(derived: NodeDerivation): Expected {
  const nameOf = (entry: NodeDerivation['entries'][number]) =>
    [entry.serviceId, entry.source, entry.mountPath].join(' ');
  return {
    keys: derived.entries.map(nameOf).sort(),
    blockers: derived.blockers
      .map(({ record, handoffId }) => {
        const entry = derived.entries.find((each) => each.handoffId === handoffId);
        if ((handoffId === null) !== (entry === undefined))
          throw new Error('a blocker is about an entry that is not required');
        return blocker(record.code, {
          service: record.swarmServiceId,
          task: record.swarmTaskId,
          container: record.containerName,
          target: record.target,
          volume: record.volumeName,
          key: entry === undefined ? null : nameOf(entry),
        });
      })
      .filter((each, index, all) => all.indexOf(each) === index)
      .sort(),
    verdicts: derived.verdicts.map((each) => `${each.swarmTaskId} ${each.verdict}`),
  };
}

// Small worlds ------------------------------------------------------------------------------------------------------

const services = ['a', 'b', 'c'] as const;
const targets = ['/d1', '/d2', '/d3', '/d4/'] as const;
const anonymous = 'f'.repeat(64);
const volumeNames = ['v', 'w', 'v-1', anonymous] as const;
const directories = ['/srv', '/srv/x', '/srv/x/y', '/srvx', '/srv//x/', '/srv/z/../x', '/'] as const;
const binds = [...directories, '/var/lib/docker', `${volumeSource('v')}/`, `${volumeSource('v')}/sub`, ''] as const;

const options = fc.option(
  fc.record({
    type: fc.constantFrom(null, null, 'none', 'ext4', 'nfs', 'tmpfs'),
    bindDevice: fc.constantFrom(null, null, '', ...directories),
  }),
);
const mounts = fc.oneof(
  {
    weight: 3,
    arbitrary: fc
      .record({
        name: fc.constantFrom(...volumeNames),
        readWrite: fc.boolean(),
        driver: fc.constantFrom('local', 'local', 'local', 'plugin'),
        hasSource: fc.constantFrom(true, true, true, false),
        options,
      })
      .map(({ name, hasSource, options: reduced, ...rest }) =>
        volumeMount(name, '', {
          ...rest,
          ...(hasSource ? {} : { source: '' }),
          options: reduced === null ? null : driverOptions(reduced),
        }),
      ),
  },
  {
    weight: 3,
    arbitrary: fc
      .record({ source: fc.constantFrom(...binds), readWrite: fc.boolean() })
      .map(({ source, readWrite }) => bindMount(source, '', { readWrite })),
  },
  {
    weight: 1,
    arbitrary: fc
      .constantFrom('tmpfs', 'npipe', 'cluster', 'image')
      .map((type) => bindMount('', '', { type: type as 'tmpfs' })),
  },
);
const mountLists = fc
  .array(fc.record({ mount: mounts, destination: fc.constantFrom(...targets) }), { maxLength: 3 })
  .map((list) =>
    list.filter((each, index) => list.findIndex((other) => other.destination === each.destination) === index),
  )
  .map((list) => list.map(({ mount, destination }) => ({ ...mount, destination })));
const containers = fc.record({
  service: fc.constantFrom(null, ...services),
  ordinal: fc.constantFrom(1, 2),
  state: fc.constantFrom(...containerStates),
  mounts: mountLists,
  mountsBeyond: fc.constantFrom(0, 0, 0, 2),
});
const scopeServices = fc.record({
  class: fc.constantFrom('application', 'application', 'application', ...serviceClasses),
  mounts: fc.uniqueArray(
    fc.record({
      target: fc.constantFrom(...targets),
      class: fc.constantFrom(...mountClasses),
      reason: fc.constant('r'),
    }),
    {
      maxLength: 2,
      selector: (each) => each.target,
    },
  ),
});
const onNode = fc.constantFrom(testNodeId, testNodeId, testNodeId, 'node-2');

const worlds = fc
  .record({
    containers: fc.array(containers, { maxLength: 6 }),
    volumes: fc.uniqueArray(fc.record({ name: fc.constantFrom(...volumeNames), options }), {
      selector: (each) => each.name,
    }),
    scope: fc.record({ a: fc.option(scopeServices), b: fc.option(scopeServices), c: fc.option(scopeServices) }),
    previous: fc.array(fc.record({ service: fc.constantFrom(...services), mounts: mountLists }), { maxLength: 3 }),
    tasks: fc.array(
      fc.record({
        service: fc.constantFrom(...services),
        ordinal: fc.constantFrom(1, 2),
        state: fc.constantFrom(...swarmTaskStates),
        hasContainer: fc.boolean(),
      }),
      { maxLength: 4 },
    ),
    owners: fc.array(fc.nat(), { maxLength: 2 }),
    released: fc.array(fc.nat(), { maxLength: 2 }),
    keyNode: onNode,
    confirmations: fc.array(
      fc.record({
        nodeId: onNode,
        who: fc.constantFrom('a', 'b', 'c', '0', '1', '2'),
        target: fc.constantFrom(...targets),
      }),
      {
        maxLength: 2,
      },
    ),
    dormant: fc.array(
      fc.record({ nodeId: onNode, volumeName: fc.constantFrom(...volumeNames), reason: fc.constant('r') }),
      { maxLength: 1 },
    ),
    releasedAnonymous: fc.subarray([...services]),
    specMounts: fc.array(
      fc.record({
        service: fc.constantFrom(...services),
        source: fc.constantFrom('v', 'v-{{.Task.Slot}}', 'w', null),
        target: fc.constantFrom(...targets),
      }),
    ),
    noScope: fc.constantFrom(...Array<boolean>(15).fill(false), true),
    noSnapshot: fc.constantFrom(...Array<boolean>(15).fill(false), true),
    incomplete: fc.constantFrom(null, null, 'timeout'),
    targeted: fc.constantFrom(true, true, false),
    swarmState: fc.constantFrom('ready', 'ready', 'ready', 'down', null),
  })
  .map((world): NodeFacts => {
    const found = world.containers.map((each, index) =>
      container(String(index), {
        swarmServiceId: each.service,
        swarmTaskId: each.service === null ? null : `${each.service}.${each.ordinal}`,
        state: each.state,
        mounts: each.mounts,
        mountsBeyond: each.mountsBeyond,
      }),
    );
    const previous = world.previous.flatMap((each) =>
      each.mounts.filter((mount) => mount.source !== '').map((mount) => requiredEntry(each.service, mount)),
    );
    const candidates = [
      ...previous,
      ...found.flatMap((each) =>
        each.swarmServiceId === null ? [] : each.mounts.map((mount) => requiredEntry(each.swarmServiceId!, mount)),
      ),
    ];
    const picked = (indexes: readonly number[]) =>
      candidates.length === 0
        ? []
        : indexes.map((index) => ({ ...entryKey(candidates[index % candidates.length]!), nodeId: world.keyNode }));
    const stated = services.flatMap((id) => {
      const about = world.scope[id];
      return about === null ? [] : [scopeService(id, about)];
    });
    const unique = <T>(list: readonly T[], id: (item: T) => string) =>
      list.filter((each, index) => list.findIndex((other) => id(other) === id(each)) === index);
    return nodeFacts({
      snapshot: world.noSnapshot
        ? null
        : localSnapshot({
            containers: found,
            volumes: world.volumes.map((each) =>
              volume(each.name, { options: each.options === null ? null : driverOptions(each.options) }),
            ),
          }),
      scope: world.noScope
        ? null
        : scope({
            services: stated,
            overlapOwners: picked(world.owners),
            releasedEntries: picked(world.released),
            overlapConfirmations: world.confirmations.map(({ nodeId, who, target }) => ({
              nodeId,
              target,
              reason: 'r',
              mounter: /\d/.test(who) ? { kind: 'container', name: who } : { kind: 'service', swarmServiceId: who },
            })),
            dormantVolumes: world.dormant,
            releasedAnonymousVolumes: world.releasedAnonymous.map((id) => ({ serviceId: `sv-${id}`, reason: 'r' })),
          }),
      previous: unique(previous, (each) => each.handoffId),
      tasks: unique(
        world.tasks.map(({ service, ordinal, state, hasContainer }) =>
          nodeTask(service, { ordinal, state, ...(hasContainer ? {} : { containerId: null }) }),
        ),
        (each) => each.swarmTaskId,
      ),
      specMounts: new Map(
        services.map((id) => [
          id,
          world.specMounts.filter((each) => each.service === id).map((each) => specMount(each.source, each.target)),
        ]),
      ),
      incomplete: world.incomplete,
      targeted: world.targeted,
      swarmState: world.swarmState,
    });
  });

describe('the derivation of a node', () => {
  it('says what the rules say', () => {
    const seen = new Map<string, number>();
    fc.assert(
      fc.property(worlds, (facts) => {
        const derived = inWords(deriveNode(facts));
        const expected = expectedOf(facts);
        expect({ ...derived, blockers: derived.blockers }).toEqual({
          ...expected,
          blockers: [...expected.blockers].sort(),
        });
        for (const each of derived.blockers) seen.set(each.split(' ')[0]!, (seen.get(each.split(' ')[0]!) ?? 0) + 1);
      }),
      { numRuns: 1500 },
    );
    // The worlds are not so small that a rule is never met.
    expect([...seen.keys()].sort()).toEqual([
      'driver-unclassified',
      'ingress-persistent-mount',
      'mount-limit',
      'node-not-targeted',
      'node-unobserved',
      'overlap-container',
      'overlap-keys',
      'read-only-uncovered',
      'snapshot-incomplete',
      'source-empty',
      'target-invalid',
      'task-unknown',
      'volume-unmounted',
    ]);
  });

  it('does not depend on the order of what it is told', () => {
    fc.assert(
      fc.property(worlds, (facts) => {
        const backwards = <T>(list: readonly T[]) => [...list].reverse();
        const { snapshot, scope: stated } = facts;
        const other = deriveNode({
          ...facts,
          tasks: backwards(facts.tasks),
          previous: backwards(facts.previous),
          snapshot: snapshot && {
            ...snapshot,
            containers: backwards(snapshot.containers),
            volumes: backwards(snapshot.volumes),
          },
          scope: stated && {
            ...stated,
            services: backwards(stated.services),
            overlapOwners: backwards(stated.overlapOwners),
          },
        });
        const derived = deriveNode(facts);
        const ids = ({ blockers }: NodeDerivation) => blockers.map((each) => each.record.id).sort();
        expect(other.entries.map((each) => each.handoffId)).toEqual(derived.entries.map((each) => each.handoffId));
        expect(ids(other)).toEqual(ids(derived));
      }),
      { numRuns: 300 },
    );
  });

  it('settles: what it required is required again, and evidence that shrinks takes no key away', () => {
    fc.assert(
      fc.property(worlds, (facts) => {
        const first = deriveNode(facts);
        const again = deriveNode({ ...facts, previous: first.entries });
        expect(again.entries).toEqual(first.entries);
        const stated = facts.scope;
        if (stated === null || facts.snapshot === null) return;
        // Without owners and the release of old anonymous volumes, which look at what is mounted now.
        const plain = { ...facts, scope: { ...stated, overlapOwners: [], releasedAnonymousVolumes: [] } };
        const before = deriveNode(plain).entries.map((each) => each.handoffId);
        const empty = { ...facts.snapshot, containers: [], volumes: [] };
        const after = deriveNode({ ...plain, snapshot: empty, tasks: [], previous: deriveNode(plain).entries });
        expect(after.entries.map((each) => each.handoffId)).toEqual(before);
      }),
      { numRuns: 300 },
    );
  });
});
