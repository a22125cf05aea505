/** Runs `work` until it ends. The first SIGINT or SIGTERM, or `other`, asks it to end; a second signal ends the process. */
export async function untilSignalled<T>(work: (signal: AbortSignal) => Promise<T>, other?: AbortSignal): Promise<T> {
  const ending = new AbortController();
  const end = () => ending.abort();
  process.once('SIGINT', end);
  process.once('SIGTERM', end);
  other?.addEventListener('abort', end, { once: true });
  if (other?.aborted === true) end();
  try {
    return await work(ending.signal);
  } finally {
    process.removeListener('SIGINT', end);
    process.removeListener('SIGTERM', end);
    other?.removeEventListener('abort', end);
  }
}
