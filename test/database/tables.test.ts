/** `src/db/tables.ts` against the database that the migrations make. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createDatabase, type TestDatabase } from '../support/database.js';

let database: TestDatabase;
beforeAll(async () => {
  database = await createDatabase();
});
afterAll(() => database.drop());

/** What a column's values are in the program. */
const typeOf: Readonly<Record<string, string>> = {
  text: 'string',
  bit: 'string',
  bigint: 'number',
  integer: 'number',
  boolean: 'boolean',
  bytea: 'Buffer',
  'timestamp with time zone': 'Date',
};

it('every table has its row type: the same columns, types, nulls and defaults', async () => {
  const text = await readFile(join(import.meta.dirname, '..', '..', 'src', 'db', 'tables.ts'), 'utf8');
  const interfaces = new Map(
    [...text.matchAll(/^export interface (\w+) \{\n(.*?)^\}/gms)].map(([, name = '', body = '']) => [name, body]),
  );
  const declared: string[] = [];
  for (const [, table = '', name = ''] of text.matchAll(/^ {2}'control\.(\w+)': (\w+);$/gm)) {
    for (const [, column = '', type = ''] of (interfaces.get(name) ?? '').matchAll(/^ {2}(\w+): (.+);$/gm)) {
      declared.push(`${table}.${column}: ${type}`);
    }
  }
  const { rows } = await database.owner.query<Record<'table' | 'column' | 'type' | 'nullable' | 'standard', string>>(`
    select table_name as table, column_name as column, data_type as type, is_nullable as nullable, column_default as standard
    from information_schema.columns where table_schema = 'control' and table_name <> 'migrations'`);
  const made = rows.map(({ table, column, type, nullable, standard }) => {
    const plain = type === 'jsonb' ? 'unknown' : (typeOf[type] ?? type);
    const value = nullable === 'YES' ? `${plain} | null` : plain;
    return `${table}.${column}: ${standard === null ? value : `Generated<${value}>`}`;
  });
  // Of JSON the program knows more than the database does.
  const json = new Set(rows.filter((row) => row.type === 'jsonb').map((row) => `${row.table}.${row.column}`));
  const comparable = (lines: readonly string[]) =>
    lines.map((line) => (json.has(line.split(':')[0] ?? '') ? `${line.split(':')[0]}: json` : line)).sort();
  expect(comparable(declared)).toEqual(comparable(made));
});
