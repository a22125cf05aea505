/** Accepted snapshots against their digests, their heads, and the rows that were made of them for joining. */
import { sql } from 'kysely';
import { digestDomain, domainDigestOfCanonical } from '../../contract/digest.js';
import {
  fleetCutoverLocalNodeSnapshotRecord,
  fleetCutoverManagerSnapshotRecord,
  type IFleetCutoverCompleteLocalNodeSnapshot,
  type IFleetCutoverCompleteManagerSnapshot,
} from '../../contract/observation.js';
import type { ContractRecord } from '../../contract/record.js';
import { qb } from '../../db/query.js';
import { EntryOrigins } from './entry-origins.js';
import { compareObservedManager } from './observed-rows.js';
import type { RuntimeNames } from './revised-records.js';
import { readCanonical, type StoredRecord } from './sealed-record.js';
import { pagesOf, type Verification, type VerifiedCluster } from './verification.js';

const localDomain = digestDomain('IFleetCutoverLocalNodeSnapshot');
const managerDomain = digestDomain('IFleetCutoverManagerSnapshot');

/** A snapshot may have 4 MiB. */
const snapshotsPerPage = 4;

interface StoredLocalSnapshot extends StoredRecord {
  readonly nodeId: string;
}

export interface TakenSnapshot {
  readonly generation: number;
  readonly digest: string;
}

/** What is known of one node from its local snapshots. */
export interface LocalSnapshots {
  /** The newest one; a broken one tells nothing. */
  newest: (TakenSnapshot & { readonly named: number | null; readonly fenceStoreId: string | null }) | null;
  broken: boolean;
  /** By the generation of the runtime that they name: each snapshot, the first of them where they are many. */
  readonly under: Map<number, TakenSnapshot[]>;
}

/** How many snapshots of a node under one runtime are told apart. */
export const tellableSnapshots = 8;

/** Holds a few references per node. */
export async function verifyLocalSnapshots(
  verification: Verification,
  cluster: VerifiedCluster,
  runtimes: RuntimeNames,
): Promise<ReadonlyMap<string, LocalSnapshots>> {
  const { tx, findings } = verification;
  const { clusterId } = cluster;
  const last = new Map<string, number>();
  const known = new Map<string, LocalSnapshots>();
  const origins = new EntryOrigins(verification, clusterId);
  const pages = pagesOf<StoredLocalSnapshot>((after) =>
    tx.rows(
      sql<StoredLocalSnapshot>`
        select node_id as "nodeId", generation, digest, record from control.local_snapshots
        where cluster_id = ${clusterId} and (node_id, generation) > (${after?.nodeId ?? ''}, ${after?.generation ?? 0}::bigint)
        order by node_id, generation limit ${snapshotsPerPage}`.compile(qb),
    ),
  );
  for await (const rows of pages) {
    for (const row of rows) {
      const key = (generation: number) => ({ cluster_id: clusterId, node_id: row.nodeId, generation });
      const before = last.get(row.nodeId) ?? 0;
      if (row.generation !== before + 1) {
        findings.add('local_snapshots', key(before + 1), 'the row is missing', `generation ${row.generation} is there`);
      }
      last.set(row.nodeId, row.generation);
      const fault = snapshotFault(fleetCutoverLocalNodeSnapshotRecord, localDomain, row);
      if (fault !== null) findings.add('local_snapshots', key(row.generation), 'the snapshot was changed', fault);
      const ofNode = known.get(row.nodeId) ?? {
        newest: null,
        broken: false,
        under: new Map<number, TakenSnapshot[]>(),
      };
      known.set(row.nodeId, ofNode);
      ofNode.broken ||= fault !== null || row.generation !== before + 1;
      if (fault === null) await takeSnapshot(ofNode, row, runtimes, origins);
    }
    verification.advance(rows.length);
  }
  await compareNodes(verification, clusterId, last);
  origins.end();
  return known;
}

async function takeSnapshot(
  ofNode: LocalSnapshots,
  { nodeId, generation, digest, record }: StoredLocalSnapshot,
  runtimes: RuntimeNames,
  origins: EntryOrigins,
): Promise<void> {
  const snapshot = JSON.parse(record) as IFleetCutoverCompleteLocalNodeSnapshot;
  const named = runtimes.generationOf(snapshot.runtime);
  ofNode.newest = { generation, digest, named, fenceStoreId: snapshot.pallet?.fenceStoreId ?? null };
  await origins.take(nodeId, snapshot);
  if (named === null) return;
  const taken = ofNode.under.get(named) ?? [];
  ofNode.under.set(named, taken);
  if (taken.length <= tellableSnapshots) taken.push({ generation, digest });
}

function snapshotFault<T extends { readonly complete: boolean }>(
  record: ContractRecord<T>,
  domain: string,
  row: StoredRecord,
): string | null {
  const value = readCanonical(row.record);
  if (value === undefined) return 'the record is not canonical JSON';
  const digest = domainDigestOfCanonical(domain, row.record);
  if (digest !== row.digest) return `the record has digest ${digest}, the row ${row.digest}`;
  const [error] = record.check(value);
  if (error !== undefined) return error;
  return (value as T).complete ? null : 'an incomplete snapshot was accepted';
}

interface NodeRow {
  readonly nodeId: string;
  readonly generation: number;
  readonly digest: string | null;
  readonly snapshotDigest: string | null;
}

/** Each node names its newest snapshot. */
async function compareNodes(
  { tx, findings }: Verification,
  clusterId: string,
  last: ReadonlyMap<string, number>,
): Promise<void> {
  const nodes = await tx.rows(
    sql<NodeRow>`
      select node.node_id as "nodeId", node.local_generation as generation, node.local_digest as digest, snapshot.digest as "snapshotDigest"
      from control.nodes node left join control.local_snapshots snapshot
        on snapshot.cluster_id = node.cluster_id and snapshot.node_id = node.node_id and snapshot.generation = node.local_generation
      where node.cluster_id = ${clusterId}`.compile(qb),
  );
  for (const { nodeId, generation, digest, snapshotDigest } of nodes) {
    const known = last.get(nodeId) ?? 0;
    const key = { cluster_id: clusterId, node_id: nodeId };
    if (generation > known) {
      findings.add(
        'local_snapshots',
        { ...key, generation },
        'the row is missing',
        `the node names it as its newest snapshot`,
      );
    } else if (generation < known || snapshotDigest !== digest) {
      findings.add(
        'nodes',
        key,
        'local_generation and local_digest are not the newest snapshot',
        `the newest one is ${known} ${snapshotDigest ?? ''}`,
      );
    }
  }
}

interface StoredManagerSnapshot extends StoredRecord {
  readonly swarmId: string;
}

/** What the manager's side of a derivation is made of. */
export type ManagerEvidence = IFleetCutoverCompleteManagerSnapshot;

/** Gives the latest accepted manager snapshot; null where none was accepted, undefined where its row is broken. */
export async function verifyManagerSnapshots(
  verification: Verification,
  cluster: VerifiedCluster,
): Promise<ManagerEvidence | null | undefined> {
  const { tx, findings } = verification;
  const { clusterId } = cluster;
  const keyOf = (generation: number) => ({ cluster_id: clusterId, generation });
  let last: StoredManagerSnapshot | undefined;
  const pages = pagesOf<StoredManagerSnapshot>((after) =>
    tx.rows(
      sql<StoredManagerSnapshot>`
        select generation, digest, swarm_id as "swarmId", record from control.manager_snapshots
        where cluster_id = ${clusterId} and generation > ${after?.generation ?? 0}
        order by generation limit ${snapshotsPerPage}`.compile(qb),
    ),
  );
  for await (const rows of pages) {
    for (const row of rows) {
      const expected = (last?.generation ?? 0) + 1;
      if (row.generation !== expected) {
        findings.add(
          'manager_snapshots',
          keyOf(expected),
          'the row is missing',
          `generation ${row.generation} is there`,
        );
      }
      const fault = snapshotFault(fleetCutoverManagerSnapshotRecord, managerDomain, row) ?? otherSwarm(row);
      if (fault !== null) findings.add('manager_snapshots', keyOf(row.generation), 'the snapshot was changed', fault);
      last = row;
    }
    verification.advance(rows.length);
  }
  const head = await tx.maybe(
    sql<{ generation: number; digest: string | null }>`
      select generation, digest from control.manager_snapshot_heads where cluster_id = ${clusterId}`.compile(qb),
  );
  if (head === undefined) {
    findings.add('manager_snapshot_heads', { cluster_id: clusterId }, 'the head is missing', 'every cluster has one');
    return undefined;
  }
  if (head.generation > (last?.generation ?? 0)) {
    findings.add(
      'manager_snapshots',
      keyOf(head.generation),
      'the row is missing',
      'the head names it as the newest one',
    );
    return undefined;
  }
  if (head.generation !== (last?.generation ?? 0) || head.digest !== (last?.digest ?? null)) {
    findings.add(
      'manager_snapshot_heads',
      { cluster_id: clusterId },
      'the head is not the newest snapshot',
      `that is ${last?.generation ?? 0} ${last?.digest ?? ''}`,
    );
  }
  if (last === undefined) return null;
  if (findings.has('manager_snapshots', keyOf(last.generation))) return undefined;
  const snapshot = JSON.parse(last.record) as IFleetCutoverCompleteManagerSnapshot;
  await compareObservedManager(verification, clusterId, snapshot);
  return snapshot;
}

function otherSwarm(row: StoredManagerSnapshot): string | null {
  const { swarmId } = JSON.parse(row.record) as IFleetCutoverCompleteManagerSnapshot;
  return swarmId === row.swarmId ? null : `the record is of swarm ${swarmId}, the row of ${row.swarmId}`;
}

export type LocalEvidence = IFleetCutoverCompleteLocalNodeSnapshot;
