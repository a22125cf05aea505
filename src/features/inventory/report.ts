/**
 * What to do with one report, decided from the node's row, the reporter session and the report alone.
 *
 * 1. The sequence strictly rises within a session.
 * 2. An exact repeat of a session's last report gets the same receipt, also from a replaced session.
 * 3. A new session replaces the old. A new report of a replaced session means two live reporters: quarantine.
 * 4. A swarm node id belongs to one node; a node's swarm node id changes only when an administrator confirms it.
 */
import type { TSparkSwarmObservation } from '../../contract/observation.js';
import { refuse, type Refused } from '../../contract/problems.js';
import type { ReportingNode } from '../fleet/report-rows.js';

export interface ReporterSession {
  readonly observationSequence: number;
  readonly requestDigest: string;
  readonly receipt: string;
}

export type ReportDecision =
  | { readonly kind: 'repeat'; readonly receipt: string }
  | { readonly kind: 'accept'; readonly opensSession: boolean }
  /** The refusal stands, and the node is quarantined with it. */
  | { readonly kind: 'quarantine'; readonly reason: string; readonly refusal: Refused }
  /** The refusal stands, and the claimed swarm node id is kept for people to see. */
  | { readonly kind: 'claim'; readonly swarmNodeId: string; readonly refusal: Refused }
  | Refused;

export function decideReport(
  node: ReportingNode,
  session: ReporterSession | undefined,
  /** The other node that is bound to the reported swarm node id. */
  holder: { readonly nodeId: string } | undefined,
  observation: TSparkSwarmObservation,
  requestDigest: string,
): ReportDecision {
  // The caller was authenticated before the row was locked: what happened since counts.
  if (node.state === 'written-off') return refuse('node-written-off');
  if (node.state === 'revoked') return refuse('node-revoked');
  if (node.state === 'quarantined') return refuse('node-quarantined');
  if (session !== undefined) {
    const { observationSequence: last } = session;
    const isRepeat = observation.observationSequence === last && session.requestDigest === requestDigest;
    if (isRepeat) return { kind: 'repeat', receipt: session.receipt };
    const stale = refuse('sequence-stale', { detail: `the last accepted sequence is ${last}` });
    // A late one, delayed on its way, is no new report.
    if (observation.observationSequence < last) return stale;
    if (node.reporterSessionId !== observation.reporterSessionId) {
      return {
        kind: 'quarantine',
        reason: `two live reporters: ${observation.reporterSessionId} reported after ${node.reporterSessionId ?? 'its release'} replaced it`,
        refusal: refuse('reporter-replaced'),
      };
    }
    if (observation.observationSequence === last) return stale;
  }
  if (observation.state === 'member') {
    const claimed = observation.localSwarmNodeId;
    if (node.swarmNodeId !== null && node.swarmNodeId !== claimed) {
      const refusal = refuse('swarm-node-changed', { detail: `bound to ${node.swarmNodeId}, reported ${claimed}` });
      return { kind: 'claim', swarmNodeId: claimed, refusal };
    }
    if (holder !== undefined && holder.nodeId !== node.nodeId) {
      const refusal = refuse('swarm-node-taken', { detail: `${claimed} is reported by node ${holder.nodeId} too` });
      return { kind: 'claim', swarmNodeId: claimed, refusal };
    }
  }
  return { kind: 'accept', opensSession: session === undefined };
}
