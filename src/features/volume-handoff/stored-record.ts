/** Stored records are verified before anybody gets them: a row that somebody changed is refused, not served. */
import { digestDomain, recordDigest } from '../../contract/digest.js';
import type { Reference } from '../../contract/schema.js';

export type SealedType = 'IFleetCutoverPreparedVolumeHandoffAggregate' | 'IFleetCutoverPreparedVolumeHandoffIntent';

/**
 * The record of a stored text, or null where it is not what the reference commits to: another generation, another digest,
 * or content that does not have its digest.
 */
export function readStored<T extends Reference>(
  type: SealedType,
  text: string,
  reference: Pick<Reference, 'generation' | 'digest'>,
): T | null {
  let record: T | null;
  try {
    record = JSON.parse(text) as T | null;
  } catch {
    return null;
  }
  if (typeof record !== 'object' || record === null) return null;
  const { generation, digest } = reference;
  if (record.generation !== generation || record.digest !== digest) return null;
  return recordDigest(digestDomain(type), record) === digest ? record : null;
}
