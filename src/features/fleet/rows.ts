/** The only SQL that writes clusters, nodes, services and specs. What a report changes of a node is in `report-rows.ts`. */
import { sql } from 'kysely';
import type { IClusterServiceSpec } from '../../contract/fleet.js';
import { canonicalizeStrictJson } from '../../contract/canonical-json.js';
import { qb } from '../../db/query.js';
import type { ReadTx, Tx } from '../../db/transaction.js';
import type { Cluster, ServiceFacts } from './facts.js';

// Clusters ----------------------------------------------------------------------------------------------------------

/** 0: the id is taken. */
export function insertCluster(tx: Tx, cluster: Cluster): Promise<number> {
  return tx.run(
    qb
      .insertInto('control.clusters')
      .values({
        cluster_id: cluster.clusterId,
        organization_id: cluster.organizationId,
        controller_id: cluster.controllerId,
        controller_epoch: cluster.controllerEpoch,
        runtime_namespace: cluster.runtimeNamespace,
        swarm_id: cluster.swarmId,
        cluster_life: cluster.clusterLife,
      })
      .onConflict((conflict) => conflict.column('cluster_id').doNothing()),
  );
}

export function clustersOf(tx: ReadTx, organizationId: string): Promise<Cluster[]> {
  return tx.rows(
    sql<Cluster>`
      select cluster_id as "clusterId", organization_id as "organizationId", controller_id as "controllerId",
             controller_epoch as "controllerEpoch", runtime_namespace as "runtimeNamespace", swarm_id as "swarmId",
             cluster_life as "clusterLife"
        from control.clusters where organization_id = ${organizationId} order by cluster_id`.compile(qb),
  );
}

// Nodes -------------------------------------------------------------------------------------------------------------

export interface NewNode {
  readonly nodeId: string;
  readonly corestorePublicKey: string | null;
}

/** Gives how many were inserted: a node id that exists, in whichever cluster, is left out. */
export function insertNodes(tx: Tx, clusterId: string, nodes: readonly NewNode[]): Promise<number> {
  const statement = sql`
    insert into control.nodes (cluster_id, node_id, corestore_public_key, corestore_public_key_generation)
    select ${clusterId}::text, node_id, public_key, case when public_key is null then 0 else 1 end
      from unnest(${nodes.map((node) => node.nodeId)}::text[], ${nodes.map((node) => node.corestorePublicKey)}::text[])
             as fresh (node_id, public_key)
     order by node_id
    on conflict (node_id) do nothing`;
  return tx.run(statement.compile(qb));
}

/** A node with the generations of its credentials: everything that its wire document shows. */
export interface NodeRow {
  readonly node_id: string;
  readonly state: 'active' | 'quarantined' | 'revoked' | 'written-off';
  readonly quarantine_reason: string | null;
  readonly swarm_node_id: string | null;
  readonly reported_swarm_node_id: string | null;
  readonly corestore_public_key: string | null;
  readonly corestore_public_key_generation: number;
  readonly reporter_session_id: string | null;
  readonly observation_sequence: number | null;
  readonly reported_state: 'member' | 'inactive' | 'unknown' | null;
  readonly received_at: number | null;
  readonly local_generation: number;
  readonly local_digest: string | null;
  readonly local_incomplete: string | null;
  readonly token_generation: number;
  readonly session_generation: number;
}

const selectNodes = sql<NodeRow>`
  select node.node_id, node.state, node.quarantine_reason, node.swarm_node_id, node.reported_swarm_node_id,
         node.corestore_public_key, node.corestore_public_key_generation, node.reporter_session_id,
         node.observation_sequence, node.reported_state, node.received_at, node.local_generation, node.local_digest,
         node.local_incomplete, token.newest_generation as token_generation, session.newest_generation as session_generation
    from control.nodes as node
    join control.credentials as token on token.kind = 'node-token' and token.subject_id = node.node_id
    join control.credentials as session on session.kind = 'node-session' and session.subject_id = node.node_id`;

export function readNode(tx: ReadTx, clusterId: string, nodeId: string): Promise<NodeRow> {
  return tx.one(
    sql<NodeRow>`${selectNodes} where node.cluster_id = ${clusterId} and node.node_id = ${nodeId}`.compile(qb),
  );
}

export interface PageRequest {
  readonly cursor: string | null;
  readonly limit: number;
}

/** At most `limit` nodes after the cursor, in byte order. */
export function pageOfNodes(tx: ReadTx, clusterId: string, page: PageRequest): Promise<NodeRow[]> {
  return tx.rows(
    sql<NodeRow>`
      ${selectNodes} where node.cluster_id = ${clusterId} and node.node_id > ${page.cursor ?? ''}
       order by node.node_id limit ${page.limit}`.compile(qb),
  );
}

/** A node that is written off stays so. */
export function revokeNodeRow(tx: Tx, clusterId: string, nodeId: string): Promise<number> {
  return tx.run(
    qb
      .updateTable('control.nodes')
      .set({ state: 'revoked', quarantine_reason: null })
      .where('cluster_id', '=', clusterId)
      .where('node_id', '=', nodeId)
      .where('state', '<>', 'written-off'),
  );
}

/** The reporter's session is forgotten with the quarantine: neither of the two reporters goes on with it. */
export function releaseNodeRow(tx: Tx, clusterId: string, nodeId: string): Promise<number> {
  return tx.run(
    qb
      .updateTable('control.nodes')
      .set({
        state: 'active',
        quarantine_reason: null,
        reporter_session_id: null,
        observation_sequence: null,
        // Nobody knows whose evidence it was: gates wait for a new report.
        local_runtime_generation: null,
      })
      .where('cluster_id', '=', clusterId)
      .where('node_id', '=', nodeId),
  );
}

export function bindSwarmNode(tx: Tx, clusterId: string, nodeId: string, swarmNodeId: string): Promise<number> {
  return tx.run(
    qb
      .updateTable('control.nodes')
      .set({ swarm_node_id: swarmNodeId, reported_swarm_node_id: null })
      .where('cluster_id', '=', clusterId)
      .where('node_id', '=', nodeId),
  );
}

export function setNodeKey(tx: Tx, clusterId: string, nodeId: string, publicKey: string): Promise<number> {
  return tx.run(
    qb
      .updateTable('control.nodes')
      .set((of) => ({
        corestore_public_key: publicKey,
        corestore_public_key_generation: of('corestore_public_key_generation', '+', 1),
      }))
      .where('cluster_id', '=', clusterId)
      .where('node_id', '=', nodeId),
  );
}

// Services ----------------------------------------------------------------------------------------------------------

export function insertServices(
  tx: Tx,
  organizationId: string,
  services: readonly { readonly serviceId: string; readonly name: string }[],
): Promise<number> {
  const statement = sql`
    insert into control.services (service_id, organization_id, name)
    select service_id, ${organizationId}::text, name
      from unnest(${services.map((each) => each.serviceId)}::text[], ${services.map((each) => each.name)}::text[])
             as fresh (service_id, name)`;
  return tx.run(statement.compile(qb));
}

/** Services of these names, retired ones too. */
export function servicesByName(tx: ReadTx, organizationId: string, names: readonly string[]): Promise<ServiceFacts[]> {
  return tx.rows(
    sql<ServiceFacts>`
      select service_id as "serviceId", name, state from control.services
       where organization_id = ${organizationId} and name = any(${[...names]}::text[])`.compile(qb),
  );
}

export function retireServiceRow(tx: Tx, serviceId: string): Promise<number> {
  return tx.run(qb.updateTable('control.services').set({ state: 'retired' }).where('service_id', '=', serviceId));
}

export interface ServiceWithSpec extends ServiceFacts {
  readonly specId: string | null;
  readonly specGeneration: number | null;
  readonly specDigest: string | null;
}

/** At most `limit` services of the organization after the cursor, each with its spec in the cluster. */
export function pageOfServices(
  tx: ReadTx,
  organizationId: string,
  clusterId: string,
  page: PageRequest,
): Promise<ServiceWithSpec[]> {
  return tx.rows(
    sql<ServiceWithSpec>`
      select service.service_id as "serviceId", service.name, service.state, spec.spec_id as "specId",
             spec.generation as "specGeneration", spec.digest as "specDigest"
        from control.services as service
        left join control.service_spec_heads as spec on spec.cluster_id = ${clusterId} and spec.service_id = service.service_id
       where service.organization_id = ${organizationId} and service.service_id > ${page.cursor ?? ''}
       order by service.service_id limit ${page.limit}`.compile(qb),
  );
}

// Specs -------------------------------------------------------------------------------------------------------------

export interface SpecRow {
  readonly serviceId: string;
  readonly generation: number;
  readonly digest: string;
  /** Canonical JSON. */
  readonly record: string;
}

/** The current specs of the services in the cluster, of those that have one. */
export function currentSpecs(tx: ReadTx, clusterId: string, serviceIds: readonly string[]): Promise<SpecRow[]> {
  return tx.rows(
    sql<SpecRow>`
      select head.service_id as "serviceId", head.generation, head.digest, revision.record
        from control.service_spec_heads as head
        join control.service_spec_revisions as revision using (cluster_id, service_id, generation)
       where head.cluster_id = ${clusterId} and head.service_id = any(${[...serviceIds]}::text[])`.compile(qb),
  );
}

/** One revision of a spec, the current one where `generation` is null, and whether it is released. */
export function findSpec(
  tx: ReadTx,
  clusterId: string,
  serviceId: string,
  generation: number | null,
): Promise<(SpecRow & { readonly released: boolean }) | undefined> {
  return tx.maybe(
    sql<SpecRow & { released: boolean }>`
      select revision.service_id as "serviceId", revision.generation, revision.digest, revision.record,
             release.generation is not null as released
        from control.service_spec_heads as head
        join control.service_spec_revisions as revision
          on revision.cluster_id = head.cluster_id and revision.service_id = head.service_id
         and revision.generation = coalesce(${generation}::bigint, head.generation)
        left join control.service_spec_releases as release
          on release.cluster_id = revision.cluster_id and release.service_id = revision.service_id
         and release.generation = revision.generation
       where head.cluster_id = ${clusterId} and head.service_id = ${serviceId}`.compile(qb),
  );
}

/** First revisions with their heads. */
export async function insertSpecs(tx: Tx, clusterId: string, specs: readonly IClusterServiceSpec[]): Promise<void> {
  const column = <T>(read: (spec: IClusterServiceSpec) => T): T[] => specs.map(read);
  const heads = sql`
    insert into control.service_spec_heads (cluster_id, service_id, spec_id, generation, digest)
    select ${clusterId}::text, service_id, spec_id, generation, digest
      from unnest(${column((spec) => spec.serviceId)}::text[], ${column((spec) => spec.id)}::text[],
                  ${column((spec) => spec.generation)}::bigint[], ${column((spec) => spec.digest)}::text[])
             as fresh (service_id, spec_id, generation, digest)`;
  await Promise.all([tx.run(heads.compile(qb)), insertSpecRevisions(tx, clusterId, specs)]);
}

/** The next revision of a spec, after the one of the expected generation. 0: that one is not the current one. */
export async function swapSpec(tx: Tx, spec: IClusterServiceSpec, expected: SpecRow): Promise<number> {
  const head = qb
    .updateTable('control.service_spec_heads')
    .set({ generation: spec.generation, digest: spec.digest })
    .where('cluster_id', '=', spec.clusterId)
    .where('service_id', '=', spec.serviceId)
    .where('generation', '=', expected.generation)
    .where('digest', '=', expected.digest);
  const [swapped] = await Promise.all([tx.run(head), insertSpecRevisions(tx, spec.clusterId, [spec])]);
  return swapped;
}

function insertSpecRevisions(tx: Tx, clusterId: string, specs: readonly IClusterServiceSpec[]): Promise<number> {
  const column = <T>(read: (spec: IClusterServiceSpec) => T): T[] => specs.map(read);
  const statement = sql`
    insert into control.service_spec_revisions (cluster_id, service_id, generation, digest, record)
    select ${clusterId}::text, service_id, generation, digest, record
      from unnest(${column((spec) => spec.serviceId)}::text[], ${column((spec) => spec.generation)}::bigint[],
                  ${column((spec) => spec.digest)}::text[], ${column((spec) => canonicalizeStrictJson(spec))}::text[])
             as fresh (service_id, generation, digest, record)`;
  return tx.run(statement.compile(qb));
}
