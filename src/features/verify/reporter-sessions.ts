/** Receipts of reporter sessions, which are what a repeated report gets. */
import { sql } from 'kysely';
import { sparkSwarmObservationAcceptedReceiptRecord } from '../../contract/observation.js';
import { qb } from '../../db/query.js';
import { readCanonical } from './sealed-record.js';
import { pagesOf, type Verification, type VerifiedCluster } from './verification.js';

interface SessionRow {
  readonly nodeId: string;
  readonly sessionId: string;
  readonly sequence: number;
  readonly receipt: string;
  /** Of the node, where this is its current session; null where it is not. */
  readonly nodeSequence: number | null;
}

const rowsPerPage = 500;

export async function verifyReporterSessions(
  verification: Verification,
  { clusterId }: VerifiedCluster,
): Promise<void> {
  const { tx, findings } = verification;
  const pages = pagesOf<SessionRow>((last) =>
    tx.rows(
      sql<SessionRow>`
        select session.node_id as "nodeId", session.reporter_session_id as "sessionId",
          session.observation_sequence as sequence, session.receipt, node.observation_sequence as "nodeSequence"
        from control.reporter_sessions session
        left join control.nodes node on node.cluster_id = session.cluster_id and node.node_id = session.node_id
          and node.reporter_session_id = session.reporter_session_id
        where session.cluster_id = ${clusterId} and (session.node_id, session.reporter_session_id) > (${last?.nodeId ?? ''}, ${last?.sessionId ?? ''})
        order by session.node_id, session.reporter_session_id limit ${rowsPerPage}`.compile(qb),
    ),
  );
  for await (const rows of pages) {
    for (const row of rows) {
      const fault = receiptFault(row);
      const key = { cluster_id: clusterId, node_id: row.nodeId, reporter_session_id: row.sessionId };
      if (fault !== null) findings.add('reporter_sessions', key, 'the row was changed', fault);
    }
    verification.advance(rows.length);
  }
}

function receiptFault(row: SessionRow): string | null {
  const receipt = readCanonical(row.receipt);
  if (receipt === undefined) return 'the receipt is not canonical JSON';
  if (!sparkSwarmObservationAcceptedReceiptRecord.is(receipt)) return 'the receipt is none';
  if (receipt.nodeId !== row.nodeId || receipt.reporterSessionId !== row.sessionId)
    return 'the receipt is of another session';
  if (receipt.observationSequence !== row.sequence)
    return `the receipt is of report ${receipt.observationSequence}, the row of ${row.sequence}`;
  return row.nodeSequence === null || row.nodeSequence === row.sequence
    ? null
    : `the node's last report is ${row.nodeSequence}, the row's ${row.sequence}`;
}
