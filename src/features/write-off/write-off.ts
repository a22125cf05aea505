/**
 * Break-glass: pure.
 *
 * 1. One administrator proposes with a reason and what was verified; another one confirms exactly that proposal.
 * 2. Nobody confirms the own proposal. A confirmed write-off is for ever.
 * 3. It grants no volume: it only stops waiting for what is lost.
 */
import { digestDomain, sealRecord } from '../../contract/digest.js';
import { refuse, type Refused, refuseStale } from '../../contract/problems.js';
import { recordId } from '../../contract/record-id.js';
import { type Reference, referenceOf, sameReference } from '../../contract/schema.js';
import type { IFleetCutoverWriteOff, TWriteOffSubject } from '../../contract/write-off.js';

export interface WriteOffRequest {
  readonly clusterId: string;
  readonly clusterLife: string;
  readonly subject: TWriteOffSubject;
  /** Null proposes; a reference confirms. */
  readonly proposal: Reference | null;
  readonly reason: string;
  readonly verified: string;
  readonly principalId: string;
}

const domain = digestDomain('IFleetCutoverWriteOff');

export function writeOffId(clusterLife: string, subject: TWriteOffSubject): string {
  return recordId('wo', { clusterLife, ...subject });
}

/** `current`: the newest revision for the subject. */
export function decideWriteOff(
  current: IFleetCutoverWriteOff | undefined,
  request: WriteOffRequest,
): IFleetCutoverWriteOff | Refused {
  const { clusterId, subject, reason, verified, principalId } = request;
  const outcome = { mutationOutcome: 'not-applied', retrySafe: false } as const;
  if (current?.state === 'confirmed')
    return refuse('write-off-refused', { detail: 'it is written off already', ...outcome });
  const currentReference = current === undefined ? null : referenceOf(current);
  if (!sameReference(request.proposal, currentReference))
    return refuseStale('write-off-stale', 'proposal', currentReference);
  const id = writeOffId(request.clusterLife, subject);
  if (current === undefined) {
    return sealRecord(domain, {
      id,
      generation: 1,
      clusterId,
      subject,
      state: 'proposed' as const,
      reason,
      verified,
      proposedBy: principalId,
      confirmedBy: null,
      predecessor: null,
    });
  }
  if (current.proposedBy === principalId) {
    return refuse('write-off-refused', { detail: 'another administrator has to confirm it', ...outcome });
  }
  return sealRecord(domain, {
    id,
    generation: 2,
    clusterId,
    subject,
    state: 'confirmed' as const,
    reason: current.reason,
    verified,
    proposedBy: current.proposedBy,
    confirmedBy: principalId,
    predecessor: currentReference,
  });
}
