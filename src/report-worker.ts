/** One worker thread of `report-workers.ts`: its own connection, the same operation. */
import { workerData } from 'piscina';
import { systemClock } from './clock.js';
import type { Refused } from './contract/problems.js';
import { openPool } from './db/pool.js';
import type { Deps } from './deps.js';
import { takeReport } from './features/observation/intake.js';
import { failureOf } from './http/failure.js';
import { createLogger } from './http/request-log.js';
import { systemRandom } from './random.js';
import type { ReportTask, WorkerSettings } from './report-workers.js';
import { Secret } from './secret.js';

const { url, logLevel, ...settings } = workerData as WorkerSettings;
const log = createLogger(logLevel);
const deps: Deps = { db: openPool({ ...settings, url: new Secret(url) }), clock: systemClock, random: systemRandom };

/** Errors become refusals here: their classes would not survive the way to the other thread. */
export default async function take({ actor, bytes }: ReportTask): Promise<string | Refused> {
  try {
    return await takeReport(deps, actor, bytes);
  } catch (error) {
    const { problem, unexpected } = failureOf(error, { mutation: true });
    if (unexpected) log.error({ err: error, nodeId: actor.nodeId }, 'a large report failed');
    return { kind: 'refused', problem };
  }
}
