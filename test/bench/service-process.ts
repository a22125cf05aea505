/**
 * The real service, as it was built, in a process of its own; the benchmark asks it about its event loop and memory over IPC.
 * The loader of TypeScript wraps every function that has a name, which a request pays for each closure that it makes.
 */
import { monitorEventLoopDelay } from 'node:perf_hooks';
import type * as configuring from '../../src/config.js';
import type * as requestLog from '../../src/http/request-log.js';
import type * as serving from '../../src/service.js';
import type { ServiceAnswer, ServiceQuestion } from './service-host.js';

// Named at run time: the build is there only when the benchmark is run.
const built = (path: string): Promise<unknown> => import(new URL(`../../dist/${path}`, import.meta.url).href);
const { readConfig } = (await built('config.js')) as typeof configuring;
const { createLogger } = (await built('http/request-log.js')) as typeof requestLog;
const { Service } = (await built('service.js')) as typeof serving;

const config = readConfig(process.env);
const service = new Service(config, createLogger(config.logLevel));
const delay = monitorEventLoopDelay({ resolution: 1 });

process.on('message', (question: ServiceQuestion) => {
  if (question === 'stop') void stop();
  else send(answer(question));
});
process.on('disconnect', () => void stop());

delay.enable();
send({ url: await service.start() });

function answer(question: Exclude<ServiceQuestion, 'stop'>): ServiceAnswer {
  if (question === 'reset-delay') {
    delay.reset();
    return {};
  }
  return { longestDelayMs: delay.max / 1e6, rssBytes: process.memoryUsage.rss() };
}

function send(message: ServiceAnswer & { url?: string }): void {
  process.send?.(message);
}

async function stop(): Promise<void> {
  await service.stop();
  process.exit();
}
