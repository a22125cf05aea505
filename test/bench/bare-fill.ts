/**
 * What a fill costs at least: as many transactions with rows of equal bytes, each in two round trips through pg. The first
 * begins and locks the header's row; the second inserts 32 rows and an audit row, updates the header, and commits.
 */
import pg from 'pg';
import type { Config } from '../../src/config.js';
import { openForCommand } from '../../src/database.js';
import { connectionConfig, parseDatabaseUrl } from '../../src/db/connection.js';

/** Bytes of what the fill has written, per row. */
interface Texts {
  readonly record: string;
  readonly header: string;
  readonly result: string;
}

/** Goes on from turn to turn, so that it can be done in between the turns of what it is compared with. */
export class BareFill {
  readonly #client: pg.Client;
  readonly #release: () => Promise<void>;
  readonly #rowsEach: number;
  readonly #texts: Texts;
  readonly latencies: number[] = [];
  /** Of all turns. */
  ms = 0;

  private constructor(client: pg.Client, release: () => Promise<void>, rowsEach: number, texts: Texts) {
    this.#client = client;
    this.#release = release;
    this.#rowsEach = rowsEach;
    this.#texts = texts;
  }

  /** Once some rows of the cluster are there, whose bytes the bare rows have. */
  static async open(config: Config, clusterId: string, rowsEach: number): Promise<BareFill> {
    const access = await openForCommand(config);
    const client = new pg.Client({ ...connectionConfig(parseDatabaseUrl(access.ownerUrl)), pipeline: true });
    const release = async () => {
      await client.end();
      await access.release();
    };
    await client.connect();
    try {
      const texts = await typicalTexts(client, clusterId);
      await createTables(client, texts);
      return new BareFill(client, release, rowsEach, texts);
    } catch (error) {
      await release();
      throw error;
    }
  }

  async turn(transactions: number): Promise<void> {
    const started = performance.now();
    for (let turn = 0; turn < transactions; turn += 1) await this.#transaction(this.latencies.length + 1);
    this.ms += performance.now() - started;
  }

  async close(): Promise<void> {
    await this.#client.query('drop schema bare cascade');
    await this.#release();
  }

  async #transaction(seq: number): Promise<void> {
    const client = this.#client;
    const { record, header, result } = this.#texts;
    const each = <T>(value: (index: number) => T) => Array.from({ length: this.#rowsEach }, (_, index) => value(index));
    const items = each((index) => `item-${String(seq * this.#rowsEach + index).padStart(40, '0')}`);
    const [digests, records] = [each(() => digest), each(() => record)];
    const started = performance.now();
    await Promise.all([
      client.query('begin'),
      client.query({
        name: 'lock',
        text: 'select generation from bare.headers where id = $1 for update',
        values: ['fleet'],
      }),
    ]);
    const values = ['fleet', seq, header, items, digests, records, result];
    await Promise.all([client.query({ name: 'insertion', text: insertion, values }), client.query('commit')]);
    this.latencies.push(performance.now() - started);
  }
}

const digest = `sha256:${'0'.repeat(64)}`;

/** One real row of each kind, of average size. */
async function typicalTexts(client: pg.Client, clusterId: string): Promise<Texts> {
  const one = async (column: string, table: string, where = ''): Promise<string> => {
    const average = `select avg(length(${column})) from ${table} where cluster_id = $1 ${where}`;
    const { rows } = await client.query<{ text: string }>(
      `select ${column} as text from ${table} where cluster_id = $1 ${where}
        order by abs(length(${column}) - (${average})) limit 1`,
      [clusterId],
    );
    return rows[0]!.text;
  };
  return {
    record: await one('record', 'control.handoff_revisions'),
    header: await one('record', 'control.aggregate_revisions'),
    result: await one('result', 'control.audit_rows', "and method = 'prepareFleetCutoverVolumeHandoffs'"),
  };
}

async function createTables(client: pg.Client, texts: Texts): Promise<void> {
  await client.query('create schema bare');
  await client.query(
    'create table bare.headers (id text primary key, generation bigint not null, record text not null)',
  );
  await client.query(
    'create table bare.items (id text, item text, generation bigint not null, digest text not null, record text not null, primary key (id, item))',
  );
  await client.query('create table bare.audit (id text, seq bigint, result text not null, primary key (id, seq))');
  await client.query('insert into bare.headers values ($1, 0, $2)', ['fleet', texts.header]);
}

const insertion = `
  with header as (
    update bare.headers set generation = $2::bigint, record = $3::text where id = $1::text returning id
  ), items as (
    insert into bare.items (id, item, generation, digest, record)
    select $1::text, item, 1, digest, record from unnest($4::text[], $5::text[], $6::text[]) as item (item, digest, record)
  )
  insert into bare.audit (id, seq, result) select id, $2::bigint, $7::text from header`;
