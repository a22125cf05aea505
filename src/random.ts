import { randomBytes } from 'node:crypto';
import { Secret } from './secret.js';

/** Where randomness comes from. It is passed in, so that tests can repeat what happened. */
export interface Random {
  /** `length` unpredictable bytes. */
  bytes(length: number): Buffer;
}

export const systemRandom: Random = { bytes: (length) => randomBytes(length) };

/** A new identifier: `prefix-` and 32 hex digits (128 bits), within the alphabet of identifiers that the contract allows. */
export function newIdentifier(random: Random, prefix: string): string {
  return `${prefix}-${random.bytes(16).toString('hex')}`;
}

/** A new bearer: 256 bits as 43 characters of base64url. */
export function newBearer(random: Random): Secret {
  return new Secret(random.bytes(32).toString('base64url'));
}
