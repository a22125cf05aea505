/**
 * What must be true of credentials beyond the table's own constraints. Hashes are compared in the database and never read.
 *
 * 1. The used generation is the newest exactly where their hashes are equal.
 * 2. A node has one token and one session credential, of its own cluster and organization.
 * 3. The kind can be read off the id.
 */
import { sql } from 'kysely';
import { qb } from '../../db/query.js';
import { pagesOf, type Verification } from './verification.js';

interface CredentialRow {
  readonly credentialId: string;
  readonly kind: string;
  readonly hashesFit: boolean;
  readonly ownerFits: boolean;
}

const rowsPerPage = 1_000;

export async function verifyCredentials(verification: Verification, clusterId: string | null): Promise<void> {
  const { tx, findings } = verification;
  const pages = pagesOf<CredentialRow>((last) =>
    tx.rows(
      sql<CredentialRow>`
        select credential.credential_id as "credentialId", credential.kind,
          credential.used_hash is null or (credential.used_generation = credential.newest_generation) = (credential.used_hash = credential.newest_hash) as "hashesFit",
          case when credential.kind in ('node-token', 'node-session')
            then node.node_id is not null and cluster.organization_id = credential.organization_id and credential.role is null
            when credential.kind = 'administrator' then credential.cluster_id is null
            else cluster.organization_id = credential.organization_id end as "ownerFits"
        from control.credentials credential
        left join control.clusters cluster on cluster.cluster_id = credential.cluster_id
        left join control.nodes node on node.cluster_id = credential.cluster_id and node.node_id = credential.subject_id
        where credential.credential_id > ${last?.credentialId ?? ''}
          and (${clusterId}::text is null or credential.cluster_id = ${clusterId}::text)
        order by credential.credential_id limit ${rowsPerPage}`.compile(qb),
    ),
  );
  for await (const rows of pages) {
    for (const { credentialId, hashesFit, ownerFits } of rows) {
      const key = { credential_id: credentialId };
      if (!hashesFit)
        findings.add(
          'credentials',
          key,
          'the used generation does not fit its hash',
          'hashes are equal exactly where the generations are',
        );
      if (!ownerFits)
        findings.add(
          'credentials',
          key,
          'the owner is wrong',
          'its subject is no node of its cluster and organization',
        );
    }
    verification.advance(rows.length);
  }
  await verifyNodesHaveCredentials(verification, clusterId);
}

async function verifyNodesHaveCredentials({ tx, findings }: Verification, clusterId: string | null): Promise<void> {
  const rows = await tx.rows(
    sql<{ clusterId: string; nodeId: string; kind: string }>`
      select node.cluster_id as "clusterId", node.node_id as "nodeId", wanted.kind from control.nodes node
      cross join unnest(array['node-token', 'node-session']) as wanted (kind)
      where (${clusterId}::text is null or node.cluster_id = ${clusterId}::text) and not exists (
        select from control.credentials credential
        where credential.kind = wanted.kind and credential.subject_id = node.node_id and credential.cluster_id = node.cluster_id)
      limit ${rowsPerPage}`.compile(qb),
  );
  for (const { nodeId, kind } of rows) {
    findings.add('credentials', { kind, subject_id: nodeId }, 'the row is missing', 'every node has one');
  }
}
