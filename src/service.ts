/** The running service: what it opens, in order, and closes in the reverse. */
import { join } from 'node:path';
import type { FastifyInstance } from 'fastify';
import { createApp } from './app.js';
import { systemClock } from './clock.js';
import type { Config } from './config.js';
import { type DatabaseAccess, openForService } from './database.js';
import { migrate } from './db/migrate.js';
import { readMigrations } from './db/migration-files.js';
import { type Db, openPool } from './db/pool.js';
import type { Deps } from './deps.js';
import { hasOrganization } from './features/auth/facts.js';
import { demandKeys, readKeyRing } from './key-ring.js';
import type { Logger } from './http/request-log.js';
import { systemRandom } from './random.js';
import { createReportWorkers, type ReportWorkers } from './report-workers.js';

const MIGRATIONS = join(import.meta.dirname, '..', 'migrations');

/** What was opened, and is closed in the reverse order. */
interface Running {
  app?: FastifyInstance;
  db?: Db;
  workers?: ReportWorkers;
  database?: DatabaseAccess;
}

export class Service {
  readonly #config: Config;
  readonly #log: Logger;
  readonly #running: Running = {};
  #stopping: Promise<void> | undefined;
  #starting: Promise<string> | undefined;

  constructor(config: Config, log: Logger) {
    this.#config = config;
    this.#log = log;
  }

  /** Resolves when the service listens; gives its address, e.g. `http://127.0.0.1:8080`. */
  async start(): Promise<string> {
    this.#starting = this.#open();
    return await this.#starting;
  }

  /** Readiness fails first, requests finish, the pool closes, the embedded server stops last. */
  stop(): Promise<void> {
    this.#stopping ??= this.#close();
    return this.#stopping;
  }

  async #open(): Promise<string> {
    const config = this.#config;
    const database = await openForService(config, (error) => this.#loseDatabase(error));
    this.#running.database = database;
    const { ownerUrl, serviceUrl } = database;
    const migrations = await readMigrations(MIGRATIONS);
    const { applied, separation } = await migrate({ ownerUrl, serviceUrl, directory: MIGRATIONS, clock: systemClock });
    if (applied.length > 0) this.#log.info({ applied }, 'migrations applied');
    if (separation === 'reduced')
      this.#log.warn('the service’s login owns the tables: only triggers protect immutable rows');
    const { poolSize: size, statementTimeoutMs, lockTimeoutMs } = config;
    this.#running.db = openPool({ url: serviceUrl, size, statementTimeoutMs, lockTimeoutMs });
    this.#running.workers = createReportWorkers({
      url: serviceUrl,
      statementTimeoutMs,
      lockTimeoutMs,
      logLevel: config.logLevel,
    });
    const deps = this.#deps(this.#running.db);
    const keyRing = await readKeyRing(config.keys);
    await demandKeys(deps, keyRing);
    this.#running.app = createApp(deps, {
      server: { logger: this.#log, trustedProxies: config.trustedProxies },
      takeLargeReport: this.#running.workers.take,
      keyRing,
      docs: config.docs,
      process: {
        separation,
        database: config.database.kind,
        migrations,
        stopping: () => this.#stopping !== undefined,
      },
    });
    const address = await this.#running.app.listen({ host: config.host, port: config.port });
    if (!(await hasOrganization(deps.db))) this.#sayHowToBegin();
    return address;
  }

  #deps(db: Db): Deps {
    return {
      db,
      clock: systemClock,
      random: systemRandom,
      onTransaction: (transaction, outcome, attempts, ms) =>
        this.#log.debug({ transaction, outcome, attempts, ms: Math.round(ms * 10) / 10 }, 'transaction'),
    };
  }

  #sayHowToBegin(): void {
    this.#log.info(
      'there is no organization yet. The first administrator’s token is printed by: ' +
        'fleet-cutover host bootstrap --organization ID --principal ID (here: node dist/cli/main.js host bootstrap …)',
    );
  }

  #loseDatabase(error: Error): void {
    if (this.#stopping !== undefined) return;
    this.#log.fatal({ err: error }, 'the embedded database went away');
    process.exitCode = 1;
    void this.stop();
  }

  async #close(): Promise<void> {
    // A start that is under way is let finish, or fail: half of it can't be undone.
    await this.#starting?.catch(() => {});
    const { app, workers, db, database } = this.#running;
    await app?.close();
    await workers?.close();
    await db?.close();
    await database?.release();
  }
}
