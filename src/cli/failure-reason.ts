import { NoEvidenceError } from '../features/evidence/load.js';
import { explainStartupError } from '../startup-error.js';

/** Why a command that works on this machine's database or files could not do its work, in a sentence. */
export function failureReason(error: unknown): string {
  if (error instanceof NoEvidenceError) return `the file is no evidence: ${error.message}`;
  // The system's own words for a file; its codes mean other things where a service starts.
  if (error instanceof Error && 'path' in error) return error.message;
  return explainStartupError(error) ?? (error instanceof Error ? error.message : 'failed');
}
