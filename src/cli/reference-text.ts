/** References as people read and write them: `ID:GENERATION:DIGEST`, the id may be left out where it is known. */
import type { TSha256Digest } from '../contract/digest.js';
import type { Reference } from '../contract/schema.js';

export function referenceText(reference: Reference | null): string {
  return reference === null ? 'none' : `${reference.id} generation ${reference.generation} ${reference.digest}`;
}

/** As an option takes it. */
export function referenceArgument(reference: Reference | null): string {
  return reference === null ? 'none' : `${reference.id}:${reference.generation}:${reference.digest}`;
}

export type WrittenReference = Omit<Reference, 'id'> & { readonly id: string | null };

/** Null for `none`; undefined for what is no reference. Ids may have colons, digests have exactly one. */
export function parseReference(text: string): WrittenReference | null | undefined {
  if (text === 'none') return null;
  const [, id, generation, digest] = /^(?:(.+):)?([1-9]\d{0,15}):(sha256:[0-9a-f]{64})$/.exec(text) ?? [];
  if (generation === undefined || digest === undefined || !Number.isSafeInteger(Number(generation))) return undefined;
  return { id: id ?? null, generation: Number(generation), digest: digest as TSha256Digest };
}
