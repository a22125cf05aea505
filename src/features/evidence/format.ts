/**
 * An evidence file, version 1: lines of canonical JSON (RFC 8785), each ended by a line feed, the whole optionally gzipped.
 *
 *     {"auditHead":…,"clusterId":…,"clusterLife":…,"counts":{…},"format":"fleet-cutover-evidence","organizationId":…,"version":1}
 *     {"row":{…},"table":"clusters"}
 *     …
 *     {"trailer":{"counts":{…},"digest":"sha256:…","lines":…}}
 *
 * 1. Rows stand table by table in the order of `tables.ts`, and in a table in the order of its key. The same rows are the same
 *    bytes.
 * 2. A row has every column of its table there, each as the text that Postgres writes, or null. So every state of a row can be
 *    told, also one that nobody should have made, and a record is exactly the text that its digest was taken of.
 * 3. `counts` has the rows of every table. `digest` is SHA-256 over all bytes before the trailer (unzipped):
 *    `head -n -1 FILE | sha256sum`. `lines` is how many lines those are.
 *
 * The digest finds a file that was cut, damaged or edited without care. Whoever edits a file with care makes a new trailer;
 * then the rows contradict each other, except where nothing determines a column. Whoever makes all of them anew can't make the
 * audit head that somebody wrote down; what no audited result depends on (such as an old local snapshot, where more than one can
 * have closed a gate) is not bound to that head.
 */
import { type Static, Type } from '@sinclair/typebox';
import { canonicalizeStrictJson } from '../../contract/canonical-json.js';
import {
  maximumObservationCensusBytes,
  maximumPreparedVolumeHandoffBytes,
  maximumPreparedVolumeHandoffs,
} from '../../contract/limits.js';
import { defineRecord } from '../../contract/record.js';
import { closed, Digest, Identifier, NaturalInteger, nullable } from '../../contract/schema.js';
import { evidenceTables, type EvidenceTable } from './tables.js';

export const evidenceFormat = 'fleet-cutover-evidence';
export const evidenceVersion = 1;

/**
 * What no file of ours reaches, so that one that does is refused, and not read on: whoever made it made it against the reader.
 *
 * 1. A line: a snapshot has 4 MiB, and quotes in its text are escaped, which doubles it; four times that for what is derived.
 * 2. A row: as many as are read at once make {@link maximumPageBytes} at most.
 * 3. Key columns and what else is quoted: identifiers (128), digests (71), numbers. Postgres stores no key of more than 2,704 bytes.
 * 4. Rows: each handoff that a fleet can have, changed 256 times.
 * 5. Bytes: so many rows, each as large as the largest handoff.
 * 6. Zipped: each row has identifiers and digests of its own, which nothing makes shorter. What is under
 *    {@link freeUnzippedBytes} may be zipped as well as it can be.
 */
export const maximumLineBytes = 8 * maximumObservationCensusBytes;
const maximumPageBytes = 268_435_456;
export const maximumKeyBytes = 1_024;
export const maximumRows = 256 * maximumPreparedVolumeHandoffs;
export const maximumBytes = maximumRows * maximumPreparedVolumeHandoffBytes;
export const maximumZipRatio = 200;
export const freeUnzippedBytes = 2 * maximumLineBytes;

/** Of a line with a row of this table. */
export function maximumRowBytes({ rowsPerPage }: EvidenceTable): number {
  return Math.min(maximumLineBytes, Math.floor(maximumPageBytes / rowsPerPage));
}

const Counts = closed(Object.fromEntries(evidenceTables.map(({ name }) => [name, NaturalInteger])));

const Header = closed({
  format: Type.Literal(evidenceFormat),
  version: Type.Literal(evidenceVersion),
  clusterId: Identifier,
  organizationId: Identifier,
  clusterLife: Identifier,
  /** Null: the chain has no head, which is wrong. */
  auditHead: nullable(closed({ seq: NaturalInteger, digest: Digest })),
  counts: Counts,
});
export type EvidenceHeader = Static<typeof Header>;
export const evidenceHeaderRecord = defineRecord('EvidenceHeader', Header);

const Trailer = closed({ trailer: closed({ counts: Counts, digest: Digest, lines: NaturalInteger }) });
export type EvidenceTrailer = Static<typeof Trailer>;
export const evidenceTrailerRecord = defineRecord('EvidenceTrailer', Trailer);

/** By column; text as Postgres writes it. */
export type EvidenceRow = Readonly<Record<string, string | null>>;

/** With its line feed. */
export function lineOf(value: EvidenceHeader | EvidenceTrailer): string {
  return `${canonicalizeStrictJson(value)}\n`;
}

export function rowLine(table: EvidenceTable, row: EvidenceRow): string {
  return `{"row":${canonicalizeStrictJson(row)},"table":${JSON.stringify(table.name)}}\n`;
}

const tables = new Map(evidenceTables.map((table) => [table.name, table]));

/** The row that a line's value is, or what is wrong with it. */
export function readRow(value: unknown): { readonly table: EvidenceTable; readonly row: EvidenceRow } | string {
  if (typeof value !== 'object' || value === null || Object.keys(value).join() !== 'row,table')
    return 'it is neither a row nor the trailer';
  const { table: name, row } = value as { table: unknown; row: unknown };
  const table = typeof name === 'string' ? tables.get(name) : undefined;
  if (table === undefined) return `no evidence is of table ${JSON.stringify(name)}`;
  if (typeof row !== 'object' || row === null || Array.isArray(row)) return 'its row is no object';
  const names = new Set(Object.keys(row));
  const missing = table.columns.find((column) => !names.delete(column));
  if (missing !== undefined) return `its row of ${table.name} has no ${missing}`;
  const [unknown] = names;
  if (unknown !== undefined) return `its row of ${table.name} has ${JSON.stringify(unknown)}, which no evidence has`;
  const other = Object.values(row).some((each) => typeof each !== 'string' && each !== null);
  return other ? `its row of ${table.name} has a value that is no text` : { table, row: row as EvidenceRow };
}
