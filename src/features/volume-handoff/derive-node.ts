/**
 * The required entries and blockers of one node: the one derivation that dry run, mutation, gate and `explain` use.
 *
 * 1. An entry is a persistent read-write mount of any container, running or not, of an `application` service.
 * 2. Two containers of one service with the same mount are one entry.
 * 3. An entry stays when its container goes: only a scope revision that names it (or reclasses it) lets it leave.
 * 4. Sources are compared over all containers of the node. Two keys, or a key and another service's (or nobody's)
 *    container, on equal or nested sources block the key until an owner is named or the other side is confirmed.
 * 5. What cannot be read, told or placed is a blocker, never an omission.
 */
import type { IFleetCutoverBlocker, IFleetCutoverTaskVerdict, TBlockerCode } from '../../contract/derivation.js';
import { bareDigest } from '../../contract/digest.js';
import { isAnonymousVolumeName, networkFilesystems, observedMountOf } from '../../contract/mount.js';
import type {
  IFleetCutoverCompleteLocalNodeSnapshot,
  IObservedContainer,
  IObservedContainerMount,
  IObservedSpecMount,
  IReducedDriverOptions,
  TSwarmTaskState,
} from '../../contract/observation.js';
import { isTerminalTaskState } from '../../contract/observation.js';
import { handoffId } from '../../contract/record-id.js';
import { compareText } from '../../contract/schema.js';
import type { IFleetCutoverScope, IFleetCutoverScopeService, TMountClass } from '../../contract/scope.js';
import { mounterName } from '../../contract/scope.js';
import { isMountPath } from '../../contract/storage-claim.js';
import { isRunning, judgeTask, type TaskNode } from '../inventory/verdict.js';
import { type JudgedVolumes, judgeVolumes } from './kept-volumes.js';
import { forEachOverlap, type Located, normalizePath } from './overlap.js';

/** One entry of the required set of a node. */
export interface RequiredEntry {
  readonly handoffId: string;
  readonly nodeId: string;
  readonly serviceId: string;
  readonly swarmServiceId: string;
  readonly sourceDigest: string;
  readonly targetDigest: string;
  readonly mountIdentityDigest: string;
  readonly source: string;
  readonly mountPath: string;
  readonly volumeName: string | null;
  /** By its name it may be an anonymous volume. */
  readonly anonymous: boolean;
}

export interface Blocker {
  readonly record: IFleetCutoverBlocker;
  /** The entry that it blocks. */
  readonly handoffId: string | null;
}

export interface NodeTask {
  readonly swarmTaskId: string;
  readonly swarmServiceId: string;
  readonly swarmNodeId: string | null;
  readonly state: TSwarmTaskState;
  readonly containerId: string | null;
  /** It was assigned to a swarm node that this node was before it rejoined. */
  readonly former?: boolean;
}

export interface NodeFacts {
  readonly clusterLife: string;
  readonly nodeId: string;
  /** The latest accepted local snapshot; null where none was ever accepted. */
  readonly snapshot: IFleetCutoverCompleteLocalNodeSnapshot | null;
  /** Reason of a newer incomplete snapshot. */
  readonly incomplete: string | null;
  /** Tasks of the latest accepted manager snapshot on this node's swarm node. */
  readonly tasks: readonly NodeTask[];
  /** State of the swarm node in the manager snapshot; null where it is not in it. */
  readonly swarmState: string | null;
  readonly scope: IFleetCutoverScope | null;
  /** Spec mounts by swarm service id, from the latest accepted manager snapshot. */
  readonly specMounts: ReadonlyMap<string, readonly IObservedSpecMount[]>;
  readonly targeted: boolean;
  /** What was required of this node before. */
  readonly previous: readonly RequiredEntry[];
  /**
   * Which of the entries that may leave are prepared: the anonymous ones of services whose anonymous volumes are released,
   * and those that are written off. Absent where there are none.
   */
  readonly prepared?: ReadonlySet<string>;
  /** What people declared lost for good; absent where nothing is. */
  readonly writtenOff?: WrittenOff;
}

export interface WrittenOff {
  /** The whole node is. */
  readonly node: boolean;
  /** Handoff ids of single volumes that are. Those that are prepared stay, so that no handoff has to be changed. */
  readonly entries: ReadonlySet<string>;
}

/** What the gates of the phases need of the node's snapshot. */
export interface NodeGateFacts {
  readonly palletReady: boolean;
  readonly oldModeRefused: boolean;
  /** Containers of applications that could write. */
  readonly active: readonly GateContainer[];
  /** Containers of confirmed overlaps that could; outside Swarm in any state, as an engine may start those again. */
  readonly confirmed: readonly GateContainer[];
  /** Every container of the service that is classed `coreflow`, in any state. */
  readonly relay: readonly (GateContainer & { readonly containerId: string; readonly imageDigest: string | null })[];
  /** Of the required entries that are not written off. */
  readonly volumes: JudgedVolumes;
  readonly spark: IFleetCutoverCompleteLocalNodeSnapshot['spark'] | null;
}

export interface GateContainer {
  readonly swarmServiceId: string | null;
  readonly name: string;
  readonly state: IObservedContainer['state'];
}

export interface NodeDerivation {
  /** In `(nodeId, id)` order. */
  readonly entries: readonly RequiredEntry[];
  readonly blockers: readonly Blocker[];
  readonly verdicts: readonly IFleetCutoverTaskVerdict[];
  readonly gate: NodeGateFacts;
}

/** Where a mount's data is: on the node, or somewhere that needs a class. */
function storageOf(mount: Pick<IObservedContainerMount, 'type' | 'driver' | 'options'>): 'node' | 'elsewhere' | 'none' {
  switch (mount.type) {
    case 'bind':
      return 'node';
    case 'volume':
      if (mount.driver !== 'local') return 'elsewhere';
      return isNodeDirectory(mount.options) ? 'node' : 'elsewhere';
    case 'cluster':
      return 'elsewhere';
    case 'tmpfs':
    case 'npipe':
    case 'image':
      return 'none';
    default: {
      const unexpected: never = mount.type;
      throw new TypeError(`unexpected mount type ${String(unexpected)}`);
    }
  }
}

function isNodeDirectory(options: IReducedDriverOptions | null): boolean {
  if (options === null || options.type === null) return true;
  return options.type !== 'tmpfs' && !networkFilesystems.has(options.type);
}

/** One mount of one container, or an entry whose container is gone, where it takes part in the comparison of sources. */
interface Participant {
  /** The entry that this mount makes. */
  entry: RequiredEntry | null;
  /** Its entry left because the administrator named another one the owner. */
  yielded: boolean;
  readonly swarmServiceId: string | null;
  /** The container's name: identity of what is outside Swarm, and for people. */
  readonly containerName: string | null;
  readonly target: string;
  readonly paths: readonly string[];
}

export function makeBlocker(
  code: TBlockerCode,
  detail: string,
  about: Partial<Omit<IFleetCutoverBlocker, 'id' | 'code' | 'detail' | 'entry'>> & {
    readonly entry?: RequiredEntry | null;
  },
): Blocker {
  const { entry = null } = about;
  const subject = {
    code,
    nodeId: about.nodeId ?? null,
    swarmServiceId: about.swarmServiceId ?? null,
    swarmTaskId: about.swarmTaskId ?? null,
    containerName: about.containerName ?? null,
    target: about.target ?? null,
    volumeName: about.volumeName ?? null,
    entry:
      entry === null
        ? null
        : { nodeId: entry.nodeId, serviceId: entry.serviceId, mountIdentityDigest: entry.mountIdentityDigest },
  };
  const id = `bl-${bareDigest({ ...subject, detail }).slice(7, 47)}`;
  return {
    record: { id, ...subject, detail: clip(detail) } as IFleetCutoverBlocker,
    handoffId: entry === null ? null : entry.handoffId,
  };
}

/** At most 1,024 UTF-16 units, never half of a surrogate pair: half a pair has no canonical form. */
export function clip(detail: string): string {
  const end = /[\uD800-\uDBFF]/.test(detail.charAt(1023)) ? 1023 : 1024;
  return detail.slice(0, end);
}

export function deriveNode(facts: NodeFacts): NodeDerivation {
  const verdicts = judgeTasks(facts);
  const view = facts.scope === null ? null : new ScopeView(facts.scope, facts.nodeId);
  const gate = (entries: readonly RequiredEntry[]) => gateFactsOf(facts, view, judgeVolumes(entries, facts.snapshot));
  if (facts.writtenOff?.node === true) {
    const prepared = facts.previous.filter((entry) => facts.prepared?.has(entry.handoffId) === true);
    return { entries: prepared, blockers: [], verdicts, gate: gate([]) };
  }
  const blockers = new Map<string, Blocker>();
  const block = (found: readonly Blocker[]) => {
    for (const blocker of found) blockers.set(blocker.record.id, blocker);
  };

  if (facts.snapshot === null && facts.targeted) {
    block([makeBlocker('node-unobserved', 'the target node has no accepted local snapshot', { nodeId: facts.nodeId })]);
  }
  if (facts.incomplete !== null) {
    block([
      makeBlocker('snapshot-incomplete', `the node's latest local snapshot is incomplete: ${facts.incomplete}`, {
        nodeId: facts.nodeId,
      }),
    ]);
  }
  if (view === null) return { entries: [], blockers: [...blockers.values()], verdicts, gate: gate([]) };

  block(unknownTasks(facts, verdicts, view));
  const found = readMounts(facts, view);
  block(found.blockers);
  const kept = keepEntries(facts, view, found.entries);
  for (const id of facts.writtenOff?.entries ?? []) if (facts.prepared?.has(id) !== true) kept.delete(id);
  const gone = withoutContainer(
    facts,
    [...kept.values()].filter((entry) => !found.entries.has(entry.handoffId)),
  );
  const yielded = settleOwners(view, [...found.participants, ...gone], kept);
  found.participants.push(...gone.filter(({ entry }) => kept.has(entry.handoffId)));
  for (const participant of found.participants) {
    if (participant.entry === null || kept.has(participant.entry.handoffId)) continue;
    participant.yielded = yielded.has(participant.entry.handoffId);
    participant.entry = null;
  }
  block(overlaps(facts, view, found.participants));
  block(uncoveredReadOnly(facts, view, found));
  block(invalidTargets(facts, kept));
  block(unmountedVolumes(facts, view, kept));
  if (kept.size > 0 && !facts.targeted) {
    block([
      makeBlocker('node-not-targeted', `the node holds ${kept.size} required entries but is not in the target set`, {
        nodeId: facts.nodeId,
      }),
    ]);
  }
  const entries = [...kept.values()].sort((left, right) => compareText(left.handoffId, right.handoffId));
  const lost = facts.writtenOff?.entries;
  const left = [...blockers.values()].filter((each) => each.handoffId === null || lost?.has(each.handoffId) !== true);
  const mattering = entries.filter((entry) => lost?.has(entry.handoffId) !== true);
  return { entries, blockers: left, verdicts, gate: gate(mattering) };
}

/** The scope's statements as one node's derivation looks them up. */
class ScopeView {
  private readonly services: ReadonlyMap<string, IFleetCutoverScopeService>;
  private readonly owned: ReadonlyMap<string, IFleetCutoverScopeService>;
  private readonly mountClasses: ReadonlyMap<string, TMountClass>;
  private readonly released: ReadonlySet<string>;
  private readonly releasedAnonymous: ReadonlySet<string>;
  private readonly owners: ReadonlySet<string>;
  private readonly confirmations: ReadonlySet<string>;
  private readonly dormant: ReadonlySet<string>;

  constructor(scope: IFleetCutoverScope, nodeId: string) {
    const here = <T extends { readonly nodeId: string }>(list: readonly T[]) =>
      list.filter((each) => each.nodeId === nodeId);
    this.services = new Map(scope.services.map((service) => [service.swarmServiceId, service]));
    this.owned = new Map(
      scope.services.flatMap((service) =>
        service.class === 'application' && service.serviceId !== null ? [[service.serviceId, service] as const] : [],
      ),
    );
    this.mountClasses = new Map(
      scope.services.flatMap((service) =>
        service.mounts.map((mount) => [`${service.swarmServiceId}\0${mount.target}`, mount.class] as const),
      ),
    );
    this.released = new Set(here(scope.releasedEntries).map((key) => `${key.serviceId}\0${key.mountIdentityDigest}`));
    this.releasedAnonymous = new Set(scope.releasedAnonymousVolumes.map((each) => each.serviceId));
    this.owners = new Set(here(scope.overlapOwners).map((key) => `${key.serviceId}\0${key.mountIdentityDigest}`));
    this.confirmations = new Set(
      here(scope.overlapConfirmations).map(
        (each) => `${each.mounter.kind}\0${mounterName(each.mounter)}\0${each.target}`,
      ),
    );
    this.dormant = new Set(here(scope.dormantVolumes).map((each) => each.volumeName));
  }

  service(swarmServiceId: string | null): IFleetCutoverScopeService | undefined {
    return swarmServiceId === null ? undefined : this.services.get(swarmServiceId);
  }
  /** The application whose owner is this service of ours. */
  applicationOf(serviceId: string): IFleetCutoverScopeService | undefined {
    return this.owned.get(serviceId);
  }
  applications(): IFleetCutoverScopeService[] {
    return [...this.services.values()].filter((service) => service.class === 'application');
  }
  mountClass(swarmServiceId: string | null, target: string): TMountClass | undefined {
    return swarmServiceId === null ? undefined : this.mountClasses.get(`${swarmServiceId}\0${target}`);
  }
  isReleased(entry: RequiredEntry): boolean {
    return this.released.has(`${entry.serviceId}\0${entry.mountIdentityDigest}`);
  }
  releasesAnonymous(serviceId: string): boolean {
    return this.releasedAnonymous.has(serviceId);
  }
  isOwner(entry: RequiredEntry): boolean {
    return this.owners.has(`${entry.serviceId}\0${entry.mountIdentityDigest}`);
  }
  isConfirmed(participant: Pick<Participant, 'swarmServiceId' | 'containerName' | 'target'>): boolean {
    const mounter =
      participant.swarmServiceId === null
        ? `container\0${participant.containerName}`
        : `service\0${participant.swarmServiceId}`;
    return this.confirmations.has(`${mounter}\0${participant.target}`);
  }
  isDormant(volumeName: string): boolean {
    return this.dormant.has(volumeName);
  }
}

/** States in which a container can write, or is about to. */
const activeStates: ReadonlySet<IObservedContainer['state']> = new Set(['created', 'running', 'paused', 'restarting']);

function gateFactsOf(facts: NodeFacts, view: ScopeView | null, volumes: JudgedVolumes): NodeGateFacts {
  const active: GateContainer[] = [];
  const confirmed: GateContainer[] = [];
  const relay: NodeGateFacts['relay'][number][] = [];
  for (const { id, name, state, swarmServiceId, imageDigest, mounts } of facts.snapshot?.containers ?? []) {
    const container = { swarmServiceId, name, state };
    const serviceClass = view?.service(swarmServiceId)?.class;
    if (serviceClass === 'coreflow') relay.push({ ...container, containerId: id, imageDigest });
    const isActive = activeStates.has(state);
    if (isActive && serviceClass === 'application') active.push(container);
    if (!isActive && swarmServiceId !== null) continue;
    const holder = { swarmServiceId, containerName: swarmServiceId === null ? name : null };
    if (mounts.some((mount) => view?.isConfirmed({ ...holder, target: mount.destination }) === true)) {
      confirmed.push(container);
    }
  }
  return {
    palletReady: facts.snapshot?.pallet?.ready ?? false,
    oldModeRefused: facts.snapshot?.spark.oldModeRefused ?? false,
    active,
    confirmed,
    relay,
    volumes,
    spark: facts.snapshot?.spark ?? null,
  };
}

function judgeTasks(facts: NodeFacts): IFleetCutoverTaskVerdict[] {
  const containers = new Map<string, IObservedContainer[]>();
  for (const container of facts.snapshot?.containers ?? []) {
    if (container.swarmTaskId === null) continue;
    const known = containers.get(container.swarmTaskId);
    if (known === undefined) containers.set(container.swarmTaskId, [container]);
    else known.push(container);
  }
  const here: TaskNode = { kind: facts.snapshot === null ? 'unreported' : 'reported', swarmState: facts.swarmState };
  const former: TaskNode = facts.snapshot === null ? here : { kind: 'former' };
  return facts.tasks.map((task) => ({
    swarmTaskId: task.swarmTaskId,
    swarmServiceId: task.swarmServiceId,
    nodeId: facts.nodeId,
    ...judgeTask(task, task.former === true ? former : here, containers.get(task.swarmTaskId) ?? []),
  }));
}

/** Tasks of excluded services do not block: what is excluded is nobody's to move. */
function unknownTasks(facts: NodeFacts, verdicts: readonly IFleetCutoverTaskVerdict[], view: ScopeView): Blocker[] {
  return verdicts
    .filter((each) => each.verdict === 'unknown' && view.service(each.swarmServiceId)?.class !== 'excluded')
    .map((each) =>
      makeBlocker('task-unknown', `the task cannot be judged: ${each.reason}`, {
        nodeId: facts.nodeId,
        swarmServiceId: each.swarmServiceId,
        swarmTaskId: each.swarmTaskId,
      }),
    );
}

interface FoundMounts {
  readonly entries: ReadonlyMap<string, RequiredEntry>;
  readonly participants: Participant[];
  /** Read-only volume mounts of applications. */
  readonly readOnly: Participant[];
  readonly blockers: Blocker[];
}

function readMounts(facts: NodeFacts, view: ScopeView): FoundMounts {
  const entries = new Map<string, RequiredEntry>();
  const participants: Participant[] = [];
  const readOnly: Participant[] = [];
  const blockers: Blocker[] = [];
  for (const container of facts.snapshot?.containers ?? []) {
    const about = { nodeId: facts.nodeId, swarmServiceId: container.swarmServiceId, containerName: container.name };
    if (container.mountsBeyond > 0) {
      blockers.push(
        makeBlocker('mount-limit', `the container has ${container.mountsBeyond} mounts beyond the 32nd`, about),
      );
    }
    const service = view.service(container.swarmServiceId);
    for (const mount of container.mounts) {
      const storage = storageOf(mount);
      const mountClass = classOf(view, container.swarmServiceId, mount);
      if (storage === 'none' || mountClass === 'external' || mountClass === 'ephemeral') continue;
      const moves = service?.class === 'application' || service?.class === 'ingress';
      if (moves && storage === 'elsewhere' && mountClass === undefined) {
        blockers.push(
          makeBlocker(
            'driver-unclassified',
            `the mount's storage is not a directory of the node (${describeDriver(mount)}) and has no class`,
            {
              ...stable(about),
              target: mount.destination,
            },
          ),
        );
      }
      const participant: Participant = {
        entry: null,
        yielded: false,
        swarmServiceId: container.swarmServiceId,
        containerName: container.swarmServiceId === null ? container.name : null,
        target: mount.destination,
        paths: pathsOf(mount),
      };
      participants.push(participant);
      if (!moves || storage === 'elsewhere') continue;
      if (service.class === 'ingress') {
        if (mount.readWrite && mountClass === undefined) {
          blockers.push(
            makeBlocker('ingress-persistent-mount', 'an ingress must not own persistent data', {
              ...stable(about),
              target: mount.destination,
            }),
          );
        }
        continue;
      }
      if (mount.source === '' && mountClass === undefined) {
        blockers.push(
          makeBlocker('source-empty', 'the mount has no source', { ...stable(about), target: mount.destination }),
        );
        continue;
      }
      if (!mount.readWrite) {
        if (mount.type === 'volume' && mountClass === undefined) readOnly.push(participant);
        continue;
      }
      if (mountClass === 'host-path' || service.serviceId === null) continue;
      const entry = entryOf(facts, service.serviceId, container.swarmServiceId!, mount);
      if (!entries.has(entry.handoffId)) entries.set(entry.handoffId, entry);
      participant.entry = entry;
    }
  }
  return { entries, participants, readOnly, blockers };
}

/** `shared-read-only` says nothing about a mount that is written through. */
function classOf(
  view: ScopeView,
  swarmServiceId: string | null,
  mount: IObservedContainerMount,
): TMountClass | undefined {
  const stated = view.mountClass(swarmServiceId, mount.destination);
  return stated === 'shared-read-only' && mount.readWrite ? undefined : stated;
}

/** A swarm service's containers come and go with their names; blockers about its mounts name the service alone. */
function stable<T extends { readonly swarmServiceId: string | null; readonly containerName: string }>(about: T) {
  return about.swarmServiceId === null ? about : { ...about, containerName: null };
}

function describeDriver(mount: IObservedContainerMount): string {
  const type = mount.options?.type ?? null;
  return type === null ? `driver ${mount.driver ?? 'unknown'}` : `driver ${mount.driver ?? 'unknown'}, type ${type}`;
}

function pathsOf(mount: IObservedContainerMount): string[] {
  return pathsUnder(mount.source, mount.options?.bindDevice);
}

/** The source, and the host directory that the volume really is, as a second one. */
function pathsUnder(source: string, bindDevice: string | null | undefined): string[] {
  return [source, bindDevice ?? ''].filter((path) => path !== '').map(normalizePath);
}

/** Entries that no container mounts any more; the node's volumes still say which host directories they are. */
function withoutContainer(
  facts: NodeFacts,
  entries: readonly RequiredEntry[],
): (Participant & { entry: RequiredEntry })[] {
  const devices = new Map(facts.snapshot?.volumes.map((volume) => [volume.name, volume.options?.bindDevice]));
  return entries.map((entry) => ({
    entry,
    yielded: false,
    swarmServiceId: entry.swarmServiceId,
    containerName: null,
    target: entry.mountPath,
    paths: pathsUnder(entry.source, devices.get(entry.volumeName ?? '')),
  }));
}

function entryOf(
  facts: NodeFacts,
  serviceId: string,
  swarmServiceId: string,
  mount: IObservedContainerMount,
): RequiredEntry {
  const observed = observedMountOf(mount.source, mount.destination);
  return {
    handoffId: handoffId(facts.clusterLife, {
      nodeId: facts.nodeId,
      serviceId,
      mountIdentityDigest: observed.mountIdentityDigest,
    }),
    nodeId: facts.nodeId,
    serviceId,
    swarmServiceId,
    sourceDigest: observed.sourceDigest,
    targetDigest: observed.targetDigest,
    mountIdentityDigest: observed.mountIdentityDigest,
    source: mount.source,
    mountPath: mount.destination,
    volumeName: mount.type === 'volume' ? mount.name : null,
    anonymous: mount.type === 'volume' && mount.name !== null && isAnonymousVolumeName(mount.name),
  };
}

/** Invariant 3: what is observed now and what was required before, less what the scope lets go. */
function keepEntries(
  facts: NodeFacts,
  view: ScopeView,
  observed: ReadonlyMap<string, RequiredEntry>,
): Map<string, RequiredEntry> {
  const inUse = mountedByUnfinishedTasks(facts);
  const kept = new Map<string, RequiredEntry>();
  for (const entry of [...facts.previous, ...observed.values()]) {
    // By owner: a swarm service that was removed and made again has another id and the same volumes.
    const service = view.applicationOf(entry.serviceId);
    if (service === undefined) continue;
    const mountClass = view.mountClass(service.swarmServiceId, entry.mountPath);
    if (mountClass !== undefined && mountClass !== 'shared-read-only') continue;
    if (view.isReleased(entry)) continue;
    if (isReleasedAnonymous(facts, view, entry, inUse)) continue;
    kept.set(entry.handoffId, entry);
  }
  return kept;
}

/**
 * A released anonymous volume that nobody uses leaves, unless it is prepared: what was prepared leaves only when it is named
 * or its handoff is removed, so that stopping a service takes nothing away. One that the service's spec names is none.
 */
function isReleasedAnonymous(
  facts: NodeFacts,
  view: ScopeView,
  entry: RequiredEntry,
  inUse: ReadonlySet<string>,
): boolean {
  if (!entry.anonymous || !view.releasesAnonymous(entry.serviceId)) return false;
  const swarmServiceId = view.applicationOf(entry.serviceId)?.swarmServiceId ?? entry.swarmServiceId;
  const named = (facts.specMounts.get(swarmServiceId) ?? []).some(
    (mount) => mount.type === 'volume' && mount.source === entry.volumeName,
  );
  if (named) return false;
  return !inUse.has(entry.volumeName ?? '') && facts.prepared?.has(entry.handoffId) !== true;
}

/** Volumes of containers that run, or whose task may yet: also one that the manager snapshot does not know of yet. */
function mountedByUnfinishedTasks(facts: NodeFacts): Set<string> {
  const finished = new Set(
    facts.tasks.filter((task) => isTerminalTaskState(task.state)).map((task) => task.swarmTaskId),
  );
  const names = new Set<string>();
  for (const container of facts.snapshot?.containers ?? []) {
    if (container.swarmTaskId === null) continue;
    if (finished.has(container.swarmTaskId) && !isRunning(container)) continue;
    for (const mount of container.mounts) if (mount.name !== null) names.add(mount.name);
  }
  return names;
}

/** Every other key that overlaps a named owner leaves the set; returns their handoff ids. */
function settleOwners(
  view: ScopeView,
  participants: readonly Participant[],
  kept: Map<string, RequiredEntry>,
): Set<string> {
  const yielded = new Set<string>();
  const located: Located<RequiredEntry>[] = [];
  for (const participant of participants) {
    const { entry } = participant;
    if (entry === null || !kept.has(entry.handoffId)) continue;
    for (const path of participant.paths) located.push({ item: entry, path });
  }
  forEachOverlap(located, (outer, inner) => {
    if (outer.handoffId === inner.handoffId) return;
    const outerOwns = view.isOwner(outer);
    if (outerOwns === view.isOwner(inner)) return;
    const loser = outerOwns ? inner.handoffId : outer.handoffId;
    kept.delete(loser);
    yielded.add(loser);
  });
  return yielded;
}

/** Invariant 4. */
function overlaps(facts: NodeFacts, view: ScopeView, participants: readonly Participant[]): Blocker[] {
  const located = new Map<string, Located<Participant>>();
  for (const participant of participants) {
    for (const path of participant.paths) {
      const identity = [
        path,
        participant.swarmServiceId ?? `container ${participant.containerName}`,
        participant.target,
        participant.entry?.handoffId ?? String(participant.yielded),
      ];
      located.set(identity.join('\0'), { item: participant, path });
    }
  }
  const perKey = new Map<string, OverlapsOfKey>();
  const conflict = (key: Participant, other: Participant) => {
    if (key.entry === null || !isConflict(view, key.entry, key, other)) return;
    const known = perKey.get(key.entry.handoffId) ?? { entry: key.entry, others: new Map() };
    perKey.set(key.entry.handoffId, known);
    const holder = other.entry?.handoffId ?? other.swarmServiceId ?? `container ${other.containerName}`;
    known.others.set(`${holder}\0${other.target}`, other);
  };
  forEachOverlap([...located.values()], (outer, inner) => {
    conflict(outer, inner);
    conflict(inner, outer);
  });
  return [...perKey.values()].flatMap((each) => overlapBlockers(facts, each));
}

interface OverlapsOfKey {
  readonly entry: RequiredEntry;
  /** Who else is there, once for each holder and target. */
  readonly others: Map<string, Participant>;
}

/** Overlaps of one key that are named one by one; hundreds of services may share a path before it is classed. */
const namedOverlaps = 64;

function isConflict(view: ScopeView, entry: RequiredEntry, key: Participant, other: Participant): boolean {
  if (other.entry !== null) return other.entry.handoffId !== entry.handoffId;
  const sameService = other.swarmServiceId !== null && other.swarmServiceId === key.swarmServiceId;
  return !sameService && !view.isConfirmed(other) && !(other.yielded && view.isOwner(entry));
}

function overlapBlockers(facts: NodeFacts, { entry, others }: OverlapsOfKey): Blocker[] {
  const named = [...others].sort(([left], [right]) => compareText(left, right)).slice(0, namedOverlaps);
  const blockers = named.map(([, other]) => overlapBlocker(facts, entry, other));
  if (others.size > namedOverlaps) {
    const detail = `${others.size - namedOverlaps} more mounts overlap the source`;
    blockers.push(makeBlocker('overlap-container', detail, { nodeId: facts.nodeId, entry }));
  }
  return blockers;
}

function overlapBlocker(facts: NodeFacts, entry: RequiredEntry, other: Participant): Blocker {
  const { swarmServiceId, containerName, target } = other;
  if (other.entry !== null) {
    const detail = `the source is also under the entry of service ${other.entry.serviceId} at ${other.entry.mountPath}`;
    return makeBlocker('overlap-keys', detail, { nodeId: facts.nodeId, swarmServiceId, target, entry });
  }
  const detail =
    swarmServiceId === null
      ? `container ${containerName} outside Swarm mounts an overlapping source at ${target}`
      : `another service mounts an overlapping source at ${target}`;
  return makeBlocker('overlap-container', detail, {
    nodeId: facts.nodeId,
    swarmServiceId,
    containerName,
    target,
    entry,
  });
}

/** A read-only volume whose data no entry carries over would be left behind. */
function uncoveredReadOnly(facts: NodeFacts, view: ScopeView, { participants, readOnly }: FoundMounts): Blocker[] {
  const covering = new Set(participants.flatMap((each) => (each.entry === null ? [] : each.paths)));
  const isCovered = (path: string): boolean => {
    for (let end = path.length; end > 0; end = path.lastIndexOf('/', end - 1)) {
      if (covering.has(path.slice(0, end))) return true;
    }
    return covering.has('/');
  };
  return readOnly
    .filter(
      (participant) =>
        participant.paths.length > 0 && !participant.paths.some(isCovered) && !view.isConfirmed(participant),
    )
    .map((participant) =>
      makeBlocker('read-only-uncovered', 'a read-only volume that no entry covers', {
        nodeId: facts.nodeId,
        swarmServiceId: participant.swarmServiceId,
        target: participant.target,
      }),
    );
}

/** No request can name such a destination (a Windows path, one that is not normalised), so the entry cannot be prepared. */
function invalidTargets(facts: NodeFacts, kept: ReadonlyMap<string, RequiredEntry>): Blocker[] {
  return [...kept.values()]
    .filter((entry) => !isMountPath(entry.mountPath))
    .map((entry) =>
      makeBlocker('target-invalid', 'the mount’s destination is not an absolute, normalised path', {
        nodeId: facts.nodeId,
        swarmServiceId: entry.swarmServiceId,
        target: entry.mountPath,
        entry,
      }),
    );
}

/** A volume that an application's spec names but no container mounts: its data may be what the service lost. */
function unmountedVolumes(facts: NodeFacts, view: ScopeView, kept: ReadonlyMap<string, RequiredEntry>): Blocker[] {
  if (facts.snapshot === null) return [];
  const mounted = new Set<string>();
  for (const container of facts.snapshot.containers) {
    for (const mount of container.mounts) if (mount.name !== null) mounted.add(mount.name);
  }
  for (const entry of kept.values()) if (entry.volumeName !== null) mounted.add(entry.volumeName);
  const loose = facts.snapshot.volumes.filter((volume) => !mounted.has(volume.name) && !view.isDormant(volume.name));
  const blockers: Blocker[] = [];
  for (const service of view.applications()) {
    for (const mount of facts.specMounts.get(service.swarmServiceId) ?? []) {
      if (mount.type !== 'volume' || mount.source === null) continue;
      if (view.mountClass(service.swarmServiceId, mount.target) !== undefined) continue;
      const matches = volumeNameMatcher(mount.source);
      for (const volume of loose) {
        if (!matches(volume.name)) continue;
        blockers.push(
          makeBlocker(
            'volume-unmounted',
            `volume ${volume.name} matches the service's mount at ${mount.target} but no container mounts it`,
            {
              nodeId: facts.nodeId,
              swarmServiceId: service.swarmServiceId,
              target: mount.target,
              volumeName: volume.name,
            },
          ),
        );
      }
    }
  }
  return blockers;
}

/** Specs keep a volume's name as a template (`redis-{{.Task.Slot}}`); the volume has the resolved name. */
export function volumeNameMatcher(template: string): (name: string) => boolean {
  if (!template.includes('{{')) return (name) => name === template;
  const literals = template.split(/\{\{.*?\}\}/s);
  if (literals.length === 1) return (name) => name === template;
  return (name) => matchesLiterals(literals, name);
}

/** At least one character between each two literals. Linear: each literal is taken at its first place. */
function matchesLiterals(literals: readonly string[], name: string): boolean {
  const first = literals[0] ?? '';
  const last = literals.at(-1) ?? '';
  if (!name.startsWith(first) || !name.endsWith(last)) return false;
  let from = first.length;
  for (const literal of literals.slice(1, -1)) {
    const found = name.indexOf(literal, from + 1);
    if (found === -1) return false;
    from = found + literal.length;
  }
  return name.length - last.length > from;
}
