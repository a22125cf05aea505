/** Why a census of an engine could not be taken whole. */
import type { IIncompleteSnapshot } from '../../contract/observation.js';

export type CensusFailureReason = IIncompleteSnapshot['reason'];

/**
 * A census that stops. The message names what was asked and what was wrong with the answer, never a value of the
 * answer: engines answer with driver options, labels and environments, in which secrets hide.
 */
export class CensusFailure extends Error {
  override readonly name = 'CensusFailure';
  readonly reason: CensusFailureReason;
  constructor(reason: CensusFailureReason, message: string) {
    super(message);
    this.reason = reason;
  }
}

/** What went wrong, as a failure; errors that nobody foresaw are the engine's, and their text is withheld. */
export function asCensusFailure(error: unknown): CensusFailure {
  if (error instanceof CensusFailure) return error;
  return new CensusFailure('engine-error', `unexpected ${error instanceof Error ? error.name : 'failure'}`);
}
