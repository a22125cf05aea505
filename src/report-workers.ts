/** Large reports are taken by worker threads with connections of their own, so that nobody waits for their parsing. */
import { Piscina } from 'piscina';
import type { Config } from './config.js';
import type { Refused } from './contract/problems.js';
import type { PoolSettings } from './db/pool.js';
import type { NodeActor } from './features/auth/actor.js';
import type { LargeReportTaker } from './features/observation/routes.js';

/** Bodies over 64 KiB that are processed at once. */
const workers = 2;

export interface WorkerSettings extends Omit<PoolSettings, 'url'> {
  /** The database URL; it stays in the process. */
  readonly url: string;
  readonly logLevel: Config['logLevel'];
}

export interface ReportTask {
  readonly actor: NodeActor;
  readonly bytes: Uint8Array;
}

export interface ReportWorkers {
  readonly take: LargeReportTaker;
  close(): Promise<void>;
}

/** Threads start with the first large report and end when there is none for half a minute. */
export function createReportWorkers(
  settings: Omit<PoolSettings, 'size'> & { readonly logLevel: Config['logLevel'] },
): ReportWorkers {
  const fromSource = import.meta.url.endsWith('.ts');
  const workerData: WorkerSettings = { ...settings, url: settings.url.reveal(), size: 1 };
  const pool = new Piscina<ReportTask, string | Refused>({
    filename: new URL(fromSource ? './report-worker.ts' : './report-worker.js', import.meta.url).href,
    execArgv: fromSource ? ['--import', 'tsx'] : [],
    workerData,
    minThreads: 0,
    maxThreads: workers,
    idleTimeout: 30_000,
  });
  return {
    take: (actor, bytes) => pool.run({ actor, bytes }, { transferList: ownMemory(bytes) }),
    close: () => pool.close(),
  };
}

/** The bytes' memory if it is theirs alone: it is handed over, and the sender's view is empty then. Else it is copied. */
function ownMemory({ buffer, byteLength }: Uint8Array): ArrayBuffer[] {
  return buffer instanceof ArrayBuffer && buffer.byteLength === byteLength ? [buffer] : [];
}
