/** Starts the service as a child process on an embedded Postgres of its own, with durable commits. */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Config, readConfig } from '../../src/config.js';
import { bootstrap } from '../../src/features/auth/host-operations.js';
import { onHostDatabase } from '../../src/host-access.js';
import { isRefused } from '../../src/refusal.js';

export type ServiceQuestion = 'reset-delay' | 'measure' | 'stop';

/** What the process says about itself since the last `reset-delay`. */
export interface ServiceAnswer {
  readonly longestDelayMs?: number;
  readonly rssBytes?: number;
}

export interface ServiceHost {
  readonly url: string;
  readonly config: Config;
  /** The administrator's. */
  readonly token: string;
  readonly organizationId: string;
  resetDelay(): Promise<void>;
  measure(): Promise<{ readonly longestDelayMs: number; readonly rssMb: number }>;
  stop(): Promise<void>;
}

/** `execArgv`: for the service's process, such as `--cpu-prof`. */
export async function startServiceHost(execArgv: readonly string[] = []): Promise<ServiceHost> {
  const directory = await mkdtemp(join(tmpdir(), 'fleet-cutover-bench-'));
  // Started as root, Postgres runs as another user, who must be able to pass through.
  await chmod(directory, 0o711);
  const settings = { EMBEDDED_DATA_DIR: join(directory, 'postgres'), PORT: '0', LOG_LEVEL: 'warn' };
  const config = readConfig(settings);
  const child = fork(new URL('./service-process.ts', import.meta.url), {
    execArgv: ['--import', 'tsx', ...execArgv],
    env: { PATH: process.env['PATH'], ...settings },
    // stdout carries the benchmark's result.
    stdio: ['ignore', 2, 2, 'ipc'],
  });
  const stop = async (): Promise<void> => {
    if (child.exitCode === null && child.signalCode === null) {
      child.send('stop' satisfies ServiceQuestion);
      await once(child, 'exit');
    }
    await rm(directory, { recursive: true, force: true });
  };
  try {
    const { url } = await nextMessage<{ url: string }>(child);
    const organizationId = 'acme';
    const issued = await onHostDatabase(config, (deps) =>
      bootstrap(deps, { organizationId, principalId: 'bench', additional: false }),
    );
    if (isRefused(issued)) throw new Error(issued.problem.code);
    return {
      url,
      config,
      token: issued.token,
      organizationId,
      resetDelay: async () => void (await ask(child, 'reset-delay')),
      measure: async () => {
        const { longestDelayMs = Number.NaN, rssBytes = Number.NaN } = await ask(child, 'measure');
        return { longestDelayMs, rssMb: rssBytes / 2 ** 20 };
      },
      stop,
    };
  } catch (error) {
    await stop();
    throw error;
  }
}

function ask(child: ChildProcess, question: ServiceQuestion): Promise<ServiceAnswer> {
  const answer = nextMessage<ServiceAnswer>(child);
  child.send(question);
  return answer;
}

/** One question at a time is under way. */
export function nextMessage<T>(child: ChildProcess): Promise<T> {
  return new Promise((resolve, reject) => {
    const onExit = (code: number | null) => reject(new Error(`the child process ended with ${code ?? 'a signal'}`));
    child.once('exit', onExit);
    child.once('message', (message) => {
      child.removeListener('exit', onExit);
      resolve(message as T);
    });
  });
}
