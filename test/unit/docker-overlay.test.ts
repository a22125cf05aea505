import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { capturedSource } from '../../src/agents/docker/captured-source.js';
import { observeNode } from '../../src/agents/docker/observe-node.js';
import { overlaySource, SwarmOverlay } from '../../src/agents/docker/overlay-source.js';
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

  it('stops services: at zero or gone, no live task, no container that runs, every mount still there', async () => {
    const before = await observe('manager', new SwarmOverlay());
    const overlay = new SwarmOverlay();
    const stopped = before.manager!.services.filter((each) => each.name !== 'web').map((each) => each.id);
    overlay.stop(stopped);
    const { local, manager } = await observe('manager', overlay);
    const left = manager!.services.filter((each) => stopped.includes(each.id));
    expect(left.every((each) => each.replicas === 0 && each.mode === 'replicated')).toBe(true);
    expect(left.length).toBeLessThan(stopped.length);
    const tasks = manager!.tasks.filter((each) => stopped.includes(each.serviceId));
    expect(tasks.every((each) => isTerminalTaskState(each.state))).toBe(true);
    const isStopped = (swarmServiceId: string | null) => swarmServiceId !== null && stopped.includes(swarmServiceId);
    for (const container of local.containers) {
      const was = before.local.containers.find((each) => each.id === container.id)!;
      expect(container.mounts).toEqual(was.mounts);
      expect(container.state).toBe(isStopped(container.swarmServiceId) ? 'exited' : was.state);
    }
    expect(manager!.services.find((each) => each.name === 'web')).toMatchObject({ replicas: 2 });
    const worker = await observe('worker', overlay);
    const active = worker.local.containers.filter((each) => isStopped(each.swarmServiceId) && each.state !== 'exited');
    expect(active).toEqual([]);
  });
});
