/**
 * Stored records are verified before anybody gets them: a row that somebody changed is refused, not served. Reads do so;
 * mutations compare references, and `verify` looks at everything.
 */
import { bareDigest, digestDomain, domainDigestOfCanonical, recordDigest } from './contract/digest.js';
import type { IFleetCutoverBlocker } from './contract/derivation.js';
import type { Reference } from './contract/schema.js';

export type SealedType =
  | 'IFleetCutoverRuntime'
  | 'IFleetCutoverScope'
  | 'IFleetCutoverTargetSet'
  | 'IFleetCutoverDerivation'
  | 'IFleetCutoverWriteOff'
  | 'IFleetCutoverPreparedVolumeHandoffAggregate'
  | 'IFleetCutoverPreparedVolumeHandoffIntent';

/** A snapshot does not carry its digest. */
export type SnapshotType = 'IFleetCutoverLocalNodeSnapshot' | 'IFleetCutoverManagerSnapshot';

/** A stored record is not what was stored. Reads of owners answer it with `record-corrupt`. */
export class CorruptRecordError extends Error {
  override readonly name = 'CorruptRecordError';
  constructor(type: string) {
    super(`a stored ${type} does not match its digest`);
  }
}

/**
 * The record of a stored text, or null where it is not what the reference commits to: another generation, another digest,
 * or content that does not have its digest.
 */
export function readStored<T extends Reference>(
  type: SealedType,
  text: string,
  reference: Pick<Reference, 'generation' | 'digest'>,
): T | null {
  const record = parsed<T>(text);
  if (record === null) return null;
  const { generation, digest } = reference;
  if (record.generation !== generation || record.digest !== digest) return null;
  return recordDigest(digestDomain(type), record) === digest ? record : null;
}

/** As {@link readStored}. Throws {@link CorruptRecordError}. */
export function demandStored<T extends Reference>(
  type: SealedType,
  text: string,
  reference: { readonly generation: number; readonly digest: string | null },
): T {
  const record = readStored<T>(type, text, reference as Reference);
  if (record === null) throw new CorruptRecordError(type);
  return record;
}

/** Throws {@link CorruptRecordError}. */
export function demandSnapshot<T extends object>(type: SnapshotType, text: string, digest: string): T {
  const snapshot = domainDigestOfCanonical(digestDomain(type), text) === digest ? parsed<T>(text) : null;
  if (snapshot === null) throw new CorruptRecordError(type);
  return snapshot;
}

/** A longer detail is cut in the record, so that its id can't be taken again. */
const maximumBlockerDetail = 1_023;

/** A blocker's id is taken of its content; null where the content is not whole. */
export function expectedBlockerId({ id: _id, ...content }: IFleetCutoverBlocker): string | null {
  return content.detail.length >= maximumBlockerDetail ? null : `bl-${bareDigest(content).slice(7, 47)}`;
}

/** Throws {@link CorruptRecordError}. */
export function demandBlocker({ id, record }: { readonly id: string; readonly record: string }): IFleetCutoverBlocker {
  const blocker = parsed<IFleetCutoverBlocker>(record);
  if (blocker?.id !== id || typeof blocker.detail !== 'string' || (expectedBlockerId(blocker) ?? id) !== id)
    throw new CorruptRecordError('IFleetCutoverBlocker');
  return blocker;
}

function parsed<T extends object>(text: string): T | null {
  try {
    const value = JSON.parse(text) as T | null;
    return typeof value === 'object' ? value : null;
  } catch {
    return null;
  }
}
