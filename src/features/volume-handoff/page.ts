/** A page's content and the bytes that are stored and sent: pure. */
import { canonicalizeStrictJson } from '../../contract/canonical-json.js';
import { bareDigestOfCanonical } from '../../contract/digest.js';
import type { IFleetCutoverPreparedVolumeHandoffPageEntry } from '../../contract/handoff.js';
import { fleetCutoverContract } from '../../contract/limits.js';
import type { Reference } from '../../contract/schema.js';

export const entriesPerPage = fleetCutoverContract.maximumPreparedVolumeHandoffMutationEntries;

export interface PageContent {
  readonly pageIndex: number;
  readonly contentDigest: Reference['digest'];
  /** Canonical JSON of the page without its opening brace and aggregate reference. */
  readonly tail: string;
  readonly first: IFleetCutoverPreparedVolumeHandoffPageEntry;
}

/** `handoffs` in page order, 1..32. */
export function makePage(
  pageIndex: number,
  handoffs: readonly IFleetCutoverPreparedVolumeHandoffPageEntry[],
): PageContent {
  // `handoffs` before `pageIndex` is canonical order, so the content's encoding is what the page's continues with.
  const content = `"handoffs":${canonicalizeStrictJson(handoffs)},"pageIndex":${pageIndex}}`;
  const contentDigest = bareDigestOfCanonical(`{${content}`);
  return { pageIndex, contentDigest, tail: `"contentDigest":"${contentDigest}",${content}`, first: handoffs[0]! };
}

/** The whole page as canonical JSON, with the aggregate's reference spliced in. */
export function splicePage(aggregate: Reference, tail: string): string {
  return `{"aggregate":${canonicalizeStrictJson(aggregate)},${tail}`;
}

/** The entries of stored bytes, or null where the bytes do not match the digest that they were stored under. */
export function readPage(
  tail: string,
  contentDigest: string,
): { readonly handoffs: IFleetCutoverPreparedVolumeHandoffPageEntry[]; readonly pageIndex: number } | null {
  const prefix = `"contentDigest":"${contentDigest}",`;
  if (!tail.startsWith(prefix)) return null;
  const content = `{${tail.slice(prefix.length)}`;
  if (bareDigestOfCanonical(content) !== contentDigest) return null;
  return JSON.parse(content) as { handoffs: IFleetCutoverPreparedVolumeHandoffPageEntry[]; pageIndex: number };
}
