/**
 * The three ways in which a call doesn't give its result. None of them holds a request, a header or a token; what they
 * quote was sent by the service, or is a code of the network stack.
 */
import type { IProblemDocument, IProblemEntry, TProblemCode } from '../contract/problems.js';
import type { IProtocolOffer } from '../contract/protocol.js';
import type { Reference } from '../contract/schema.js';

/** A code of the catalogue, or one of a newer service. */
export type AnsweredProblemCode = TProblemCode | (string & {});

/** The service refused, and said why: the whole problem document. */
export class ProblemError extends Error {
  override readonly name = 'ProblemError';
  readonly document: IProblemDocument;
  /** Seconds of the answer's `Retry-After`, or null where it had none. */
  readonly retryAfterSeconds: number | null;

  constructor(document: IProblemDocument, retryAfterSeconds: number | null) {
    super(`${document.status} ${document.code}: ${document.title}`);
    this.document = document;
    this.retryAfterSeconds = retryAfterSeconds;
  }

  get code(): AnsweredProblemCode {
    return this.document.code;
  }

  get status(): number {
    return this.document.status;
  }

  /** Which expectation of the request failed. */
  get expectation(): string | undefined {
    return this.document.expectation;
  }

  /** What the expectation was compared with: null where nothing exists, undefined where nothing was compared. */
  get current(): Reference | null | undefined {
    return this.document.current;
  }

  get entries(): readonly IProblemEntry[] {
    return this.document.entries ?? [];
  }

  /** The offer that the service supports; of a 426. */
  get supported(): IProtocolOffer | undefined {
    return this.document.supported;
  }

  get mutationOutcome(): 'not-applied' | 'unknown' | undefined {
    return this.document.mutationOutcome;
  }

  /** The very same request may be sent again. */
  get retrySafe(): boolean {
    return this.document.retrySafe === true;
  }
}

export type TransportErrorCode =
  /** No connection: nothing was sent. */
  | 'connection-failed'
  /** The connection ended before the whole answer had arrived. */
  | 'connection-lost'
  | 'timeout'
  /** The caller's signal. */
  | 'aborted'
  /** The client had been closed before. */
  | 'closed'
  /** The answer went over its byte limit and was cut off. */
  | 'answer-too-large'
  /** A 5xx of something between here and the service: no problem document. */
  | 'gateway'
  /** An earlier attempt’s answer was lost, and the last one was refused by a check that says nothing about it. */
  | 'outcome-unresolved';

interface TransportErrorDetails {
  /** `not-sent`: the service never saw the request. `unknown`: it may have acted on it. */
  readonly outcome: 'not-sent' | 'unknown';
  /** Code of the network stack, e.g. `ECONNREFUSED`, or the HTTP status of a gateway. */
  readonly systemCode?: string | undefined;
  readonly cause?: ProblemError;
}

/** The service’s answer did not arrive. */
export class TransportError extends Error {
  override readonly name = 'TransportError';
  readonly code: TransportErrorCode;
  readonly outcome: 'not-sent' | 'unknown';
  readonly systemCode: string | undefined;

  constructor(code: TransportErrorCode, details: TransportErrorDetails) {
    const { outcome, systemCode, cause } = details;
    super(
      `${code}${systemCode === undefined ? '' : ` (${systemCode})`}: ${outcome === 'unknown' ? 'the outcome is unknown' : 'nothing was sent'}`,
      cause === undefined ? undefined : { cause },
    );
    this.code = code;
    this.outcome = outcome;
    this.systemCode = systemCode;
  }
}

/**
 * An answer arrived that the contract doesn’t allow: a defect of the service, another version, or somebody else who
 * answers. A mutation that is answered like this may have been applied.
 */
export class ContractViolationError extends Error {
  override readonly name: string = 'ContractViolationError';
  /** Each says what of the answer is wrong; at least one. */
  readonly errors: readonly string[];

  constructor(errors: readonly string[]) {
    super(`the answer violates the contract: ${errors[0] ?? 'unreadable'}`);
    this.errors = errors;
  }
}
