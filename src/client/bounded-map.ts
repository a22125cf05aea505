/**
 * Results of `work` for 0..count-1 in that order, with at most `concurrency` under way, begun in ascending order. The
 * first failure aborts the signal that the others were given, and is thrown when all of them have ended.
 */
export async function mapBounded<T>(
  count: number,
  concurrency: number,
  work: (index: number, signal: AbortSignal) => Promise<T>,
  signal?: AbortSignal,
): Promise<T[]> {
  const results: T[] = [];
  const ending = new AbortController();
  const abort = () => ending.abort();
  if (signal?.aborted === true) abort();
  signal?.addEventListener('abort', abort, { once: true });
  let next = 0;
  let failure: { readonly error: unknown } | undefined;
  const worker = async () => {
    while (next < count && failure === undefined) {
      const index = next++;
      try {
        results[index] = await work(index, ending.signal);
      } catch (error) {
        failure ??= { error };
        abort();
      }
    }
  };
  try {
    await Promise.all(Array.from({ length: Math.min(concurrency, count) }, worker));
  } finally {
    signal?.removeEventListener('abort', abort);
  }
  if (failure !== undefined) throw (failure as { readonly error: unknown }).error;
  return results;
}
