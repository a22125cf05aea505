import { describe, expect, it } from 'vitest';
import { capturedSource } from '../../src/agents/docker/captured-source.js';
import type { CensusFailure } from '../../src/agents/docker/census-failure.js';
import { fitSnapshots, maximumSnapshotPairBytes } from '../../src/agents/docker/census-size.js';
import { observeNode, type SwarmObservationBody } from '../../src/agents/docker/observe-node.js';
import { maximumObservationCensusBytes } from '../../src/contract/limits.js';
import { sparkSwarmObservationRecord } from '../../src/contract/observation.js';
import {
  capturedDirectory,
  type CapturedNode,
  type Edit,
  editedCapture,
  sparkFacts,
} from '../support/docker-engine.js';

const sent = (body: SwarmObservationBody) => ({
  ...body,
  reporterSessionId: 'session-1',
  observationSequence: 1,
  observedAt: 1_796_095_486_000,
});

const edited = async (node: CapturedNode, work: (edit: Edit) => Promise<void>) =>
  observeNode(capturedSource(await editedCapture(node, work)), sparkFacts);
const withSwarm = (node: CapturedNode, change: Record<string, unknown>) =>
  edited(node, (edit) =>
    edit('info.json', (info) => {
      Object.assign(info.Swarm, change);
    }),
  );

describe('an observation', () => {
  it('of a manager has both snapshots', async () => {
    const body = await observeNode(capturedSource(capturedDirectory('manager')), sparkFacts);
    expect(body).toMatchObject({
      state: 'member',
      localSwarmNodeId: '0s4tsfgrrzfr4ei0yqncs7igy',
      controlAvailable: true,
      fleetCutoverLocalNodeSnapshot: { complete: true },
      fleetCutoverManagerSnapshot: { complete: true },
    });
    expect(sparkSwarmObservationRecord.validate(sent(body))).toEqual([]);
  });

  it('of a worker has no manager snapshot', async () => {
    const body = await observeNode(capturedSource(capturedDirectory('worker')), sparkFacts);
    expect(body).toMatchObject({ localSwarmNodeId: 'uagvogbowshqi6xuuxxcfqmf8', controlAvailable: false });
    expect(body).not.toHaveProperty('fleetCutoverManagerSnapshot');
    expect(sparkSwarmObservationRecord.validate(sent(body))).toEqual([]);
  });

  it('of a node outside a swarm has the local snapshot', async () => {
    const body = await withSwarm('worker', { LocalNodeState: 'inactive', NodeID: '' });
    expect(Object.keys(body).sort()).toEqual(['fleetCutoverLocalNodeSnapshot', 'state']);
    expect(body).toMatchObject({ state: 'inactive', fleetCutoverLocalNodeSnapshot: { complete: true } });
    expect(sparkSwarmObservationRecord.validate(sent(body))).toEqual([]);
  });

  it.each([
    ['pending', 'swarm-pending'],
    ['locked', 'swarm-locked'],
    ['error', 'swarm-error'],
    ['', 'docker-error'],
    ['dreaming', 'docker-error'],
  ])('of a node whose swarm state is %s is unknown: %s', async (LocalNodeState, reason) => {
    const body = await withSwarm('manager', { LocalNodeState });
    expect(body).toEqual({ state: 'unknown', reason });
    expect(sparkSwarmObservationRecord.validate(sent(body))).toEqual([]);
  });

  it('of a member without an id is unknown', async () => {
    expect(await withSwarm('worker', { NodeID: '' })).toEqual({ state: 'unknown', reason: 'docker-error' });
  });

  it('of a manager that lost its leader keeps the member state and says what is missing', async () => {
    const body = await edited('manager', async (edit) => {
      await edit('info.json', (info) => {
        delete info.Swarm.Cluster;
      });
      await edit('index.json', (index) => {
        for (const entry of index) if (/\/(nodes|services|tasks)$/.test(entry.path)) entry.status = 503;
      });
    });
    expect(body).toMatchObject({
      state: 'member',
      controlAvailable: true,
      fleetCutoverLocalNodeSnapshot: {
        complete: false,
        reason: 'engine-error',
        counts: { containers: 39, volumes: 31 },
      },
      fleetCutoverManagerSnapshot: { complete: false, reason: 'engine-error', counts: null },
    });
    expect(sparkSwarmObservationRecord.validate(sent(body))).toEqual([]);
  });
});

it('lets no secret out, wherever Docker keeps it', async () => {
  const canary = 'c4n4ry-s3cr3t';
  const nfs = {
    type: 'cifs',
    device: `//u:${canary}@files/share`,
    o: `username=${canary},password=${canary},${canary},rw`,
  };
  const plugin = { size: '1', token: canary, [canary]: '1' };
  const failures: CensusFailure[] = [];
  const directory = await editedCapture('manager', async (edit) => {
    await edit('volumes.json', ({ Volumes }) => {
      for (const volume of Volumes) {
        volume.Labels = { [canary]: canary };
        if (volume.Driver === 'demostore') volume.Options = plugin;
        if (volume.Name === 'nfs-data') volume.Options = nfs;
      }
    });
    await edit('services.json', (services) => {
      for (const { Spec } of services) {
        Object.assign(Spec.Labels, { [`auth.${canary}`]: canary, 'serve.zone.rolex': canary });
        Spec.TaskTemplate.ContainerSpec.Env = [`PASSWORD=${canary}`];
        Spec.TaskTemplate.ContainerSpec.Args = [canary];
        for (const mount of Spec.TaskTemplate.ContainerSpec.Mounts ?? []) {
          if (mount.Type !== 'volume') continue;
          mount.VolumeOptions = { Labels: { a: canary }, DriverConfig: { Name: 'local', Options: nfs } };
        }
      }
    });
    await edit('tasks.json', (tasks) => {
      for (const task of tasks) {
        task.Spec.ContainerSpec.Env = [canary];
        task.Status.Err = canary;
      }
    });
    await edit('containers/standalone-db.json', (container) => {
      container.Config.Env.push(`PASSWORD=${canary}`);
      container.Config.Labels[canary] = canary;
      container.State.Error = canary;
      container.Args = [canary];
    });
  });
  const onFailure = (failure: CensusFailure) => failures.push(failure);
  const body = await observeNode(capturedSource(directory), { ...sparkFacts, onFailure });
  expect(failures).toEqual([]);
  expect(body).toMatchObject({
    fleetCutoverLocalNodeSnapshot: { complete: true },
    fleetCutoverManagerSnapshot: { complete: true },
  });
  expect(JSON.stringify(body)).not.toContain(canary);
  expect(JSON.stringify(body)).not.toContain('username');
});

describe('the size of an observation', () => {
  const base = () => observeNode(capturedSource(capturedDirectory('manager')), sparkFacts);
  const both = async () => {
    const body = await base();
    if (body.state !== 'member') throw new Error(body.state);
    const { fleetCutoverLocalNodeSnapshot: local, fleetCutoverManagerSnapshot: manager } = body;
    if (local === undefined || manager === undefined) throw new Error('a snapshot is missing');
    return { local, manager, bytes: (value: unknown) => Buffer.byteLength(JSON.stringify(value)) };
  };
  const local = { complete: false, runtime: sparkFacts.runtime, reason: 'truncated' };

  it('leaves room for the rest of the request', () => {
    const longest = {
      nodeId: 'n'.repeat(128),
      nodeToken: 't'.repeat(43),
      protocol: { major: 32, minor: 15 },
      observation: {
        ...sent({ state: 'unknown', reason: 'timeout' }),
        reporterSessionId: 's'.repeat(128),
        observationSequence: Number.MAX_SAFE_INTEGER,
        localSwarmNodeId: 'm'.repeat(128),
        controlAvailable: false,
        fleetCutoverLocalNodeSnapshot: null,
        fleetCutoverManagerSnapshot: null,
      },
    };
    const rest = Buffer.byteLength(JSON.stringify(longest));
    expect(maximumSnapshotPairBytes + rest).toBeLessThan(maximumObservationCensusBytes);
  });

  it('is kept by telling the larger snapshot as truncated, with its counts', async () => {
    const pair = await both();
    const [localBytes, managerBytes] = [pair.bytes(pair.local), pair.bytes(pair.manager)];
    expect(fitSnapshots(pair, localBytes + managerBytes)).toMatchObject({ local: pair.local, manager: pair.manager });
    expect(managerBytes).toBeGreaterThan(localBytes);
    expect(fitSnapshots(pair, localBytes + managerBytes - 1)).toEqual({
      local: pair.local,
      manager: { ...local, counts: { containers: 0, volumes: 0, services: 40, tasks: 84 } },
    });
    expect(fitSnapshots(pair, localBytes - 1)).toEqual({
      local: { ...local, counts: { containers: 39, volumes: 31, services: 0, tasks: 0 } },
      manager: { ...local, counts: { containers: 0, volumes: 0, services: 40, tasks: 84 } },
    });
    if (!pair.manager.complete) throw new Error(pair.manager.reason);
    const smaller = { ...pair.manager, services: [] };
    expect(pair.bytes(smaller)).toBeLessThan(localBytes);
    expect(fitSnapshots({ local: pair.local, manager: smaller }, pair.bytes(smaller) - 1)).toMatchObject({
      local: { reason: 'truncated' },
      manager: { reason: 'truncated' },
    });
    expect(fitSnapshots({ local: pair.local }, localBytes - 1)).toEqual({
      local: { ...local, counts: { containers: 39, volumes: 31, services: 0, tasks: 0 } },
    });
  });

  it('is bounded end to end', async () => {
    const body = await edited('worker', (edit) =>
      edit('volumes.json', (answer) => {
        const [volume] = answer.Volumes;
        for (let index = 0; index < 2000; index++) {
          answer.Volumes.push({ ...volume, Name: `v${index}`, Mountpoint: `/${'m'.repeat(4000)}` });
        }
      }),
    );
    expect(body).toMatchObject({
      state: 'member',
      fleetCutoverLocalNodeSnapshot: { ...local, counts: { containers: 43, volumes: 2035, services: 0, tasks: 0 } },
    });
  });
});
