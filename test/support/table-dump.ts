import type { TestDatabase } from './database.js';

/** Everything that the private tables hold, by table: equal dumps mean that nothing was written. */
export async function dumpTables(
  database: Pick<TestDatabase, 'owner'>,
  /** Refusals are counted, and a token's first use is noted, also where nothing else may be written. */
  except: readonly string[] = ['refusal_counts', 'credentials'],
): Promise<Record<string, string>> {
  const tables = await database.owner.query<{ name: string }>(
    `select tablename as name from pg_tables where schemaname = 'control' and tablename <> all($1) order by tablename`,
    [except],
  );
  const selects = tables.rows.map(
    ({ name }) =>
      `select '${name}' as name, coalesce(string_agg(t::text, E'\\n' order by t::text collate "C"), '') as text from control.${name} t`,
  );
  const { rows } = await database.owner.query<{ name: string; text: string }>(selects.join(' union all '));
  return Object.fromEntries(rows.map(({ name, text }) => [name, text]));
}

/** Number of rows of a table of the cluster. */
export async function countRows(
  database: Pick<TestDatabase, 'owner'>,
  table: string,
  clusterId: string,
): Promise<number> {
  const { rows } = await database.owner.query<{ count: string }>(
    `select count(*) from control.${table} where cluster_id = $1`,
    [clusterId],
  );
  return Number(rows[0]!.count);
}

/** Runs a statement as the owner whom no trigger holds back: what nobody but an intruder could do. */
export async function tamper(
  database: Pick<TestDatabase, 'owner'>,
  statement: string,
  values: readonly unknown[],
): Promise<number> {
  const client = await database.owner.connect();
  try {
    await client.query('set session_replication_role = replica');
    return (await client.query(statement, [...values])).rowCount ?? 0;
  } finally {
    await client.query('reset session_replication_role');
    client.release();
  }
}
