/** For who may read the service's settings: straight to its database, beside a running service or without one. */
import { systemClock } from './clock.js';
import type { Config } from './config.js';
import { openForCommand } from './database.js';
import { demandEmbedded } from './db/embedded.js';
import { openPool } from './db/pool.js';
import type { Deps } from './deps.js';
import { systemRandom } from './random.js';

/**
 * Does the work on one connection, and closes it. An embedded server has to be there: one that a command made by itself would be
 * another than the service's. Throws `EmbeddedError`.
 */
export async function onHostDatabase<T>(config: Config, work: (deps: Deps) => Promise<T>): Promise<T> {
  if (config.database.kind === 'embedded') await demandEmbedded(config.database.dataDirectory);
  const access = await openForCommand(config);
  try {
    const db = openPool({
      url: access.serviceUrl,
      size: 1,
      statementTimeoutMs: config.statementTimeoutMs,
      lockTimeoutMs: config.lockTimeoutMs,
    });
    try {
      return await work({ db, clock: systemClock, random: systemRandom });
    } finally {
      await db.close();
    }
  } finally {
    await access.release();
  }
}
