/** The only SQL that writes derivations: required entries, blockers, verdicts and the derivation's own revisions. */
import { sql } from 'kysely';
import { canonicalizeStrictJson } from '../../contract/canonical-json.js';
import type { IFleetCutoverDerivation, IFleetCutoverTaskVerdict } from '../../contract/derivation.js';
import type { Reference } from '../../contract/schema.js';
import { qb } from '../../db/query.js';
import { queueFor } from '../../db/queue.js';
import type { ReadTx, Tx } from '../../db/transaction.js';
import type { Blocker, NodeGateFacts, RequiredEntry } from './derive-node.js';

export interface DerivationHead {
  readonly generation: number;
  readonly digest: Reference['digest'];
  readonly requiredCount: number;
  readonly blockerCount: number;
}

const selectHead = (clusterId: string) => sql<DerivationHead>`
  select generation, digest, required_count as "requiredCount", blocker_count as "blockerCount"
  from control.derivation_heads where cluster_id = ${clusterId}`;

/** Undefined where there is no such cluster; likewise below. */
export const readDerivationHead = (tx: ReadTx, clusterId: string) => tx.maybe(selectHead(clusterId).compile(qb));

/** Prepare holds it so: keys and blockers cannot change under a mutation. */
export function shareDerivationHead(tx: Tx, clusterId: string): Promise<DerivationHead | undefined> {
  void queueFor(tx, 'derivation', clusterId, 'shared');
  return tx.maybe(sql<DerivationHead>`${selectHead(clusterId)} for share`.compile(qb));
}

/** Who changes keys or blockers holds it so. */
export function lockDerivationHead(tx: Tx, clusterId: string): Promise<DerivationHead | undefined> {
  void queueFor(tx, 'derivation', clusterId, 'alone');
  return tx.maybe(sql<DerivationHead>`${selectHead(clusterId)} for update`.compile(qb));
}

export async function insertFirstDerivation(
  tx: Tx,
  derivation: IFleetCutoverDerivation,
  blockers: readonly Blocker[],
): Promise<void> {
  await Promise.all([
    tx.run(
      sql`
        insert into control.derivation_heads (cluster_id, generation, digest, required_count, blocker_count)
        values (${derivation.clusterId}, ${derivation.generation}, ${derivation.digest}, ${derivation.requiredCount}, ${derivation.blockerCount})`.compile(
        qb,
      ),
    ),
    insertDerivationRevision(tx, derivation),
    insertBlockers(tx, derivation.clusterId, clusterPart, derivation.generation, blockers),
  ]);
}

/** Writes the next revision and moves the head, which must be locked. */
export async function writeDerivation(tx: Tx, derivation: IFleetCutoverDerivation): Promise<void> {
  await Promise.all([
    tx.run(
      sql`
        update control.derivation_heads set generation = ${derivation.generation}, digest = ${derivation.digest},
          required_count = ${derivation.requiredCount}, blocker_count = ${derivation.blockerCount}
        where cluster_id = ${derivation.clusterId}`.compile(qb),
    ),
    insertDerivationRevision(tx, derivation),
  ]);
}

function insertDerivationRevision(tx: Tx, derivation: IFleetCutoverDerivation): Promise<number> {
  return tx.run(
    sql`
      insert into control.derivation_revisions (cluster_id, generation, digest, record)
      values (${derivation.clusterId}, ${derivation.generation}, ${derivation.digest}, ${canonicalizeStrictJson(derivation)})`.compile(
      qb,
    ),
  );
}

/** Part of the blockers that is the cluster's, not a node's. */
export const clusterPart = '';

const entryColumns = sql`
  handoff_id as "handoffId", node_id as "nodeId", service_id as "serviceId", swarm_service_id as "swarmServiceId",
  source_digest as "sourceDigest", target_digest as "targetDigest", mount_identity_digest as "mountIdentityDigest",
  source, mount_path as "mountPath", volume_name as "volumeName", anonymous`;

export function requiredEntriesOfNode(tx: ReadTx, clusterId: string, nodeId: string): Promise<RequiredEntry[]> {
  return tx.rows(
    sql<RequiredEntry>`
      select ${entryColumns} from control.required_entries
      where cluster_id = ${clusterId} and node_id = ${nodeId} and until is null`.compile(qb),
  );
}

export async function blockerIdsOfPart(tx: ReadTx, clusterId: string, part: string): Promise<string[]> {
  const rows = await tx.rows(
    sql<{ id: string }>`
      select blocker_id as id from control.blockers
      where cluster_id = ${clusterId} and part = ${part} and until is null`.compile(qb),
  );
  return rows.map((row) => row.id);
}

export function insertEntries(
  tx: Tx,
  clusterId: string,
  since: number,
  entries: readonly RequiredEntry[],
): Promise<number> {
  const column = <K extends keyof RequiredEntry>(key: K) => entries.map((entry) => entry[key]);
  return tx.run(
    sql`
      insert into control.required_entries (cluster_id, since, node_id, handoff_id, service_id, swarm_service_id,
        source_digest, target_digest, mount_identity_digest, source, mount_path, volume_name, anonymous)
      select ${clusterId}, ${since}::bigint, * from unnest(${column('nodeId')}::text[], ${column('handoffId')}::text[],
        ${column('serviceId')}::text[], ${column('swarmServiceId')}::text[], ${column('sourceDigest')}::text[],
        ${column('targetDigest')}::text[], ${column('mountIdentityDigest')}::text[], ${column('source')}::text[],
        ${column('mountPath')}::text[], ${column('volumeName')}::text[], ${column('anonymous')}::boolean[])`.compile(
      qb,
    ),
  );
}

export function closeEntries(
  tx: Tx,
  clusterId: string,
  until: number,
  nodeId: string,
  handoffIds: readonly string[],
): Promise<number> {
  return tx.run(
    sql`
      update control.required_entries set until = ${until}
      where cluster_id = ${clusterId} and node_id = ${nodeId} and handoff_id = any(${handoffIds}::text[]) and until is null`.compile(
      qb,
    ),
  );
}

export function insertBlockers(
  tx: Tx,
  clusterId: string,
  part: string,
  since: number,
  blockers: readonly Blocker[],
): Promise<number> {
  return tx.run(
    sql`
      insert into control.blockers (cluster_id, part, since, blocker_id, code, node_id, handoff_id, record)
      select ${clusterId}, ${part}, ${since}::bigint, * from unnest(${blockers.map((each) => each.record.id)}::text[],
        ${blockers.map((each) => each.record.code)}::text[], ${blockers.map((each) => each.record.nodeId)}::text[],
        ${blockers.map((each) => each.handoffId)}::text[],
        ${blockers.map((each) => canonicalizeStrictJson(each.record))}::text[])`.compile(qb),
  );
}

export function closeBlockers(
  tx: Tx,
  clusterId: string,
  until: number,
  blockerIds: readonly string[],
): Promise<number> {
  return tx.run(
    sql`
      update control.blockers set until = ${until}
      where cluster_id = ${clusterId} and blocker_id = any(${blockerIds}::text[]) and until is null`.compile(qb),
  );
}

/** Replaces the verdicts of one node's tasks, or of those on no fleet node (`nodeId` null). */
export function writeVerdicts(
  tx: Tx,
  clusterId: string,
  nodeId: string | null,
  verdicts: readonly IFleetCutoverTaskVerdict[],
): Promise<unknown> {
  const ids = verdicts.map((each) => each.swarmTaskId);
  return Promise.all([
    tx.run(
      sql`
        delete from control.task_verdicts
        where cluster_id = ${clusterId} and node_id is not distinct from ${nodeId}::text and swarm_task_id <> all(${ids}::text[])`.compile(
        qb,
      ),
    ),
    tx.run(
      sql`
        insert into control.task_verdicts as known (cluster_id, node_id, swarm_task_id, swarm_service_id, verdict, reason)
        select ${clusterId}, ${nodeId}::text, * from unnest(${ids}::text[], ${verdicts.map((each) => each.swarmServiceId)}::text[],
          ${verdicts.map((each) => each.verdict)}::text[], ${verdicts.map((each) => each.reason)}::text[])
        on conflict on constraint task_verdicts_key do update
          set node_id = excluded.node_id, swarm_service_id = excluded.swarm_service_id, verdict = excluded.verdict, reason = excluded.reason
          where (known.node_id, known.swarm_service_id, known.verdict, known.reason)
            is distinct from (excluded.node_id, excluded.swarm_service_id, excluded.verdict, excluded.reason)`.compile(
        qb,
      ),
    ),
  ]);
}

/** Items of a list that are shown; the counts say how many there are. */
const shownContainers = 10;
/** More than of containers: each is somebody's data, and a person who asks about a service finds its own among them. */
const shownVolumes = 100;

/** What is kept in `node_gate_facts.detail`. */
export function gateDetail(
  gate: NodeGateFacts,
): Pick<NodeGateFacts, 'active' | 'confirmed' | 'relay' | 'spark'> & NodeGateFacts['volumes'] {
  return {
    active: gate.active.slice(0, shownContainers),
    confirmed: gate.confirmed.slice(0, shownContainers),
    relay: gate.relay,
    unkept: gate.volumes.unkept.slice(0, shownVolumes),
    vanished: gate.volumes.vanished.slice(0, shownVolumes),
    spark: gate.spark,
  };
}

/** What gates need of the node; written only where it differs. */
export function writeGateFacts(tx: Tx, clusterId: string, nodeId: string, gate: NodeGateFacts): Promise<number> {
  const detail = JSON.stringify(gateDetail(gate));
  return tx.run(
    sql`
      insert into control.node_gate_facts as known
        (cluster_id, node_id, pallet_ready, old_mode_refused, active_containers, confirmed_containers, unkept_volumes,
          vanished_volumes, detail)
      values (${clusterId}, ${nodeId}, ${gate.palletReady}, ${gate.oldModeRefused}, ${gate.active.length}, ${gate.confirmed.length},
        ${gate.volumes.unkept.length}, ${gate.volumes.vanished.length}, ${detail}::jsonb)
      on conflict on constraint node_gate_facts_key do update set pallet_ready = excluded.pallet_ready,
        old_mode_refused = excluded.old_mode_refused, active_containers = excluded.active_containers,
        confirmed_containers = excluded.confirmed_containers, unkept_volumes = excluded.unkept_volumes,
        vanished_volumes = excluded.vanished_volumes, detail = excluded.detail
        where (known.pallet_ready, known.old_mode_refused, known.active_containers, known.confirmed_containers,
            known.unkept_volumes, known.vanished_volumes, known.detail)
          is distinct from (excluded.pallet_ready, excluded.old_mode_refused, excluded.active_containers,
            excluded.confirmed_containers, excluded.unkept_volumes, excluded.vanished_volumes, excluded.detail)`.compile(
      qb,
    ),
  );
}
