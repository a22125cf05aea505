/** What a Spark does after a round that failed. Pure. */
import { ProblemError, TransportError } from '../../client/errors.js';
import { ContractError } from '../../contract/record.js';
import { FenceStoreError } from '../pallet/fence-store.js';
import { StateFileError } from './state-file.js';

export type NextStep =
  /** Nothing that the agent could do by itself changes the answer: somebody has to look. */
  | { readonly kind: 'stop'; readonly reason: string }
  /** Try again, not before `retryAfterMs` and later with each failure. */
  | { readonly kind: 'back-off'; readonly reason: string; readonly retryAfterMs: number };

/**
 * A quarantined or revoked node, a refused credential, a replaced reporter and another protocol stop the agent: going on
 * would be the noise of a cloned machine. What an administrator resolves without touching the agent (another swarm, a
 * taken or changed swarm node id) is asked again, as is everything that time may heal.
 */
export function nextStepAfter(error: unknown): NextStep {
  if (error instanceof TransportError && error.cause instanceof ProblemError) return nextStepAfter(error.cause);
  if (error instanceof ProblemError) {
    if (stopsAgent(error)) return { kind: 'stop', reason: error.code };
    return { kind: 'back-off', reason: error.code, retryAfterMs: (error.retryAfterSeconds ?? 0) * 1000 };
  }
  if (error instanceof ContractError || error instanceof StateFileError || error instanceof FenceStoreError) {
    return { kind: 'stop', reason: error.message };
  }
  return { kind: 'back-off', reason: error instanceof Error ? error.message : 'failed', retryAfterMs: 0 };
}

const resolvedByOthers = new Set(['swarm-node-taken', 'swarm-node-changed', 'swarm-mismatch']);

function stopsAgent({ status, code }: ProblemError): boolean {
  if (status >= 500 || status === 408 || status === 429) return false;
  return !resolvedByOthers.has(code);
}
