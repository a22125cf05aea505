/** The only SQL that writes accepted snapshots, reporter sessions and their joinable form. */
import { sql } from 'kysely';
import type {
  IFleetCutoverCompleteLocalNodeSnapshot,
  IFleetCutoverCompleteManagerSnapshot,
  IIncompleteSnapshot,
} from '../../contract/observation.js';
import { qb } from '../../db/query.js';
import type { Tx } from '../../db/transaction.js';
import type { ReporterSession } from './report.js';

export function findReporterSession(
  tx: Tx,
  clusterId: string,
  nodeId: string,
  reporterSessionId: string,
): Promise<ReporterSession | undefined> {
  return tx.maybe(
    sql<ReporterSession>`
      select observation_sequence as "observationSequence", request_digest as "requestDigest", receipt
      from control.reporter_sessions
      where cluster_id = ${clusterId} and node_id = ${nodeId} and reporter_session_id = ${reporterSessionId}`.compile(
      qb,
    ),
  );
}

export function writeReporterSession(
  tx: Tx,
  clusterId: string,
  nodeId: string,
  reporterSessionId: string,
  session: ReporterSession,
): Promise<number> {
  return tx.run(
    sql`
      insert into control.reporter_sessions
        (cluster_id, node_id, reporter_session_id, observation_sequence, request_digest, receipt)
      values (${clusterId}, ${nodeId}, ${reporterSessionId}, ${session.observationSequence}, ${session.requestDigest}, ${session.receipt})
      on conflict on constraint reporter_sessions_key do update set
        observation_sequence = excluded.observation_sequence, request_digest = excluded.request_digest, receipt = excluded.receipt`.compile(
      qb,
    ),
  );
}

export interface ManagerHead {
  readonly generation: number;
  readonly digest: string | null;
  readonly incomplete: string | null;
  /** Generation of the runtime that it names; null where that was not the current one when it was accepted. */
  readonly runtimeGeneration: number | null;
}

export function insertManagerHead(tx: Tx, clusterId: string): Promise<number> {
  return tx.run(
    sql`insert into control.manager_snapshot_heads (cluster_id, generation) values (${clusterId}, 0)`.compile(qb),
  );
}

/** Locks the cluster's manager snapshot head `for update`. */
export function lockManagerHead(tx: Tx, clusterId: string): Promise<ManagerHead> {
  return tx.one(
    sql<ManagerHead>`
      select generation, digest, incomplete, runtime_generation as "runtimeGeneration" from control.manager_snapshot_heads
      where cluster_id = ${clusterId} for update`.compile(qb),
  );
}

export function writeManagerHead(
  tx: Tx,
  clusterId: string,
  head: ManagerHead & { readonly nodeId: string; readonly seenAt: number },
): Promise<number> {
  return tx.run(
    sql`
      update control.manager_snapshot_heads set generation = ${head.generation}, digest = ${head.digest},
        incomplete = ${head.incomplete}, runtime_generation = ${head.runtimeGeneration}, node_id = ${head.nodeId}, seen_at = ${head.seenAt}
      where cluster_id = ${clusterId}`.compile(qb),
  );
}

export interface AcceptedSnapshot {
  readonly generation: number;
  readonly digest: string;
  /** Canonical JSON. */
  readonly record: string;
}

export function insertLocalSnapshot(
  tx: Tx,
  clusterId: string,
  nodeId: string,
  accepted: AcceptedSnapshot,
  snapshot: IFleetCutoverCompleteLocalNodeSnapshot,
): Promise<unknown> {
  const containers = snapshot.containers.filter((container) => container.swarmTaskId !== null);
  const ids = containers.map((container) => container.id);
  return Promise.all([
    tx.run(
      sql`
        insert into control.local_snapshots (cluster_id, node_id, generation, digest, record)
        values (${clusterId}, ${nodeId}, ${accepted.generation}, ${accepted.digest}, ${accepted.record})`.compile(qb),
    ),
    tx.run(
      sql`
        delete from control.observed_task_containers
        where cluster_id = ${clusterId} and node_id = ${nodeId} and container_id <> all(${ids}::text[])`.compile(qb),
    ),
    tx.run(
      sql`
        insert into control.observed_task_containers as known (cluster_id, node_id, container_id, swarm_task_id, state)
        select ${clusterId}, ${nodeId}, * from unnest(${ids}::text[],
          ${containers.map((container) => container.swarmTaskId)}::text[], ${containers.map((container) => container.state)}::text[])
        on conflict on constraint observed_task_containers_key do update
          set swarm_task_id = excluded.swarm_task_id, state = excluded.state
          where (known.swarm_task_id, known.state) is distinct from (excluded.swarm_task_id, excluded.state)`.compile(
        qb,
      ),
    ),
  ]);
}

/** What of the manager's view moved: swarm nodes whose tasks or state differ, and services whose mounts do. */
export interface ManagerChange {
  readonly swarmNodeIds: ReadonlySet<string>;
  readonly swarmServiceIds: ReadonlySet<string>;
}

export async function insertManagerSnapshot(
  tx: Tx,
  clusterId: string,
  nodeId: string,
  accepted: AcceptedSnapshot,
  snapshot: IFleetCutoverCompleteManagerSnapshot,
): Promise<ManagerChange> {
  const { tasks, services, nodes } = snapshot;
  const [, changedTasks, changedServices, changedNodes] = await Promise.all([
    tx.run(
      sql`
        insert into control.manager_snapshots (cluster_id, generation, digest, swarm_id, node_id, record)
        values (${clusterId}, ${accepted.generation}, ${accepted.digest}, ${snapshot.swarmId}, ${nodeId}, ${accepted.record})`.compile(
        qb,
      ),
    ),
    tx.rows(
      sql<{ swarmNodeId: string | null }>`
        with incoming as (
          select * from unnest(${tasks.map((task) => task.id)}::text[], ${tasks.map((task) => task.serviceId)}::text[],
            ${tasks.map((task) => task.nodeId)}::text[], ${tasks.map((task) => task.slot)}::bigint[],
            ${tasks.map((task) => task.desiredState)}::text[], ${tasks.map((task) => task.state)}::text[],
            ${tasks.map((task) => task.containerId)}::text[])
            as task (swarm_task_id, swarm_service_id, swarm_node_id, slot, desired_state, state, container_id)
        ), before as (
          select known.swarm_node_id from control.observed_tasks known join incoming using (swarm_task_id)
          where known.cluster_id = ${clusterId} and known.swarm_node_id is distinct from incoming.swarm_node_id
        ), written as (
          insert into control.observed_tasks as known
            (cluster_id, swarm_task_id, swarm_service_id, swarm_node_id, slot, desired_state, state, container_id)
          select ${clusterId}, incoming.* from incoming
          on conflict on constraint observed_tasks_key do update set
            swarm_service_id = excluded.swarm_service_id, swarm_node_id = excluded.swarm_node_id, slot = excluded.slot,
            desired_state = excluded.desired_state, state = excluded.state, container_id = excluded.container_id
          where (known.swarm_service_id, known.swarm_node_id, known.slot, known.desired_state, known.state, known.container_id)
            is distinct from (excluded.swarm_service_id, excluded.swarm_node_id, excluded.slot, excluded.desired_state,
              excluded.state, excluded.container_id)
          returning swarm_node_id
        ), gone as (
          delete from control.observed_tasks known
          where known.cluster_id = ${clusterId} and not exists (select from incoming where incoming.swarm_task_id = known.swarm_task_id)
          returning swarm_node_id
        )
        select swarm_node_id as "swarmNodeId" from before
        union select swarm_node_id from written union select swarm_node_id from gone`.compile(qb),
    ),
    tx.rows(
      sql<{ swarmServiceId: string }>`
        with incoming as (
          select * from unnest(${services.map((service) => service.id)}::text[], ${services.map((service) => service.name)}::text[],
            ${services.map((service) => JSON.stringify(service.mounts))}::text[], ${services.map((service) => service.mode)}::text[],
            ${services.map((service) => service.replicas)}::bigint[], ${services.map((service) => service.specVersion)}::bigint[],
            ${services.map((service) => service.specDigest)}::text[], ${services.map(roleOf)}::text[])
            as service (swarm_service_id, name, mounts, mode, replicas, spec_version, spec_digest, role)
        ), before as (
          select incoming.swarm_service_id, known.mounts from incoming
          left join control.observed_services known
            on known.cluster_id = ${clusterId} and known.swarm_service_id = incoming.swarm_service_id
        ), written as (
          insert into control.observed_services as known
            (cluster_id, swarm_service_id, name, mounts, mode, replicas, spec_version, spec_digest, role)
          select ${clusterId}, swarm_service_id, name, mounts::jsonb, mode, replicas, spec_version, spec_digest, role from incoming
          on conflict on constraint observed_services_key do update set name = excluded.name, mounts = excluded.mounts,
            mode = excluded.mode, replicas = excluded.replicas, spec_version = excluded.spec_version,
            spec_digest = excluded.spec_digest, role = excluded.role
          where (known.name, known.mounts, known.mode, known.replicas, known.spec_version, known.spec_digest, known.role)
            is distinct from (excluded.name, excluded.mounts, excluded.mode, excluded.replicas, excluded.spec_version,
              excluded.spec_digest, excluded.role)
        ), gone as (
          delete from control.observed_services known
          where known.cluster_id = ${clusterId}
            and not exists (select from incoming where incoming.swarm_service_id = known.swarm_service_id)
          returning swarm_service_id
        )
        select incoming.swarm_service_id as "swarmServiceId" from incoming join before using (swarm_service_id)
        where coalesce(before.mounts, '[]') is distinct from incoming.mounts::jsonb
        union select swarm_service_id from gone`.compile(qb),
    ),
    tx.rows(
      sql<{ swarmNodeId: string }>`
        with incoming as (
          select * from unnest(${nodes.map((node) => node.id)}::text[], ${nodes.map((node) => node.hostname)}::text[],
            ${nodes.map((node) => node.state)}::text[], ${nodes.map((node) => node.availability)}::text[])
            as node (swarm_node_id, hostname, state, availability)
        ), written as (
          insert into control.observed_swarm_nodes as known (cluster_id, swarm_node_id, hostname, state, availability)
          select ${clusterId}, incoming.* from incoming
          on conflict on constraint observed_swarm_nodes_key do update set
            hostname = excluded.hostname, state = excluded.state, availability = excluded.availability
          where (known.hostname, known.state, known.availability)
            is distinct from (excluded.hostname, excluded.state, excluded.availability)
          returning swarm_node_id
        ), gone as (
          delete from control.observed_swarm_nodes known
          where known.cluster_id = ${clusterId} and not exists (select from incoming where incoming.swarm_node_id = known.swarm_node_id)
          returning swarm_node_id
        )
        select swarm_node_id as "swarmNodeId" from written union select swarm_node_id from gone`.compile(qb),
    ),
  ]);
  const swarmNodeIds = new Set<string>();
  for (const { swarmNodeId } of [...changedTasks, ...changedNodes])
    if (swarmNodeId !== null) swarmNodeIds.add(swarmNodeId);
  return { swarmNodeIds, swarmServiceIds: new Set(changedServices.map((each) => each.swarmServiceId)) };
}

/** What a service's own label says that it is for the cutover, e.g. `coreflow`. */
export function roleOf(service: IFleetCutoverCompleteManagerSnapshot['services'][number]): string | null {
  return service.labels.find((label) => label.key === 'serve.zone.role')?.value ?? null;
}

export function recordIncomplete(
  tx: Tx,
  clusterId: string,
  nodeId: string,
  kind: 'local' | 'manager',
  snapshot: IIncompleteSnapshot,
  seenAt: number,
): Promise<number> {
  return tx.run(
    sql`
      insert into control.incomplete_snapshots as known (cluster_id, node_id, kind, reason, counts, reported, last_seen_at)
      values (${clusterId}, ${nodeId}, ${kind}, ${snapshot.reason}, ${JSON.stringify(snapshot.counts)}::jsonb, 1, ${seenAt})
      on conflict on constraint incomplete_snapshots_key do update
        set counts = excluded.counts, reported = known.reported + 1, last_seen_at = excluded.last_seen_at`.compile(qb),
  );
}
