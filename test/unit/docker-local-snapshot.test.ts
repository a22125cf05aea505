/** Expectations are read by hand from the captured answers in test/fixtures/swarm. */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { capturedSource } from '../../src/agents/docker/captured-source.js';
import type { CensusFailure } from '../../src/agents/docker/census-failure.js';
import { collectLocalSnapshot } from '../../src/agents/docker/collect-local-snapshot.js';
import {
  fleetCutoverLocalNodeSnapshotRecord,
  type IFleetCutoverCompleteLocalNodeSnapshot,
  type IFleetCutoverLocalNodeSnapshot,
} from '../../src/contract/observation.js';
import {
  capturedAnswer,
  capturedDirectory,
  type CapturedNode,
  type Edit,
  editedCapture,
  sparkFacts,
  type RawAnswer,
} from '../support/docker-engine.js';

const collect = (directory: string, controlAvailable: boolean, onFailure?: (failure: CensusFailure) => void) =>
  collectLocalSnapshot(capturedSource(directory), {
    ...sparkFacts,
    controlAvailable,
    ...(onFailure ? { onFailure } : {}),
  });

function complete(snapshot: IFleetCutoverLocalNodeSnapshot): IFleetCutoverCompleteLocalNodeSnapshot {
  if (!snapshot.complete) throw new Error(`incomplete: ${snapshot.reason}`);
  return snapshot;
}

const captured = async (node: CapturedNode) => complete(await collect(capturedDirectory(node), node === 'manager'));
const edited = async (node: CapturedNode, work: (edit: Edit) => Promise<void>) =>
  collect(await editedCapture(node, work), node === 'manager');

function container(snapshot: IFleetCutoverCompleteLocalNodeSnapshot, name: string) {
  const found = snapshot.containers.filter((one) => one.name === name || one.name.startsWith(`${name}.`));
  if (found.length !== 1 || found[0] === undefined) throw new Error(`${found.length} containers called ${name}`);
  return found[0];
}

const plain = { driver: 'local', options: null };

describe('a captured node', () => {
  it('is a valid snapshot, the same each time', async () => {
    for (const node of ['manager', 'worker'] as const) {
      const snapshot = await captured(node);
      expect(fleetCutoverLocalNodeSnapshotRecord.validate(snapshot)).toEqual([]);
      expect(await captured(node)).toEqual(snapshot);
      expect(snapshot).toMatchObject(sparkFacts);
    }
  });

  it('has every container in any state, and every volume', async () => {
    const [manager, worker] = [await captured('manager'), await captured('worker')];
    expect([manager.containers.length, manager.volumes.length]).toEqual([39, 31]);
    expect([worker.containers.length, worker.volumes.length]).toEqual([43, 35]);
    expect(manager.containers.reduce((sum, one) => sum + one.mounts.length, 0)).toBe(48);
    expect(worker.containers.reduce((sum, one) => sum + one.mounts.length, 0)).toBe(51);
    const count = (snapshot: IFleetCutoverCompleteLocalNodeSnapshot, state: string) =>
      snapshot.containers.filter((one) => one.state === state).length;
    expect(['running', 'exited', 'created'].map((state) => count(manager, state))).toEqual([23, 16, 0]);
    expect(['running', 'exited', 'created'].map((state) => count(worker, state))).toEqual([21, 20, 2]);
  });

  it('is sorted by code unit', async () => {
    const { containers, volumes } = await captured('worker');
    const sorted = (texts: string[]) => expect(texts).toEqual([...texts].sort());
    sorted(containers.map((one) => one.id));
    sorted(volumes.map((one) => one.name));
    for (const { mounts } of containers) sorted(mounts.map((mount) => mount.destination));
  });

  it('believes the inspect answer, not the list', async () => {
    const list = await capturedAnswer('worker', 'containers.json');
    const listed = list.find((one: { Names: string[] }) => one.Names[0] === '/crashy.1.n7brxtqttx3xsbjehsie0ltlk');
    expect(listed.State).toBe('created');
    expect(container(await captured('worker'), 'crashy.1.n7brxtqttx3xsbjehsie0ltlk').state).toBe('running');

    const image = list.find((one: { Names: string[] }) => one.Names[0]?.startsWith('/pg-nomount.1.'));
    expect(image.Mounts[0].Source).toBe('');
    expect(container(await captured('worker'), 'pg-nomount').mounts[0]?.source).toBe(
      '/var/lib/docker/volumes/f9b7c25e676875d3f20f8751abd9454c08808a80f9a3dc63b8d865e56354948d/_data',
    );
  });

  it('joins containers to tasks and services by their labels', async () => {
    const { containers } = await captured('manager');
    expect(containers.find((one) => one.name === 'broker.2.a2jhiqp4kd5ky1u1vtrsqy2ep')).toMatchObject({
      id: '1b743393e0ed3a9a496ca1c616eed14598df82c4fbd453388ef0a722eecc914e',
      swarmTaskId: 'a2jhiqp4kd5ky1u1vtrsqy2ep',
      swarmServiceId: '65uci7bqgr0lgn5fe4stdw841',
      imageId: 'sha256:9338ac29692cb37625806e227db85673739d6f6845386b9884ad1c1010cf6e12',
      imageDigest: 'sha256:2fa55f4753b084ed7d90b40aba174fd7d238e07e773b5e784f74d77d3f7d0945',
      state: 'running',
    });
    const outside = [...containers, ...(await captured('worker')).containers].filter((one) => one.swarmTaskId === null);
    expect(outside.map((one) => one.name).sort()).toEqual(['created-only', 'exited-one', 'standalone-db', 'vols-from']);
    expect(outside.every((one) => one.swarmServiceId === null)).toBe(true);
  });

  it('finds the digest of an image without one in its reference', async () => {
    const manager = await captured('manager');
    expect(container(manager, 'standalone-db').imageDigest).toBe(
      'sha256:dbe8e65bbfd2286ce60bf8210744ed5f81a46727eea24075380aa69dd214241c',
    );
    expect(container(manager, 'unpinned').imageDigest).toBe(
      'sha256:6d21eb93edcc236793651f67632f235d89eaf00da06bd7d633240e73ef28ae82',
    );
  });
});

describe('mounts', () => {
  it('have the resolved name of a templated volume, and its bind device', async () => {
    const options = {
      type: 'none',
      // SHA-256 of "/srv/hostdirs/broker"
      deviceDigest: 'sha256:d1c34a424bc528717cbc9aa937bc01083444d8e0d68a83cf533a47bd54c18454',
      bindDevice: '/srv/hostdirs/broker',
      optionNames: ['bind'],
      otherOptions: 0,
    };
    const mount = (name: string) => ({
      type: 'volume',
      name,
      source: `/var/lib/docker/volumes/${name}/_data`,
      destination: '/var/lib/broker',
      readWrite: true,
      driver: 'local',
      options,
    });
    expect(container(await captured('manager'), 'broker').mounts).toEqual([mount('broker-manager1-2')]);
    expect(container(await captured('worker'), 'broker').mounts).toEqual([mount('broker-worker1-1')]);
    expect(container(await captured('worker'), 'redis-shard.3.zopxzay1e3724qs4aa3j2xb38').mounts).toMatchObject([
      { name: 'redis-data-3', destination: '/data', ...plain },
    ]);
    expect(container(await captured('manager'), 'shop_queue').mounts[0]?.name).toBe('shop-queue-1');
  });

  it('of a plugin have its driver and no source', async () => {
    expect(container(await captured('manager'), 'media').mounts).toEqual([
      {
        type: 'volume',
        name: 'media-assets',
        source: '',
        destination: '/media',
        readWrite: true,
        driver: 'demostore',
        options: { type: null, deviceDigest: null, bindDevice: null, optionNames: ['size'], otherOptions: 1 },
      },
    ]);
  });

  it('on a tmpfs by driver options say so', async () => {
    expect(container(await captured('worker'), 'ramdisk').mounts[0]).toMatchObject({
      name: 'ramdisk',
      driver: 'local',
      options: {
        type: 'tmpfs',
        // SHA-256 of "tmpfs"
        deviceDigest: 'sha256:02dae179e16841345a4e5cb7996e022ea6f45aeb4cbfa4811a76934328c2d24e',
        bindDevice: null,
        optionNames: ['size', 'uid'],
        otherOptions: 0,
      },
    });
  });

  it('of each kind: read-only, bind, tmpfs, twice the same volume, from another container', async () => {
    const [manager, worker] = [await captured('manager'), await captured('worker')];
    const bind = (source: string, destination: string, readWrite: boolean) => ({
      type: 'bind',
      name: null,
      source,
      destination,
      readWrite,
      driver: null,
      options: null,
    });
    const tmpfs = (destination: string) => ({ ...bind('', destination, true), type: 'tmpfs' });
    const volume = (name: string, destination: string, readWrite = true) => ({
      type: 'volume',
      name,
      source: `/var/lib/docker/volumes/${name}/_data`,
      destination,
      readWrite,
      ...plain,
    });
    expect(container(manager, 'node-agent').mounts).toEqual([
      volume('agent-buffer', '/buffer'),
      bind('/proc', '/host/proc', false),
      bind('/var/lib/docker/volumes', '/host/volumes', true),
      bind('/srv/hostdirs/logs', '/logs', true),
      bind('/var/run/docker.sock', '/var/run/docker.sock', false),
    ]);
    expect(container(manager, 'pg-reader').mounts).toEqual([volume('pgdata', '/pgdata', false), tmpfs('/tmp')]);
    expect(container(worker, 'scratch').mounts).toEqual([tmpfs('/scratch'), tmpfs('/var/tmp')]);
    expect(container(worker, 'twice').mounts).toEqual([
      volume('twice-data', '/backup-src', false),
      volume('twice-data', '/data'),
    ]);
    expect(container(worker, 'vols-from').mounts).toEqual(container(worker, 'exited-one').mounts);
    expect(container(manager, 'web').mounts).toEqual([]);
  });

  it('beyond the 32nd are a count', async () => {
    const file = 'containers/standalone-db.json';
    const mounts = Array.from({ length: 35 }, (_, index) => ({
      Type: 'bind',
      Source: `/srv/${index}`,
      Destination: `/mnt/${String(34 - index).padStart(2, '0')}`,
      RW: true,
    }));
    const snapshot = complete(
      await edited('manager', (edit) =>
        edit(file, (answer) => {
          answer.Mounts = mounts;
        }),
      ),
    );
    const found = container(snapshot, 'standalone-db');
    expect(found.mountsBeyond).toBe(3);
    expect(found.mounts.map((mount) => mount.destination)).toEqual(
      Array.from({ length: 32 }, (_, index) => `/mnt/${String(index).padStart(2, '0')}`),
    );
  });
});

describe('volumes', () => {
  it('of NFS tell neither server nor path', async () => {
    const { volumes } = await captured('worker');
    expect(volumes.find((one) => one.name === 'nfs-data')).toEqual({
      name: 'nfs-data',
      driver: 'local',
      mountpoint: '/var/lib/docker/volumes/nfs-data/_data',
      options: {
        type: 'nfs',
        // SHA-256 of ":/export/data"
        deviceDigest: 'sha256:20dec3605a0f9bf8cc097ce78efe5e2a7093ff85ae51b762cd68eb820f1f01be',
        bindDevice: null,
        optionNames: ['addr', 'rw'],
        otherOptions: 0,
      },
    });
    expect(JSON.stringify(volumes)).not.toMatch(/10\.99|export/);
  });

  it('without a container are there too, and no options are null, however Docker writes none', async () => {
    const { volumes } = await captured('manager');
    const options = Object.fromEntries(volumes.map((one) => [one.name, one.options]));
    expect(options).toMatchObject({ 'orphan-plain': null, pgdata: null, legacy_data: null });
  });
});

describe('ports', () => {
  const web = { kind: 'swarm-service', swarmServiceId: 'k1a8838sbjr0e6xkfqnszyhxx' };
  const webHost = { kind: 'swarm-service', swarmServiceId: 'qyysx657odro2mampah3izt2z' };

  it('of a manager include the routing mesh', async () => {
    expect((await captured('manager')).ports).toEqual([
      { protocol: 'tcp', port: 8080, owner: web },
      { protocol: 'tcp', port: 8081, owner: { kind: 'swarm-service', swarmServiceId: 'pwan8g9dhgwxh0dujf4do4q7c' } },
      { protocol: 'tcp', port: 9090, owner: webHost },
      { protocol: 'udp', port: 5353, owner: web },
    ]);
  });

  it('of the routing mesh are no ports in host mode: those are where their containers are', async () => {
    const snapshot = await edited('manager', (edit) =>
      edit('services.json', (services) => {
        const { Endpoint } = services.find((one: RawAnswer) => one.Spec.Name === 'web');
        Endpoint.Ports[0].PublishMode = 'host';
      }),
    );
    expect(complete(snapshot).ports.map((one) => one.port)).toEqual([8081, 9090, 5353]);
  });

  it('of a worker are those that its containers publish, each once for IPv4 and IPv6', async () => {
    expect((await captured('worker')).ports).toEqual([{ protocol: 'tcp', port: 9090, owner: webHost }]);
  });

  it('belong to a container outside Swarm, while it runs', async () => {
    const publish = (status: string) =>
      edited('manager', (edit) =>
        edit('containers/standalone-db.json', (answer) => {
          answer.State.Status = status;
          answer.NetworkSettings.Ports = { '5432/tcp': [{ HostIp: '127.0.0.1', HostPort: '15432' }] };
        }),
      );
    const owned = (snapshot: IFleetCutoverLocalNodeSnapshot) =>
      complete(snapshot).ports.filter((one) => one.port === 15_432);
    const owner = {
      kind: 'container',
      containerId: 'b1167db2b3ff4b88ebf680684dd827ba27bbd35d48cc22dd82105e19b83d0a22',
    };
    expect(owned(await publish('running'))).toEqual([{ protocol: 'tcp', port: 15_432, owner }]);
    expect(owned(await publish('paused'))).toHaveLength(1);
    expect(owned(await publish('exited'))).toEqual([]);
  });

  it("are joined with Spark's own, of which an unknown one yields to a known owner", async () => {
    const pallet = { protocol: 'tcp', port: 443, owner: { kind: 'pallet-service', serviceId: 'svc-1' } } as const;
    const unknown = (port: number) => ({ protocol: 'tcp', port, owner: { kind: 'unknown' } }) as const;
    const snapshot = await collectLocalSnapshot(capturedSource(capturedDirectory('worker')), {
      ...sparkFacts,
      controlAvailable: false,
      otherPorts: [unknown(9090), unknown(22), pallet],
    });
    expect(complete(snapshot).ports).toEqual([unknown(22), pallet, { protocol: 'tcp', port: 9090, owner: webHost }]);
  });
});

describe('a census that is not whole', () => {
  const failing = async (node: CapturedNode, work: (edit: Edit) => Promise<void>) => {
    const failures: CensusFailure[] = [];
    const snapshot = await collect(await editedCapture(node, work), node === 'manager', (failure) =>
      failures.push(failure),
    );
    expect(fleetCutoverLocalNodeSnapshotRecord.validate(snapshot)).toEqual([]);
    expect(snapshot).toMatchObject({ complete: false, runtime: sparkFacts.runtime });
    return { snapshot, message: failures[0]?.message };
  };
  const answers = (path: string, status: number) => (edit: Edit) =>
    edit('index.json', (index) => {
      index.find((entry: { path: string }) => entry.path === path).status = status;
    });

  it('because the containers cannot be listed', async () => {
    const { snapshot, message } = await failing('worker', answers('/v1.41/containers/json?all=1', 500));
    expect(snapshot).toEqual({ complete: false, runtime: sparkFacts.runtime, reason: 'engine-error', counts: null });
    expect(message).toBe('GET /containers/json answered 500');
  });

  it('because the volumes cannot be listed, or not all', async () => {
    const counts = { containers: 43, volumes: 0, services: 0, tasks: 0 };
    expect((await failing('worker', answers('/v1.41/volumes', 500))).snapshot).toMatchObject({
      reason: 'engine-error',
      counts,
    });
    expect((await failing('worker', answers('/v1.41/volumes', 404))).snapshot).toMatchObject({
      reason: 'engine-error',
      counts,
    });
    const warned = await failing('worker', (edit) =>
      edit('volumes.json', (answer) => {
        answer.Warnings = ['list demostore: plugin not found'];
      }),
    );
    expect(warned.snapshot).toMatchObject({ reason: 'engine-error', counts });
  });

  it("because a container's volume is not listed: its options would be told as none", async () => {
    const without = (name: string) => (edit: Edit) =>
      edit('volumes.json', (answer) => {
        answer.Volumes = answer.Volumes.filter((one: { Name: string }) => one.Name !== name);
      });
    const { snapshot } = await failing('worker', without('ramdisk'));
    expect(snapshot).toMatchObject({ reason: 'inconsistent', counts: { containers: 43, volumes: 34 } });
    // A plugin's volume needs a class whatever its options are, so its mount says enough.
    const plugin = complete(await edited('worker', without('media-assets')));
    expect(container(plugin, 'media').mounts[0]).toMatchObject({ driver: 'demostore', options: null });
  });

  it('because one container cannot be inspected', async () => {
    const path = '/v1.41/containers/b1167db2b3ff4b88ebf680684dd827ba27bbd35d48cc22dd82105e19b83d0a22/json';
    const { snapshot } = await failing('manager', answers(path, 500));
    expect(snapshot).toMatchObject({ reason: 'engine-error', counts: { containers: 39 } });
    const vanished = await failing('manager', answers(path, 404));
    expect(vanished.snapshot).toMatchObject({ reason: 'inconsistent', counts: { containers: 39 } });
  });

  it('because a manager cannot tell its services', async () => {
    const { snapshot } = await failing('manager', answers('/v1.41/services', 503));
    expect(snapshot).toMatchObject({ reason: 'engine-error', counts: { containers: 39, volumes: 31 } });
  });

  it('because there are too many containers', async () => {
    const { snapshot } = await failing('worker', (edit) =>
      edit('containers.json', () => Array.from({ length: 16_385 }, (_, index) => ({ Id: `c${index}` }))),
    );
    expect(snapshot).toMatchObject({ reason: 'truncated', counts: { containers: 16_385 } });
  });

  it('because there are too many open ports', async () => {
    const { snapshot } = await failing('manager', (edit) =>
      edit('containers/standalone-db.json', (answer) => {
        const ports = Array.from({ length: 16_385 }, (_, index) => [`${index}/udp`, [{ HostPort: `${index + 1}` }]]);
        answer.NetworkSettings.Ports = Object.fromEntries(ports);
      }),
    );
    expect(snapshot).toMatchObject({ reason: 'truncated', counts: { containers: 39, volumes: 31 } });
  });

  it('because of a word that nobody knows', async () => {
    const edits: ((answer: RawAnswer) => void)[] = [
      (answer) => (answer.State.Status = 'hibernating'),
      (answer) => (answer.Mounts[0].Type = 'wormhole'),
      (answer) => (answer.NetworkSettings.Ports = { '1/quic': [{ HostPort: '1' }] }),
      (answer) => (answer.NetworkSettings.Ports = { '1/tcp': [{ HostPort: '65536' }] }),
      (answer) => (answer.Mounts[1].Destination = answer.Mounts[0].Destination),
    ];
    for (const change of edits) {
      const { snapshot } = await failing('manager', (edit) =>
        edit('containers/standalone-db.json', (answer) => {
          change(answer);
        }),
      );
      expect(snapshot).toMatchObject({ reason: 'engine-error' });
    }
  });

  it.each([
    ['no JSON', '{"Volumes": [', 'GET /volumes answered no JSON'],
    ['null', 'null', 'GET /volumes answered an unknown shape at /'],
    [
      'another shape',
      '{"Volumes":[{"Name":"hunter2","Driver":7}]}',
      /^GET \/volumes answered an unknown shape at \/Volumes/,
    ],
    [
      'an option that is no text',
      '{"Volumes":[{"Name":"a","Driver":"local","Mountpoint":"/","Options":{"hunter2\\n":{}}}]}',
      /unknown shape at \/Volumes$/,
    ],
    ['a prototype', '{"__proto__":{"Volumes":[]},"Volumes":{"length":1}}', /unknown shape/],
    ['deep nesting', `{"Volumes":${'['.repeat(200_000)}${']'.repeat(200_000)}}`, /unknown shape/],
    ['a lone surrogate', '{"Volumes":[{"Name":"\\ud800","Driver":"local","Mountpoint":"/"}]}', /./],
  ])('because of hostile JSON: %s', async (_, body, expected) => {
    const { snapshot, message } = await failing('worker', (edit) => edit('volumes.json', () => body));
    expect(snapshot).toMatchObject({ complete: false });
    expect(message).toMatch(expected);
    expect(message).not.toContain('hunter2');
  });

  it('because there is no engine, or time is up', async () => {
    const directory = await editedCapture('worker', () => Promise.resolve());
    const source = capturedSource(directory);
    const late = await collectLocalSnapshot(source, {
      ...sparkFacts,
      controlAvailable: false,
      signal: AbortSignal.abort(),
    });
    expect(late).toMatchObject({ complete: false, reason: 'timeout', counts: null });
    await rm(join(directory, 'index.json'));
    expect(await collect(directory, false)).toMatchObject({
      complete: false,
      reason: 'engine-unreachable',
      counts: null,
    });
  });
});

describe('labels of a container that no Swarm wrote', () => {
  it('are no mark where they can be no id', async () => {
    const snapshot = complete(
      await edited('manager', (edit) =>
        edit('containers/standalone-db.json', (answer) => {
          answer.Config.Labels = { 'com.docker.swarm.task.id': 'not an id', 'com.docker.swarm.service.id': '' };
        }),
      ),
    );
    expect(container(snapshot, 'standalone-db')).toMatchObject({ swarmTaskId: null, swarmServiceId: null });
  });
});
