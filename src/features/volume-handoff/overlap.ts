/**
 * Which sources on one node are equal or nested.
 *
 * 1. Paths are compared normalised and by whole segments: `/data` contains `/data/a`, not `/database`.
 * 2. Each pair is reported once, the containing (or first) one first.
 */

/** Collapses repeated slashes, resolves `.` and `..`, drops a trailing slash. `/` stays `/`. */
export function normalizePath(path: string): string {
  const segments: string[] = [];
  for (const segment of path.split('/')) {
    if (segment === '' || segment === '.') continue;
    if (segment === '..') segments.pop();
    else segments.push(segment);
  }
  return `/${segments.join('/')}`;
}

export interface Located<T> {
  readonly item: T;
  /** Normalised. */
  readonly path: string;
}

/** Calls `pair` for every two items whose paths are equal or nested. */
export function forEachOverlap<T>(located: readonly Located<T>[], pair: (outer: T, inner: T) => void): void {
  const sorted = located
    .map(({ item, path }) => ({ item, prefix: path === '/' ? '/' : `${path}/` }))
    .sort((left, right) => (left.prefix < right.prefix ? -1 : left.prefix > right.prefix ? 1 : 0));
  const open: { item: T; prefix: string }[] = [];
  for (const current of sorted) {
    while (open.length > 0 && !current.prefix.startsWith(open[open.length - 1]!.prefix)) open.pop();
    for (const outer of open) pair(outer.item, current.item);
    open.push(current);
  }
}
