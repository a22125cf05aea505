/** What is proposed for a swarm service, and for a blocker: tables of cases. */
import { describe, expect, it } from 'vitest';
import { proposeAnswers } from '../../src/cli/scope/propose-answers.js';
import { proposeService, writtenVolumes } from '../../src/cli/scope/propose-services.js';
import type { IObservedSpecMount, IObservedSwarmService } from '../../src/contract/observation.js';
import { makeBlocker, type RequiredEntry } from '../../src/features/volume-handoff/derive-node.js';
import { driverOptions, requiredEntry, specMount, swarmService, volumeMount } from '../support/snapshots.js';

const bind = (source: string, target: string, readOnly = false): IObservedSpecMount =>
  specMount(source, target, { type: 'bind', readOnly });
const published = (...ports: number[]): IObservedSwarmService['ports'] =>
  ports.map((port) => ({ protocol: 'tcp', targetPort: port, publishedPort: port, publishMode: 'ingress' }));
const role = (value: string) => [{ key: 'serve.zone.role', value }];

describe('a service', () => {
  it.each<[string, Partial<IObservedSwarmService>, string | null, string]>([
    ['with a named volume', { mounts: [specMount('data')] }, 'application', 'volume data at /data'],
    ['with an anonymous volume', { mounts: [specMount(null)] }, 'application', 'an anonymous volume at /data'],
    ['with a bind', { mounts: [bind('/srv/x', '/data')] }, 'application', '/srv/x at /data'],
    ['without any mount', {}, 'application', 'names no data'],
    ['with tmpfs alone', { mounts: [specMount(null, '/tmp', { type: 'tmpfs' })] }, 'application', 'names no data'],
    ['called coreflow', { name: 'coreflow' }, null, 'Only you can say so'],
    ['called core_coreflow, of a stack', { name: 'core_coreflow', mounts: [specMount('x')] }, null, 'Only you'],
    [
      'of the image coreflow',
      { name: 'relay', image: 'registry.example:5000/serve.zone/coreflow:3@sha256:00' },
      null,
      'Only you',
    ],
    ['with the role coreflow', { name: 'relay', labels: role('coreflow') }, null, 'Only you'],
    ['called coreflower', { name: 'coreflower' }, 'application', 'names no data'],
    ['called coretraffic', { name: 'coretraffic' }, 'ingress', 'legacy ingress'],
    ['with the role coretraffic', { name: 'front', labels: role('coretraffic') }, 'ingress', 'legacy ingress'],
    ['called traefik, with 443', { name: 'edge_traefik', ports: published(443) }, 'ingress', 'publishes 443'],
    [
      'of the image nginx, with 80 and 443',
      { name: 'front', image: 'nginx:1', ports: published(80, 443) },
      'ingress',
      '80 and 443',
    ],
    ['called traefik, without a web port', { name: 'traefik', ports: published(8080) }, 'application', 'names no data'],
    [
      'that is an ingress by name and keeps data',
      { name: 'caddy', ports: published(443), mounts: [specMount('certs')] },
      null,
      'must own no data',
    ],
    ['with 443 and no other sign', { name: 'shop', ports: published(443) }, null, 'the ingress, or an application?'],
    [
      'with 80 and data',
      { name: 'shop', ports: published(80), mounts: [specMount('d')] },
      'application',
      'is it the ingress?',
    ],
    [
      'on every node, with the engine’s socket',
      { mode: 'global', mounts: [bind('/var/run/docker.sock', '/s')] },
      null,
      'agent of the host',
    ],
    [
      'on every node, with data of its own, too',
      { mode: 'global', mounts: [bind('/proc', '/p', true), specMount('buffer')] },
      'application',
      'volume buffer',
    ],
  ])('%s', (_case, over, expected, note) => {
    const service = swarmService('s1', { name: 'app', ...over });
    const proposed = proposeService(service, writtenVolumes([service]));
    expect(proposed.class).toBe(expected);
    expect(proposed.note).toContain(note);
  });
});

describe('a mount', () => {
  it.each<[string, IObservedSpecMount, string | null, boolean]>([
    ['of a plugin', specMount('v', '/d', { driver: 'rexray/ebs' }), 'external', true],
    ['of a cluster volume', specMount('v', '/d', { type: 'cluster' }), 'external', true],
    [
      'of NFS behind the local driver',
      specMount('v', '/d', { driver: 'local', options: driverOptions({ type: 'nfs' }) }),
      'external',
      true,
    ],
    [
      'of tmpfs behind a volume',
      specMount('v', '/d', { options: driverOptions({ type: 'tmpfs' }) }),
      'ephemeral',
      true,
    ],
    ['of the host’s volumes, written', bind('/var/lib/docker/volumes', '/d'), 'host-path', false],
    ['of the host’s log directory', bind('/var/log/', '/d'), 'host-path', false],
    ['of the host’s whole file system', bind('/', '/d'), 'host-path', false],
    ['of a read-only volume that nobody writes', specMount('ext', '/d', { readOnly: true }), 'shared-read-only', false],
  ])('%s', (_case, mount, expected, reasoned) => {
    const service = swarmService('s1', { mounts: [mount] });
    const { mounts } = proposeService(service, writtenVolumes([service]));
    expect(mounts).toMatchObject([{ target: '/d', class: expected }]);
    expect(mounts[0]!.reason !== null).toBe(reasoned);
  });

  it.each<[string, IObservedSpecMount]>([
    ['of a volume of the local driver', specMount('v', '/d', { driver: 'local', options: driverOptions() })],
    ['of a bound volume', specMount('v', '/d', { options: driverOptions({ type: 'none', bindDevice: '/srv/x' }) })],
    ['of a directory of the fleet’s', bind('/srv/data', '/d')],
    ['of a directory that is only called like one of the host’s', bind('/var/logs', '/d')],
    ['of the host’s, read only', bind('/proc', '/d', true)],
    ['of a tmpfs', specMount(null, '/d', { type: 'tmpfs' })],
  ])('%s is proposed nothing', (_case, mount) => {
    expect(proposeService(swarmService('s1', { mounts: [mount] }), new Set()).mounts).toEqual([]);
  });

  it('of a read-only volume that another service writes is proposed nothing', () => {
    const reader = swarmService('r', { mounts: [specMount('shared', '/d', { readOnly: true })] });
    const writer = swarmService('w', { mounts: [specMount('shared', '/x')] });
    expect(proposeService(reader, writtenVolumes([reader, writer])).mounts).toEqual([]);
  });
});

describe('a blocker', () => {
  const entry: RequiredEntry = requiredEntry('a', volumeMount('v'));
  const key = {
    nodeId: entry.nodeId,
    serviceId: entry.serviceId,
    mountIdentityDigest: entry.mountIdentityDigest,
    reason: null,
    confirmed: false,
  };
  const offered = (...blockers: ReturnType<typeof makeBlocker>[]) =>
    proposeAnswers(blockers.map(({ record }) => record));

  it('about two keys offers the owner', () => {
    const blocker = makeBlocker('overlap-keys', 'twice', { nodeId: 'n', swarmServiceId: 'b', target: '/b', entry });
    expect(offered(blocker).answers).toMatchObject([{ list: 'overlapOwners', answer: key, otherSwarmServiceId: 'b' }]);
  });

  it('about a container offers one confirmation for all keys under its mount', () => {
    const other = requiredEntry('c', volumeMount('w'));
    const about = { nodeId: 'n', containerName: 'backup', target: '/host' };
    const { answers } = offered(
      makeBlocker('overlap-container', 'one', { ...about, entry }),
      makeBlocker('overlap-container', 'two', { ...about, entry: other }),
    );
    expect(answers).toHaveLength(1);
    expect(answers[0]).toMatchObject({
      list: 'overlapConfirmations',
      answer: {
        nodeId: 'n',
        mounter: { kind: 'container', name: 'backup' },
        target: '/host',
        reason: null,
        confirmed: false,
      },
    });
    expect(answers[0]!.note).toContain('one');
    expect(answers[0]!.note).toContain('two');
    const service = offered(
      makeBlocker('overlap-container', 'x', { ...about, containerName: null, swarmServiceId: 'b', entry }),
    );
    expect(service.answers[0]!.answer).toMatchObject({ mounter: { kind: 'service', swarmServiceId: 'b' } });
  });

  it('about a volume that nothing mounts, or a target that cannot be requested', () => {
    expect(offered(makeBlocker('volume-unmounted', 'x', { nodeId: 'n', volumeName: 'v' })).answers).toMatchObject([
      { list: 'dormantVolumes', answer: { nodeId: 'n', volumeName: 'v', reason: null, confirmed: false } },
    ]);
    expect(offered(makeBlocker('target-invalid', 'x', { nodeId: 'n', entry })).answers).toMatchObject([
      { list: 'releasedEntries', answer: key },
    ]);
  });

  it('about a mount offers its class, and leaves open what nobody can tell', () => {
    const about = { nodeId: 'n', swarmServiceId: 's', target: '/d' };
    const classes = (code: Parameters<typeof makeBlocker>[0], detail: string) =>
      offered(makeBlocker(code, detail, about)).mounts.map(({ mount }) => [mount.class, mount.reason !== null]);
    expect(classes('driver-unclassified', 'driver local, type tmpfs')).toEqual([['ephemeral', true]]);
    expect(classes('driver-unclassified', 'driver rexray')).toEqual([['external', true]]);
    expect(classes('read-only-uncovered', 'x')).toEqual([['shared-read-only', false]]);
    expect(classes('ingress-persistent-mount', 'x')).toEqual([[null, false]]);
    expect(classes('source-empty', 'x')).toEqual([[null, false]]);
  });

  it('that no statement removes is given back', () => {
    const blocker = makeBlocker('task-unknown', 'x', { nodeId: 'n', swarmServiceId: 's', swarmTaskId: 't' });
    expect(offered(blocker)).toEqual({ answers: [], mounts: [], unanswerable: [blocker.record] });
  });
});
