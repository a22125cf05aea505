/** What a thrown error means to who sent the request. Nothing of the error itself is told: it may hold anything. */
import pg from 'pg';
import type { Problem, TProblemCode } from '../contract/problems.js';
import { CommitUnknownError, TransactionContendedError, TransactionLostError } from '../db/transaction-errors.js';
import { NoRoomError } from './unproven-bytes.js';

/** What has to be known of the request, to say what became of it. */
export interface FailedRequest {
  readonly mutation: boolean;
}

export interface Failure {
  readonly problem: Problem;
  /** The service is at fault, not the request: an operator should see it. */
  readonly unexpected: boolean;
}

/** Codes of Fastify's own refusals. */
const FRAMEWORK_CODES: Readonly<Record<string, TProblemCode>> = {
  FST_ERR_CTP_BODY_TOO_LARGE: 'body-too-large',
  FST_ERR_CTP_INVALID_MEDIA_TYPE: 'media-type',
  FST_ERR_CTP_INVALID_TYPE: 'media-type',
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: 'body-invalid-json',
  FST_ERR_CTP_EMPTY_JSON_BODY: 'body-invalid-json',
};

/**
 * SQLSTATEs that say "not now": timeouts of statements and locks, a session or server that ends, a server without room,
 * and collisions. The statement's transaction was rolled back with them.
 */
const TRANSIENT_STATES = /^(57014|55P03|57P0[1-5]|25P0[34]|53\d{3}|08\d{3}|40001|40P01)$/;

export function failureOf(error: unknown, request: FailedRequest): Failure {
  if (error instanceof CommitUnknownError) return unknownOutcome(request);
  if (isTransient(error))
    return { problem: { code: 'unavailable', ...notApplied(request), retrySafe: true }, unexpected: true };
  if (error instanceof NoRoomError)
    return { problem: { code: 'unavailable', ...notApplied(request), retrySafe: true }, unexpected: false };
  const refused = frameworkRefusal(error);
  if (refused !== undefined) return { problem: { code: refused, ...notApplied(request) }, unexpected: false };
  // A statement's error rolled its transaction back. Of other errors nobody knows how far the request had come.
  const outcome = error instanceof pg.DatabaseError ? notApplied(request) : mutationOutcome(request, 'unknown');
  return { problem: { code: 'internal', ...outcome }, unexpected: true };
}

function unknownOutcome(request: FailedRequest): Failure {
  const problem: Problem = request.mutation
    ? { code: 'outcome-unknown', mutationOutcome: 'unknown', retrySafe: true }
    : { code: 'unavailable', retrySafe: true };
  return { problem, unexpected: true };
}

function isTransient(error: unknown): boolean {
  if (error instanceof TransactionLostError || error instanceof TransactionContendedError) return true;
  return error instanceof pg.DatabaseError && TRANSIENT_STATES.test(error.code ?? '');
}

function frameworkRefusal(error: unknown): TProblemCode | undefined {
  if (!(error instanceof Error) || !('code' in error) || typeof error.code !== 'string') return undefined;
  return FRAMEWORK_CODES[error.code];
}

function notApplied(request: FailedRequest): Pick<Problem, 'mutationOutcome'> {
  return mutationOutcome(request, 'not-applied');
}

function mutationOutcome(request: FailedRequest, outcome: 'not-applied' | 'unknown'): Pick<Problem, 'mutationOutcome'> {
  return request.mutation ? { mutationOutcome: outcome } : {};
}
