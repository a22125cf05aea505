/** Rows that no other check looks for, because they belong to something that is not there. */
import { sql } from 'kysely';
import { handoffId } from '../../contract/record-id.js';
import { qb } from '../../db/query.js';
import type { AuditedFacts } from './audited-facts.js';
import { pagesOf, type Verification, type VerifiedCluster } from './verification.js';

const rowsPerPage = 1_000;

export async function verifyStrayRows(
  verification: Verification,
  cluster: VerifiedCluster,
  facts: AuditedFacts | undefined,
): Promise<void> {
  await verifyVolumes(verification, cluster);
  await verifyGateFactOwners(verification, cluster);
  await verifyFormerSwarmNodes(verification, cluster, facts);
}

interface VolumeRow {
  readonly nodeId: string;
  readonly serviceId: string;
  readonly mountIdentityDigest: string;
}

/** A volume is made with its first handoff, whose head stays although it is removed. */
async function verifyVolumes(
  { tx, findings }: Verification,
  { clusterId, clusterLife }: VerifiedCluster,
): Promise<void> {
  const pages = pagesOf<VolumeRow>((last) =>
    tx.rows(
      sql<VolumeRow>`
        select node_id as "nodeId", service_id as "serviceId", mount_identity_digest as "mountIdentityDigest"
        from control.volumes where cluster_id = ${clusterId} and (node_id, service_id, mount_identity_digest)
          > (${last?.nodeId ?? ''}, ${last?.serviceId ?? ''}, ${last?.mountIdentityDigest ?? ''})
        order by node_id, service_id, mount_identity_digest limit ${rowsPerPage}`.compile(qb),
    ),
  );
  for await (const volumes of pages) {
    const ids = volumes.map((volume) => handoffId(clusterLife, volume));
    const lost = await tx.rows(
      sql<{ ordinal: number }>`
        select wanted.ordinal from unnest(${volumes.map(({ nodeId }) => nodeId)}::text[], ${ids}::text[])
          with ordinality as wanted (node_id, handoff_id, ordinal)
        where not exists (select from control.handoff_revisions revision where revision.cluster_id = ${clusterId}
            and revision.node_id = wanted.node_id and revision.handoff_id = wanted.handoff_id)
          and not exists (select from control.handoff_heads head where head.cluster_id = ${clusterId}
            and head.node_id = wanted.node_id and head.handoff_id = wanted.handoff_id)
        order by wanted.ordinal`.compile(qb),
    );
    for (const { ordinal } of lost) {
      const { nodeId, serviceId, mountIdentityDigest } = volumes[ordinal - 1]!;
      const handoff = { cluster_id: clusterId, node_id: nodeId, handoff_id: ids[ordinal - 1]! };
      if (findings.hasAny('handoff_revisions', handoff)) continue;
      const key = { cluster_id: clusterId, node_id: nodeId, service_id: serviceId };
      const how = 'its handoff was never prepared';
      findings.add(
        'volumes',
        { ...key, mount_identity_digest: mountIdentityDigest },
        'the row should not be there',
        how,
      );
    }
  }
}

/** Facts of a node that is there are compared with its derivation. */
async function verifyGateFactOwners({ tx, findings }: Verification, { clusterId }: VerifiedCluster): Promise<void> {
  const rows = await tx.rows(
    sql<{ nodeId: string }>`
      select node_id as "nodeId" from control.node_gate_facts facts
      where cluster_id = ${clusterId} and not exists (
        select from control.nodes node where node.cluster_id = facts.cluster_id and node.node_id = facts.node_id)
      order by node_id limit ${rowsPerPage}`.compile(qb),
  );
  for (const { nodeId } of rows) {
    const key = { cluster_id: clusterId, node_id: nodeId };
    findings.add('node_gate_facts', key, 'the row should not be there', 'there is no such node');
  }
}

/** A node is remembered as a former swarm node once for each time that an administrator bound it to another one. */
async function verifyFormerSwarmNodes(
  { tx, findings }: Verification,
  { clusterId }: VerifiedCluster,
  facts: AuditedFacts | undefined,
): Promise<void> {
  if (facts === undefined) return;
  const pages = pagesOf<{ nodeId: string; former: string[] }>((last) =>
    tx.rows(
      sql<{ nodeId: string; former: string[] }>`
        select known.node_id as "nodeId", array_agg(known.swarm_node_id::text order by known.swarm_node_id) as former
        from control.node_swarm_ids known
        join control.nodes node on node.cluster_id = known.cluster_id and node.node_id = known.node_id
        where known.cluster_id = ${clusterId} and known.node_id > ${last?.nodeId ?? ''}
          and node.swarm_node_id is distinct from known.swarm_node_id
        group by known.node_id order by known.node_id limit ${rowsPerPage}`.compile(qb),
    ),
  );
  for await (const rows of pages) {
    for (const { nodeId, former } of rows) {
      const rejoins = facts.nodes.get(nodeId)?.rejoins ?? 0;
      const how = `the node ${nodeId} was bound anew ${rejoins} times, and ${former.length} former swarm nodes are remembered`;
      for (const swarmNodeId of former.length > rejoins ? former : [])
        findings.add(
          'node_swarm_ids',
          { cluster_id: clusterId, swarm_node_id: swarmNodeId },
          'the row should not be there',
          how,
        );
    }
  }
}
