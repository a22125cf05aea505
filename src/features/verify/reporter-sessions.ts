/**
 * Receipts of reporter sessions, which are what a repeated report gets: against their own row, against the snapshots that they
 * name, and, the current session's, against what the node's row keeps of its last report.
 *
 * Not covered: `request_digest`, whose report nobody keeps; a session that was replaced and left no trace elsewhere, if its row
 * is deleted; and a node's last reported state as far as its receipt leaves it open.
 */
import { sql } from 'kysely';
import {
  incompleteSnapshotReasons,
  type ISparkSwarmObservationAcceptedReceipt,
  sparkSwarmObservationAcceptedReceiptRecord,
} from '../../contract/observation.js';
import { qb } from '../../db/query.js';
import { compareReferences } from './references.js';
import { localSnapshotId, managerSnapshotId } from '../../contract/record-id.js';
import { readCanonical } from './sealed-record.js';
import type { LocalSnapshots } from './snapshots.js';
import type { RuntimeNames } from './revised-records.js';
import { pagesOf, type Verification, type VerifiedCluster } from './verification.js';

type Receipt = ISparkSwarmObservationAcceptedReceipt;

interface SessionRow {
  readonly nodeId: string;
  readonly sessionId: string;
  readonly sequence: number;
  readonly requestDigest: string;
  readonly receipt: string;
  /** Of the node, where this is its current session; null where it is not. */
  readonly nodeSequence: number | null;
}

const rowsPerPage = 500;

/** Snapshots must have been looked at before. Gives the receipt of each node's current session. */
export async function verifyReporterSessions(
  verification: Verification,
  cluster: VerifiedCluster,
): Promise<ReadonlyMap<string, Receipt>> {
  const { tx, findings } = verification;
  const { clusterId } = cluster;
  const current = new Map<string, Receipt>();
  const pages = pagesOf<SessionRow>((last) =>
    tx.rows(
      sql<SessionRow>`
        select session.node_id as "nodeId", session.reporter_session_id as "sessionId",
          session.observation_sequence as sequence, session.request_digest as "requestDigest", session.receipt,
          node.observation_sequence as "nodeSequence"
        from control.reporter_sessions session
        left join control.nodes node on node.cluster_id = session.cluster_id and node.node_id = session.node_id
          and node.reporter_session_id = session.reporter_session_id
        where session.cluster_id = ${clusterId} and (session.node_id, session.reporter_session_id) > (${last?.nodeId ?? ''}, ${last?.sessionId ?? ''})
        order by session.node_id, session.reporter_session_id limit ${rowsPerPage}`.compile(qb),
    ),
  );
  for await (const rows of pages) {
    for (const row of rows) {
      const { receipt, fault } = judgeReceipt(row);
      const key = { cluster_id: clusterId, node_id: row.nodeId, reporter_session_id: row.sessionId };
      if (fault !== null) findings.add('reporter_sessions', key, 'the row was changed', fault);
      else if (receipt !== null) await compareReceipt(verification, cluster, row, receipt);
      if (receipt !== null && row.nodeSequence !== null) current.set(row.nodeId, receipt);
    }
    verification.advance(rows.length);
  }
  return current;
}

function judgeReceipt(row: SessionRow): { readonly receipt: Receipt | null; readonly fault: string | null } {
  const broken = (fault: string) => ({ receipt: null, fault });
  const receipt = readCanonical(row.receipt);
  if (receipt === undefined) return broken('the receipt is not canonical JSON');
  if (!sparkSwarmObservationAcceptedReceiptRecord.is(receipt)) return broken('the receipt is none');
  if (!/^sha256:[0-9a-f]{64}$/.test(row.requestDigest)) return broken('the request digest is none');
  if (receipt.nodeId !== row.nodeId || receipt.reporterSessionId !== row.sessionId)
    return broken('the receipt is of another session');
  if (receipt.observationSequence !== row.sequence)
    return broken(`the receipt is of report ${receipt.observationSequence}, the row of ${row.sequence}`);
  const fault =
    row.nodeSequence === null || row.nodeSequence === row.sequence
      ? null
      : `the node's last report is ${row.nodeSequence}, the row's ${row.sequence}`;
  return { receipt, fault };
}

/** Whoever is told that a snapshot was accepted made that one. */
async function compareReceipt(
  verification: Verification,
  { clusterId, clusterLife }: VerifiedCluster,
  { nodeId, sessionId }: SessionRow,
  { localSnapshot: local, managerSnapshot: manager }: Receipt,
): Promise<void> {
  const { tx, findings } = verification;
  const naming = {
    table: 'reporter_sessions',
    key: { cluster_id: clusterId, node_id: nodeId, reporter_session_id: sessionId },
  };
  await compareReferences(verification, clusterId, naming, [
    {
      name: 'the receipt’s local snapshot',
      table: 'local_snapshots',
      reference: local.reference,
      id: localSnapshotId(clusterLife, nodeId),
      owner: { column: 'node_id', value: nodeId },
    },
    {
      name: 'the receipt’s manager snapshot',
      table: 'manager_snapshots',
      reference: manager.reference,
      id: managerSnapshotId(clusterLife),
    },
  ]);
  if (manager.state !== 'accepted' || manager.reference === null) return;
  const { generation } = manager.reference;
  const made = await tx.maybe(
    sql<{ nodeId: string }>`
      select node_id as "nodeId" from control.manager_snapshots
      where cluster_id = ${clusterId} and generation = ${generation}`.compile(qb),
  );
  if (made === undefined || made.nodeId === nodeId) return;
  const key = { cluster_id: clusterId, generation };
  findings.add('manager_snapshots', key, 'the row was changed', `the report of ${nodeId} was told that it made it`);
}

interface NodeRow {
  readonly nodeId: string;
  readonly sessionId: string | null;
  readonly sequence: number | null;
  readonly reportedState: string | null;
  readonly generation: number;
  readonly incomplete: string | null;
  readonly runtimeGeneration: number | null;
  readonly fenceStoreId: string | null;
  readonly hasSession: boolean;
  readonly coverageGeneration: number | null;
  readonly covered: number | null;
  readonly hasFences: boolean;
}

/** What each node's row, and its coverage, keep of its last report. */
export async function compareReports(
  { tx, findings }: Verification,
  { clusterId }: VerifiedCluster,
  receipts: ReadonlyMap<string, Receipt>,
  snapshots: ReadonlyMap<string, LocalSnapshots>,
  runtimes: RuntimeNames,
): Promise<void> {
  // Which runtime a snapshot names can't be told then.
  const untold = findings.hasAny('runtime_revisions', { cluster_id: clusterId });
  const pages = pagesOf<NodeRow>((last) =>
    tx.rows(
      sql<NodeRow>`
        select node.node_id as "nodeId", node.reporter_session_id as "sessionId", node.observation_sequence as sequence,
          node.reported_state as "reportedState", node.local_generation as generation, node.local_incomplete as incomplete,
          node.local_runtime_generation as "runtimeGeneration", node.fence_store_id as "fenceStoreId",
          session.node_id is not null as "hasSession", coverage.aggregate_generation as "coverageGeneration", coverage.covered,
          exists (select from control.held_fences held
            where held.cluster_id = node.cluster_id and held.node_id = node.node_id) as "hasFences"
        from control.nodes node
        left join control.reporter_sessions session on session.cluster_id = node.cluster_id
          and session.node_id = node.node_id and session.reporter_session_id = node.reporter_session_id
        left join control.coverage coverage on coverage.cluster_id = node.cluster_id and coverage.node_id = node.node_id
        where node.cluster_id = ${clusterId} and node.node_id > ${last?.nodeId ?? ''}
        order by node.node_id limit ${rowsPerPage}`.compile(qb),
    ),
  );
  for await (const rows of pages) {
    for (const row of rows) {
      const key = { cluster_id: clusterId, node_id: row.nodeId };
      const receipt = receipts.get(row.nodeId);
      if (row.sessionId !== null && !row.hasSession) {
        const how = 'the node names it as its current session';
        const session = { ...key, reporter_session_id: row.sessionId };
        findings.add('reporter_sessions', session, 'the row is missing', how);
      }
      const coverage = coverageFault(row, receipt);
      if (coverage !== null) {
        const what = row.covered === null ? 'the row is missing' : 'the row is wrong';
        findings.add('coverage', key, what, coverage);
      }
      const local = snapshots.get(row.nodeId);
      const fault =
        reportFault(row, receipt) ??
        (untold || local?.broken === true ? null : snapshotFault(row, receipt, local, runtimes));
      if (fault !== null) findings.add('nodes', key, 'the row was changed', fault);
    }
  }
}

function coverageFault(
  { hasFences, coverageGeneration, covered }: NodeRow,
  receipt: Receipt | undefined,
): string | null {
  if (hasFences && covered === null) return 'the node holds fences, whose pages it once covered';
  if (receipt?.heldVolumeFences.state !== 'accepted') return null;
  const { aggregate, coveredPages } = receipt.heldVolumeFences;
  return coverageGeneration === (aggregate?.generation ?? null) && covered === coveredPages
    ? null
    : `the node's last report was told of ${coveredPages} pages of aggregate ${aggregate?.generation ?? 0}`;
}

function reportFault(row: NodeRow, receipt: Receipt | undefined): string | null {
  const { sessionId, sequence, reportedState, incomplete } = row;
  if ((sessionId === null) !== (sequence === null)) return 'it has a reporter session without a report, or the reverse';
  if (sessionId !== null && reportedState === null) return 'it has a reporter session, but no state was reported';
  if (reportedState !== null && !['member', 'inactive', 'unknown'].includes(reportedState))
    return `nobody reports the state ${reportedState}`;
  if (incomplete !== null && !(incompleteSnapshotReasons as readonly string[]).includes(incomplete))
    return `no snapshot is incomplete for ${incomplete}`;
  if (receipt === undefined) return null;
  const { localSnapshot: local, managerSnapshot: manager } = receipt;
  if (manager.state !== 'absent' && reportedState !== 'member') return 'its last report had a manager snapshot';
  if (local.state !== 'absent' && reportedState === 'unknown') return 'its last report had a local snapshot';
  if ((local.reference?.generation ?? 0) !== row.generation) return 'its last receipt names another local snapshot';
  if (local.state === 'incomplete') return incomplete !== null ? null : 'its last local snapshot was incomplete';
  return local.state === 'absent' || incomplete === null ? null : 'its last local snapshot was whole';
}

/** What counts for a gate: the newest snapshot names the runtime under which it came, or came again. */
function snapshotFault(
  { sessionId, runtimeGeneration, fenceStoreId }: NodeRow,
  receipt: Receipt | undefined,
  local: LocalSnapshots | undefined,
  runtimes: RuntimeNames,
): string | null {
  const { fenceStoreId: store = null, named = null } = local?.newest ?? {};
  if (fenceStoreId !== store) return `its newest snapshot has the fence store ${store ?? 'none'}`;
  if (runtimeGeneration !== null && (runtimeGeneration !== named || sessionId === null))
    return `its newest snapshot cannot count under runtime ${runtimeGeneration}`;
  if (receipt === undefined) return null;
  const { state } = receipt.localSnapshot;
  const inTime = named !== null && runtimes.generationOf(receipt.runtime) === named;
  if (inTime && (state === 'accepted' || state === 'unchanged') && runtimeGeneration === null)
    return `its last report had a snapshot that counts under runtime ${named}`;
  return !inTime && state === 'accepted' && runtimeGeneration !== null
    ? 'its newest snapshot came too late to count'
    : null;
}

/** The head of the manager's snapshots, which any manager's report moves. */
export async function compareManagerHead(
  { tx, findings }: Verification,
  { clusterId }: VerifiedCluster,
  receipts: ReadonlyMap<string, Receipt>,
  runtimes: RuntimeNames,
): Promise<void> {
  const head = await tx.maybe(
    sql<{
      generation: number;
      incomplete: string | null;
      nodeId: string | null;
      known: boolean;
      runtimeGeneration: number | null;
      record: string | null;
    }>`
      select head.generation, head.incomplete, head.node_id as "nodeId", head.runtime_generation as "runtimeGeneration",
        node.node_id is not null as known, snapshot.record
      from control.manager_snapshot_heads head
      left join control.nodes node on node.cluster_id = head.cluster_id and node.node_id = head.node_id
      left join control.manager_snapshots snapshot
        on snapshot.cluster_id = head.cluster_id and snapshot.generation = head.generation
      where head.cluster_id = ${clusterId}`.compile(qb),
  );
  const lost = await tx.rows(
    sql<{ generation: number; nodeId: string }>`
      select generation, node_id as "nodeId" from control.manager_snapshots snapshot
      where cluster_id = ${clusterId} and not exists (
        select from control.nodes node where node.cluster_id = snapshot.cluster_id and node.node_id = snapshot.node_id)
      order by generation limit ${rowsPerPage}`.compile(qb),
  );
  for (const { generation, nodeId } of lost) {
    const key = { cluster_id: clusterId, generation };
    findings.add('manager_snapshots', key, 'the row was changed', `there is no node ${nodeId}`);
  }
  if (head === undefined) return;
  const { generation, incomplete, nodeId, runtimeGeneration } = head;
  const broken =
    findings.has('manager_snapshots', { cluster_id: clusterId, generation }) ||
    findings.hasAny('runtime_revisions', { cluster_id: clusterId });
  const value = head.record === null || broken ? undefined : readCanonical(head.record);
  const { runtime = null } = (value ?? {}) as { runtime?: Receipt['runtime'] | null };
  const named = runtimes.generationOf(runtime);
  const told = [...receipts.values()].filter(
    ({ managerSnapshot: { state, reference } }) =>
      (state === 'accepted' || state === 'unchanged') && reference?.generation === generation,
  );
  const inTime = told.some((receipt) => named !== null && runtimes.generationOf(receipt.runtime) === named);
  const tooLate = told.some(
    (receipt) => receipt.managerSnapshot.state === 'accepted' && runtimes.generationOf(receipt.runtime) !== named,
  );
  const fault =
    (nodeId === null) !== (generation === 0 && incomplete === null)
      ? 'it has a node without a snapshot, or the reverse'
      : nodeId !== null && !head.known
        ? `there is no node ${nodeId}`
        : broken
          ? null
          : runtimeGeneration !== null && runtimeGeneration !== named
            ? `the newest snapshot cannot count under runtime ${runtimeGeneration}`
            : inTime && runtimeGeneration === null
              ? `a report had a snapshot that counts under runtime ${named}`
              : tooLate && runtimeGeneration !== null
                ? 'the newest snapshot came too late to count'
                : null;
  if (fault !== null) findings.add('manager_snapshot_heads', { cluster_id: clusterId }, 'the head was changed', fault);
}
