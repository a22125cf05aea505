import type { AdministratorClient } from '../../client/administrator-client.js';
import type { MethodResponse } from '../../contract/methods.js';

export type RequiredPage = MethodResponse<'listFleetCutoverRequiredVolumeHandoffs'>;

/** As many entries as one answer may have. */
export const requiredPageSize = 1024;

/**
 * Required against prepared, page by page: the first page pins derivation and aggregate, and the cursor keeps every later one
 * at them, whatever is observed or prepared meanwhile. Ends after a page where the signal is aborted.
 */
export async function* requiredPages(
  list: AdministratorClient['listFleetCutoverRequiredVolumeHandoffs'],
  clusterId: string,
  options: { readonly limit?: number; readonly signal?: AbortSignal } = {},
): AsyncGenerator<RequiredPage, void, undefined> {
  const { limit = requiredPageSize, signal } = options;
  let cursor: string | null = null;
  do {
    const page: RequiredPage = await list({ clusterId, cursor, limit });
    yield page;
    cursor = page.nextCursor;
  } while (cursor !== null && signal?.aborted !== true);
}
