import { randomUUID } from 'node:crypto';

/**
 * A new mutation id: 122 random bits. It names one intent, not one request: whoever repeats a mutation whose answer was
 * lost, now or after a restart, sends the same id.
 */
export function newMutationId(): string {
  return `mu-${randomUUID()}`;
}
