/** The cluster's runtime for other features. */
import { sql } from 'kysely';
import { type Refused, refuseStale } from '../../contract/problems.js';
import { runtimeId } from '../../contract/record-id.js';
import type { IFleetCutoverRuntime, TFleetCutoverPhase } from '../../contract/runtime.js';
import { type Reference, sameReference } from '../../contract/schema.js';
import { qb } from '../../db/query.js';
import { queueFor } from '../../db/queue.js';
import type { ReadTx, Tx } from '../../db/transaction.js';
import { demandStored } from '../../stored-record.js';

export interface RuntimeHead {
  readonly generation: number;
  readonly digest: Reference['digest'];
  readonly phase: TFleetCutoverPhase;
}

/** Current runtime, unlocked; undefined where there is no such cluster. */
export function readRuntime(tx: ReadTx, clusterId: string): Promise<RuntimeHead | undefined> {
  return tx.maybe(selectRuntime(clusterId).compile(qb));
}

/** Current runtime, locked `for share`: it cannot advance before this transaction ends. */
export function shareRuntime(tx: Tx, clusterId: string): Promise<RuntimeHead | undefined> {
  void queueFor(tx, 'runtime', clusterId, 'shared');
  return tx.maybe(sql<RuntimeHead>`${selectRuntime(clusterId)} for share`.compile(qb));
}

/** Current runtime, locked `for update`: nothing that could falsify a gate commits meanwhile. */
export function lockRuntime(tx: Tx, clusterId: string): Promise<RuntimeHead | undefined> {
  void queueFor(tx, 'runtime', clusterId, 'alone');
  return tx.maybe(sql<RuntimeHead>`${selectRuntime(clusterId)} for update`.compile(qb));
}

function selectRuntime(clusterId: string) {
  return sql<RuntimeHead>`select generation, digest, phase from control.runtime_heads where cluster_id = ${clusterId}`;
}

/** The record of a runtime. Throws `CorruptRecordError`. */
export async function runtimeRecord(tx: ReadTx, clusterId: string, head: RuntimeHead): Promise<IFleetCutoverRuntime> {
  const { record } = await tx.one(
    sql<{ record: string }>`
      select record from control.runtime_revisions where cluster_id = ${clusterId} and generation = ${head.generation}`.compile(
      qb,
    ),
  );
  return demandStored('IFleetCutoverRuntime', record, head);
}

export function runtimeReference(clusterLife: string, head: RuntimeHead): Reference {
  return { id: runtimeId(clusterLife), generation: head.generation, digest: head.digest };
}

/** Null where the request names the current runtime. */
export function refuseOtherRuntime(clusterLife: string, head: RuntimeHead, expected: Reference): Refused | null {
  const current = runtimeReference(clusterLife, head);
  return sameReference(expected, current) ? null : refuseStale('runtime-stale', 'runtime', current);
}
