/** A list with all its pages as one answer. */
import { canonicalizeStrictJson } from '../contract/canonical-json.js';
import { UsageError } from './output.js';

interface Page {
  readonly nextCursor: string | null;
}

interface Reading<P extends Page, K extends keyof P & string> {
  /** The member that has the items. */
  readonly items: K;
  /** Items of one page at most. */
  readonly pageSize: number;
  /** Items in all at most; null for all that there are. */
  readonly limit: number | null;
  readonly read: (cursor: string | null, limit: number) => Promise<P>;
}

const attempts = 3;

/**
 * The first page with the items of all; `nextCursor` is null, or where the list goes on after `limit` items. Pages that
 * don't speak of the same records (another snapshot was accepted meanwhile) are read again from the first.
 *
 * @throws Error where they never do
 */
export async function everyPage<P extends Page, K extends keyof P & string>(reading: Reading<P, K>): Promise<P> {
  for (let attempt = 1; attempt <= attempts; attempt += 1) {
    const whole = await readPages(reading);
    if (whole !== null) return whole;
  }
  throw new Error(`the list changed while it was read, ${attempts} times: repeat the command`);
}

/** Null where the pages are of different records. */
async function readPages<P extends Page, K extends keyof P & string>(reading: Reading<P, K>): Promise<P | null> {
  const { items: key, pageSize, limit, read } = reading;
  const items: unknown[] = [];
  let first: P | undefined;
  for (let cursor: string | null = null; ;) {
    const wanted = limit === null ? pageSize : Math.min(pageSize, limit - items.length);
    const page: P = await read(cursor, wanted);
    first ??= page;
    if (aboutOf(page, key) !== aboutOf(first, key)) return null;
    items.push(...(page[key] as readonly unknown[]));
    cursor = page.nextCursor;
    if (cursor === null || items.length === limit) return { ...first, [key]: items, nextCursor: cursor };
  }
}

/** What a page says besides its items: the records that it shows. */
function aboutOf(page: Page, key: string): string {
  return canonicalizeStrictJson({ ...page, [key]: null, nextCursor: null });
}

/** A count of items for `--limit`. Throws UsageError. */
export function parseLimit(text: string): number {
  if (!/^[1-9]\d{0,8}$/.test(text)) throw new UsageError('--limit has to be a whole number from 1');
  return Number(text);
}
