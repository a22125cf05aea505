/** Entry of the service's process. */
import { readConfig } from './config.js';
import { createLogger, type Logger } from './http/request-log.js';
import { Service } from './service.js';
import { explainStartupError } from './startup-error.js';

async function main(): Promise<void> {
  const config = readConfig(process.env);
  const log = createLogger(config.logLevel);
  const service = new Service(config, log);
  stopOnSignals(service, log);
  try {
    await service.start();
  } catch (error) {
    await service.stop();
    throw error;
  }
}

function stopOnSignals(service: Service, log: Logger): void {
  let signals = 0;
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    process.on(signal, () => {
      signals += 1;
      if (signals > 1) process.exit(1);
      log.info({ signal }, 'stopping; a second signal stops at once');
      service.stop().then(
        () => log.info('stopped'),
        (error: unknown) => {
          log.fatal({ err: error }, 'the shutdown failed');
          process.exitCode = 1;
        },
      );
    });
  }
}

try {
  await main();
} catch (error) {
  const explanation = explainStartupError(error);
  if (explanation === undefined) throw error;
  process.stderr.write(`fleet-cutover: ${explanation}\n`);
  process.exitCode = 1;
}
