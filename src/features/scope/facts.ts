/** Scope and target set for other features. */
import { sql } from 'kysely';
import { LRUCache } from 'lru-cache';
import { refuseStale, type Refused } from '../../contract/problems.js';
import { scopeId, targetSetId } from '../../contract/record-id.js';
import { type Reference, sameReference } from '../../contract/schema.js';
import type { IFleetCutoverScope, IFleetCutoverTargetSet } from '../../contract/scope.js';
import { present } from '../../db/present.js';
import { qb } from '../../db/query.js';
import type { ReadTx, Tx } from '../../db/transaction.js';

/** Generation 0 with a null digest: none yet. */
export interface RevisionHead {
  readonly generation: number;
  readonly digest: Reference['digest'] | null;
}
export interface ScopeHead extends RevisionHead {
  readonly state: 'absent' | 'incomplete' | 'complete';
}

const scopeHead = (clusterId: string) =>
  sql<ScopeHead>`select generation, digest, state from control.scope_heads where cluster_id = ${clusterId}`;
const targetSetHead = (clusterId: string) =>
  sql<RevisionHead>`select generation, digest from control.target_set_heads where cluster_id = ${clusterId}`;

/** Undefined where there is no such cluster; likewise below. */
export const readScopeHead = (tx: ReadTx, clusterId: string) => tx.maybe(scopeHead(clusterId).compile(qb));
export const shareScopeHead = (tx: Tx, clusterId: string) =>
  tx.maybe(sql<ScopeHead>`${scopeHead(clusterId)} for share`.compile(qb));
export const lockScopeHead = (tx: Tx, clusterId: string) =>
  tx.maybe(sql<ScopeHead>`${scopeHead(clusterId)} for update`.compile(qb));
export const readTargetSetHead = (tx: ReadTx, clusterId: string) => tx.maybe(targetSetHead(clusterId).compile(qb));
export const lockTargetSetHead = (tx: Tx, clusterId: string) =>
  tx.maybe(sql<RevisionHead>`${targetSetHead(clusterId)} for update`.compile(qb));

export const scopeReference = (clusterLife: string, head: RevisionHead): Reference | null =>
  head.digest === null ? null : { id: scopeId(clusterLife), generation: head.generation, digest: head.digest };
export const targetSetReference = (clusterLife: string, head: RevisionHead): Reference | null =>
  head.digest === null ? null : { id: targetSetId(clusterLife), generation: head.generation, digest: head.digest };

/** Null where the request names the current scope. */
export function refuseOtherScope(
  clusterLife: string,
  head: RevisionHead,
  expected: Reference | null,
  expectation = 'scope',
): Refused | null {
  const current = scopeReference(clusterLife, head);
  return sameReference(expected, current) ? null : refuseStale('scope-stale', expectation, current);
}

export interface StoredRevision {
  readonly generation: number;
  readonly digest: Reference['digest'];
  readonly record: string;
}

/** A revision as it is stored, for whoever gives it away; undefined where there is none. */
export function storedRevision(
  tx: ReadTx,
  table: 'scope_revisions' | 'target_set_revisions',
  clusterId: string,
  generation: number,
): Promise<StoredRevision | undefined> {
  return tx.maybe(
    sql<StoredRevision>`
      select generation, digest, record from ${sql.table(`control.${table}`)}
      where cluster_id = ${clusterId} and generation = ${generation}`.compile(qb),
  );
}

/** The record of one scope generation; undefined where there is none. */
export async function scopeRevision(
  tx: ReadTx,
  clusterId: string,
  generation: number,
): Promise<IFleetCutoverScope | undefined> {
  const row = await tx.maybe(
    sql<{ record: string }>`
      select record from control.scope_revisions where cluster_id = ${clusterId} and generation = ${generation}`.compile(
      qb,
    ),
  );
  return row === undefined ? undefined : (JSON.parse(row.record) as IFleetCutoverScope);
}

export async function targetSetRevision(
  tx: ReadTx,
  clusterId: string,
  generation: number,
): Promise<IFleetCutoverTargetSet | undefined> {
  const row = await tx.maybe(
    sql<{ record: string }>`
      select record from control.target_set_revisions where cluster_id = ${clusterId} and generation = ${generation}`.compile(
      qb,
    ),
  );
  return row === undefined ? undefined : (JSON.parse(row.record) as IFleetCutoverTargetSet);
}

/** Parsed revisions by cluster, generation and digest: immutable, and megabytes for a large fleet. */
const parsedScopes = new LRUCache<string, IFleetCutoverScope>({ max: 16 });
const parsedTargetSets = new LRUCache<string, IFleetCutoverTargetSet>({ max: 16 });

async function parsedOnce<T extends object>(
  cache: LRUCache<string, T>,
  clusterId: string,
  head: RevisionHead,
  load: () => Promise<T | undefined>,
): Promise<T | null> {
  if (head.generation === 0) return null;
  const key = `${clusterId} ${head.generation} ${head.digest}`;
  const known = cache.get(key);
  if (known !== undefined) return known;
  const loaded = await load();
  if (loaded !== undefined) cache.set(key, loaded);
  return loaded ?? null;
}

/** Scope and targets as they are now, for a derivation. */
export async function currentScope(
  tx: ReadTx,
  clusterId: string,
): Promise<{
  scopeHead: ScopeHead;
  targetSetHead: RevisionHead;
  scope: IFleetCutoverScope | null;
  targetSet: IFleetCutoverTargetSet | null;
}> {
  const heads = await Promise.all([readScopeHead(tx, clusterId), readTargetSetHead(tx, clusterId)]);
  const scope = present(heads[0]);
  const targets = present(heads[1]);
  const [scopeRecord, targetSet] = await Promise.all([
    parsedOnce(parsedScopes, clusterId, scope, () => scopeRevision(tx, clusterId, scope.generation)),
    parsedOnce(parsedTargetSets, clusterId, targets, () => targetSetRevision(tx, clusterId, targets.generation)),
  ]);
  return { scopeHead: scope, targetSetHead: targets, scope: scopeRecord, targetSet };
}

/** Locked `for share`: no other target set is accepted before this transaction ends. */
export const shareTargetSetHead = (tx: Tx, clusterId: string) =>
  tx.maybe(sql<RevisionHead>`${targetSetHead(clusterId)} for share`.compile(qb));

/** Whether the node is in the current target set. */
export async function isTarget(tx: ReadTx, clusterId: string, nodeId: string): Promise<boolean> {
  const row = await tx.maybe(
    sql<{ nodeId: string }>`
      select target.node_id as "nodeId" from control.target_set_heads head
      join control.target_set_nodes target using (cluster_id, generation)
      where head.cluster_id = ${clusterId} and target.node_id = ${nodeId}`.compile(qb),
  );
  return row !== undefined;
}
