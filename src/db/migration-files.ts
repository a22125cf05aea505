import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { MigrationError } from './migration-error.js';

/** One numbered SQL file. */
export interface MigrationFile {
  readonly number: number;
  readonly name: string;
  readonly sql: string;
  /** 64 hex of the text, with line ends as they are in the repository. */
  readonly sha256: string;
}

const FILE_NAME = /^(\d{3,5})[_-]([A-Za-z0-9_-]+)\.sql$/;

/**
 * Reads the migrations of a directory, such as `001_fleet.sql`, in the order of their numbers, which begin at 1 without a
 * gap. Files that don't end in `.sql` are left alone. Throws `migration-name` and `migration-gap`.
 */
export async function readMigrations(directory: string): Promise<MigrationFile[]> {
  const names = (await readdir(directory)).filter((name) => name.endsWith('.sql'));
  const files = await Promise.all(names.map((name) => readMigration(directory, name)));
  files.sort((a, b) => a.number - b.number);
  files.forEach((file, index) => {
    if (file.number === index + 1) return;
    throw new MigrationError(
      'migration-gap',
      `the migration files jump at ${file.name}: number ${index + 1} is expected`,
    );
  });
  return files;
}

async function readMigration(directory: string, name: string): Promise<MigrationFile> {
  const number = Number(FILE_NAME.exec(name)?.[1]);
  if (!(number > 0)) throw new MigrationError('migration-name', `${name} is not named like 001_what_it_does.sql`);
  // A checkout may have changed the line ends; the statements are the same.
  const sql = (await readFile(join(directory, name), 'utf8')).replaceAll('\r\n', '\n');
  return { number, name: name.slice(0, -'.sql'.length), sql, sha256: createHash('sha256').update(sql).digest('hex') };
}
