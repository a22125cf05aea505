/**
 * What Spark reports: `TSparkSwarmObservation` with the node's local snapshot and, from managers, the manager snapshot.
 * Snapshots carry no time, so that the same reality is the same content.
 */
import { type Static, Type } from '@sinclair/typebox';
import { FleetCutoverHeldVolumeFenceEvidencePage, heldFenceEvidenceRules, heldFenceRefusals } from './held-fence.js';
import { fleetCutoverContract } from './limits.js';
import { ProtocolOffer } from './protocol.js';
import { defineRecord } from './record.js';
import {
  closed,
  Digest,
  DockerName,
  DockerText,
  FleetCutoverAcceptedEvidenceReference,
  Identifier,
  NaturalInteger,
  nullable,
  oneOf,
  PositiveInteger,
} from './schema.js';

/** Why a collector could not take a whole snapshot. Such a snapshot is recorded, blocks, and replaces nothing. */
export const incompleteSnapshotReasons = [
  'engine-unreachable',
  'engine-error',
  'inconsistent',
  'timeout',
  'truncated',
] as const;

export const ReducedDriverOptions = closed({
  /** `type` option of the local driver: `none`, `nfs`, `tmpfs` …; null where there is none. */
  type: nullable(DockerName),
  /** SHA-256 of the raw bytes of the `device` option. */
  deviceDigest: nullable(Digest),
  /** The device path itself, only for a `local` volume whose `o` contains `bind`. */
  bindDevice: nullable(DockerText),
  /** Allow-listed option names, sorted; never a value. */
  optionNames: Type.Array(DockerName, { maxItems: 32 }),
  /** How many more options there are. */
  otherOptions: NaturalInteger,
});
export type IReducedDriverOptions = Static<typeof ReducedDriverOptions>;

export const containerStates = ['created', 'running', 'paused', 'restarting', 'removing', 'exited', 'dead'] as const;

export const ObservedContainerMount = closed({
  type: oneOf('volume', 'bind', 'tmpfs', 'npipe', 'cluster', 'image'),
  /** Volume name; null for other types. */
  name: nullable(DockerText),
  /** Exactly what the container inspect says; may be empty. */
  source: DockerText,
  destination: DockerText,
  readWrite: Type.Boolean(),
  driver: nullable(DockerName),
  /** The volume's reduced options; null where it has none or is no volume. */
  options: nullable(ReducedDriverOptions),
});
export type IObservedContainerMount = Static<typeof ObservedContainerMount>;

export const ObservedContainer = closed({
  id: Identifier,
  name: DockerName,
  swarmTaskId: nullable(Identifier),
  swarmServiceId: nullable(Identifier),
  imageId: nullable(Type.String({ minLength: 1, maxLength: 256 })),
  imageDigest: nullable(Digest),
  state: oneOf(...containerStates),
  mounts: Type.Array(ObservedContainerMount, { maxItems: fleetCutoverContract.maximumMountsPerOwner }),
  /** Mounts beyond the 32nd: a count, not items. */
  mountsBeyond: NaturalInteger,
});
export type IObservedContainer = Static<typeof ObservedContainer>;

export const ObservedVolume = closed({
  name: DockerText,
  driver: DockerName,
  options: nullable(ReducedDriverOptions),
  mountpoint: DockerText,
});
export type IObservedVolume = Static<typeof ObservedVolume>;

export const ObservedPort = closed({
  protocol: oneOf('tcp', 'udp', 'sctp'),
  port: Type.Integer({ minimum: 1, maximum: 65_535 }),
  owner: Type.Union([
    closed({ kind: Type.Literal('swarm-service'), swarmServiceId: Identifier }),
    closed({ kind: Type.Literal('container'), containerId: Identifier }),
    closed({ kind: Type.Literal('pallet-service'), serviceId: Identifier }),
    closed({ kind: Type.Literal('unknown') }),
  ]),
});
export type IObservedPort = Static<typeof ObservedPort>;

export const IncompleteSnapshot = closed({
  complete: Type.Literal(false),
  runtime: nullable(FleetCutoverAcceptedEvidenceReference),
  reason: oneOf(...incompleteSnapshotReasons),
  /** What was counted before the collector gave up; null where it counted nothing. */
  counts: nullable(
    closed({ containers: NaturalInteger, volumes: NaturalInteger, services: NaturalInteger, tasks: NaturalInteger }),
  ),
});
export type IIncompleteSnapshot = Static<typeof IncompleteSnapshot>;

export const FleetCutoverCompleteLocalNodeSnapshot = closed({
  complete: Type.Literal(true),
  /** The runtime reference that the collector had read before it began; null before the first receipt. */
  runtime: nullable(FleetCutoverAcceptedEvidenceReference),
  containers: Type.Array(ObservedContainer, { maxItems: 16_384 }),
  volumes: Type.Array(ObservedVolume, { maxItems: 65_536 }),
  ports: Type.Array(ObservedPort, { maxItems: 16_384 }),
  /** Pallet runs on the node; it does not mean that Swarm is gone. */
  pallet: nullable(closed({ version: DockerName, fenceStoreId: Identifier, ready: Type.Boolean() })),
  spark: closed({
    bundleDigest: Digest,
    unitDigest: Digest,
    configurationDigest: Digest,
    oldModeRefused: Type.Boolean(),
  }),
});
export type IFleetCutoverCompleteLocalNodeSnapshot = Static<typeof FleetCutoverCompleteLocalNodeSnapshot>;

export const FleetCutoverLocalNodeSnapshot = Type.Union([FleetCutoverCompleteLocalNodeSnapshot, IncompleteSnapshot]);
export type IFleetCutoverLocalNodeSnapshot = Static<typeof FleetCutoverLocalNodeSnapshot>;

export const swarmServiceModes = ['replicated', 'global', 'replicated-job', 'global-job'] as const;

/** Task states of Swarm, in its own order; those after `running` are terminal. */
export const swarmTaskStates = [
  'new',
  'pending',
  'assigned',
  'accepted',
  'preparing',
  'ready',
  'starting',
  'running',
  'complete',
  'shutdown',
  'failed',
  'rejected',
  'remove',
  'orphaned',
] as const;
export type TSwarmTaskState = (typeof swarmTaskStates)[number];

const lastNonTerminal = swarmTaskStates.indexOf('running');
export function isTerminalTaskState(state: TSwarmTaskState): boolean {
  return swarmTaskStates.indexOf(state) > lastNonTerminal;
}

export const ObservedSwarmNode = closed({
  id: Identifier,
  hostname: DockerName,
  role: oneOf('manager', 'worker'),
  availability: oneOf('active', 'pause', 'drain'),
  state: oneOf('unknown', 'down', 'ready', 'disconnected'),
});
export type IObservedSwarmNode = Static<typeof ObservedSwarmNode>;

export const ObservedSpecMount = closed({
  type: oneOf('volume', 'bind', 'tmpfs', 'npipe', 'cluster', 'image'),
  /** May be a template; null for anonymous volumes and tmpfs. */
  source: nullable(DockerText),
  target: DockerText,
  readOnly: Type.Boolean(),
  driver: nullable(DockerName),
  options: nullable(ReducedDriverOptions),
});
export type IObservedSpecMount = Static<typeof ObservedSpecMount>;

export const ObservedSwarmService = closed({
  id: Identifier,
  name: DockerName,
  specVersion: NaturalInteger,
  specDigest: Digest,
  mode: oneOf(...swarmServiceModes),
  /** Desired replicas; null for global modes. */
  replicas: nullable(NaturalInteger),
  image: nullable(DockerText),
  /** Allow-listed labels only, sorted by key. */
  labels: Type.Array(closed({ key: DockerName, value: DockerText }), { maxItems: 64 }),
  /** Bare digest of all other labels as sorted pairs; null where there are none. */
  otherLabelsDigest: nullable(Digest),
  ports: Type.Array(
    closed({
      protocol: oneOf('tcp', 'udp', 'sctp'),
      targetPort: Type.Integer({ minimum: 0, maximum: 65_535 }),
      publishedPort: nullable(Type.Integer({ minimum: 0, maximum: 65_535 })),
      publishMode: oneOf('ingress', 'host'),
    }),
    { maxItems: 1024 },
  ),
  mounts: Type.Array(ObservedSpecMount, { maxItems: 256 }),
});
export type IObservedSwarmService = Static<typeof ObservedSwarmService>;

export const ObservedSwarmTask = closed({
  id: Identifier,
  serviceId: Identifier,
  nodeId: nullable(Identifier),
  slot: nullable(PositiveInteger),
  desiredState: oneOf(...swarmTaskStates),
  state: oneOf(...swarmTaskStates),
  /** The container that Swarm says the task had; null where it never had one. */
  containerId: nullable(Identifier),
});
export type IObservedSwarmTask = Static<typeof ObservedSwarmTask>;

export const FleetCutoverCompleteManagerSnapshot = closed({
  complete: Type.Literal(true),
  runtime: nullable(FleetCutoverAcceptedEvidenceReference),
  swarmId: Identifier,
  nodes: Type.Array(ObservedSwarmNode, { maxItems: 4096 }),
  services: Type.Array(ObservedSwarmService, { maxItems: 4096 }),
  /** Non-terminal tasks (at most 4,096), every task with a container, and of the rest the newest per slot and node. */
  tasks: Type.Array(ObservedSwarmTask, { maxItems: 32_768 }),
});
export type IFleetCutoverCompleteManagerSnapshot = Static<typeof FleetCutoverCompleteManagerSnapshot>;

export const FleetCutoverManagerSnapshot = Type.Union([FleetCutoverCompleteManagerSnapshot, IncompleteSnapshot]);
export type IFleetCutoverManagerSnapshot = Static<typeof FleetCutoverManagerSnapshot>;

function repeated(values: readonly string[]): string | null {
  const seen = new Set<string>();
  for (const value of values) {
    if (seen.has(value)) return value;
    seen.add(value);
  }
  return null;
}

function localRules(snapshot: IFleetCutoverLocalNodeSnapshot): string[] {
  if (!snapshot.complete) return [];
  const errors: string[] = [];
  if (repeated(snapshot.containers.map((container) => container.id)) !== null)
    errors.push('/containers names one id twice');
  if (repeated(snapshot.volumes.map((volume) => volume.name)) !== null) errors.push('/volumes names one volume twice');
  if (snapshot.containers.some((container) => repeated(container.mounts.map((mount) => mount.destination)) !== null)) {
    errors.push('/containers mounts one destination twice');
  }
  return errors;
}

function managerRules(snapshot: IFleetCutoverManagerSnapshot): string[] {
  if (!snapshot.complete) return [];
  const errors: string[] = [];
  if (repeated(snapshot.nodes.map((node) => node.id)) !== null) errors.push('/nodes names one id twice');
  if (repeated(snapshot.services.map((service) => service.id)) !== null) errors.push('/services names one id twice');
  if (repeated(snapshot.tasks.map((task) => task.id)) !== null) errors.push('/tasks names one id twice');
  const live = snapshot.tasks.filter((task) => !isTerminalTaskState(task.state)).length;
  if (live > fleetCutoverContract.maximumTasks) {
    errors.push(
      `/tasks has ${live} non-terminal tasks, over ${fleetCutoverContract.maximumTasks}: report it as truncated`,
    );
  }
  return errors;
}

export const fleetCutoverLocalNodeSnapshotRecord = defineRecord(
  'IFleetCutoverLocalNodeSnapshot',
  FleetCutoverLocalNodeSnapshot,
  { rules: localRules },
);
export const fleetCutoverManagerSnapshotRecord = defineRecord(
  'IFleetCutoverManagerSnapshot',
  FleetCutoverManagerSnapshot,
  { rules: managerRules },
);
export const validateFleetCutoverLocalNodeSnapshot = async (value: unknown): Promise<string[]> =>
  fleetCutoverLocalNodeSnapshotRecord.validate(value);
export const validateFleetCutoverManagerSnapshot = async (value: unknown): Promise<string[]> =>
  fleetCutoverManagerSnapshotRecord.validate(value);

/** Why a Spark cannot say whether its node is in a swarm. */
export const unknownObservationReasons = [
  'docker-unreachable',
  'docker-error',
  'swarm-pending',
  'swarm-locked',
  'swarm-error',
  'timeout',
] as const;

const observationBase = {
  reporterSessionId: Identifier,
  observationSequence: PositiveInteger,
  /** The agent's clock in Unix ms: recorded for people, compared with nothing. */
  observedAt: NaturalInteger,
  /** In every state: exact page membership also proves an empty share. */
  fleetCutoverHeldVolumeFences: Type.Optional(FleetCutoverHeldVolumeFenceEvidencePage),
};

export const SparkSwarmObservation = Type.Union([
  closed({
    ...observationBase,
    state: Type.Literal('member'),
    localSwarmNodeId: Identifier,
    controlAvailable: Type.Boolean(),
    fleetCutoverLocalNodeSnapshot: Type.Optional(FleetCutoverLocalNodeSnapshot),
    fleetCutoverManagerSnapshot: Type.Optional(FleetCutoverManagerSnapshot),
  }),
  closed({
    ...observationBase,
    state: Type.Literal('inactive'),
    fleetCutoverLocalNodeSnapshot: Type.Optional(FleetCutoverLocalNodeSnapshot),
  }),
  closed({ ...observationBase, state: Type.Literal('unknown'), reason: oneOf(...unknownObservationReasons) }),
]);
export type TSparkSwarmObservation = Static<typeof SparkSwarmObservation>;

function observationRules(observation: TSparkSwarmObservation): string[] {
  const errors: string[] = [];
  if (observation.fleetCutoverHeldVolumeFences !== undefined) {
    errors.push(...heldFenceEvidenceRules(observation.fleetCutoverHeldVolumeFences));
  }
  if (observation.state === 'unknown') return errors;
  if (observation.fleetCutoverLocalNodeSnapshot !== undefined) {
    errors.push(...localRules(observation.fleetCutoverLocalNodeSnapshot));
  }
  if (observation.state === 'member' && observation.fleetCutoverManagerSnapshot !== undefined) {
    if (!observation.controlAvailable) errors.push('/fleetCutoverManagerSnapshot needs controlAvailable');
    errors.push(...managerRules(observation.fleetCutoverManagerSnapshot));
  }
  return errors;
}

export const sparkSwarmObservationRecord = defineRecord('TSparkSwarmObservation', SparkSwarmObservation, {
  rules: observationRules,
});
export const validateSparkSwarmObservation = async (value: unknown): Promise<string[]> =>
  sparkSwarmObservationRecord.validate(value);

/** 256 random bits as 43 characters of base64url. */
export const BearerSecret = Type.String({ pattern: '^[A-Za-z0-9_-]{43}$', maxLength: 43 });

export const SparkSwarmObservationRequest = closed({
  nodeId: Identifier,
  nodeToken: BearerSecret,
  protocol: ProtocolOffer,
  observation: SparkSwarmObservation,
});
export type ISparkSwarmObservationRequest = Static<typeof SparkSwarmObservationRequest>;

export const sparkSwarmObservationRequestRecord = defineRecord(
  'ISparkSwarmObservationRequest',
  SparkSwarmObservationRequest,
  {
    rules: (request) => {
      const evidence = request.observation.fleetCutoverHeldVolumeFences;
      const foreign = evidence !== undefined && evidence.nodeId !== request.nodeId;
      return [
        ...observationRules(request.observation),
        ...(foreign ? ['/observation/fleetCutoverHeldVolumeFences names another node than the reporter'] : []),
      ];
    },
  },
);
export const validateSparkSwarmObservationRequest = async (value: unknown): Promise<string[]> =>
  sparkSwarmObservationRequestRecord.validate(value);

/** What became of one snapshot of the report. `reference` is the latest accepted one, if there is any. */
export const SnapshotReceipt = closed({
  state: oneOf('accepted', 'unchanged', 'incomplete', 'absent'),
  reference: nullable(FleetCutoverAcceptedEvidenceReference),
});

/** At most 2,048 bytes. An exact repeat of a report gets the same receipt. */
export const SparkSwarmObservationAcceptedReceipt = closed({
  state: Type.Literal('accepted'),
  nodeId: Identifier,
  reporterSessionId: Identifier,
  observationSequence: PositiveInteger,
  /** The cluster's current runtime, which the next snapshot must name. */
  runtime: FleetCutoverAcceptedEvidenceReference,
  localSnapshot: SnapshotReceipt,
  managerSnapshot: SnapshotReceipt,
  /** What became of the held fences: a stale pin refuses only them. `coveredPages` is of the named aggregate. */
  heldVolumeFences: closed({
    state: oneOf('accepted', 'refused', 'absent'),
    code: nullable(oneOf(...heldFenceRefusals)),
    aggregate: nullable(FleetCutoverAcceptedEvidenceReference),
    coveredPages: NaturalInteger,
  }),
  protocol: ProtocolOffer,
});
export type ISparkSwarmObservationAcceptedReceipt = Static<typeof SparkSwarmObservationAcceptedReceipt>;

export const sparkSwarmObservationAcceptedReceiptRecord = defineRecord(
  'ISparkSwarmObservationAcceptedReceipt',
  SparkSwarmObservationAcceptedReceipt,
);
export const validateSparkSwarmObservationAcceptedReceipt = sparkSwarmObservationAcceptedReceiptRecord.validate;
