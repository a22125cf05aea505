import type { AdministratorClient } from '../../client/administrator-client.js';
import type { IFleetCutoverRequiredEntry } from '../../contract/derivation.js';
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

interface Shown {
  readonly isShown: (entry: IFleetCutoverRequiredEntry) => boolean;
  /** Shown entries at most; null for all of them. */
  readonly limit: number | null;
  readonly signal?: AbortSignal | undefined;
}

/** {@link requiredPages}, of which the last one ends with the last entry that is shown: its cursor goes on behind it. */
export async function* requiredPagesShowing(
  list: AdministratorClient['listFleetCutoverRequiredVolumeHandoffs'],
  clusterId: string,
  { isShown, limit, signal }: Shown,
): AsyncGenerator<RequiredPage, void, undefined> {
  let left = limit ?? Infinity;
  let cursor: string | null = null;
  do {
    const page: RequiredPage = await pageUpTo(list, { clusterId, cursor, limit: requiredPageSize }, isShown, left);
    left -= page.entries.filter(isShown).length;
    yield page;
    cursor = page.nextCursor;
  } while (cursor !== null && left > 0 && signal?.aborted !== true);
}

/**
 * A page with no more than `left` shown entries. One that has more is read once more, shorter: only the service makes cursors. The
 * first page may be of another derivation then, and be too long again.
 */
async function pageUpTo(
  list: AdministratorClient['listFleetCutoverRequiredVolumeHandoffs'],
  request: Parameters<AdministratorClient['listFleetCutoverRequiredVolumeHandoffs']>[0],
  isShown: Shown['isShown'],
  left: number,
): Promise<RequiredPage> {
  const page = await list(request);
  let shown = 0;
  const last = page.entries.findIndex((entry) => isShown(entry) && (shown += 1) === left);
  if (last < 0 || last === page.entries.length - 1) return page;
  return await pageUpTo(list, { ...request, limit: last + 1 }, isShown, left);
}
