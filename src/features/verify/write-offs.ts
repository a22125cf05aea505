/**
 * Write-offs: a proposal and its confirmation by another administrator, each against its columns and against the audit row
 * that accepted it; and that exactly the nodes whose write-off is confirmed are in that state.
 */
import { sql } from 'kysely';
import type { TMethodName } from '../../contract/methods.js';
import { handoffId } from '../../contract/record-id.js';
import { fleetCutoverWriteOffRecord, type IFleetCutoverWriteOff } from '../../contract/write-off.js';
import { qb } from '../../db/query.js';
import { writeOffId } from '../write-off/write-off.js';
import { auditRows } from './audit-chains.js';
import { RevisionChain } from './revisions.js';
import { readCanonical, type StoredRecord } from './sealed-record.js';
import { pagesOf, type Verification, type VerifiedCluster } from './verification.js';

const methods: readonly TMethodName[] = ['writeOffNode', 'writeOffVolume'];
const rowsPerPage = 500;

interface StoredWriteOff extends StoredRecord {
  readonly id: string;
  readonly state: string;
  readonly nodeId: string;
  readonly handoffId: string | null;
}

/** What the audit chain has of one revision. */
interface Accepted {
  readonly id: string;
  readonly generation: number;
  readonly digest: string;
  readonly nodeId: string;
  readonly seq: number;
}

export interface WrittenOffNodes {
  /** Nodes that are written off as a whole. */
  readonly confirmed: ReadonlySet<string>;
  /** A write-off of these is broken or gone, so that what follows from it can't be told. */
  readonly broken: ReadonlySet<string>;
}

/** Holds a reference per write-off: a cluster has at most one per node and required entry. */
export async function verifyWriteOffs(verification: Verification, cluster: VerifiedCluster): Promise<WrittenOffNodes> {
  const { tx, findings } = verification;
  const { clusterId } = cluster;
  const confirmed = new Set<string>();
  const broken = new Set<string>();
  const accepted = await acceptedWriteOffs(verification, clusterId, confirmed);
  const auditIsBroken = findings.hasAny('audit_rows', { chain_id: clusterId });
  const keyOf = (id: string, generation: number) => ({ cluster_id: clusterId, write_off_id: id, generation });
  let chain: RevisionChain<IFleetCutoverWriteOff, StoredWriteOff> | undefined;
  let chainId: string | undefined;
  let proposal: IFleetCutoverWriteOff | null = null;
  const pages = pagesOf<StoredWriteOff>((last) =>
    tx.rows(
      sql<StoredWriteOff>`
        select write_off_id as id, generation, digest, state, node_id as "nodeId", handoff_id as "handoffId", record
        from control.write_offs
        where cluster_id = ${clusterId} and (write_off_id, generation) > (${last?.id ?? ''}, ${last?.generation ?? 0}::bigint)
        order by write_off_id, generation limit ${rowsPerPage}`.compile(qb),
    ),
  );
  for await (const rows of pages) {
    for (const row of rows) {
      const { id, generation } = row;
      if (chain === undefined || chainId !== id) {
        proposal = null;
        chainId = id;
        chain = new RevisionChain(verification, {
          table: 'write_offs',
          record: fleetCutoverWriteOffRecord,
          id,
          key: (of) => keyOf(id, of),
          contradiction: (value, of) => contradictionOf(cluster, value, of, proposal),
        });
      }
      const value = chain.take(row);
      const known = accepted.get(identity(id, generation));
      accepted.delete(identity(id, generation));
      if (known === undefined && !auditIsBroken) {
        findings.add('write_offs', keyOf(id, generation), 'nobody made the row', 'no audit row has it as its result');
      } else if (known !== undefined && known.digest !== row.digest) {
        const how = `audit row ${known.seq} accepted ${known.digest}`;
        findings.add('write_offs', keyOf(id, generation), 'the row was replaced', how);
      }
      if (generation === 1) proposal = value;
      if (value?.state === 'confirmed' && value.subject.kind === 'node') confirmed.add(value.subject.nodeId);
      if (!findings.has('write_offs', keyOf(id, generation))) continue;
      broken.add(row.nodeId);
      if (known !== undefined) broken.add(known.nodeId);
    }
    verification.advance(rows.length);
  }
  for (const { id, generation, nodeId, seq } of accepted.values()) {
    findings.add('write_offs', keyOf(id, generation), 'the row is missing', `audit row ${seq} accepted it`);
    broken.add(nodeId);
  }
  return { confirmed, broken };
}

function identity(id: string, generation: number): string {
  return `${id} ${generation}`;
}

async function acceptedWriteOffs(
  verification: Verification,
  clusterId: string,
  confirmed: Set<string>,
): Promise<Map<string, Accepted>> {
  const accepted = new Map<string, Accepted>();
  for await (const rows of auditRows(verification, clusterId, methods)) {
    for (const { seq, result } of rows) {
      if (verification.findings.has('audit_rows', { chain_id: clusterId, seq })) continue;
      const { writeOff } = (readCanonical(result) ?? {}) as { writeOff?: unknown };
      if (!fleetCutoverWriteOffRecord.is(writeOff)) continue;
      const { id, generation, digest, subject, state } = writeOff;
      accepted.set(identity(id, generation), { id, generation, digest, nodeId: subject.nodeId, seq });
      if (state === 'confirmed' && subject.kind === 'node') confirmed.add(subject.nodeId);
    }
  }
  return accepted;
}

function contradictionOf(
  { clusterId, clusterLife }: VerifiedCluster,
  value: IFleetCutoverWriteOff,
  row: StoredWriteOff,
  proposal: IFleetCutoverWriteOff | null,
): string | null {
  const { subject, state, confirmedBy, proposedBy } = value;
  if (value.clusterId !== clusterId) return `the record is of cluster ${value.clusterId}`;
  if (value.id !== writeOffId(clusterLife, subject)) return 'its id is not the one of its subject';
  const volume = subject.kind === 'volume' ? handoffId(clusterLife, subject) : null;
  if (subject.nodeId !== row.nodeId || volume !== row.handoffId)
    return `the record is of ${subject.nodeId} ${volume ?? ''}, the row of ${row.nodeId} ${row.handoffId ?? ''}`;
  if (state !== row.state) return `the record is ${state}, the row ${row.state}`;
  if ((state === 'confirmed') !== (value.generation === 2) || (state === 'confirmed') !== (confirmedBy !== null))
    return 'generation 1 proposes, generation 2 confirms';
  if (confirmedBy === proposedBy) return 'who proposed it has confirmed it';
  if (proposal === null || state === 'proposed') return null;
  return proposal.proposedBy === proposedBy && proposal.reason === value.reason
    ? null
    : 'it confirms another proposal than the one before';
}

/** Call it when whoever passes over nodes with findings is done: nothing else is made of a node's state. */
export async function compareWrittenOffNodes(
  { tx, findings }: Verification,
  { clusterId }: VerifiedCluster,
  { confirmed, broken }: WrittenOffNodes,
): Promise<void> {
  const pages = pagesOf<{ nodeId: string; state: string }>((last) =>
    tx.rows(
      sql<{ nodeId: string; state: string }>`
        select node_id as "nodeId", state from control.nodes
        where cluster_id = ${clusterId} and node_id > ${last?.nodeId ?? ''} order by node_id limit ${rowsPerPage}`.compile(
        qb,
      ),
    ),
  );
  for await (const nodes of pages) {
    for (const { nodeId, state } of nodes) {
      if (confirmed.has(nodeId) === (state === 'written-off')) continue;
      if (!confirmed.has(nodeId) && broken.has(nodeId)) continue;
      const how = confirmed.has(nodeId) ? 'its write-off is confirmed' : 'no write-off of it is confirmed';
      findings.add('nodes', { cluster_id: clusterId, node_id: nodeId }, `the state ${state} is wrong`, how);
    }
  }
}
