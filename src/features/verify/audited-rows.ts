/** The cluster's own row, its nodes and its credentials, against what its audited mutations left. */
import { sql } from 'kysely';
import { canonicalizeStrictJson } from '../../contract/canonical-json.js';
import { qb } from '../../db/query.js';
import type { AuditedFacts, AuditedNode } from './audited-facts.js';
import { pagesOf, type Verification, type VerifiedCluster } from './verification.js';

const rowsPerPage = 500;

/** The swarm is bound by an accepted scope, and is compared with that. */
export function compareAuditedCluster(
  { findings }: Verification,
  cluster: VerifiedCluster,
  facts: AuditedFacts | undefined,
): void {
  if (facts === undefined) return;
  const { clusterId, organizationId, controllerId, controllerEpoch, runtimeNamespace, clusterLife } = cluster;
  const stored = { clusterId, organizationId, controllerId, controllerEpoch, runtimeNamespace, clusterLife };
  const { swarmId: _swarmId, ...created } = facts.cluster ?? { swarmId: null };
  if (canonicalizeStrictJson(stored) === canonicalizeStrictJson(created)) return;
  const how =
    facts.cluster === null ? 'no audit row created it' : `it was created as ${canonicalizeStrictJson(created)}`;
  findings.add('clusters', { cluster_id: clusterId }, 'the row was changed', how);
}

interface NodeRow {
  readonly nodeId: string;
  readonly state: string;
  readonly quarantineReason: string | null;
  readonly publicKey: string | null;
  readonly keyGeneration: number;
  readonly sessionId: string | null;
  readonly sessions: readonly string[];
}

/** A write-off is compared elsewhere. */
export async function compareAuditedNodes(
  { tx, findings }: Verification,
  { clusterId }: VerifiedCluster,
  facts: AuditedFacts | undefined,
): Promise<void> {
  if (facts === undefined) return;
  const missing = new Set(facts.nodes.keys());
  const pages = pagesOf<NodeRow>((last) =>
    tx.rows(
      sql<NodeRow>`
        select node_id as "nodeId", state, quarantine_reason as "quarantineReason", corestore_public_key as "publicKey",
          corestore_public_key_generation as "keyGeneration", reporter_session_id as "sessionId",
          array(select reporter_session_id::text from control.reporter_sessions session
            where session.cluster_id = node.cluster_id and session.node_id = node.node_id) as sessions
        from control.nodes node
        where cluster_id = ${clusterId} and node_id > ${last?.nodeId ?? ''} order by node_id limit ${rowsPerPage}`.compile(
        qb,
      ),
    ),
  );
  for await (const rows of pages) {
    for (const row of rows) {
      missing.delete(row.nodeId);
      const audited = facts.nodes.get(row.nodeId);
      const fault = audited === undefined ? 'no audit row made it' : nodeFault(row, audited);
      if (fault !== null)
        findings.add('nodes', { cluster_id: clusterId, node_id: row.nodeId }, 'the row was changed', fault);
    }
  }
  for (const nodeId of missing) {
    const how = `audit row ${facts.nodes.get(nodeId)!.seq} made it`;
    findings.add('nodes', { cluster_id: clusterId, node_id: nodeId }, 'the row is missing', how);
  }
}

function nodeFault(row: NodeRow, audited: AuditedNode): string | null {
  return stateFault(row, audited) ?? keyFault(row, audited);
}

const twoReporters = /^two live reporters: (\S+) reported after (\S+|its release) replaced it$/;

function stateFault(row: NodeRow, { shown, writtenOffAt, released }: AuditedNode): string | null {
  const { state, quarantineReason, sessionId } = row;
  if (writtenOffAt !== null || state === 'written-off') return null;
  const before = shown?.state ?? 'active';
  if (before !== 'active' && state !== before) return `its last audited mutation left it ${before}`;
  if (state === 'revoked' && before !== 'revoked') return 'no audit row revoked it';
  if (sessionId === null && row.sessions.length > 0 && !released) return 'no audit row has its reporter forgotten';
  if (state !== 'quarantined') return null;
  if (before === 'quarantined')
    return quarantineReason === shown?.quarantineReason ? null : 'an audit row shows another reason';
  const [, reporter, replacing] = twoReporters.exec(quarantineReason ?? '') ?? [];
  return reporter !== undefined && row.sessions.includes(reporter) && replacing === (sessionId ?? 'its release')
    ? null
    : 'its reason is not the one of its reporter sessions';
}

function keyFault({ publicKey, keyGeneration }: NodeRow, { shown }: AuditedNode): string | null {
  if (shown === null) {
    if (keyGeneration > 1) return 'no audit row set its key';
    return (publicKey === null) === (keyGeneration === 0) ? null : 'it has a key without a generation, or the reverse';
  }
  const { corestorePublicKey, corestorePublicKeyGeneration } = shown;
  return publicKey === corestorePublicKey && keyGeneration === corestorePublicKeyGeneration
    ? null
    : `its last audited key is ${corestorePublicKey ?? 'none'} of generation ${corestorePublicKeyGeneration}`;
}

interface CredentialRow {
  readonly credentialId: string;
  readonly kind: string;
  readonly subjectId: string;
  readonly generation: number;
  readonly revoked: boolean;
}

/** Which generation was used, agents alone tell. */
export async function compareAuditedCredentials(
  { tx, findings }: Verification,
  { clusterId }: VerifiedCluster,
  facts: AuditedFacts | undefined,
): Promise<void> {
  if (facts === undefined) return;
  const missing = new Set(facts.credentials.keys());
  const pages = pagesOf<CredentialRow>((last) =>
    tx.rows(
      sql<CredentialRow>`
        select credential_id as "credentialId", kind, subject_id as "subjectId", newest_generation as generation, revoked
        from control.credentials where cluster_id = ${clusterId} and credential_id > ${last?.credentialId ?? ''}
        order by credential_id limit ${rowsPerPage}`.compile(qb),
    ),
  );
  for await (const rows of pages) {
    for (const row of rows) {
      missing.delete(row.credentialId);
      const fault = credentialFault(row, facts);
      if (fault !== null)
        findings.add('credentials', { credential_id: row.credentialId }, 'the row was changed', fault);
    }
  }
  for (const credentialId of missing) {
    const key = { credential_id: credentialId };
    findings.add('credentials', key, 'the row is missing', 'an audit row issued it');
  }
}

function credentialFault(row: CredentialRow, facts: AuditedFacts): string | null {
  const { credentialId, kind, subjectId, generation, revoked } = row;
  if (kind === 'node-token' || kind === 'node-session') {
    const node = facts.nodes.get(subjectId);
    if (node === undefined) return null;
    const issued = kind === 'node-token' ? node.tokenGeneration : node.sessionGeneration;
    if (generation !== issued) return `generation ${issued} was issued last`;
    if ((node.credentialIds.get(kind) ?? credentialId) !== credentialId) return 'it was rotated under another id';
    if (revoked === (node.revokedAt !== null)) return null;
    return revoked ? 'no audit row revoked it' : 'an audit row revoked it';
  }
  const audited = facts.credentials.get(credentialId);
  if (audited === undefined) return 'no audit row issued it';
  if (audited.kind !== kind || audited.subjectId !== subjectId) return `it was issued to ${audited.subjectId}`;
  if (audited.generation !== generation) return `generation ${audited.generation} was issued last`;
  if (audited.revoked === revoked) return null;
  return revoked ? 'no audit row revoked it' : 'an audit row revoked it';
}
