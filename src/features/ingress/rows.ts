/** The only SQL that writes designations and sealed secrets. */
import { sql } from 'kysely';
import { canonicalizeStrictJson } from '../../contract/canonical-json.js';
import type { IFleetCutoverIngressDesignation } from '../../contract/ingress.js';
import { qb } from '../../db/query.js';
import type { ReadTx, Tx } from '../../db/transaction.js';
import type { Sealed } from './sealing.js';

/** The current designation; undefined before the first. */
export async function currentDesignation(
  tx: ReadTx,
  clusterId: string,
): Promise<IFleetCutoverIngressDesignation | undefined> {
  const row = await tx.maybe(
    sql<{ record: string }>`
      select revision.record from control.ingress_designation_heads head
      join control.ingress_designation_revisions revision using (cluster_id, generation)
      where head.cluster_id = ${clusterId}`.compile(qb),
  );
  return row === undefined ? undefined : (JSON.parse(row.record) as IFleetCutoverIngressDesignation);
}

export async function designationAt(
  tx: ReadTx,
  clusterId: string,
  generation: number,
): Promise<IFleetCutoverIngressDesignation | undefined> {
  const row = await tx.maybe(
    sql<{ record: string }>`
      select record from control.ingress_designation_revisions
      where cluster_id = ${clusterId} and generation = ${generation}`.compile(qb),
  );
  return row === undefined ? undefined : (JSON.parse(row.record) as IFleetCutoverIngressDesignation);
}

/** Writes the revision that follows; the cluster's row is locked, and the head is compared once more. */
export async function swapDesignation(
  tx: Tx,
  designation: IFleetCutoverIngressDesignation,
): Promise<'swapped' | 'stale'> {
  const { clusterId, generation, digest, serviceId, predecessor } = designation;
  const [changed] = await Promise.all([
    tx.run(
      sql`
        insert into control.ingress_designation_heads as head (cluster_id, generation, digest, service_id)
        values (${clusterId}, ${generation}, ${digest}, ${serviceId})
        on conflict on constraint ingress_designation_heads_key do update
          set generation = excluded.generation, digest = excluded.digest
          where head.generation = ${generation - 1} and head.digest = ${predecessor?.digest ?? ''}
            and head.service_id = excluded.service_id`.compile(qb),
    ),
    tx.run(
      sql`
        insert into control.ingress_designation_revisions (cluster_id, generation, digest, record)
        values (${clusterId}, ${generation}, ${digest}, ${canonicalizeStrictJson(designation)})`.compile(qb),
    ),
  ]);
  return changed === 1 ? 'swapped' : 'stale';
}

export interface SealedRow extends Sealed {
  readonly clusterId: string;
  readonly secretId: string;
  readonly version: number;
  readonly serviceId: string;
  readonly credentialId: string;
}

export function insertSealedSecret(tx: Tx, row: SealedRow): Promise<number> {
  return tx.run(
    sql`
      insert into control.sealed_secrets (cluster_id, secret_id, version, service_id, credential_id, key_id, nonce, ciphertext)
      values (${row.clusterId}, ${row.secretId}, ${row.version}, ${row.serviceId}, ${row.credentialId}, ${row.keyId},
        ${row.nonce}, ${row.ciphertext})`.compile(qb),
  );
}

const sealedColumns = sql`cluster_id as "clusterId", secret_id as "secretId", version, service_id as "serviceId",
  credential_id as "credentialId", key_id as "keyId", nonce, ciphertext`;

/** Sealed secrets under other keys than this one, locked, at most `limit`. */
export function lockSealedUnderOtherKeys(tx: Tx, keyId: string, limit: number): Promise<SealedRow[]> {
  return tx.rows(
    sql<SealedRow>`
      select ${sealedColumns}
      from control.sealed_secrets where key_id <> ${keyId} order by cluster_id, secret_id, version limit ${limit} for update`.compile(
      qb,
    ),
  );
}

export function resealSecret(tx: Tx, row: SealedRow, sealed: Sealed): Promise<number> {
  return tx.run(
    sql`
      update control.sealed_secrets set key_id = ${sealed.keyId}, nonce = ${sealed.nonce}, ciphertext = ${sealed.ciphertext}
      where cluster_id = ${row.clusterId} and secret_id = ${row.secretId} and version = ${row.version}`.compile(qb),
  );
}

/** One sealed secret of each key that something is sealed under, in the order of the keys' ids. */
export function sealedByEachKey(tx: ReadTx): Promise<SealedRow[]> {
  return tx.rows(
    sql<SealedRow>`
      select distinct on (key_id) ${sealedColumns} from control.sealed_secrets
       order by key_id, cluster_id, secret_id, version`.compile(qb),
  );
}

export interface PortFacts {
  readonly nodeId: string;
  /**
   * The node is active, its Pallet is ready, and its latest snapshot is whole and was taken under the current runtime. Of a
   * quarantined node nobody knows who reports, a revoked one reports no more, and what a Pallet holds that does not answer
   * is unknown.
   */
  readonly current: boolean;
  /** The service holds a port there under Pallet. */
  readonly holds: boolean;
}

/** Port reports of the target nodes, those that are written off left out. */
export function portFacts(
  tx: ReadTx,
  clusterId: string,
  serviceId: string,
  runtimeGeneration: number,
): Promise<PortFacts[]> {
  const owner = JSON.stringify([{ owner: { kind: 'pallet-service', serviceId } }]);
  return tx.rows(
    sql<PortFacts>`
      select node.node_id as "nodeId",
        coalesce(node.local_runtime_generation = ${runtimeGeneration}, false) and node.local_incomplete is null
          and node.state = 'active' and coalesce(snapshot.record::jsonb -> 'pallet' @> '{"ready":true}', false) as current,
        coalesce(snapshot.record::jsonb -> 'ports' @> ${owner}::jsonb, false) as holds
      from control.target_set_heads head
      join control.target_set_nodes target using (cluster_id, generation)
      join control.nodes node on node.cluster_id = head.cluster_id and node.node_id = target.node_id
      left join control.local_snapshots snapshot on snapshot.cluster_id = node.cluster_id
        and snapshot.node_id = node.node_id and snapshot.generation = node.local_generation
      where head.cluster_id = ${clusterId} and node.state <> 'written-off' order by node.node_id`.compile(qb),
  );
}
