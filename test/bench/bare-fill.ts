/**
 * What a fill costs at least: as many transactions with rows of equal bytes, each in two round trips through pg. The first
 * begins and locks the header's row; the second inserts 32 rows and an audit row, updates the header, and commits.
 */
import pg from 'pg';
import type { Config } from '../../src/config.js';
import { openForCommand } from '../../src/database.js';
import { connectionConfig, parseDatabaseUrl } from '../../src/db/connection.js';

export interface BareFill {
  readonly ms: number;
  readonly latencies: readonly number[];
}

/** Bytes of what the fill has written, per row. */
interface Texts {
  readonly record: string;
  readonly header: string;
  readonly result: string;
}

export interface BareWork {
  readonly clusterId: string;
  readonly transactions: number;
  readonly rowsEach: number;
}

export async function bareFill(config: Config, work: BareWork): Promise<BareFill> {
  const access = await openForCommand(config);
  try {
    const client = new pg.Client({ ...connectionConfig(parseDatabaseUrl(access.ownerUrl)), pipeline: true });
    await client.connect();
    try {
      const texts = await typicalTexts(client, work.clusterId);
      await createTables(client, texts);
      const filled = await fillTables(client, work, texts);
      await client.query('drop schema bare cascade');
      return filled;
    } finally {
      await client.end();
    }
  } finally {
    await access.release();
  }
}

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

async function fillTables(client: pg.Client, work: BareWork, texts: Texts): Promise<BareFill> {
  const latencies: number[] = [];
  const digest = `sha256:${'0'.repeat(64)}`;
  const digests = Array.from({ length: work.rowsEach }, () => digest);
  const records = Array.from({ length: work.rowsEach }, () => texts.record);
  const started = performance.now();
  for (let seq = 1; seq <= work.transactions; seq += 1) {
    const items = Array.from(
      { length: work.rowsEach },
      (_, index) => `item-${String(seq * work.rowsEach + index).padStart(40, '0')}`,
    );
    const before = performance.now();
    await Promise.all([
      client.query('begin'),
      client.query({
        name: 'lock',
        text: 'select generation from bare.headers where id = $1 for update',
        values: ['fleet'],
      }),
    ]);
    const values = ['fleet', seq, texts.header, items, digests, records, texts.result];
    await Promise.all([client.query({ name: 'insertion', text: insertion, values }), client.query('commit')]);
    latencies.push(performance.now() - before);
  }
  return { ms: performance.now() - started, latencies };
}
