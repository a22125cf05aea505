/** The real application with a fault hook, outside of Vitest: in this process, or in a child that dies at a point. */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { createApp } from '../../src/app.js';
import { systemClock } from '../../src/clock.js';
import { readMigrations } from '../../src/db/migration-files.js';
import { type Db, openPool } from '../../src/db/pool.js';
import type { FaultHook } from '../../src/db/transaction.js';
import { createLogger } from '../../src/http/request-log.js';
import { systemRandom } from '../../src/random.js';
import { createReportWorkers } from '../../src/report-workers.js';
import { Secret } from '../../src/secret.js';
import type { SealingKey } from './oracle-sealing.js';

export interface FaultServiceOptions {
  /** The service's login. */
  readonly url: Secret;
  readonly faults?: FaultHook;
  /** Default: nothing can be sealed. */
  readonly sealingKey?: SealingKey;
  readonly poolSize?: number;
  readonly statementTimeoutMs?: number;
}

export interface FaultService {
  readonly url: string;
  readonly db: Db;
  close(): Promise<void>;
}

export async function openFaultService(options: FaultServiceOptions): Promise<FaultService> {
  const { sealingKey } = options;
  const timeouts = { statementTimeoutMs: options.statementTimeoutMs ?? 15_000, lockTimeoutMs: 5_000 };
  const db = openPool({ url: options.url, size: options.poolSize ?? 8, ...timeouts });
  const workers = createReportWorkers({ url: options.url, ...timeouts, logLevel: 'silent' });
  const nowhere = new Writable({ write: (_chunk, _encoding, done) => done() });
  const app = createApp(
    { db, clock: systemClock, random: systemRandom, faults: options.faults },
    {
      server: { logger: createLogger('silent', nowhere) },
      takeLargeReport: workers.take,
      keyRing: sealingKey === undefined ? [] : [{ keyId: sealingKey.keyId, key: new Secret(sealingKey.key) }],
      process: {
        separation: 'full',
        database: 'embedded',
        migrations: await readMigrations(join(import.meta.dirname, '..', '..', 'migrations')),
        stopping: () => false,
      },
    },
  );
  const url = await app.listen({ host: '127.0.0.1', port: 0 });
  return {
    url,
    db,
    close: async () => {
      await app.close();
      await workers.close();
      await db.close();
    },
  };
}

/** A child process with the service in it, which ends itself with SIGKILL at the point that it is told. */
export interface KillableService {
  readonly child: ChildProcess;
  readonly url: string;
  /** Resolves when the child waits for the point. */
  arm(point: string): Promise<void>;
  /** The signal that ended it, once it has ended. */
  readonly ended: Promise<NodeJS.Signals | null>;
  stop(): Promise<void>;
}

/** `program`: this file as `kill-bundle.ts` makes it. */
export async function startKillableService(
  url: Secret,
  sealingKey: SealingKey,
  program: string,
): Promise<KillableService> {
  // The URL and the key go by message: arguments stand in the process list.
  const child = fork(program, [], { execArgv: [], stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
  const ended = once(child, 'exit').then(([, signal]) => signal as NodeJS.Signals | null);
  child.send({ open: url.reveal(), sealingKey });
  const message = await Promise.race([once(child, 'message'), ended.then(() => undefined)]);
  if (message === undefined) throw new Error('the child with the service has ended at once');
  const [{ listening }] = message as [{ listening: string }];
  return {
    child,
    url: listening,
    ended,
    arm: async (point) => {
      child.send({ arm: point });
      await once(child, 'message');
    },
    stop: async () => {
      child.kill('SIGKILL');
      await ended;
    },
  };
}

interface Order {
  readonly open?: string;
  readonly sealingKey?: SealingKey;
  readonly arm?: string;
}

/** The child. */
function serve(): void {
  let armed: string | undefined;
  const faults: FaultHook = {
    at: (point) => {
      if (point === armed) process.kill(process.pid, 'SIGKILL');
    },
  };
  process.on('message', (order: Order) => {
    armed = order.arm;
    if (order.open === undefined) return process.send?.({ armed });
    const { sealingKey } = order;
    const options = { url: new Secret(order.open), faults, ...(sealingKey === undefined ? {} : { sealingKey }) };
    return void openFaultService(options).then(({ url }) => process.send?.({ listening: url }));
  });
  // The parent is gone: nobody needs this one any more.
  process.on('disconnect', () => process.exit());
}

if (process.argv[1] === fileURLToPath(import.meta.url)) serve();
