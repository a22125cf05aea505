/** What is wrong in a scope file, line by line. */
import { UsageError } from '../output.js';

export interface ScopeFileError {
  readonly line: number;
  readonly message: string;
}

const maximumShown = 200;

export class ScopeFileRefused extends UsageError {
  readonly errors: readonly ScopeFileError[];
  constructor(path: string, errors: readonly ScopeFileError[]) {
    const sorted = [...errors].sort((left, right) => left.line - right.line);
    const lines = sorted.slice(0, maximumShown).map(({ line, message }) => `${path}:${line}: ${message}`);
    const more = sorted.length > maximumShown ? [`… and ${sorted.length - maximumShown} more`] : [];
    super(`${sorted.length} ${sorted.length === 1 ? 'error' : 'errors'} in ${path}`, [...lines, ...more]);
    this.errors = sorted;
  }
}
