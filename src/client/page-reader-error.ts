import { ContractViolationError } from './errors.js';

/** What a set of pages, or one page of it, was refused for. */
export type PageReaderErrorCode =
  /** An answer that is not strict JSON of the contract's shape, or that breaks a rule no other code names. */
  | 'response-malformed'
  /** The answer speaks another protocol than was offered. */
  | 'protocol-mismatch'
  /** The answer names another node than the one that asked. */
  | 'node-mismatch'
  /** The header's content and digest, or its own counts, contradict each other. */
  | 'aggregate-invalid'
  | 'aggregate-incomplete'
  /** A header or page of an earlier generation than the pinned one. */
  | 'revision-stale'
  /** A header or page of another revision than the pinned one that is not an earlier one. */
  | 'revision-mixed'
  /** The service has nothing at an index that the header counts. */
  | 'page-missing'
  /** A page that had been asked for before, instead of the one asked for. */
  | 'page-duplicate'
  /** A page that comes later, or that the header doesn't count, instead of the one asked for. */
  | 'page-out-of-order'
  /** A page before the last that isn't full, or a last one of another length than the header's count leaves. */
  | 'count-wrong'
  /** References that don't ascend, within a page or from one to the next. */
  | 'order-wrong'
  /** The same handoff twice, within a page or across pages. */
  | 'handoff-duplicate'
  | 'content-digest-wrong'
  | 'set-digest-wrong'
  /** More or fewer full handoffs than the page commits to for the node. */
  | 'subset-incomplete'
  /** A full handoff that isn't the one that the page commits to at its place. */
  | 'subset-mismatch'
  /** A full handoff whose content and digest, or facts, contradict each other. */
  | 'handoff-invalid'
  /** A lower generation than was accepted before, or a set of an id that was left behind. */
  | 'generation-led-back'
  /** The generation that was accepted before, with another digest. */
  | 'generation-forked'
  /** The set of another cluster than the one whose sets were accepted before. */
  | 'cluster-changed'
  /** The service doesn't know the pin. */
  | 'pin-unknown'
  /** The set was superseded and dropped during every one of the permitted readings. */
  | 'pin-expired';

/** A set that must not be used. Nothing of it was kept; what had been accepted before still stands. */
export class PageReaderError extends ContractViolationError {
  override readonly name = 'PageReaderError';
  readonly code: PageReaderErrorCode;
  constructor(code: PageReaderErrorCode, errors: readonly string[] = [code]) {
    super([`${code}${errors[0] === code ? '' : `: ${errors[0] ?? ''}`}`, ...errors.slice(1)]);
    this.code = code;
  }
}
