/** What administrators and operators read: one consistent picture each. */
import type { Static } from '@sinclair/typebox';
import { sql } from 'kysely';
import type { FleetCutoverUncoveredVolume, IFleetCutoverRequiredEntry } from '../../contract/derivation.js';
import type { IFleetCutoverDerivation, IFleetCutoverTaskVerdict } from '../../contract/derivation.js';
import type {
  IFleetCutoverPreparedVolumeHandoffAggregate,
  IFleetCutoverPreparedVolumeHandoffIntent,
  IFleetCutoverPreparedVolumeHandoffPage,
} from '../../contract/handoff.js';
import { comparePageOrder } from '../../contract/handoff.js';
import type { MethodRequest, MethodResponse, TMethodName } from '../../contract/methods.js';
import { refuse, type Refused } from '../../contract/problems.js';
import { type Reference, sameReference } from '../../contract/schema.js';
import { present } from '../../db/present.js';
import { qb } from '../../db/query.js';
import type { ReadTx } from '../../db/transaction.js';
import type { Deps } from '../../deps.js';
import { isRefused } from '../../refusal.js';
import { demandBlocker, demandSnapshot, demandStored } from '../../stored-record.js';
import type { AdministratorActor } from '../auth/actor.js';
import type { Cluster } from '../fleet/facts.js';
import { readCluster } from '../fleet/read-cluster.js';
import { managerSnapshotHead, managerSnapshotReference, observedServices } from '../inventory/facts.js';
import { readRuntime, runtimeRecord } from '../phase/facts.js';
import { readScopeHead, readTargetSetHead, scopeReference, scopeRevision, targetSetReference } from '../scope/facts.js';
import { aggregateReference } from './aggregate.js';
import { readDerivationHead } from './derivation-rows.js';
import { volumeNameMatcher } from './derive-node.js';
import { blockerSummary, isBehind, verdictCounts } from './facts.js';
import { defaultRequest } from './handoff.js';
import { entriesPerPage, readPage, splicePage } from './page.js';
import { aggregateRevision, pageAt, readAggregateHead } from './rows.js';
import { referenceOfHead } from './steps.js';

type Aggregate = IFleetCutoverPreparedVolumeHandoffAggregate;
type Answer<N extends TMethodName> = Promise<MethodResponse<N> | Refused>;

export function readFleetCutoverState(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'readFleetCutoverState'>,
): Answer<'readFleetCutoverState'> {
  const { clusterId } = input;
  return readCluster(deps, 'readFleetCutoverState', actor, clusterId, async (tx, cluster) => {
    const [runtime, manager, scopeHead, targetSet, derivation, aggregate, verdicts, blockers] = await Promise.all([
      readRuntime(tx, clusterId),
      managerSnapshotHead(tx, clusterId),
      readScopeHead(tx, clusterId),
      readTargetSetHead(tx, clusterId),
      readDerivationHead(tx, clusterId),
      readAggregateHead(tx, clusterId),
      verdictCounts(tx, clusterId),
      blockerSummary(tx, clusterId),
    ]);
    const scope = present(scopeHead);
    const derived = present(derivation);
    const prepared = present(aggregate);
    const [runtimeRevision, derivationRevision, aggregateText, behind] = await Promise.all([
      runtimeRecord(tx, clusterId, present(runtime)),
      derivationRecord(tx, clusterId, derived.generation),
      prepared.generation === 0 ? undefined : aggregateRevision(tx, clusterId, prepared.generation),
      isBehind(tx, clusterId, prepared),
    ]);
    return {
      runtime: runtimeRevision,
      managerSnapshot: manager === undefined ? null : managerSnapshotReference(cluster.clusterLife, manager),
      scope: scopeReference(cluster.clusterLife, scope),
      scopeState: scope.state === 'absent' ? null : scope.state,
      targetSet: targetSetReference(cluster.clusterLife, present(targetSet)),
      derivation: derivationRevision,
      aggregate:
        aggregateText === undefined
          ? null
          : demandStored<Aggregate>('IFleetCutoverPreparedVolumeHandoffAggregate', aggregateText.record, prepared),
      behind,
      missingCount: derived.requiredCount - prepared.matchedCount,
      surplusCount: prepared.preparedCount - prepared.matchedCount,
      verdicts,
      blockers,
    };
  });
}

async function derivationRecord(tx: ReadTx, clusterId: string, generation: number): Promise<IFleetCutoverDerivation> {
  const row = await tx.one(
    sql<{ digest: string; record: string }>`
      select digest, record from control.derivation_revisions where cluster_id = ${clusterId} and generation = ${generation}`.compile(
      qb,
    ),
  );
  return demandStored('IFleetCutoverDerivation', row.record, { generation, digest: row.digest });
}

// Lists -------------------------------------------------------------------------------------------------------------

/** Where a list goes on: at which derivation and aggregate, after which key. */
interface Cursor {
  readonly derivation: number;
  readonly aggregate: number;
  readonly after: readonly [string, string];
}

function encodeCursor(cursor: Cursor): string {
  return Buffer.from(JSON.stringify([cursor.derivation, cursor.aggregate, ...cursor.after])).toString('base64url');
}

/** Null where the text is no cursor of ours. It grants nothing: what it names is looked up in the caller's own cluster. */
function decodeCursor(text: string): Cursor | null {
  let value: unknown;
  try {
    value = JSON.parse(Buffer.from(text, 'base64url').toString('utf8'));
  } catch {
    return null;
  }
  if (!Array.isArray(value) || value.length !== 4) return null;
  const [derivation, aggregate, first, second] = value as unknown[];
  if (!Number.isSafeInteger(derivation) || !Number.isSafeInteger(aggregate)) return null;
  if (typeof first !== 'string' || typeof second !== 'string' || first.includes('\0') || second.includes('\0'))
    return null;
  return { derivation: derivation as number, aggregate: aggregate as number, after: [first, second] };
}

const start: readonly [string, string] = ['', ''];

interface Pin {
  readonly derivation: number;
  readonly aggregate: number;
  readonly after: readonly [string, string];
  readonly derivationReference: Reference;
  readonly aggregateReference: Reference | null;
}

/** The revisions that a list shows: the current ones, or those that its first page showed. */
async function pin(tx: ReadTx, cluster: Cluster, cursorText: string | null): Promise<Pin | Refused> {
  const { clusterId, clusterLife } = cluster;
  const [derivationHead, aggregateHead] = await Promise.all([
    readDerivationHead(tx, clusterId),
    readAggregateHead(tx, clusterId),
  ]);
  const currentDerivation = present(derivationHead);
  const currentAggregate = present(aggregateHead);
  if (cursorText === null) {
    return {
      derivation: currentDerivation.generation,
      aggregate: currentAggregate.generation,
      after: start,
      derivationReference: referenceOfHead(clusterLife, currentDerivation),
      aggregateReference: aggregateReference(clusterLife, currentAggregate),
    };
  }
  const cursor = decodeCursor(cursorText);
  if (cursor === null) return refuse('cursor-invalid');
  if (cursor.derivation > currentDerivation.generation || cursor.aggregate > currentAggregate.generation)
    return refuse('cursor-invalid');
  if (cursor.derivation < 1 || cursor.aggregate < 0) return refuse('cursor-invalid');
  const [derivation, aggregate] = await Promise.all([
    derivationRecord(tx, clusterId, cursor.derivation),
    cursor.aggregate === 0 ? undefined : aggregateRevision(tx, clusterId, cursor.aggregate),
  ]);
  return {
    derivation: cursor.derivation,
    aggregate: cursor.aggregate,
    after: cursor.after,
    derivationReference: referenceOfHead(clusterLife, derivation),
    aggregateReference:
      aggregate === undefined
        ? null
        : aggregateReference(clusterLife, { generation: cursor.aggregate, digest: aggregate.digest }),
  };
}

interface RequiredRow {
  readonly nodeId: string;
  readonly id: string;
  readonly serviceId: string;
  readonly swarmServiceId: string;
  readonly mountIdentityDigest: Reference['digest'];
  readonly mountPath: string;
  readonly volumeName: string | null;
  readonly required: boolean;
  /** As of now, whatever the pinned derivation: a write-off is for ever. */
  readonly writtenOff: boolean;
}

interface PreparedRow {
  readonly nodeId: string;
  readonly id: string;
  readonly generation: number;
  readonly digest: Reference['digest'];
}

export function listFleetCutoverRequiredVolumeHandoffs(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'listFleetCutoverRequiredVolumeHandoffs'>,
): Answer<'listFleetCutoverRequiredVolumeHandoffs'> {
  const { clusterId, limit } = input;
  return readCluster(deps, 'listFleetCutoverRequiredVolumeHandoffs', actor, clusterId, async (tx, cluster) => {
    const pinned = await pin(tx, cluster, input.cursor);
    if (isRefused(pinned)) return pinned;
    const [required, prepared, services] = await Promise.all([
      requiredAfter(tx, clusterId, pinned, limit + 1),
      preparedAfter(tx, clusterId, pinned, limit + 1),
      observedServices(tx, clusterId),
    ]);
    const keys = [...new Map([...required, ...prepared].map((row) => [`${row.nodeId}\0${row.id}`, row])).values()].sort(
      comparePageOrder,
    );
    const shown = keys.slice(0, limit);
    const surplus = shown.filter((key) => !required.some((row) => row.id === key.id && row.nodeId === key.nodeId));
    const [surplusFacts, blockers] = await Promise.all([
      entryFacts(tx, clusterId, surplus),
      blockersOf(tx, clusterId, pinned.derivation, shown),
    ]);
    const facts = new Map([...surplusFacts, ...required].map((row) => [row.id, row]));
    const handoffs = new Map(prepared.map((row) => [row.id, row]));
    const names = new Map(services.map((service) => [service.swarmServiceId, service.name]));
    const entries = shown.flatMap((key): IFleetCutoverRequiredEntry[] => {
      const fact = facts.get(key.id);
      if (fact === undefined) return [];
      const handoff = handoffs.get(key.id);
      const { required: isRequired, writtenOff, ...identity } = fact;
      return [
        {
          ...identity,
          serviceName: names.get(fact.swarmServiceId) ?? fact.swarmServiceId,
          state: writtenOff ? 'written-off' : handoff === undefined ? 'missing' : isRequired ? 'prepared' : 'surplus',
          handoff:
            handoff === undefined ? null : { id: handoff.id, generation: handoff.generation, digest: handoff.digest },
          blockers: (blockers.get(key.id) ?? []) as IFleetCutoverRequiredEntry['blockers'],
        },
      ];
    });
    const last = shown.at(-1);
    return {
      derivation: pinned.derivationReference,
      aggregate: pinned.aggregateReference,
      entries,
      nextCursor:
        keys.length > limit && last !== undefined ? encodeCursor({ ...pinned, after: [last.nodeId, last.id] }) : null,
      mutations: readyMutations(entries),
    };
  });
}

/** The missing, unblocked entries as sorted upserts, 32 a mutation. */
function readyMutations(entries: readonly IFleetCutoverRequiredEntry[]) {
  const upserts = entries
    .filter((entry) => entry.state === 'missing' && entry.blockers.length === 0)
    .map(({ id, nodeId, serviceId, mountIdentityDigest, mountPath }) => ({
      nodeId,
      serviceId,
      mountIdentityDigest,
      request: defaultRequest(id, mountPath),
    }));
  const mutations = [];
  for (let from = 0; from < upserts.length; from += entriesPerPage)
    mutations.push(upserts.slice(from, from + entriesPerPage));
  return mutations;
}

const entryColumns = sql`
  node_id as "nodeId", handoff_id as id, service_id as "serviceId", swarm_service_id as "swarmServiceId",
  mount_identity_digest as "mountIdentityDigest", mount_path as "mountPath", volume_name as "volumeName"`;

function requiredAfter(tx: ReadTx, clusterId: string, pinned: Pin, limit: number): Promise<RequiredRow[]> {
  return tx.rows(
    sql<RequiredRow>`
      select ${entryColumns}, true as required,
        exists (select from control.write_offs lost where lost.cluster_id = ${clusterId} and lost.node_id = entry.node_id
          and lost.state = 'confirmed' and (lost.handoff_id is null or lost.handoff_id = entry.handoff_id)) as "writtenOff"
      from control.required_entries entry
      where cluster_id = ${clusterId} and since <= ${pinned.derivation} and (until is null or until > ${pinned.derivation})
        and (node_id, handoff_id) > (${pinned.after[0]}, ${pinned.after[1]})
      order by node_id, handoff_id limit ${limit}`.compile(qb),
  );
}

/** Prepared handoffs as the pinned aggregate generation had them. */
function preparedAfter(tx: ReadTx, clusterId: string, pinned: Pin, limit: number): Promise<PreparedRow[]> {
  return tx.rows(
    sql<PreparedRow>`
      select node_id as "nodeId", handoff_id as id, generation, digest from (
        select distinct on (node_id, handoff_id) node_id, handoff_id, generation, digest, record is null as removed
        from control.handoff_revisions
        where cluster_id = ${clusterId} and aggregate_generation <= ${pinned.aggregate}
          and (node_id, handoff_id) > (${pinned.after[0]}, ${pinned.after[1]})
        order by node_id, handoff_id, aggregate_generation desc
      ) latest where not removed limit ${limit}`.compile(qb),
  );
}

/** What is known of keys that are required no more: surplus, written off or not, and free to be removed. */
function entryFacts(
  tx: ReadTx,
  clusterId: string,
  keys: readonly { nodeId: string; id: string }[],
): Promise<RequiredRow[]> {
  if (keys.length === 0) return Promise.resolve([]);
  return tx.rows(
    sql<RequiredRow>`
      select distinct on (node_id, handoff_id) ${entryColumns}, false as required, false as "writtenOff"
      from control.required_entries
      join unnest(${keys.map((key) => key.nodeId)}::text[], ${keys.map((key) => key.id)}::text[]) as wanted (wanted_node, wanted_id)
        on node_id = wanted_node and handoff_id = wanted_id
      where cluster_id = ${clusterId} order by node_id, handoff_id, since desc`.compile(qb),
  );
}

async function blockersOf(
  tx: ReadTx,
  clusterId: string,
  derivation: number,
  keys: readonly { id: string }[],
): Promise<Map<string, string[]>> {
  const rows = await tx.rows(
    sql<{ id: string; codes: string[] }>`
      select handoff_id as id, array_agg(distinct code order by code) as codes from control.blockers
      where cluster_id = ${clusterId} and handoff_id = any(${keys.map((key) => key.id)}::text[])
        and since <= ${derivation} and (until is null or until > ${derivation})
      group by handoff_id`.compile(qb),
  );
  return new Map(rows.map((row) => [row.id, row.codes]));
}

export function listFleetCutoverBlockers(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'listFleetCutoverBlockers'>,
): Answer<'listFleetCutoverBlockers'> {
  const { clusterId, limit } = input;
  return readCluster(deps, 'listFleetCutoverBlockers', actor, clusterId, async (tx, cluster) => {
    const pinned = await pin(tx, cluster, input.cursor);
    if (isRefused(pinned)) return pinned;
    const rows = await tx.rows(
      sql<{ part: string; id: string; record: string }>`
        select part, blocker_id as id, record from control.blockers
        where cluster_id = ${clusterId} and since <= ${pinned.derivation} and (until is null or until > ${pinned.derivation})
          and (part, blocker_id) > (${pinned.after[0]}, ${pinned.after[1]})
        order by part, blocker_id limit ${limit + 1}`.compile(qb),
    );
    const shown = rows.slice(0, limit);
    const last = shown.at(-1);
    return {
      derivation: pinned.derivationReference,
      blockers: shown.map(demandBlocker),
      nextCursor:
        rows.length > limit && last !== undefined ? encodeCursor({ ...pinned, after: [last.part, last.id] }) : null,
    };
  });
}

export function listFleetCutoverTaskVerdicts(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'listFleetCutoverTaskVerdicts'>,
): Answer<'listFleetCutoverTaskVerdicts'> {
  const { clusterId, limit } = input;
  return readCluster(deps, 'listFleetCutoverTaskVerdicts', actor, clusterId, async (tx, cluster) => {
    const cursor = input.cursor === null ? null : decodeCursor(input.cursor);
    if (input.cursor !== null && cursor === null) return refuse('cursor-invalid');
    const [manager, rows] = await Promise.all([
      managerSnapshotHead(tx, clusterId),
      tx.rows(
        sql<IFleetCutoverTaskVerdict>`
          select swarm_task_id as "swarmTaskId", swarm_service_id as "swarmServiceId", node_id as "nodeId", verdict, reason
          from control.task_verdicts
          where cluster_id = ${clusterId} and swarm_task_id > ${cursor?.after[0] ?? ''}
            and (${input.verdict}::text is null or verdict = ${input.verdict})
          order by swarm_task_id limit ${limit + 1}`.compile(qb),
      ),
    ]);
    const verdicts = rows.slice(0, limit);
    const last = verdicts.at(-1);
    return {
      managerSnapshot: manager === undefined ? null : managerSnapshotReference(cluster.clusterLife, manager),
      verdicts,
      nextCursor:
        rows.length > limit && last !== undefined
          ? encodeCursor({ derivation: 0, aggregate: 0, after: [last.swarmTaskId, ''] })
          : null,
    };
  });
}

/** Volumes of the latest accepted local snapshots that no required entry covers. Reads a node's snapshot at a time. */
export function listFleetCutoverUncoveredVolumes(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'listFleetCutoverUncoveredVolumes'>,
): Answer<'listFleetCutoverUncoveredVolumes'> {
  const { clusterId, limit } = input;
  return readCluster(deps, 'listFleetCutoverUncoveredVolumes', actor, clusterId, async (tx) => {
    const cursor = input.cursor === null ? null : decodeCursor(input.cursor);
    if (input.cursor !== null && cursor === null) return refuse('cursor-invalid');
    const after = cursor?.after ?? start;
    const patterns = await applicationVolumePatterns(tx, clusterId);
    const volumes: Static<typeof FleetCutoverUncoveredVolume>[] = [];
    let from = after[0];
    // The cursor's own node is read again, for what of it was not shown yet; every other node once.
    let inclusive = true;
    while (volumes.length <= limit) {
      const node = await nextNodeWithSnapshot(tx, clusterId, from, inclusive);
      inclusive = false;
      if (node === undefined) break;
      const snapshot = demandSnapshot<SnapshotVolumes>('IFleetCutoverLocalNodeSnapshot', node.record, node.digest);
      const mounted = new Set(snapshot.containers.flatMap((each) => each.mounts.flatMap((mount) => mount.name ?? [])));
      const covered = new Set(node.covered);
      for (const volume of [...snapshot.volumes].sort((left, right) => (left.name < right.name ? -1 : 1))) {
        if (covered.has(volume.name) || (node.nodeId === after[0] && volume.name <= after[1])) continue;
        const kind = mounted.has(volume.name)
          ? 'mounted'
          : patterns.some((matches) => matches(volume.name))
            ? 'dormant'
            : 'orphan';
        volumes.push({ nodeId: node.nodeId, volumeName: volume.name, driver: volume.driver, kind });
      }
      from = node.nodeId;
    }
    const shown = volumes.slice(0, limit);
    const last = shown.at(-1);
    return {
      volumes: shown,
      nextCursor:
        volumes.length > limit && last !== undefined
          ? encodeCursor({ derivation: 0, aggregate: 0, after: [last.nodeId, last.volumeName] })
          : null,
    };
  });
}

interface SnapshotVolumes {
  readonly containers: readonly { readonly mounts: readonly { readonly name: string | null }[] }[];
  readonly volumes: readonly { readonly name: string; readonly driver: string }[];
}

function nextNodeWithSnapshot(tx: ReadTx, clusterId: string, from: string, inclusive: boolean) {
  const comparison = inclusive ? sql`>=` : sql`>`;
  return tx.maybe(
    sql<{ nodeId: string; digest: string; record: string; covered: string[] }>`
      select node.node_id as "nodeId", snapshot.digest, snapshot.record, array(
        select entry.volume_name from control.required_entries entry
        where entry.cluster_id = node.cluster_id and entry.node_id = node.node_id and entry.until is null and entry.volume_name is not null
      ) as covered
      from control.nodes node join control.local_snapshots snapshot
        on snapshot.cluster_id = node.cluster_id and snapshot.node_id = node.node_id and snapshot.generation = node.local_generation
      where node.cluster_id = ${clusterId} and node.node_id ${comparison} ${from} order by node.node_id limit 1`.compile(
      qb,
    ),
  );
}

async function applicationVolumePatterns(tx: ReadTx, clusterId: string): Promise<((name: string) => boolean)[]> {
  const head = present(await readScopeHead(tx, clusterId));
  const scope = head.generation === 0 ? undefined : await scopeRevision(tx, clusterId, head.generation);
  const applications = new Set(
    scope?.services.filter((service) => service.class === 'application').map((each) => each.swarmServiceId),
  );
  const services = await observedServices(tx, clusterId);
  return services
    .filter((service) => applications.has(service.swarmServiceId))
    .flatMap((service) => service.mounts)
    .flatMap((mount) => (mount.type === 'volume' && mount.source !== null ? [volumeNameMatcher(mount.source)] : []));
}

// Aggregate, pages, handoffs ----------------------------------------------------------------------------------------

export function readFleetCutoverVolumeHandoffAggregate(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'readFleetCutoverVolumeHandoffAggregate'>,
): Answer<'readFleetCutoverVolumeHandoffAggregate'> {
  const { clusterId } = input;
  return readCluster(deps, 'readFleetCutoverVolumeHandoffAggregate', actor, clusterId, async (tx, cluster) => {
    const head = present(await readAggregateHead(tx, clusterId));
    const generation = input.aggregate?.generation ?? head.generation;
    if (generation === 0) return { aggregate: null, behind: false };
    const revision = await aggregateRevision(tx, clusterId, generation);
    const reference =
      revision === undefined ? null : aggregateReference(cluster.clusterLife, { generation, digest: revision.digest });
    if (revision === undefined || (input.aggregate !== null && !sameReference(input.aggregate, reference)))
      return refuse('pin-unknown');
    const aggregate = demandStored<Aggregate>('IFleetCutoverPreparedVolumeHandoffAggregate', revision.record, {
      generation,
      digest: revision.digest,
    });
    return {
      aggregate,
      behind: generation !== head.generation || (await isBehind(tx, clusterId, head)),
    };
  });
}

export function readFleetCutoverVolumeHandoffPage(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'readFleetCutoverVolumeHandoffPage'>,
): Answer<'readFleetCutoverVolumeHandoffPage'> {
  const { clusterId, aggregate, pageIndex } = input;
  return readCluster(deps, 'readFleetCutoverVolumeHandoffPage', actor, clusterId, async (tx, cluster) => {
    const revision = await aggregateRevision(tx, clusterId, aggregate.generation);
    const reference =
      revision === undefined
        ? null
        : aggregateReference(cluster.clusterLife, { generation: aggregate.generation, digest: revision.digest });
    if (revision === undefined || revision.state !== 'complete' || !sameReference(aggregate, reference))
      return refuse('pin-unknown');
    const header = demandStored<Aggregate>('IFleetCutoverPreparedVolumeHandoffAggregate', revision.record, aggregate);
    const { pageCount } = header;
    if (pageIndex >= pageCount) return refuse('page-unknown');
    const stored = await pageAt(tx, clusterId, pageIndex, aggregate.generation);
    if (stored === undefined || readPage(stored.tail, stored.contentDigest) === null) return refuse('record-corrupt');
    return { page: JSON.parse(splicePage(aggregate, stored.tail)) as IFleetCutoverPreparedVolumeHandoffPage };
  });
}

export function readFleetCutoverVolumeHandoff(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'readFleetCutoverVolumeHandoff'>,
): Answer<'readFleetCutoverVolumeHandoff'> {
  const { clusterId, nodeId, id, generation } = input;
  return readCluster(deps, 'readFleetCutoverVolumeHandoff', actor, clusterId, async (tx) => {
    const row = await tx.maybe(
      sql<{ generation: number; digest: Reference['digest']; record: string; current: boolean }>`
        select revision.generation, revision.digest, revision.record, not head.removed and head.generation = revision.generation as current
        from control.handoff_heads head join control.handoff_revisions revision using (cluster_id, node_id, handoff_id)
        where head.cluster_id = ${clusterId} and head.node_id = ${nodeId} and head.handoff_id = ${id}
          and revision.record is not null and revision.generation = coalesce(${generation}::bigint, head.generation)`.compile(
        qb,
      ),
    );
    if (row === undefined) return refuse('record-unknown');
    const handoff = demandStored<IFleetCutoverPreparedVolumeHandoffIntent>(
      'IFleetCutoverPreparedVolumeHandoffIntent',
      row.record,
      row,
    );
    return { handoff, current: row.current };
  });
}
