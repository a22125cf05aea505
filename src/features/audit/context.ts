/** Which mutation is under way, and how a request with a used mutation id is judged. Pure. */
import type { Clock } from '../../clock.js';
import { bareDigest } from '../../contract/digest.js';
import type { IAuditHead } from '../../contract/method.js';
import { refuse, type Refused } from '../../contract/problems.js';
import { digestText, organizationChainId } from './chain.js';
import type { AuditRow } from './rows.js';

/** Who is written down as the doer; an administrator who was just authenticated is one. */
export interface AuditedCaller {
  readonly organizationId: string;
  readonly principalId: string;
  readonly credentialId: string;
}

export interface MutationInput {
  readonly mutationId: string;
  readonly dryRun?: boolean;
}

/** Everything of an audit row that is known before the mutation is done. */
export interface MutationContext extends AuditedCaller {
  readonly chainId: string;
  /** Null: the mutation belongs to no cluster and stands in its organization's chain. */
  readonly clusterId: string | null;
  readonly method: string;
  readonly mutationId: string;
  /** Bare digest of the request without `mutationId` and `dryRun`. */
  readonly requestDigest: string;
  /** Unix ms. */
  readonly at: number;
}

export function mutationContext(
  caller: AuditedCaller,
  method: string,
  clusterId: string | null,
  input: MutationInput,
  clock: Clock,
): MutationContext {
  const { mutationId, dryRun: _dryRun, ...payload } = input;
  return {
    organizationId: caller.organizationId,
    principalId: caller.principalId,
    credentialId: caller.credentialId,
    chainId: clusterId ?? organizationChainId(caller.organizationId),
    clusterId,
    method,
    mutationId,
    requestDigest: bareDigest(payload),
    at: clock.now().getTime(),
  };
}

export interface Replay {
  readonly kind: 'replay';
  /** The recorded result: the answer without what {@link MutationContext} and the moment add. */
  readonly result: unknown;
  readonly audit: IAuditHead;
}

/**
 * The same principal (through whichever of its credentials), method and payload get the recorded result; every other use
 * of a mutation id is refused (system rule 5).
 */
export function judgeReplay(row: AuditRow, context: MutationContext): Replay | Refused {
  const same =
    row.principal_id === context.principalId &&
    row.method === context.method &&
    row.request_digest === context.requestDigest;
  if (!same) return refuse('mutation-id-reused', { mutationOutcome: 'not-applied', retrySafe: false });
  return {
    kind: 'replay',
    result: JSON.parse(row.result),
    audit: { chainId: row.chain_id, seq: row.seq, digest: digestText(row.chain_digest) },
  };
}
