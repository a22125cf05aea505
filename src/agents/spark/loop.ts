/** A Spark that goes on until it is told to end, or until it has to. */
import { setTimeout as pause } from 'node:timers/promises';
import { ContractViolationError } from '../../client/errors.js';
import type { Random } from '../../random.js';
import type { SparkAgent } from './agent.js';
import type { SparkLog } from './log.js';
import { nextStepAfter } from './next-step.js';

export interface SparkLoopOptions {
  readonly random: Random;
  readonly log: SparkLog;
  readonly signal: AbortSignal;
  /** Mean time between two rounds, in ms (default 30,000); each is within a fifth of it, so that nodes don't fall into step. */
  readonly intervalMs?: number;
  /** Longest wait after failures, in ms (default 300,000); a `Retry-After` may ask for more. */
  readonly maximumBackOffMs?: number;
}

const firstBackOffMs = 1_000;

/** Resolves when the signal aborts. Throws the error that stops the agent, having said so. */
export async function runSparkLoop(agent: SparkAgent, options: SparkLoopOptions): Promise<void> {
  const { log, signal, random, intervalMs = 30_000, maximumBackOffMs = 300_000 } = options;
  let failures = 0;
  while (!signal.aborted) {
    let delayMs = intervalMs * (0.8 + 0.4 * uniform(random));
    try {
      await agent.runOnce(signal);
      failures = 0;
    } catch (error) {
      if (signal.aborted) return;
      const step = nextStepAfter(error);
      if (step.kind === 'stop') {
        log({ level: 'error', event: 'stopped', reason: step.reason });
        throw error;
      }
      const growingMs = Math.min(maximumBackOffMs, firstBackOffMs * 2 ** failures);
      delayMs = step.retryAfterMs + growingMs * (0.5 + 0.5 * uniform(random));
      failures += 1;
      // An answer or a set that contradicts the contract is never in order, even if the next one is.
      const level = error instanceof ContractViolationError ? 'error' : 'warn';
      log({ level, event: 'failed', reason: step.reason, failures, delayMs: Math.round(delayMs) });
    }
    await pauseUntil(delayMs, signal);
  }
}

/** Uniform in [0, 1). */
function uniform(random: Random): number {
  return random.bytes(4).readUInt32BE() / 2 ** 32;
}

/** Resolves after the time, or at once when the signal aborts. */
async function pauseUntil(delayMs: number, signal: AbortSignal): Promise<void> {
  try {
    await pause(delayMs, undefined, { signal });
  } catch {
    // The loop's condition ends it.
  }
}
