/**
 * When a request is sent again. Every request of this API may be: reads change nothing, a mutation is known by its
 * `mutationId`, and an observation by its session and sequence, so that the repeated one is told the recorded outcome.
 *
 *  1. Sent again: what got no answer, and what the service says is safe (`retrySafe`, 5xx). Never a refusal.
 *  2. What was lost once stays unknown until an answer decides it. A refusal by a check that comes before the replay
 *     look-up (credential, role, limits) decides nothing about the lost attempt.
 *  3. A first 409 or 422 after a lost attempt is asked for once more: it may have been decided in the moment in which the
 *     lost attempt committed, and then the next repeat is its replay.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { ProblemError, TransportError, type TransportErrorCode } from './errors.js';

/** What a request does: reads leave nothing behind, so that nothing about a lost one stays unknown. */
export type RequestEffect = 'read' | 'change';

export interface RepetitionOptions {
  /** Requests in all, the first one included (default 5). */
  readonly attempts?: number;
  /** Longest wait before the second request, in ms; doubles with each further one (default 100). */
  readonly firstDelayMs?: number;
  /** Longest wait of all, in ms (default 5,000). A `Retry-After` beyond it is left to the caller. */
  readonly maximumDelayMs?: number;
  /** Uniform in [0, 1); spreads callers that lost their answers at the same moment. */
  readonly random?: () => number;
}

/**
 * Calls `attempt` until it is answered, at most `attempts` times.
 *
 * @throws the last error; a `TransportError` with outcome `unknown` when any attempt may have been acted on
 */
export async function repeatUntilAnswered<T>(
  effect: RequestEffect,
  attempt: () => Promise<T>,
  options: RepetitionOptions = {},
  signal?: AbortSignal,
): Promise<T> {
  const attempts = options.attempts ?? 5;
  let history: History = { lost: false, confirmed: false };
  for (let count = 1; ; count += 1) {
    try {
      return await attempt();
    } catch (error) {
      const next = judge(error, history);
      if (effect === 'change') history = next.history;
      const delayMs = delayBefore(count, next.retryAfterMs, options);
      if (!next.again || count >= attempts || delayMs === null) throw finalError(error, history);
      await pauseUnlessAborted(delayMs, history, signal);
    }
  }
}

interface History {
  /** Some attempt may have been acted on without our hearing of it. */
  readonly lost: boolean;
  /** A refusal after a lost attempt has been asked for again. */
  readonly confirmed: boolean;
}

interface Judgement {
  readonly again: boolean;
  readonly retryAfterMs: number;
  readonly history: History;
}

const unanswered: ReadonlySet<TransportErrorCode> = new Set([
  'connection-failed',
  'connection-lost',
  'timeout',
  'gateway',
]);

function judge(error: unknown, history: History): Judgement {
  if (error instanceof TransportError) {
    const lost = history.lost || error.outcome === 'unknown';
    return { again: unanswered.has(error.code), retryAfterMs: 0, history: { ...history, lost } };
  }
  if (!(error instanceof ProblemError)) return { again: false, retryAfterMs: 0, history };
  const retryAfterMs = (error.retryAfterSeconds ?? 0) * 1000;
  if (error.status >= 500) {
    const lost = history.lost || error.mutationOutcome === 'unknown';
    return { again: error.retrySafe || error.status === 503, retryAfterMs, history: { ...history, lost } };
  }
  const confirm = history.lost && !history.confirmed && decides(error);
  return { again: confirm, retryAfterMs, history: { ...history, confirmed: history.confirmed || confirm } };
}

/** The refusal was made after the replay look-up, so that there was nothing to replay. */
function decides(error: ProblemError): boolean {
  return error.status === 409 || error.status === 422;
}

function finalError(error: unknown, { lost }: History): unknown {
  if (!lost) return error;
  if (error instanceof TransportError && error.outcome === 'not-sent') {
    return new TransportError(error.code, { outcome: 'unknown', systemCode: error.systemCode });
  }
  if (error instanceof ProblemError && !decides(error) && error.mutationOutcome !== 'unknown') {
    return new TransportError('outcome-unresolved', { outcome: 'unknown', cause: error });
  }
  return error;
}

/** Wait before the next request, in ms, or null where the service asks for more patience than the caller has. */
function delayBefore(count: number, retryAfterMs: number, options: RepetitionOptions): number | null {
  const maximumMs = options.maximumDelayMs ?? 5_000;
  if (retryAfterMs > maximumMs) return null;
  const growing = Math.min(maximumMs, (options.firstDelayMs ?? 100) * 2 ** (count - 1));
  return retryAfterMs + (options.random ?? Math.random)() * growing;
}

async function pauseUnlessAborted(delayMs: number, { lost }: History, signal: AbortSignal | undefined): Promise<void> {
  try {
    await pause(delayMs, undefined, signal === undefined ? {} : { signal });
  } catch {
    throw new TransportError('aborted', { outcome: lost ? 'unknown' : 'not-sent' });
  }
}
