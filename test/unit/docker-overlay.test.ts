import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { capturedSource } from '../../src/agents/docker/captured-source.js';
import { observeNode } from '../../src/agents/docker/observe-node.js';
import { overlaySource, SwarmOverlay } from '../../src/agents/docker/overlay-source.js';
import { isAnonymousVolumeName } from '../../src/contract/mount.js';
import {
  isTerminalTaskState,
  type IFleetCutoverCompleteLocalNodeSnapshot,
  type IFleetCutoverCompleteManagerSnapshot,
} from '../../src/contract/observation.js';
import { referenceNamed } from '../support/handoff-set.js';

const fixture = (node: string) => capturedSource(join(import.meta.dirname, '..', 'fixtures', 'swarm', node));
const managerNodeId = '0s4tsfgrrzfr4ei0yqncs7igy';
const { digest } = referenceNamed('spark');

async function observe(node: string, overlay: SwarmOverlay) {
  const body = await observeNode(overlaySource(fixture(node), overlay), {
    runtime: null,
    pallet: null,
    spark: { bundleDigest: digest, unitDigest: digest, configurationDigest: digest, oldModeRefused: true },
  });
  if (body.state !== 'member') throw new Error('the captured nodes are members');
  return {
    local: body.fleetCutoverLocalNodeSnapshot as IFleetCutoverCompleteLocalNodeSnapshot,
    manager: body.fleetCutoverManagerSnapshot as IFleetCutoverCompleteManagerSnapshot | undefined,
  };
}

describe('an overlay', () => {
  it('without anything leaves the capture as it is', async () => {
    const overlay = new SwarmOverlay();
    for (const node of ['manager', 'worker']) {
      const plain = await observeNode(fixture(node), {
        runtime: null,
        pallet: null,
        spark: { bundleDigest: digest, unitDigest: digest, configurationDigest: digest, oldModeRefused: true },
      });
      const { local } = await observe(node, overlay);
      expect(plain).toMatchObject({ fleetCutoverLocalNodeSnapshot: local });
    }
  });

  it('adds a labelled service with one task and container on one node, and its ports, and takes it away again', async () => {
    const overlay = new SwarmOverlay();
    const id = overlay.add({ name: 'coretraffic', role: 'ingress', swarmNodeId: managerNodeId, ports: [80, 443] });
    const { local, manager } = await observe('manager', overlay);
    expect(manager!.services.find((each) => each.id === id)).toMatchObject({
      name: 'coretraffic',
      labels: [{ key: 'serve.zone.role', value: 'ingress' }],
      replicas: 1,
      ports: [{ publishedPort: 80 }, { publishedPort: 443 }],
    });
    const task = manager!.tasks.find((each) => each.serviceId === id);
    expect(task).toMatchObject({ nodeId: managerNodeId, state: 'running' });
    expect(local.containers.filter((each) => each.swarmServiceId === id)).toMatchObject([
      { id: task!.containerId, swarmTaskId: task!.id, state: 'running', mounts: [] },
    ]);
    expect(
      local.ports.filter(({ owner }) => owner.kind === 'swarm-service' && owner.swarmServiceId === id),
    ).toHaveLength(2);
    expect((await observe('worker', overlay)).local.containers.some((each) => each.swarmServiceId === id)).toBe(false);
    overlay.remove(id);
    expect(await observe('manager', overlay)).toEqual(await observe('manager', new SwarmOverlay()));
  });

  it('stops services as Swarm does: at zero or gone, no live task, no container, no anonymous volume of theirs', async () => {
    const before = {
      manager: await observe('manager', new SwarmOverlay()),
      worker: await observe('worker', new SwarmOverlay()),
    };
    const overlay = new SwarmOverlay();
    const stopped = before.manager.manager!.services.filter((each) => each.name !== 'web').map((each) => each.id);
    const anonymous = { manager: anonymousMounts(before.manager.local), worker: anonymousMounts(before.worker.local) };
    expect([anonymous.manager.length, anonymous.worker.length]).toEqual([2, 4]);
    const [kept, lost] = anonymous.manager as [string, string];
    overlay.keep({ name: 'keeper', swarmNodeId: managerNodeId, volumes: [kept] });
    expect((await observe('manager', overlay)).local.containers.find((each) => each.name === 'keeper')).toMatchObject({
      state: 'created',
      swarmTaskId: null,
      swarmServiceId: null,
      mounts: [{ type: 'volume', name: kept, destination: `/keep/${kept}` }],
    });
    overlay.stop(stopped);
    overlay.removeKeeper('keeper');
    const { local, manager } = await observe('manager', overlay);
    const left = manager!.services.filter((each) => stopped.includes(each.id));
    expect(left.every((each) => each.replicas === 0 && each.mode === 'replicated')).toBe(true);
    expect(left.length).toBeLessThan(stopped.length);
    const tasks = manager!.tasks.filter((each) => stopped.includes(each.serviceId));
    expect(tasks.every((each) => isTerminalTaskState(each.state))).toBe(true);
    expect(manager!.services.find((each) => each.name === 'web')).toMatchObject({ replicas: 2 });
    const isStopped = (swarmServiceId: string | null) => swarmServiceId !== null && stopped.includes(swarmServiceId);
    for (const [was, now] of [
      [before.manager.local, local],
      [before.worker.local, (await observe('worker', overlay)).local],
    ] as const) {
      expect(now.containers).toEqual(was.containers.filter((each) => !isStopped(each.swarmServiceId)));
    }
    const gone = (was: Local, now: Local) => namesOf(was).filter((name) => !namesOf(now).includes(name));
    // What a keeper mounted when the service was stopped stays, also when the keeper goes.
    expect(gone(before.manager.local, local)).toEqual([lost]);
    expect(gone(before.worker.local, (await observe('worker', overlay)).local)).toEqual(anonymous.worker);
  });
});

type Local = IFleetCutoverCompleteLocalNodeSnapshot;

const namesOf = (local: Local) => local.volumes.map(({ name }) => name);

/** Anonymous volumes that a container of Swarm mounts, sorted. */
function anonymousMounts(local: Local): string[] {
  const names = local.containers
    .filter((each) => each.swarmServiceId !== null)
    .flatMap(({ mounts }) => mounts.flatMap(({ name }) => (name !== null && isAnonymousVolumeName(name) ? name : [])));
  return [...new Set(names)].sort();
}
