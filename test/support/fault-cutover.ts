/** A cluster of one node that goes from phase to phase, through the wire alone: what each gate asks for, and no more. */
import {
  admit,
  digestText,
  type FaultFleet,
  type FaultNode,
  nextReport,
  prepareAllKeys,
  registerFaultNode,
  statementOf,
  unadmittedFleet,
} from './fault-fleet.js';
import { sealedDigestOf } from './oracle-digest.js';
import {
  type AnswerBody,
  observationPath,
  oracleMutationId,
  type RawClient,
  type Reference,
  referenceIn,
} from './oracle-http.js';
import { readPage } from './oracle-pages.js';

export const faultPhases = ['swarm', 'draining', 'switching', 'pallet'] as const;
export type FaultPhase = (typeof faultPhases)[number];

export interface FaultCutover {
  /** Its `runtime` is the current one. */
  readonly fleet: FaultFleet;
  readonly node: FaultNode;
  /** Complete. */
  aggregate: Reference;
  phase: FaultPhase;
  /** Applications and relay have ended. */
  stopped: boolean;
}

const RELAY = 'relay';

/** In phase `swarm`, with a complete aggregate: the gate to `draining` is closed. */
export async function buildFaultCutover(client: RawClient, clusterId: string, volumes = 1): Promise<FaultCutover> {
  const mutation = () => ({ mutationId: oracleMutationId() });
  const created = await client.done('createCluster', {
    ...mutation(),
    clusterId,
    controllerId: 'controller',
    runtimeNamespace: 'runtime',
  });
  const node = await registerFaultNode(client, clusterId, 0, volumes);
  const owner = await client.done('createService', { ...mutation(), name: `${clusterId}-db` });
  await client.done('registerCoreflowRelay', { ...mutation(), clusterId, swarmServiceId: RELAY });
  const fleet = unadmittedFleet(clusterId, owner.service.serviceId, referenceIn(created.runtime), [node]);
  const none: Reference = { id: '', generation: 0, digest: '' };
  const cut = { fleet, node, aggregate: none, phase: 'swarm' as const, stopped: false };
  await report(client, cut);
  const { services, ...rest } = statementOf(fleet);
  const relay = { swarmServiceId: RELAY, class: 'coreflow', serviceId: null, reason: null, mounts: [] };
  await admit(client, fleet, { ...rest, services: [...services, relay], coreflow: { state: 'classified' } });
  return { ...cut, aggregate: await prepareAllKeys(client, fleet) };
}

/** Everything that the next phase's gate asks for. */
export async function readyFor(client: RawClient, cut: FaultCutover, phase: FaultPhase): Promise<void> {
  if (phase === 'switching') {
    const receipt = await report(client, cut, { fleetCutoverHeldVolumeFences: await heldPage(client, cut, 0) });
    if (receipt.heldVolumeFences.state !== 'accepted') throw new Error(`holds: ${JSON.stringify(receipt)}`);
  }
  if (phase === 'pallet') {
    const { clusterId, runtime } = cut.fleet;
    await client.done('revokeFleetCutoverCoreflowCredential', { mutationId: oracleMutationId(), clusterId, runtime });
    cut.stopped = true;
    await report(client, cut);
  }
}

export function advanceBody(
  { fleet: { clusterId, runtime } }: FaultCutover,
  to: FaultPhase,
): { mutationId: string } & Record<string, unknown> {
  return { mutationId: oracleMutationId(), clusterId, runtime, to };
}

/** The service has said that the cluster is in this runtime now. */
export function entered(cut: FaultCutover, runtime: AnswerBody): void {
  cut.fleet.runtime = referenceIn(runtime);
  cut.phase = runtime.phase;
}

export async function bringTo(client: RawClient, cut: FaultCutover, phase: FaultPhase): Promise<void> {
  const from = faultPhases.indexOf(cut.phase);
  for (const next of faultPhases.slice(from + 1, faultPhases.indexOf(phase) + 1)) {
    await readyFor(client, cut, next);
    entered(cut, (await client.done('advanceFleetCutoverPhase', advanceBody(cut, next))).runtime);
  }
}

/** The node's next report under the current runtime, of all that it has; not sent yet. */
export function cutoverReport({ fleet, node, stopped }: FaultCutover, more: object = {}): AnswerBody {
  const body = nextReport(fleet, node);
  const { observation } = body;
  const { fleetCutoverLocalNodeSnapshot: local, fleetCutoverManagerSnapshot: manager } = observation;
  local.runtime = manager.runtime = fleet.runtime;
  local.pallet = { version: '1', fenceStoreId: fenceStoreOf(node), ready: true };
  if (stopped) {
    for (const container of local.containers) container.state = 'exited';
    for (const service of manager.services) service.replicas = 0;
    for (const task of manager.tasks) task.desiredState = task.state = 'shutdown';
  } else {
    const [container] = local.containers;
    const own = { id: `${node.swarmNodeId}-relay`, name: 'relay.1', swarmTaskId: 'relay.1', swarmServiceId: RELAY };
    local.containers.push({ ...container, ...own, imageDigest: digestText('relay'), mounts: [] });
    manager.services.push({ ...manager.services[0], id: RELAY, name: RELAY, specDigest: digestText('relay') });
    manager.tasks.push({ ...manager.tasks[0], id: 'relay.1', serviceId: RELAY, slot: 1, containerId: own.id });
  }
  Object.assign(observation, more);
  return body;
}

/** Sends it; gives the receipt. */
export async function report(client: RawClient, cut: FaultCutover, more: object = {}): Promise<AnswerBody> {
  const answer = await client.spark(observationPath, cutoverReport(cut, more));
  if (answer.status !== 200) throw new Error(`report of ${cut.node.nodeId}: ${answer.status} ${answer.text}`);
  return answer.body;
}

function fenceStoreOf(node: FaultNode): string {
  return `fs-${node.nodeId}`;
}

/** The node's holds of one page of the current aggregate, taken for the n-th time. */
export async function heldPage(
  client: RawClient,
  { fleet, node, aggregate }: FaultCutover,
  pageIndex: number,
  generation = 1,
): Promise<AnswerBody> {
  const answer = await readPage(client, node, aggregate, pageIndex);
  if (answer.status !== 200) throw new Error(`page ${pageIndex}: ${answer.status} ${answer.text}`);
  const { page, nodeHandoffs } = answer.body;
  return {
    aggregate: page.aggregate,
    pageIndex,
    contentDigest: page.contentDigest,
    nodeId: node.nodeId,
    fences: nodeHandoffs.map((handoff: AnswerBody) => {
      const fence = {
        id: `vf-${handoff.id}`,
        generation,
        state: 'held',
        clusterId: fleet.clusterId,
        nodeId: node.nodeId,
        fenceStoreId: fenceStoreOf(node),
        volumeId: handoff.volumeId,
        mountIdentityDigest: handoff.observedMount.mountIdentityDigest,
        handoff: referenceIn(handoff),
      };
      return { ...fence, digest: sealedDigestOf('fleet-cutover-volume-fence', fence) };
    }),
  };
}
