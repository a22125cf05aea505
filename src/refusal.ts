import type { Refused } from './contract/problems.js';

/** Whether an operation, a decision or an authentication answered with a refusal. */
export function isRefused(value: unknown): value is Refused {
  return typeof value === 'object' && value !== null && 'kind' in value && value.kind === 'refused';
}
