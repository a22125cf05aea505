/** A small fleet, made through the wire alone: one service whose containers mount some volumes on each node. */
import { createHash, randomBytes } from 'node:crypto';
import {
  observationPath,
  oracleMutationId,
  type AnswerBody,
  type RawClient,
  type Reference,
  referenceIn,
} from './oracle-http.js';

export interface FaultNode {
  readonly nodeId: string;
  readonly token: string;
  readonly swarmNodeId: string;
  readonly sessionId: string;
  /** Of the last report. */
  sequence: number;
  /** How many volumes its containers mount. */
  volumes: number;
  /** Another name of the last of them, so that the next report has one more key. */
  lastVolume?: string;
}

/** What an upsert names, and a request that is accepted. */
export interface FaultKey {
  readonly nodeId: string;
  readonly serviceId: string;
  readonly mountIdentityDigest: string;
  readonly request: { readonly requestId: string; readonly mountPath: string };
}

export interface FaultFleet {
  readonly clusterId: string;
  readonly swarmServiceId: string;
  readonly serviceId: string;
  runtime: Reference;
  scope: Reference;
  targetSet: Reference;
  readonly nodes: readonly FaultNode[];
  /** In page order. */
  keys: FaultKey[];
}

const MOUNTS_PER_CONTAINER = 32;

export const protocol = { major: 32, minor: 15 };

export interface FaultFleetSize {
  readonly nodes: number;
  readonly volumesPerNode: number;
}

/** Registers, observes, classifies and targets; nothing is prepared yet. */
export async function buildFaultFleet(client: RawClient, clusterId: string, size: FaultFleetSize): Promise<FaultFleet> {
  const created = await client.done('createCluster', {
    mutationId: oracleMutationId(),
    clusterId,
    controllerId: 'controller',
    runtimeNamespace: 'runtime',
  });
  const nodes: FaultNode[] = [];
  for (let index = 0; index < size.nodes; index += 1) {
    nodes.push(await registerFaultNode(client, clusterId, index, size.volumesPerNode));
  }
  const owner = await client.done('createService', { mutationId: oracleMutationId(), name: `${clusterId}-db` });
  const fleet = unadmittedFleet(clusterId, owner.service.serviceId, referenceIn(created.runtime), nodes);
  // The manager is the first node; the others have to be in its snapshot already.
  for (const node of nodes) await reportOf(client, fleet, node);
  await admit(client, fleet);
  return fleet;
}

export async function registerFaultNode(
  client: RawClient,
  clusterId: string,
  index: number,
  volumes: number,
): Promise<FaultNode> {
  const nodeId = `${clusterId}-n${String(index).padStart(3, '0')}`;
  const answer = await client.done('registerNode', {
    mutationId: oracleMutationId(),
    clusterId,
    nodeId,
    corestorePublicKey: null,
  });
  const token = await nodeTokenOf(client, clusterId, nodeId, answer.secrets);
  return {
    nodeId,
    token,
    swarmNodeId: `${clusterId}-s${String(index).padStart(3, '0')}`,
    sessionId: `session-${randomBytes(8).toString('hex')}`,
    sequence: 0,
    volumes,
  };
}

/** Of the secrets that registering or releasing a node shows, the one that Spark sends. */
export async function nodeTokenOf(
  client: RawClient,
  clusterId: string,
  nodeId: string,
  secrets: AnswerBody[],
): Promise<string> {
  let cursor: string | null = null;
  do {
    const page: AnswerBody = await client.done('listCredentials', { clusterId, cursor, limit: 1000 });
    const own = page.credentials.find((each: AnswerBody) => each.kind === 'node-token' && each.subjectId === nodeId);
    const shown = secrets.find((each) => each.credentialId === own?.credentialId);
    if (shown !== undefined) return shown.secret;
    cursor = page.nextCursor;
  } while (cursor !== null);
  throw new Error(`no token of ${nodeId} was shown`);
}

/** Registered, and nothing more. */
export function unadmittedFleet(
  clusterId: string,
  serviceId: string,
  runtime: Reference,
  nodes: readonly FaultNode[],
): FaultFleet {
  const none: Reference = { id: '', generation: 0, digest: '' };
  return {
    clusterId,
    swarmServiceId: `${clusterId}-swarm-db`,
    serviceId,
    runtime,
    scope: none,
    targetSet: none,
    nodes,
    keys: [],
  };
}

/** Classifies what was reported, targets all nodes, and notes what is required then. */
export async function admit(
  client: RawClient,
  fleet: FaultFleet,
  statement: object = statementOf(fleet),
): Promise<void> {
  const { clusterId, runtime } = fleet;
  const manager = await client.done('readFleetCutoverManagerSnapshot', { clusterId, snapshot: null });
  const scope = await client.done('classifyFleetCutoverScope', {
    mutationId: oracleMutationId(),
    clusterId,
    runtime,
    inventory: manager.reference,
    expectedScope: null,
    statement,
  });
  fleet.scope = scope.scope;
  const targets = await client.done('acceptFleetCutoverTargetSet', {
    mutationId: oracleMutationId(),
    clusterId,
    runtime,
    expectedTargetSet: null,
    nodeIds: fleet.nodes.map((node) => node.nodeId),
  });
  fleet.targetSet = referenceIn(targets.targetSet);
  fleet.keys = await requiredKeys(client, clusterId);
}

/** The whole statement: one application, no relay. */
export function statementOf(fleet: FaultFleet, reason = 'no relay here') {
  return {
    services: [
      {
        swarmServiceId: fleet.swarmServiceId,
        class: 'application',
        serviceId: fleet.serviceId,
        reason: null,
        mounts: [],
      },
    ],
    coreflow: { state: 'none', reason },
    overlapOwners: [],
    overlapConfirmations: [],
    dormantVolumes: [],
    releasedEntries: [],
    releasedAnonymousVolumes: [],
  };
}

/** What is required and not prepared, as the service's own ready-made mutations have it. */
export async function requiredKeys(client: RawClient, clusterId: string): Promise<FaultKey[]> {
  const keys: FaultKey[] = [];
  let cursor: string | null = null;
  do {
    const page: AnswerBody = await client.done('listFleetCutoverRequiredVolumeHandoffs', {
      clusterId,
      cursor,
      limit: 1024,
    });
    keys.push(...page.mutations.flat());
    cursor = page.nextCursor;
  } while (cursor !== null);
  return keys;
}

export interface PrepareInput {
  readonly expectedAggregate: Reference | null;
  readonly upserts?: readonly object[];
  readonly removals?: readonly object[];
  readonly mutationId?: string;
}

export function prepareBody(fleet: FaultFleet, input: PrepareInput): { mutationId: string } & Record<string, unknown> {
  return {
    mutationId: input.mutationId ?? oracleMutationId(),
    clusterId: fleet.clusterId,
    runtime: fleet.runtime,
    scope: fleet.scope,
    expectedAggregate: input.expectedAggregate,
    upserts: input.upserts ?? [],
    removals: input.removals ?? [],
  };
}

/** An upsert of the key; another capacity makes it another handoff. */
export function upsertOf(key: FaultKey, requestedCapacityBytes: number | null = null): object {
  return { ...key, request: { ...key.request, requestedCapacityBytes } };
}

export function removalOf({ nodeId, serviceId, mountIdentityDigest }: FaultKey): object {
  return { nodeId, serviceId, mountIdentityDigest };
}

/** Prepares all keys from the given aggregate on; gives the last reference. */
export async function prepareAllKeys(
  client: RawClient,
  fleet: FaultFleet,
  from: Reference | null = null,
): Promise<Reference> {
  let aggregate = from;
  for (let start = 0; start < fleet.keys.length; start += 32) {
    const upserts = fleet.keys.slice(start, start + 32).map((key) => upsertOf(key));
    const answer = await client.done(
      'prepareFleetCutoverVolumeHandoffs',
      prepareBody(fleet, { expectedAggregate: aggregate, upserts }),
    );
    aggregate = referenceIn(answer.aggregate);
  }
  if (aggregate === null) throw new Error('there is nothing to prepare');
  return aggregate;
}

// Reports -----------------------------------------------------------------------------------------------------------

/** The next report of a node, not sent yet; a change of `node.volumes` makes another snapshot. */
export function nextReport(
  fleet: Pick<FaultFleet, 'clusterId' | 'swarmServiceId' | 'nodes'>,
  node: FaultNode,
  mark = '',
): AnswerBody {
  node.sequence += 1;
  return {
    nodeId: node.nodeId,
    nodeToken: node.token,
    protocol,
    observation: {
      reporterSessionId: node.sessionId,
      observationSequence: node.sequence,
      observedAt: 1_700_000_000_000,
      state: 'member',
      localSwarmNodeId: node.swarmNodeId,
      controlAvailable: node === fleet.nodes[0],
      fleetCutoverLocalNodeSnapshot: localSnapshotOf(fleet, node, mark),
      ...(node === fleet.nodes[0] ? { fleetCutoverManagerSnapshot: managerSnapshotOf(fleet) } : {}),
    },
  };
}

async function reportOf(client: RawClient, fleet: FaultFleet, node: FaultNode): Promise<void> {
  const answer = await client.spark(observationPath, nextReport(fleet, node));
  if (answer.status !== 200) throw new Error(`report of ${node.nodeId}: ${answer.status} ${answer.text}`);
}

type Observed = Pick<FaultFleet, 'clusterId' | 'swarmServiceId' | 'nodes'>;

export function digestText(text: string): string {
  return `sha256:${createHash('sha256').update(text).digest('hex')}`;
}

function containersOf(node: FaultNode): number {
  return Math.max(1, Math.ceil(node.volumes / MOUNTS_PER_CONTAINER));
}

/** Containers are numbered so that one more volume changes one of them, or adds one with a task that is known already. */
export function localSnapshotOf(fleet: Observed, node: FaultNode, mark = ''): AnswerBody {
  const containers = Array.from({ length: containersOf(node) }, (_, index) => ({
    id: `${node.swarmNodeId}-c${index}`,
    name: `db.${index}`,
    swarmTaskId: `${node.swarmNodeId}-t${index}`,
    swarmServiceId: fleet.swarmServiceId,
    imageId: null,
    imageDigest: null,
    state: 'running',
    mounts: mountsOf(node, index),
    mountsBeyond: 0,
  }));
  return {
    complete: true,
    runtime: null,
    containers,
    volumes: volumeNames(node).map((name) => ({
      name,
      driver: 'local',
      options: null,
      mountpoint: `/var/lib/docker/volumes/${name}/_data`,
    })),
    ports: [],
    pallet: null,
    spark: {
      bundleDigest: digestText('bundle'),
      unitDigest: digestText('unit'),
      configurationDigest: digestText(`configuration ${mark}`),
      oldModeRefused: true,
    },
  };
}

function mountsOf(node: FaultNode, container: number): object[] {
  const first = container * MOUNTS_PER_CONTAINER;
  const count = Math.max(0, Math.min(MOUNTS_PER_CONTAINER, node.volumes - first));
  return volumeNames(node)
    .slice(first, first + count)
    .map((name) => ({
      type: 'volume',
      name,
      source: `/var/lib/docker/volumes/${name}/_data`,
      destination: `/data/${name}`,
      readWrite: true,
      driver: 'local',
      options: null,
    }));
}

function volumeNames(node: FaultNode): string[] {
  return Array.from({ length: node.volumes }, (_, index) => {
    const last = index === node.volumes - 1;
    return (last && node.lastVolume) || `volume-${String(index).padStart(4, '0')}`;
  });
}

/** One task per container. A node that gains volumes within its last container needs no other one. */
export function managerSnapshotOf(fleet: Observed, mark = ''): AnswerBody {
  return {
    complete: true,
    runtime: null,
    swarmId: `${fleet.clusterId}-swarm`,
    nodes: fleet.nodes.map((node, index) => ({
      id: node.swarmNodeId,
      hostname: node.nodeId,
      role: index === 0 ? 'manager' : 'worker',
      availability: 'active',
      state: 'ready',
    })),
    services: [
      {
        id: fleet.swarmServiceId,
        name: 'db',
        specVersion: 1,
        specDigest: digestText(`spec ${mark}`),
        mode: 'replicated',
        replicas: fleet.nodes.length,
        image: null,
        labels: [],
        otherLabelsDigest: null,
        ports: [],
        mounts: [],
      },
    ],
    tasks: fleet.nodes.flatMap((node) =>
      Array.from({ length: containersOf(node) }, (_, index) => ({
        id: `${node.swarmNodeId}-t${index}`,
        serviceId: fleet.swarmServiceId,
        nodeId: node.swarmNodeId,
        slot: index + 1,
        desiredState: 'running',
        state: 'running',
        containerId: `${node.swarmNodeId}-c${index}`,
      })),
    ),
  };
}
