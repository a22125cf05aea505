/** The real service in a process of its own; the benchmark asks it about its event loop and memory over IPC. */
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { readConfig } from '../../src/config.js';
import { createLogger } from '../../src/http/request-log.js';
import { Service } from '../../src/service.js';
import type { ServiceAnswer, ServiceQuestion } from './service-host.js';

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
