/** A stored record against its own columns. */
import { canonicalizeStrictJson } from '../../contract/canonical-json.js';
import type { ContractRecord } from '../../contract/record.js';
import type { Reference } from '../../contract/schema.js';

export interface StoredRecord {
  readonly generation: number;
  readonly digest: string;
  /** Canonical JSON. */
  readonly record: string;
}

export type Judged<T> =
  { readonly value: T; readonly fault: null } | { readonly value: T | null; readonly fault: string };

/** Reads canonical JSON; undefined where the text is anything else. */
export function readCanonical(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text);
    return canonicalizeStrictJson(value) === text ? value : undefined;
  } catch {
    return undefined;
  }
}

/** A record that carries its reference: shape, rules, digest, and that row and record say the same. */
export function judgeSealed<T extends Reference>(record: ContractRecord<T>, stored: StoredRecord): Judged<T> {
  const value = readCanonical(stored.record);
  if (value === undefined) return { value: null, fault: 'the record is not canonical JSON' };
  const [error] = record.check(value);
  const shaped = record.is(value) ? value : null;
  if (error !== undefined) return { value: shaped, fault: error };
  const sealed = value as T;
  if (sealed.digest !== stored.digest)
    return { value: sealed, fault: `the record has digest ${sealed.digest}, the row ${stored.digest}` };
  if (sealed.generation !== stored.generation) {
    return { value: sealed, fault: `the record has generation ${sealed.generation}, the row ${stored.generation}` };
  }
  return { value: sealed, fault: null };
}
