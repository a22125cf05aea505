/** Expectations are read by hand from the captured answers in test/fixtures/swarm/manager. */
import { describe, expect, it } from 'vitest';
import type { IEngineTask } from '../../src/agents/docker/answers.js';
import { capturedSource } from '../../src/agents/docker/captured-source.js';
import { collectManagerSnapshot } from '../../src/agents/docker/collect-manager-snapshot.js';
import { specDigest } from '../../src/agents/docker/manager-snapshot.js';
import { keptTasks } from '../../src/agents/docker/task-retention.js';
import {
  fleetCutoverManagerSnapshotRecord,
  type IFleetCutoverCompleteManagerSnapshot,
  type IFleetCutoverManagerSnapshot,
  type IObservedSwarmService,
  isTerminalTaskState,
} from '../../src/contract/observation.js';
import {
  capturedAnswer,
  capturedDirectory,
  type Edit,
  editedCapture,
  sparkFacts,
  type RawAnswer,
} from '../support/docker-engine.js';

const { runtime } = sparkFacts;
const collect = (directory: string) => collectManagerSnapshot(capturedSource(directory), { runtime });
const edited = async (work: (edit: Edit) => Promise<void>) => collect(await editedCapture('manager', work));

function complete(snapshot: IFleetCutoverManagerSnapshot): IFleetCutoverCompleteManagerSnapshot {
  if (!snapshot.complete) throw new Error(`incomplete: ${snapshot.reason}`);
  return snapshot;
}

const captured = async () => complete(await collect(capturedDirectory('manager')));

const service = (snapshot: IFleetCutoverCompleteManagerSnapshot, name: string): IObservedSwarmService => {
  const found = snapshot.services.find((one) => one.name === name);
  if (found === undefined) throw new Error(`no service ${name}`);
  return found;
};

describe('the captured swarm', () => {
  it('is a valid snapshot, the same each time and sorted by id', async () => {
    const snapshot = await captured();
    expect(fleetCutoverManagerSnapshotRecord.validate(snapshot)).toEqual([]);
    expect(await captured()).toEqual(snapshot);
    for (const list of [snapshot.nodes, snapshot.services, snapshot.tasks]) {
      const ids = list.map((one) => one.id);
      expect(ids).toEqual([...ids].sort());
    }
  });

  it('has its id and its nodes', async () => {
    const snapshot = await captured();
    expect(snapshot.runtime).toEqual(runtime);
    expect(snapshot.swarmId).toBe('uirbdi6s2h2xpuuaxm4dnzvw2');
    const up = { availability: 'active', state: 'ready' };
    expect(snapshot.nodes).toEqual([
      { id: '0s4tsfgrrzfr4ei0yqncs7igy', hostname: 'manager1', role: 'manager', ...up },
      { id: 'uagvogbowshqi6xuuxxcfqmf8', hostname: 'worker1', role: 'worker', ...up },
    ]);
  });

  it('says nothing of addresses, environments, processes or times', async () => {
    expect(JSON.stringify(await captured())).not.toMatch(/10\.99|:\/export|PID|2026-12|PATH=|BEGIN CERTIFICATE/);
  });
});

describe('services', () => {
  it('have all four modes, and the replicas that were asked for', async () => {
    const snapshot = await captured();
    const modes = (mode: string) =>
      snapshot.services
        .filter((one) => one.mode === mode)
        .map((one) => one.name)
        .sort();
    expect(snapshot.services).toHaveLength(40);
    expect(modes('replicated')).toHaveLength(35);
    expect(modes('global')).toEqual(['node-agent', 'shop_cron', 'web-host']);
    expect(modes('replicated-job')).toEqual(['rep-job']);
    expect(modes('global-job')).toEqual(['glob-job']);
    const replicas = (name: string) => service(snapshot, name).replicas;
    expect(['redis-shard', 'idle', 'never-ran', 'rep-job', 'glob-job', 'web-host'].map(replicas)).toEqual([
      3,
      0,
      0,
      3,
      null,
      null,
    ]);
  });

  it('have version and digest of their spec', async () => {
    const snapshot = await captured();
    expect(service(snapshot, 'upgraded')).toMatchObject({
      id: 'hvydz91h7hadxd7n6d44sbgb8',
      specVersion: 775,
      // SHA-256 of the spec with sorted keys, taken with another program
      specDigest: 'sha256:77d44a7fcd5f7b06e6dbdeaba329914e7177f0a395ac268601ae36ca309e9c61',
      image: 'demo/postgres-like:15.2@sha256:792b2c4cb96c0f1d1f7ef5e25cf69a441ae32641c2c8ca3489e80799b152e191',
    });
    expect(service(snapshot, 'failover').specDigest).toBe(
      'sha256:a2358d8b5d3d9c07aa4bc33678a56d3c41079422ecf58d17def0a27af331bd5d',
    );
  });

  it('have a spec digest that order does not change and a fraction does', async () => {
    const [first] = await capturedAnswer('manager', 'services.json');
    const spec = { ...first.Spec, UpdateConfig: { Parallelism: 1, MaxFailureRatio: 0.25 } };
    const reordered = { UpdateConfig: { MaxFailureRatio: 0.25, Parallelism: 1 }, ...first.Spec };
    expect(specDigest(reordered)).toBe(specDigest(spec));
    expect(specDigest({ ...spec, UpdateConfig: { Parallelism: 1, MaxFailureRatio: 0.26 } } as never)).not.toBe(
      specDigest(spec),
    );
  });

  it('have ports as they are really published', async () => {
    const snapshot = await captured();
    expect(service(snapshot, 'web').ports).toEqual([
      { protocol: 'tcp', targetPort: 80, publishedPort: 8080, publishMode: 'ingress' },
      { protocol: 'udp', targetPort: 53, publishedPort: 5353, publishMode: 'ingress' },
    ]);
    expect(service(snapshot, 'web-host').ports).toEqual([
      { protocol: 'tcp', targetPort: 80, publishedPort: 9090, publishMode: 'host' },
    ]);
    expect(
      snapshot.services
        .filter((one) => one.ports.length > 0)
        .map((one) => one.name)
        .sort(),
    ).toEqual(['shop_api', 'web', 'web-host']);
  });

  it('have ports that Swarm has not allocated yet from their spec', async () => {
    const snapshot = complete(
      await edited((edit) =>
        edit('services.json', (services) => {
          const web = services.find((one: RawAnswer) => one.Spec.Name === 'web');
          delete web.Endpoint;
          web.Spec.EndpointSpec.Ports = [{ Protocol: 'tcp', TargetPort: 443 }];
        }),
      ),
    );
    expect(service(snapshot, 'web').ports).toEqual([
      { protocol: 'tcp', targetPort: 443, publishedPort: null, publishMode: 'ingress' },
    ]);
  });

  it('have mounts with templates, drivers and reduced options', async () => {
    const snapshot = await captured();
    expect(service(snapshot, 'broker').mounts).toEqual([
      {
        type: 'volume',
        source: '{{.Service.Name}}-{{.Node.Hostname}}-{{.Task.Slot}}',
        target: '/var/lib/broker',
        readOnly: false,
        driver: 'local',
        options: {
          type: 'none',
          deviceDigest: 'sha256:d1c34a424bc528717cbc9aa937bc01083444d8e0d68a83cf533a47bd54c18454',
          bindDevice: '/srv/hostdirs/broker',
          optionNames: ['bind'],
          otherOptions: 0,
        },
      },
    ]);
    const bare = { readOnly: false, driver: null, options: null };
    expect(service(snapshot, 'anon').mounts).toEqual([{ type: 'volume', source: null, target: '/data', ...bare }]);
    expect(service(snapshot, 'pg-nomount').mounts).toEqual([]);
    expect(service(snapshot, 'twice').mounts).toEqual([
      { type: 'volume', source: 'twice-data', target: '/backup-src', ...bare, readOnly: true },
      { type: 'volume', source: 'twice-data', target: '/data', ...bare },
    ]);
    expect(service(snapshot, 'scratch').mounts).toEqual([
      { type: 'tmpfs', source: null, target: '/scratch', ...bare },
      { type: 'tmpfs', source: null, target: '/var/tmp', ...bare },
    ]);
    expect(service(snapshot, 'missing-driver').mounts).toMatchObject([
      { source: 'ebs-data', driver: 'rexray/ebs', options: { optionNames: ['size'], otherOptions: 0 } },
    ]);
    expect(service(snapshot, 'nfs-data').mounts[0]?.options).toMatchObject({
      type: 'nfs',
      optionNames: ['addr', 'rw'],
    });
  });

  it('have allow-listed labels, and a digest of the others', async () => {
    const snapshot = await captured();
    expect(service(snapshot, 'shop_cron')).toMatchObject({
      labels: [
        { key: 'com.docker.stack.image', value: 'busybox:1.35.0' },
        { key: 'com.docker.stack.namespace', value: 'shop' },
      ],
      otherLabelsDigest: null,
    });
    expect(service(snapshot, 'pg-primary')).toMatchObject({
      labels: [],
      // SHA-256 of [["backup.enable","true"],["backup.schedule","0 3 * * *"]]
      otherLabelsDigest: 'sha256:5b96c0d3f839ff39b68475a07da40a458ec2d359d2d2b0e892dc039086b40964',
    });
    expect(service(snapshot, 'web').otherLabelsDigest).toBeNull();
  });
});

describe('tasks', () => {
  it('that never had a container are kept once per slot and node: 84 of 90', async () => {
    const raw: IEngineTask[] = await capturedAnswer('manager', 'tasks.json');
    const { tasks } = await captured();
    const kept = new Set(tasks.map((task) => task.id));
    expect(raw).toHaveLength(90);
    expect(tasks).toHaveLength(84);
    expect(
      raw
        .map((task) => task.ID)
        .filter((id) => !kept.has(id))
        .sort(),
    ).toEqual([
      '1j0tbj0wyxaqeb5zjh0ccvxxs', // nfs-data on the worker, rejected 10 s before hvywzw5lj57j87493n18no8bw
      '3qiw69wq09d1b44wg1vminlqq', // missing-bind on the manager, before 7knsz1acs0vctb0yk6y5bbmc7
      'c9af80cwcnqy83jpslc2a63rb', // missing-bind on the worker, before mz5tbq68i3qzsj0cq73tmvcwb
      'h8i6nfl5l0uhltcixw69zwdak', // nfs-data on the manager, before l0ujbamhk4ahb8gm8npmjbim6
      'isngla2so8eo5mwkoxz79z2gr', // missing-bind on the manager
      'sascfd8cim2e14x16s9jvq0r1', // nfs-data on the manager
    ]);
  });

  it('say where they are and what they had', async () => {
    const { tasks } = await captured();
    const task = (id: string) => tasks.find((one) => one.id === id);
    expect(task('n7brxtqttx3xsbjehsie0ltlk')).toMatchObject({
      desiredState: 'ready',
      state: 'ready',
      nodeId: 'uagvogbowshqi6xuuxxcfqmf8',
      slot: 1,
      containerId: null,
    });
    expect(task('9dc5xavh6sdeico6hxwb0tlnf')).toMatchObject({ state: 'pending', nodeId: null, containerId: null });
    expect(task('7knsz1acs0vctb0yk6y5bbmc7')).toMatchObject({
      desiredState: 'ready',
      state: 'rejected',
      containerId: null,
    });
    expect(task('dyycy0a291p3yhwdxgb032qmh')).toEqual({
      id: 'dyycy0a291p3yhwdxgb032qmh',
      serviceId: 'xy2o7fbmx9nu7ktaqzpjq3223',
      nodeId: '0s4tsfgrrzfr4ei0yqncs7igy',
      slot: null,
      desiredState: 'running',
      state: 'running',
      containerId: '2da06a49c9ffb079a7c3b22786d39970da68f0cfad3668cf4b7350d1a5fb0e01',
    });
    expect(tasks.filter((one) => !isTerminalTaskState(one.state))).toHaveLength(46);
    expect(tasks.filter((one) => one.containerId !== null)).toHaveLength(75);
  });

  it('are older or newer by time of creation, of which Go cuts zeros', () => {
    const rejected = (ID: string, CreatedAt: string): IEngineTask => ({
      ID,
      CreatedAt,
      ServiceID: 's',
      Slot: 1,
      NodeID: 'n',
      DesiredState: 'shutdown',
      Status: { State: 'rejected', ContainerStatus: { ContainerID: '' } },
    });
    const older = rejected('a', '2026-12-01T03:24:26.92Z');
    const newer = rejected('b', '2026-12-01T03:24:26.920000001Z');
    const whole = rejected('c', '2026-12-01T03:24:26Z');
    for (const order of [
      [older, newer, whole],
      [newer, whole, older],
      [whole, older, newer],
    ]) {
      expect(keptTasks(order)).toEqual([newer]);
    }
    expect(keptTasks([older, { ...newer, NodeID: 'm' }, { ...whole, Slot: 2 }])).toHaveLength(3);
  });
});

describe('a census that is not whole', () => {
  const answers = (path: string, status: number) => (edit: Edit) =>
    edit('index.json', (index) => {
      index.find((entry: { path: string }) => entry.path === path).status = status;
    });

  it.each(['/v1.41/tasks', '/v1.41/services', '/v1.41/nodes', '/v1.41/info'])('because %s fails', async (path) => {
    const snapshot = await edited(answers(path, 500));
    expect(fleetCutoverManagerSnapshotRecord.validate(snapshot)).toEqual([]);
    expect(snapshot).toMatchObject({ complete: false, runtime, reason: 'engine-error' });
    expect(snapshot).toHaveProperty(
      'counts',
      path === '/v1.41/nodes' ? { containers: 0, volumes: 0, services: 40, tasks: 84 } : null,
    );
  });

  it('because the engine is no manager', async () => {
    const snapshot = await collect(capturedDirectory('worker'));
    expect(snapshot).toEqual({ complete: false, runtime, reason: 'engine-error', counts: null });
  });

  it('because the swarm has no leader', async () => {
    const snapshot = await edited((edit) =>
      edit('info.json', (info) => {
        info.Swarm.Error = 'rpc error: code = Unknown desc = The swarm does not have a leader.';
        delete info.Swarm.Cluster;
      }),
    );
    expect(snapshot).toMatchObject({ complete: false, reason: 'engine-error', counts: null });
  });

  it('because there are too many live tasks; the same number of finished ones is none', async () => {
    const tasks = (state: string, count: number) => (edit: Edit) =>
      edit('tasks.json', ([task]) =>
        Array.from({ length: count }, (_, index) => ({
          ...task,
          ID: `t${index}`,
          Slot: index + 1,
          Status: { State: state, ContainerStatus: { ContainerID: `c${index}` } },
        })),
      );
    expect(await edited(tasks('running', 4097))).toEqual({
      complete: false,
      runtime,
      reason: 'truncated',
      counts: { containers: 0, volumes: 0, services: 40, tasks: 4097 },
    });
    expect(complete(await edited(tasks('running', 4096))).tasks).toHaveLength(4096);
    expect(complete(await edited(tasks('failed', 4097))).tasks).toHaveLength(4097);
    expect(await edited(tasks('failed', 32_769))).toMatchObject({ reason: 'truncated', counts: { tasks: 32_769 } });
  });

  it('because one service has too many ports or mounts', async () => {
    const many = (length: number) => Array.from({ length }, (_, index) => index);
    const ports = await edited((edit) =>
      edit('services.json', ([service]) => {
        service.Endpoint.Ports = many(1025).map((port) => ({ Protocol: 'udp', TargetPort: port, PublishedPort: port }));
      }),
    );
    expect(ports).toMatchObject({ complete: false, reason: 'truncated', counts: { services: 40, tasks: 84 } });
    const mounts = await edited((edit) =>
      edit('services.json', ([service]) => {
        service.Spec.TaskTemplate.ContainerSpec.Mounts = many(257).map((name) => ({
          Type: 'tmpfs',
          Target: `/${name}`,
        }));
      }),
    );
    expect(mounts).toMatchObject({ complete: false, reason: 'truncated' });
  });

  it('because one id stands for two things', async () => {
    for (const file of ['nodes.json', 'services.json', 'tasks.json']) {
      const snapshot = await edited((edit) => edit(file, (list) => [...list, list[0]]));
      expect(snapshot).toMatchObject({ complete: false, reason: 'inconsistent' });
    }
  });

  it('because of a word that nobody knows', async () => {
    const edits: [string, (list: RawAnswer) => void][] = [
      ['tasks.json', ([task]) => (task.Status.State = 'dreaming')],
      ['tasks.json', ([task]) => (task.CreatedAt = 'yesterday')],
      ['nodes.json', ([node]) => (node.Spec.Role = 'witness')],
      ['services.json', ([service]) => (service.Spec.Mode = {})],
      ['services.json', ([service]) => (service.Spec.Mode = { Replicated: { Replicas: 1 }, Global: {} })],
      ['services.json', ([service]) => (service.Spec.TaskTemplate.ContainerSpec.Mounts[0].Type = 'wormhole')],
      ['services.json', ([service]) => (service.Spec.Name = 'x'.repeat(256))],
    ];
    for (const [file, change] of edits) {
      const snapshot = await edited((edit) =>
        edit(file, (list) => {
          change(list);
        }),
      );
      expect(snapshot).toMatchObject({ complete: false, reason: 'engine-error' });
    }
  });

  it('because of a spec nested so deeply that nobody can digest it', async () => {
    const snapshot = await edited((edit) =>
      edit('services.json', (services) =>
        JSON.stringify(services).replace('"Labels":', `"Deep":${'['.repeat(100_000)}${']'.repeat(100_000)},"Labels":`),
      ),
    );
    expect(snapshot).toMatchObject({ complete: false, reason: 'engine-error' });
  });
});

it('keeps tasks of a removed service: Swarm still has them', async () => {
  const snapshot = complete(
    await edited((edit) =>
      edit('services.json', (services) => services.filter((one: RawAnswer) => one.Spec.Name !== 'web')),
    ),
  );
  expect(snapshot.services).toHaveLength(39);
  expect(snapshot.tasks.filter((task) => task.serviceId === 'k1a8838sbjr0e6xkfqnszyhxx')).toHaveLength(2);
});

it('calls a node by its id before it ever reported', async () => {
  const snapshot = complete(
    await edited((edit) =>
      edit('nodes.json', (nodes) => {
        delete nodes[1].Description;
        nodes[1].Status.State = 'unknown';
      }),
    ),
  );
  expect(snapshot.nodes[1]).toMatchObject({ hostname: 'uagvogbowshqi6xuuxxcfqmf8', state: 'unknown' });
});
