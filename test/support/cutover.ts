/**
 * A small cluster that is brought to any phase through real observations: what Docker has on its nodes is a world that a
 * test changes, and every report says what the world is then.
 */
import { digestDomain, sealRecord } from '../../src/contract/digest.js';
import type { IFleetCutoverGate } from '../../src/contract/gate.js';
import type {
  IFleetCutoverPreparedVolumeHandoffIntent,
  IFleetCutoverPreparedVolumeHandoffPage,
  TSparkGetFleetCutoverPreparedVolumeHandoffsResponse,
} from '../../src/contract/handoff.js';
import type {
  IFleetCutoverHeldVolumeFenceEvidencePage,
  TFleetCutoverVolumeFence,
} from '../../src/contract/held-fence.js';
import { sparkSwarmNodeContracts } from '../../src/contract/limits.js';
import { isAnonymousVolumeName } from '../../src/contract/mount.js';
import type { MethodRequest, MethodResponse } from '../../src/contract/methods.js';
import type {
  IFleetCutoverCompleteLocalNodeSnapshot,
  IFleetCutoverCompleteManagerSnapshot,
  IObservedContainer,
  IObservedSwarmService,
  IObservedSwarmTask,
} from '../../src/contract/observation.js';
import type { TFleetCutoverPhase } from '../../src/contract/runtime.js';
import { type Reference, referenceOf } from '../../src/contract/schema.js';
import type { IFleetCutoverScopeStatement } from '../../src/contract/scope.js';
import { createFleet, type ReportAnswer, type ReportOptions, type TestFleet } from './fleet.js';
import { type Answer, mutationId, type TestService } from './service.js';
import {
  container,
  localSnapshot,
  managerSnapshot,
  scopeService,
  scopeStatement,
  swarmNode,
  swarmService,
  swarmTask,
  taskContainer,
  volume,
  volumeMount,
} from './snapshots.js';

/** What one node's Docker has. */
export interface NodeWorld {
  containers: IObservedContainer[];
  /** Names of its volumes: each that a container mounts, and each that was mounted until somebody takes it away. */
  volumes: string[];
  palletReady: boolean;
  /** Where Pallet keeps the node's fences. */
  fenceStoreId: string;
  oldModeRefused: boolean;
}

export interface World {
  /** In node order; the first is the manager and runs the relay. */
  readonly nodes: NodeWorld[];
  services: IObservedSwarmService[];
  tasks: IObservedSwarmTask[];
}

export interface CutoverOptions {
  /** Volumes of the application's one container on each node. */
  readonly volumes?: readonly number[];
  /** False: the scope says that there is no relay. */
  readonly relay?: boolean;
  /** The first node's application mounts {@link anonymousVolume}, too; {@link keeper} is there and its overlap confirmed. */
  readonly kept?: boolean;
}

export const anonymousVolume = 'a'.repeat(64);

/** Outside Swarm, created and never started; it refers to the anonymous volume by name. */
export function keeper(): IObservedContainer {
  return container('keeper', {
    state: 'created',
    mounts: [volumeMount(anonymousVolume, '/keep', { readWrite: false })],
  });
}

export interface Cutover {
  readonly service: TestService;
  readonly fleet: TestFleet;
  readonly clusterId: string;
  readonly nodeIds: readonly string[];
  readonly world: World;
  /** Classes of all services; a test that classifies differently changes it. */
  readonly statement: IFleetCutoverScopeStatement;
  /** The current runtime. */
  runtime(): Promise<Reference>;
  phase(): Promise<TFleetCutoverPhase>;
  /** The node's snapshot as the world is, taken under the current runtime unless another one is given. */
  local(node: number, runtime?: Reference | null): Promise<IFleetCutoverCompleteLocalNodeSnapshot>;
  manager(runtime?: Reference | null): Promise<IFleetCutoverCompleteManagerSnapshot>;
  /** One report of a node: its snapshot and, from the first, the manager's. */
  report(node: number, runtime?: Reference | null, options?: ReportOptions): Promise<ReportAnswer>;
  reportAll(): Promise<void>;
  classify(
    statement?: IFleetCutoverScopeStatement,
    over?: Partial<MethodRequest<'classifyFleetCutoverScope'>>,
  ): Promise<Answer<'classifyFleetCutoverScope'>>;
  accept(nodeIds?: readonly string[]): Promise<Answer<'acceptFleetCutoverTargetSet'>>;
  /** Prepares what is missing and makes the aggregate's next revision where it is behind. */
  prepare(): Promise<void>;
  rederive(): Promise<Answer<'rederiveFleetCutoverVolumeHandoffs'>>;
  aggregate(): Promise<Reference>;
  /** A node's evidence of one page, at this generation of its fences. */
  evidence(node: number, pageIndex: number, generation?: number): Promise<IFleetCutoverHeldVolumeFenceEvidencePage>;
  send(node: number, evidence: object, options?: ReportOptions): Promise<ReportAnswer>;
  hold(node: number, pageIndex: number, generation?: number): Promise<ReportAnswer>;
  holdAll(generation?: number): Promise<void>;
  pageCount(): Promise<number>;
  advance(
    to: TFleetCutoverPhase,
    over?: Partial<MethodRequest<'advanceFleetCutoverPhase'>>,
  ): Promise<Answer<'advanceFleetCutoverPhase'>>;
  explain(subject?: MethodRequest<'explainFleetCutover'>['subject']): Promise<MethodResponse<'explainFleetCutover'>>;
  /** Unmet gates of the next phase, as `explain` and the advance's refusal agree on them. */
  unmet(): Promise<IFleetCutoverGate[]>;
  revokeRelay(): Promise<Answer<'revokeFleetCutoverCoreflowCredential'>>;
  /** What administrators do in `switching`: applications and the relay end, keepers are removed, Pallet is ready. */
  stopEverything(): void;
  /** Swarm removes a service's containers, and with each the anonymous volumes that no other container mounts. */
  removeContainers(swarmServiceId: string): void;
  /** Everything that the phase needs, up to the advance to it and with it. */
  bringTo(phase: TFleetCutoverPhase): Promise<void>;
  /** Everything that the next phase needs, without the advance. */
  readyFor(phase: TFleetCutoverPhase): Promise<void>;
}

const fenceDomain = digestDomain('TFleetCutoverVolumeFence');

export function sealFence(content: Omit<TFleetCutoverVolumeFence, 'digest'>): TFleetCutoverVolumeFence {
  return sealRecord(fenceDomain, content);
}

/** The fence that a node holds for a handoff. */
export function fenceFor(handoff: IFleetCutoverPreparedVolumeHandoffIntent, generation = 1): TFleetCutoverVolumeFence {
  return sealFence({
    id: `vf-${handoff.id}`,
    generation,
    state: 'held',
    clusterId: handoff.clusterId,
    nodeId: handoff.nodeId,
    fenceStoreId: `fs-${handoff.nodeId}`,
    volumeId: handoff.volumeId,
    mountIdentityDigest: handoff.observedMount.mountIdentityDigest,
    handoff: referenceOf(handoff),
  });
}

function volumesOf(containers: readonly IObservedContainer[]): string[] {
  return containers.flatMap(({ mounts }) => mounts.flatMap(({ name }) => name ?? []));
}

/** Docker of a node that runs one application's task with some volumes. */
function applicationContainer(node: number, volumes: number): IObservedContainer[] {
  if (volumes === 0) return [];
  const mounts = Array.from({ length: volumes }, (_, index) =>
    volumeMount(`v${String(index).padStart(2, '0')}`, `/data/${String(index).padStart(2, '0')}`),
  );
  return [taskContainer(`app-${node}`, mounts)];
}

/** The container of the legacy relay. */
export function relayContainer(name = 'relay.1'): IObservedContainer {
  return container(name, {
    swarmTaskId: name,
    swarmServiceId: 'relay',
    imageDigest: `sha256:${'a'.repeat(64)}`,
  });
}

function firstWorld(nodeIds: readonly string[], volumes: readonly number[], relay: boolean): World {
  const applications = nodeIds.flatMap((nodeId, node) => (volumes[node]! > 0 ? [{ nodeId, node }] : []));
  const world: World = {
    nodes: nodeIds.map((_, node) => ({
      containers: applicationContainer(node, volumes[node]!),
      volumes: [],
      palletReady: false,
      fenceStoreId: `fs-${nodeIds[node]!}`,
      oldModeRefused: false,
    })),
    services: [...applications.map(({ node }) => swarmService(`app-${node}`)), swarmService('edge')],
    tasks: [
      ...applications.map(({ nodeId, node }) => swarmTask(`app-${node}`, `sn-${nodeId}`)),
      swarmTask('edge', `sn-${nodeIds[1]!}`),
    ],
  };
  world.nodes[1]!.containers.push(taskContainer('edge', []));
  if (relay) {
    world.nodes[0]!.containers.push(relayContainer());
    world.services.push(swarmService('relay'));
    world.tasks.push(swarmTask('relay', `sn-${nodeIds[0]!}`));
  }
  return world;
}

/** Registers, reports and classifies; the phase is `swarm` and nothing is targeted or prepared. */
export async function cutover(service: TestService, clusterId: string, options: CutoverOptions = {}): Promise<Cutover> {
  const { volumes = [2, 1, 0], relay = true, kept = false } = options;
  const nodeIds = volumes.map((_, node) => `${clusterId}-n${node}`);
  const applications = volumes.flatMap((count, node) => (count > 0 ? [`app-${node}`] : []));
  const name = (swarmServiceId: string) => `${clusterId}-${swarmServiceId}`;
  const fleet = await createFleet(service, {
    clusterId,
    nodes: nodeIds,
    services: [...applications, 'edge'].map(name),
  });
  if (relay) {
    await service.done('registerCoreflowRelay', { mutationId: mutationId(), clusterId, swarmServiceId: 'relay' });
  }
  const statement = scopeStatement({
    services: [
      ...applications.map((id) => scopeService(id, { serviceId: fleet.owner(name(id)) })),
      scopeService('edge', { class: 'ingress', serviceId: fleet.owner(name('edge')) }),
      ...(relay ? [scopeService('relay', { class: 'coreflow' })] : []),
    ],
    ...(relay ? { coreflow: { state: 'classified' as const } } : {}),
  });
  const world = firstWorld(nodeIds, volumes, relay);
  if (kept) {
    world.nodes[0]!.containers[0]!.mounts.push(volumeMount(anonymousVolume, '/data/anonymous'));
    world.nodes[0]!.containers.push(keeper());
    statement.overlapConfirmations.push({
      nodeId: nodeIds[0]!,
      mounter: { kind: 'container', name: keeper().name },
      target: '/keep',
      reason: 'it keeps the volume over the stop',
    });
  }
  const made = cutoverOver(service, fleet, nodeIds, world, statement);
  await made.reportAll();
  const classified = await made.classify();
  if (classified.status !== 200) throw new Error(`classify: ${JSON.stringify(classified.body)}`);
  return made;
}

function cutoverOver(
  service: TestService,
  fleet: TestFleet,
  nodeIds: readonly string[],
  world: World,
  statement: IFleetCutoverScopeStatement,
): Cutover {
  const { clusterId } = fleet;
  const state = () => fleet.state();
  const runtime = async () => referenceOf((await state()).runtime);

  const local: Cutover['local'] = async (node, named) => {
    const { containers, palletReady, fenceStoreId, oldModeRefused } = world.nodes[node]!;
    world.nodes[node]!.volumes = [...new Set([...world.nodes[node]!.volumes, ...volumesOf(containers)])];
    const volumes = world.nodes[node]!.volumes.map((each) => volume(each));
    const snapshot = localSnapshot({ runtime: named === undefined ? await runtime() : named, containers, volumes });
    return {
      ...snapshot,
      pallet: { version: '1', fenceStoreId, ready: palletReady },
      spark: { ...snapshot.spark, oldModeRefused },
    };
  };
  const manager: Cutover['manager'] = async (named) =>
    managerSnapshot({
      runtime: named === undefined ? await runtime() : named,
      nodes: nodeIds.map((nodeId) => swarmNode(`sn-${nodeId}`)),
      services: world.services,
      tasks: world.tasks,
    });
  const report: Cutover['report'] = async (node, named, given) => {
    const under = named === undefined ? await runtime() : named;
    return fleet.report(
      nodeIds[node]!,
      { local: await local(node, under), ...(node === 0 ? { manager: await manager(under) } : {}) },
      given,
    );
  };
  const aggregate = async () => {
    const { aggregate: current } = await state();
    if (current === null) throw new Error('there is no aggregate');
    return referenceOf(current);
  };
  const classify: Cutover['classify'] = async (stated = statement, over = {}) =>
    fleet.classify(stated, { runtime: await runtime(), ...over });

  const rederive: Cutover['rederive'] = async () => {
    const { scope, aggregate: current } = await state();
    return service.call('rederiveFleetCutoverVolumeHandoffs', {
      mutationId: mutationId(),
      clusterId,
      runtime: await runtime(),
      scope: scope!,
      expectedAggregate: current === null ? null : referenceOf(current),
    });
  };
  const prepare = async () => {
    const { scope } = await state();
    const { mutations } = await service.done('listFleetCutoverRequiredVolumeHandoffs', {
      clusterId,
      cursor: null,
      limit: 1024,
    });
    for (const upserts of mutations) {
      await service.done('prepareFleetCutoverVolumeHandoffs', {
        mutationId: mutationId(),
        clusterId,
        runtime: await runtime(),
        scope: scope!,
        expectedAggregate: (await state()).aggregate === null ? null : await aggregate(),
        upserts,
        removals: [],
      });
    }
    const now = await state();
    if (now.aggregate?.state === 'complete' && !now.behind) return;
    const again = await rederive();
    if (again.status !== 200) throw new Error(`rederive: ${JSON.stringify(again.body)}`);
  };

  const page = async (node: number, pin: Reference | null, pageIndex: number) => {
    const response = await fetch(service.url + sparkSwarmNodeContracts.fleetCutoverPreparedVolumeHandoffs.endpoint, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        nodeId: nodeIds[node],
        nodeToken: fleet.token(nodeIds[node]!),
        protocol: { major: 32, minor: 15 },
        aggregate: pin,
        pageIndex,
      }),
    });
    if (response.status !== 200) throw new Error(`page ${pageIndex}: ${response.status} ${await response.text()}`);
    return (await response.json()) as TSparkGetFleetCutoverPreparedVolumeHandoffsResponse;
  };
  const evidence: Cutover['evidence'] = async (node, pageIndex, generation = 1) => {
    const read = await page(node, await aggregate(), pageIndex);
    const known = read.page as IFleetCutoverPreparedVolumeHandoffPage;
    return {
      aggregate: known.aggregate,
      pageIndex,
      contentDigest: known.contentDigest,
      nodeId: nodeIds[node]!,
      fences: read.nodeHandoffs.map((handoff) => fenceFor(handoff, generation)),
    };
  };
  const send: Cutover['send'] = (node, held, given) =>
    fleet.observe(
      nodeIds[node]!,
      {
        state: 'member',
        localSwarmNodeId: `sn-${nodeIds[node]!}`,
        controlAvailable: false,
        fleetCutoverHeldVolumeFences: held,
      },
      given,
    );
  const hold: Cutover['hold'] = async (node, pageIndex, generation) =>
    send(node, await evidence(node, pageIndex, generation));
  const pageCount = async () => (await state()).aggregate?.pageCount ?? 0;

  const advance: Cutover['advance'] = async (to, over = {}) =>
    service.call('advanceFleetCutoverPhase', {
      mutationId: mutationId(),
      clusterId,
      runtime: over.runtime ?? (await runtime()),
      to,
      ...over,
    });
  const explain: Cutover['explain'] = (subject = { kind: 'cluster' }) =>
    service.done('explainFleetCutover', { clusterId, subject });

  const made: Cutover = {
    service,
    fleet,
    clusterId,
    nodeIds,
    world,
    statement,
    runtime,
    phase: async () => (await state()).runtime.phase,
    local,
    manager,
    report,
    reportAll: async () => {
      const under = await runtime();
      for (const node of nodeIds.keys()) {
        const answer = await report(node, under);
        if (answer.status !== 200) throw new Error(`report: ${answer.text}`);
      }
    },
    classify,
    accept: async (targets = nodeIds) => fleet.accept(targets, { runtime: await runtime() }),
    prepare,
    rederive,
    aggregate,
    evidence,
    send,
    hold,
    holdAll: async (generation) => {
      const count = await pageCount();
      for (const node of nodeIds.keys()) {
        for (let index = 0; index < count; index += 1) {
          const answer = await hold(node, index, generation);
          if (answer.body.heldVolumeFences.state !== 'accepted') throw new Error(`hold: ${answer.text}`);
        }
      }
    },
    pageCount,
    advance,
    explain,
    unmet: async () => {
      const explained = await explain();
      const refused = await advance(explained.next!, { dryRun: true });
      const unmet = explained.gates.filter((gate) => !gate.met);
      if (unmet.length === 0) {
        if (refused.status !== 200) throw new Error(`no gate is unmet, but ${JSON.stringify(refused.body)}`);
        return [];
      }
      const shown = (gates: readonly IFleetCutoverGate[]) =>
        JSON.stringify(gates.map(({ evidence: _ages, ...gate }) => gate));
      const { status, body } = refused;
      if (status !== 422 || body.code !== 'gate-unmet' || shown(body.gates) !== shown(unmet)) {
        throw new Error(`explain says ${shown(unmet)}, the advance ${status} ${JSON.stringify(body)}`);
      }
      return unmet;
    },
    revokeRelay: async () =>
      service.call('revokeFleetCutoverCoreflowCredential', {
        mutationId: mutationId(),
        clusterId,
        runtime: await runtime(),
      }),
    removeContainers: (swarmServiceId) => {
      for (const node of world.nodes) {
        const gone = node.containers.filter((each) => each.swarmServiceId === swarmServiceId);
        node.containers = node.containers.filter((each) => each.swarmServiceId !== swarmServiceId);
        const deleted = new Set(volumesOf(gone).filter(isAnonymousVolumeName));
        for (const name of volumesOf(node.containers)) deleted.delete(name);
        node.volumes = [...new Set([...node.volumes, ...volumesOf(gone)])].filter((name) => !deleted.has(name));
      }
    },
    stopEverything: () => {
      if (world.nodes[0]!.containers.some((each) => volumesOf([each]).includes(anonymousVolume))) {
        made.removeContainers('app-0');
        world.nodes[0]!.containers = world.nodes[0]!.containers.filter((each) => each.id !== keeper().id);
      }
      world.services = world.services
        .filter((each) => each.id !== 'relay')
        .map((each) => (each.id.startsWith('app-') ? { ...each, replicas: 0 } : each));
      world.tasks = world.tasks
        .filter((each) => each.serviceId !== 'relay')
        .map((each) =>
          each.serviceId.startsWith('app-') ? { ...each, desiredState: 'shutdown', state: 'shutdown' } : each,
        );
      for (const node of world.nodes) {
        node.palletReady = true;
        node.oldModeRefused = true;
        node.containers = node.containers
          .filter((each) => each.swarmServiceId !== 'relay')
          .map((each) => (each.swarmServiceId?.startsWith('app-') === true ? { ...each, state: 'exited' } : each));
      }
    },
    readyFor: async (phase) => {
      if (phase === 'draining') {
        if ((await state()).targetSet === null) {
          const accepted = await made.accept();
          if (accepted.status !== 200) throw new Error(`targets: ${JSON.stringify(accepted.body)}`);
        }
      } else if (phase === 'switching') {
        await prepare();
        await made.holdAll();
      } else {
        if (statement.coreflow.state === 'classified') await made.revokeRelay();
        made.stopEverything();
      }
      await made.reportAll();
    },
    bringTo: async (phase) => {
      const order = ['swarm', 'draining', 'switching', 'pallet'] as const;
      for (const next of order.slice(1, order.indexOf(phase) + 1)) {
        const now = order.indexOf(await made.phase());
        if (now >= order.indexOf(next)) continue;
        await made.readyFor(next);
        const advanced = await advance(next);
        if (advanced.status !== 200) throw new Error(`to ${next}: ${JSON.stringify(advanced.body)}`);
      }
    },
  };
  return made;
}
