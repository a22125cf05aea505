/** Rows that exist only to be joined, against the snapshots that they were made of. */
import { sql } from 'kysely';
import { canonicalizeStrictJson } from '../../contract/canonical-json.js';
import type {
  IFleetCutoverCompleteLocalNodeSnapshot,
  IFleetCutoverCompleteManagerSnapshot,
} from '../../contract/observation.js';
import { qb } from '../../db/query.js';
import { roleOf } from '../inventory/facts.js';
import type { RowKey } from './finding.js';
import type { Verification } from './verification.js';

/** Compares what a table has with what it should have, by key. */
export function compareRows(
  { findings }: Verification,
  table: string,
  expected: ReadonlyMap<string, string>,
  stored: ReadonlyMap<string, string>,
  keyOf: (id: string) => RowKey,
  how: string,
): void {
  for (const [id, content] of expected) {
    const found = stored.get(id);
    if (found === undefined) findings.add(table, keyOf(id), 'the row is missing', how);
    else if (found !== content)
      findings.add(table, keyOf(id), 'the row was changed', `${how}: ${content}, not ${found}`);
  }
  for (const id of stored.keys()) {
    if (!expected.has(id)) findings.add(table, keyOf(id), 'the row should not be there', how);
  }
}

interface ObservedRow {
  readonly id: string;
  readonly content: unknown[];
}

const how = 'the latest accepted manager snapshot says otherwise';

function byId(rows: readonly ObservedRow[]): Map<string, string> {
  return new Map(rows.map((row) => [row.id, canonicalizeStrictJson(row.content)]));
}

/** Bounded by the snapshot, which has at most 4 MiB. */
export async function compareObservedManager(
  verification: Verification,
  clusterId: string,
  snapshot: IFleetCutoverCompleteManagerSnapshot,
): Promise<void> {
  const { tx } = verification;
  const tasks = await tx.rows(
    sql<ObservedRow>`
      select swarm_task_id as id, jsonb_build_array(swarm_service_id, swarm_node_id, slot, desired_state, state, container_id) as content
      from control.observed_tasks where cluster_id = ${clusterId}`.compile(qb),
  );
  const services = await tx.rows(
    sql<ObservedRow>`
      select swarm_service_id as id, jsonb_build_array(name, mounts, mode, replicas, spec_version, spec_digest, role) as content
      from control.observed_services where cluster_id = ${clusterId}`.compile(qb),
  );
  const nodes = await tx.rows(
    sql<ObservedRow>`
      select swarm_node_id as id, jsonb_build_array(hostname, state, availability) as content
      from control.observed_swarm_nodes where cluster_id = ${clusterId}`.compile(qb),
  );
  const expectedTasks = snapshot.tasks.map(({ id, serviceId, nodeId, slot, desiredState, state, containerId }) => ({
    id,
    content: [serviceId, nodeId, slot, desiredState, state, containerId],
  }));
  const expectedServices = snapshot.services.map((service) => {
    const { id, name, mounts, mode, replicas, specVersion, specDigest } = service;
    return { id, content: [name, mounts, mode, replicas, specVersion, specDigest, roleOf(service)] };
  });
  const expectedNodes = snapshot.nodes.map(({ id, hostname, state, availability }) => ({
    id,
    content: [hostname, state, availability],
  }));
  const compare = (table: string, column: string, expected: ObservedRow[], stored: ObservedRow[]) =>
    compareRows(
      verification,
      table,
      byId(expected),
      byId(stored),
      (id) => ({ cluster_id: clusterId, [column]: id }),
      how,
    );
  compare('observed_tasks', 'swarm_task_id', expectedTasks, tasks);
  compare('observed_services', 'swarm_service_id', expectedServices, services);
  compare('observed_swarm_nodes', 'swarm_node_id', expectedNodes, nodes);
}

export async function compareObservedContainers(
  verification: Verification,
  clusterId: string,
  nodeId: string,
  snapshot: IFleetCutoverCompleteLocalNodeSnapshot | null,
): Promise<void> {
  const stored = await verification.tx.rows(
    sql<ObservedRow>`
      select container_id as id, jsonb_build_array(swarm_task_id, state) as content
      from control.observed_task_containers where cluster_id = ${clusterId} and node_id = ${nodeId}`.compile(qb),
  );
  const expected = (snapshot?.containers ?? []).flatMap(({ id, swarmTaskId, state }) =>
    swarmTaskId === null ? [] : [{ id, content: [swarmTaskId, state] }],
  );
  compareRows(
    verification,
    'observed_task_containers',
    byId(expected),
    byId(stored),
    (id) => ({ cluster_id: clusterId, node_id: nodeId, container_id: id }),
    'the latest accepted local snapshot of the node says otherwise',
  );
}
