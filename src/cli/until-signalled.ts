/** Runs `work` until it ends. The first SIGINT or SIGTERM asks it to end; a second one ends the process. */
export async function untilSignalled<T>(work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const ending = new AbortController();
  const end = () => ending.abort();
  process.once('SIGINT', end);
  process.once('SIGTERM', end);
  try {
    return await work(ending.signal);
  } finally {
    process.removeListener('SIGINT', end);
    process.removeListener('SIGTERM', end);
  }
}
