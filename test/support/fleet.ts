/** A cluster with its nodes and services on a test service, whose nodes report over HTTP as Spark does. */
import type {
  IFleetCutoverLocalNodeSnapshot,
  IFleetCutoverManagerSnapshot,
  ISparkSwarmObservationAcceptedReceipt,
  TSparkSwarmObservation,
} from '../../src/contract/observation.js';
import { sparkSwarmNodeContracts } from '../../src/contract/limits.js';
import type { MethodRequest, MethodResponse } from '../../src/contract/methods.js';
import type { IProblemDocument } from '../../src/contract/problems.js';
import { type Reference, referenceOf } from '../../src/contract/schema.js';
import type { IFleetCutoverScopeStatement } from '../../src/contract/scope.js';
import { type Answer, mutationId, type TestService } from './service.js';
import { scopeStatement } from './snapshots.js';

export type ReportAnswer = { readonly status: number; readonly text: string } & {
  readonly body: ISparkSwarmObservationAcceptedReceipt & IProblemDocument;
};

export interface ReportOptions {
  /** Default: a session of the node's own that {@link TestFleet.restart} renews. */
  readonly session?: string;
  /** Default: one more than the session's last. */
  readonly sequence?: number;
  readonly token?: string;
  readonly protocol?: { readonly major: number; readonly minor: number };
}

export interface Snapshots {
  readonly local?: IFleetCutoverLocalNodeSnapshot;
  readonly manager?: IFleetCutoverManagerSnapshot;
  /** Default `sn-<node>`. */
  readonly swarmNodeId?: string;
}

type ClassifyRequest = MethodRequest<'classifyFleetCutoverScope'>;

export interface TestFleet {
  readonly clusterId: string;
  readonly runtime: Reference;
  /** Spark's token of a node. */
  token(nodeId: string): string;
  setToken(nodeId: string, token: string): void;
  /** Id of the service of this name. */
  owner(name: string): string;
  /** Begins the node's next reporter session. */
  restart(nodeId: string): void;
  /** A request body with the node's next sequence. */
  body(nodeId: string, observation: object, options?: ReportOptions): Record<string, unknown>;
  /** Reports as a member of the swarm. */
  report(nodeId: string, snapshots: Snapshots, options?: ReportOptions): Promise<ReportAnswer>;
  /** Fails where the report is refused. */
  reported(
    nodeId: string,
    snapshots: Snapshots,
    options?: ReportOptions,
  ): Promise<ISparkSwarmObservationAcceptedReceipt>;
  observe(nodeId: string, observation: object, options?: ReportOptions): Promise<ReportAnswer>;
  send(body: unknown): Promise<ReportAnswer>;
  /** States a scope of the latest inventory against the current scope. */
  classify(
    statement: Partial<IFleetCutoverScopeStatement>,
    over?: Partial<ClassifyRequest>,
  ): Promise<Answer<'classifyFleetCutoverScope'>>;
  classified(statement: Partial<IFleetCutoverScopeStatement>): Promise<MethodResponse<'classifyFleetCutoverScope'>>;
  accept(
    nodeIds: readonly string[],
    over?: Partial<MethodRequest<'acceptFleetCutoverTargetSet'>>,
  ): Promise<Answer<'acceptFleetCutoverTargetSet'>>;
  state(): Promise<MethodResponse<'readFleetCutoverState'>>;
  entries(): Promise<MethodResponse<'listFleetCutoverRequiredVolumeHandoffs'>['entries']>;
  blockers(): Promise<MethodResponse<'listFleetCutoverBlockers'>['blockers']>;
  verdicts(): Promise<MethodResponse<'listFleetCutoverTaskVerdicts'>['verdicts']>;
  node(nodeId: string): Promise<MethodResponse<'listNodes'>['nodes'][number]>;
}

export interface FleetOptions {
  readonly clusterId: string;
  readonly nodes: readonly string[];
  /** Names of services, made in the organization. */
  readonly services?: readonly string[];
}

export async function createFleet(service: TestService, options: FleetOptions): Promise<TestFleet> {
  const { clusterId } = options;
  const created = await service.done('createCluster', {
    mutationId: mutationId(),
    clusterId,
    controllerId: 'controller',
    runtimeNamespace: 'apps',
  });
  const tokens = new Map<string, string>();
  for (const nodeId of options.nodes) {
    const registered = await service.done('registerNode', {
      mutationId: mutationId(),
      clusterId,
      nodeId,
      corestorePublicKey: null,
    });
    tokens.set(nodeId, registered.secrets[0]!.secret);
  }
  const owners = new Map<string, string>();
  for (const name of options.services ?? []) {
    const made = await service.done('createService', { mutationId: mutationId(), name });
    owners.set(name, made.service.serviceId);
  }
  return fleetOver(service, clusterId, referenceOf(created.runtime), tokens, owners);
}

function fleetOver(
  service: TestService,
  clusterId: string,
  runtime: Reference,
  tokens: Map<string, string>,
  owners: ReadonlyMap<string, string>,
): TestFleet {
  const sessions = new Map<string, number>();
  const sequences = new Map<string, number>();
  const known = <T>(map: ReadonlyMap<string, T>, key: string): T => {
    const value = map.get(key);
    if (value === undefined) throw new Error(`the fleet has no ${key}`);
    return value;
  };
  const nextSequence = (session: string) => {
    const sequence = (sequences.get(session) ?? 0) + 1;
    sequences.set(session, sequence);
    return sequence;
  };
  const send = async (body: unknown): Promise<ReportAnswer> => {
    const response = await fetch(service.url + sparkSwarmNodeContracts.swarmObservation.endpoint, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: typeof body === 'string' || body instanceof Uint8Array ? (body as string) : JSON.stringify(body),
    });
    const text = await response.text();
    return { status: response.status, text, body: JSON.parse(text) as ReportAnswer['body'] };
  };
  const body: TestFleet['body'] = (nodeId, observation, given = {}) => {
    const session = given.session ?? `rs-${clusterId}-${nodeId}-${sessions.get(nodeId) ?? 1}`;
    const observationSequence = given.sequence ?? nextSequence(session);
    return {
      nodeId,
      nodeToken: given.token ?? known(tokens, nodeId),
      protocol: given.protocol ?? { major: 32, minor: 15 },
      observation: { reporterSessionId: session, observationSequence, observedAt: 1_700_000_000_000, ...observation },
    };
  };
  const observe: TestFleet['observe'] = (nodeId, observation, given) => send(body(nodeId, observation, given));
  const report: TestFleet['report'] = (nodeId, snapshots, given) =>
    observe(nodeId, memberObservation(nodeId, snapshots), given);

  const currentInventory = async () =>
    (await service.done('readFleetCutoverManagerSnapshot', { clusterId, snapshot: null })).reference;
  const state = () => service.done('readFleetCutoverState', { clusterId });
  const classify: TestFleet['classify'] = async (statement, over = {}) =>
    service.call('classifyFleetCutoverScope', {
      mutationId: mutationId(),
      clusterId,
      runtime,
      inventory: over.inventory ?? (await currentInventory()),
      expectedScope: over.expectedScope === undefined ? (await state()).scope : over.expectedScope,
      statement: scopeStatement(statement),
      ...over,
    });

  return {
    clusterId,
    runtime,
    token: (nodeId) => known(tokens, nodeId),
    setToken: (nodeId, token) => void tokens.set(nodeId, token),
    owner: (name) => known(owners, name),
    restart: (nodeId) => void sessions.set(nodeId, (sessions.get(nodeId) ?? 1) + 1),
    body,
    send,
    observe,
    report,
    reported: async (nodeId, snapshots, given) => {
      const answer = await report(nodeId, snapshots, given);
      if (answer.status !== 200) throw new Error(`report of ${nodeId}: ${answer.status} ${answer.text}`);
      return answer.body;
    },
    classify,
    classified: async (statement) => {
      const answer = await classify(statement);
      if (answer.status !== 200) throw new Error(`classify: ${answer.status} ${JSON.stringify(answer.body)}`);
      return answer.body;
    },
    accept: async (nodeIds, over = {}) =>
      service.call('acceptFleetCutoverTargetSet', {
        mutationId: mutationId(),
        clusterId,
        runtime,
        expectedTargetSet: over.expectedTargetSet === undefined ? (await state()).targetSet : over.expectedTargetSet,
        nodeIds: [...nodeIds],
        ...over,
      }),
    state,
    entries: () =>
      everyPage(
        (cursor) => service.done('listFleetCutoverRequiredVolumeHandoffs', { clusterId, cursor, limit: 1024 }),
        (page) => page.entries,
      ),
    blockers: () =>
      everyPage(
        (cursor) => service.done('listFleetCutoverBlockers', { clusterId, cursor, limit: 1024 }),
        (page) => page.blockers,
      ),
    verdicts: () =>
      everyPage(
        (cursor) => service.done('listFleetCutoverTaskVerdicts', { clusterId, verdict: null, cursor, limit: 1024 }),
        (page) => page.verdicts,
      ),
    node: async (nodeId) => {
      const { nodes } = await service.done('listNodes', { clusterId, cursor: null, limit: 1000 });
      const found = nodes.find((each) => each.nodeId === nodeId);
      if (found === undefined) throw new Error(`there is no node ${nodeId}`);
      return found;
    },
  };
}

function memberObservation(
  nodeId: string,
  { local, manager, swarmNodeId = `sn-${nodeId}` }: Snapshots,
): Omit<
  Extract<TSparkSwarmObservation, { state: 'member' }>,
  'reporterSessionId' | 'observationSequence' | 'observedAt'
> {
  return {
    state: 'member',
    localSwarmNodeId: swarmNodeId,
    controlAvailable: manager !== undefined,
    ...(local === undefined ? {} : { fleetCutoverLocalNodeSnapshot: local }),
    ...(manager === undefined ? {} : { fleetCutoverManagerSnapshot: manager }),
  };
}

async function everyPage<P extends { readonly nextCursor: string | null }, T>(
  read: (cursor: string | null) => Promise<P>,
  itemsOf: (page: P) => readonly T[],
): Promise<T[]> {
  const items: T[] = [];
  for (let cursor: string | null = null; ;) {
    const page: P = await read(cursor);
    items.push(...itemsOf(page));
    if (page.nextCursor === null) return items;
    cursor = page.nextCursor;
  }
}
