/** The service's process on its own data directory, and the ways in which a run ends and begins it again. */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import pg from 'pg';
import { connectionConfig, parseDatabaseUrl } from '../../src/db/connection.js';
import { attachEmbedded, stopUnusedEmbedded } from '../../src/db/embedded.js';
import { makeDataDirectory, postmasterPid } from '../support/kill-postgres.js';
import { runHostCommand, type ServiceProcess, startServiceProcess } from '../support/kill-process.js';
import { openRawClient, type RawClient } from '../support/oracle-http.js';
import type { TPlant } from './options.js';
import type { Tally } from './tally.js';

const PLANT = join(import.meta.dirname, '..', 'support', 'kill-plant.ts');

export class Stage {
  readonly #tally: Tally;
  readonly #directory: string;
  readonly #plant: TPlant | undefined;
  #service: ServiceProcess | undefined;
  #client: RawClient | undefined;
  /** True while the process is ended on purpose. */
  #ending = false;

  constructor(tally: Tally, directory: string, plant: TPlant | undefined) {
    this.#tally = tally;
    this.#directory = directory;
    this.#plant = plant;
  }

  /** Starts from nothing; the plant is put in later, by {@link breakService}. */
  static async open(tally: Tally, plant: TPlant | undefined): Promise<Stage> {
    const stage = new Stage(tally, await makeDataDirectory(), plant);
    try {
      await stage.start(false);
      const bootstrap = ['host', 'bootstrap', '--organization', 'acme', '--principal', 'ada'];
      const issued = await runHostCommand(bootstrap, stage.environment);
      if (issued.code !== 0) throw new Error(`no first token: ${issued.stderr.slice(-1_000)}`);
      stage.#client = openRawClient(stage.#service!.url, issued.stdout.trim(), 128);
    } catch (error) {
      await stage.close();
      throw error;
    }
    return stage;
  }

  get dataDirectory(): string {
    return join(this.#directory, 'postgres');
  }

  get environment(): Record<string, string> {
    return { EMBEDDED_DATA_DIR: this.dataDirectory, LOG_LEVEL: 'warn' };
  }

  get client(): RawClient {
    return this.#client!;
  }

  async start(planted = this.#plant !== undefined): Promise<void> {
    // "Server listening" is said at the level info.
    const environment = { ...this.environment, LOG_LEVEL: 'info', ...(planted ? { FAULT_PLANT: this.#plant! } : {}) };
    const service = await startServiceProcess({ environment, ...(planted ? { preload: PLANT } : {}) });
    this.#service = service;
    this.#ending = false;
    if (this.#client !== undefined) this.#client.url = service.url;
    void service.ended.then(({ code, signal }) => {
      if (this.#ending) return;
      this.#tally.crashes += 1;
      process.stderr.write(`the service ended by itself (${code ?? signal}): ${service.log().slice(-1_000)}\n`);
    });
  }

  /** From here on with the plant. */
  async breakService(): Promise<void> {
    await this.killService();
    await this.start(true);
  }

  async killService(): Promise<void> {
    this.#ending = true;
    this.#service!.child.kill('SIGKILL');
    await this.#service!.ended;
  }

  /** Ends the server's main process; the service then ends, too, since its database is gone. */
  async killPostgres(): Promise<void> {
    const pid = await postmasterPid(this.dataDirectory);
    if (pid === undefined) throw new Error('there is no Postgres to kill');
    this.#ending = true;
    process.kill(pid, 'SIGKILL');
    await this.#service!.ended;
  }

  /** Ends the service's sessions on the server. */
  async endSessions(): Promise<void> {
    await this.withOwner((owner) =>
      owner.query(`select pg_terminate_backend(pid) from pg_stat_activity where usename = 'fleet_cutover'`),
    );
  }

  /** As the tables' owner, past the service. */
  async withOwner<T>(work: (owner: pg.Pool) => Promise<T>): Promise<T> {
    const server = await attachEmbedded({ dataDirectory: this.dataDirectory });
    const owner = new pg.Pool({ ...connectionConfig(parseDatabaseUrl(server.ownerUrl)), max: 2 });
    owner.on('error', () => {});
    try {
      return await work(owner);
    } finally {
      await owner.end();
      await server.stop();
    }
  }

  async close(): Promise<void> {
    this.#ending = true;
    await this.#client?.close();
    this.#service?.child.kill('SIGTERM');
    await this.#service?.ended;
    await stopUnusedEmbedded(this.dataDirectory);
    await rm(this.#directory, { recursive: true, force: true });
  }
}
