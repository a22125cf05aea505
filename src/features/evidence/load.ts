/**
 * Takes the lines of an evidence file, judges what can be judged of them alone, and gives the rows to a database in which
 * `verify` judges the rest. A row that is refused here is named here, and `verify` is told so.
 */
import { createHash } from 'node:crypto';
import { digestText } from '../audit/chain.js';
import type { Finding, RowKey } from '../verify/finding.js';
import { readCanonical } from '../verify/sealed-record.js';
import {
  type EvidenceHeader,
  evidenceFormat,
  evidenceHeaderRecord,
  type EvidenceRow,
  type EvidenceTrailer,
  evidenceTrailerRecord,
  evidenceVersion,
  maximumKeyBytes,
  maximumRowBytes,
  maximumRows,
  readRow,
} from './format.js';
import { evidenceTables, type EvidenceTable, numericKeys } from './tables.js';

/** A line as it stands in the file, without its line feed. */
export interface EvidenceLine {
  readonly bytes: Buffer;
  /** False: the file ends without a line feed. */
  readonly ended: boolean;
}

/** Reading went wrong in a way that the file is to blame for: cut or damaged compression. */
export class DamagedFileError extends Error {
  override readonly name = 'DamagedFileError';
}

/** Nothing can be said of the file's content: it is none of ours, of another version, or larger than ours can be. */
export class NoEvidenceError extends Error {
  override readonly name = 'NoEvidenceError';
}

/** What is wrong with a line, where it is no row that could be named. */
export interface LineFault {
  /** From 1. */
  readonly line: number;
  readonly what: string;
  readonly how: string;
}

/** Where the rows go. */
export interface RowSink {
  /** Gives those that the table refuses. */
  insert(
    table: string,
    columns: readonly string[],
    rows: readonly (readonly (string | null)[])[],
  ): Promise<readonly RefusedRow[]>;
}

export interface RefusedRow {
  /** Position among the rows that were given. */
  readonly index: number;
  /** A few words: what is stored nowhere is not quoted either, for it may have megabytes. */
  readonly why: string;
}

export interface LoadedEvidence {
  /** Null: it is broken, so that it isn't known whose evidence it is, and nothing was loaded. */
  readonly header: EvidenceHeader | null;
  /** At most 1,000. */
  readonly faults: readonly LineFault[];
  readonly faultCount: number;
  /** Rows that the tables refuse. At most 1,000. */
  readonly refused: readonly Finding[];
  /** As soon as more are refused than are listed, no row is loaded any more. */
  readonly refusedCount: number;
  /** It has its trailer: nothing was cut off. */
  readonly whole: boolean;
  /** Over all lines before the trailer, or before the end. */
  readonly digest: string;
}

/** Of faults, and of refused rows. */
const maximumListed = 1_000;
/** Characters of a line that are shown. */
const maximumShown = 300;
/** Columns with an identifier, a digest or a number: what is found about a row quotes them. */
const shortColumns = /(^|_)(id|digest|generation|seq|sequence|count|version|since|until)$/;
/** Such lines are looked at before they are parsed: values of theirs could need thirty times their bytes. */
const largeLineBytes = 65_536;
/** Brackets and commas between the strings of a line: those of the counts and of the columns are some dozens. */
const maximumMarks = 1_000;
/** Parameters of a statement are bounded, and so is what waits to be inserted. */
const rowsPerInsert = 500;
const bytesPerInsert = 4_194_304;

/** Throws {@link NoEvidenceError}, and what `lines` and `sink` throw. */
export async function loadEvidence(
  lines: AsyncIterable<EvidenceLine>,
  sink: RowSink,
  onProgress: (rows: number, total: number) => void = () => {},
): Promise<LoadedEvidence> {
  const load = new EvidenceLoad(sink, onProgress);
  try {
    for await (const line of lines) await load.take(line);
  } catch (error) {
    if (!(error instanceof DamagedFileError)) throw error;
    load.cutOff(error.message);
  }
  return load.end();
}

class EvidenceLoad {
  readonly #sink: RowSink;
  readonly #onProgress: (rows: number, total: number) => void;
  readonly #digest = createHash('sha256');
  readonly #counts: Record<string, number> = Object.fromEntries(evidenceTables.map(({ name }) => [name, 0]));
  readonly #faults: LineFault[] = [];
  readonly #refused: Finding[] = [];
  #refusedCount = 0;
  #faultCount = 0;
  #line = 0;
  #rows = 0;
  #total = 0;
  #header: EvidenceHeader | null = null;
  #trailed = false;
  #cut = false;
  /** The last row, to see that the order is kept. */
  #before: { readonly table: EvidenceTable; readonly row: EvidenceRow } | undefined;
  #batch: EvidenceRow[] = [];
  #batchBytes = 0;

  constructor(sink: RowSink, onProgress: (rows: number, total: number) => void) {
    this.#sink = sink;
    this.#onProgress = onProgress;
  }

  async take({ bytes, ended }: EvidenceLine): Promise<void> {
    this.#line += 1;
    const value = readLine(bytes);
    if (this.#line === 1) this.#takeHeader(value);
    else if (this.#trailed) this.#fault('the line should not be there', 'it stands behind the trailer');
    else if (isTrailer(value)) this.#takeTrailer(value);
    else await this.#takeRow(value, bytes.length);
    if (!ended) this.#fault('the line has no end', 'every line ends with a line feed');
    if (!this.#trailed) this.#digest.update(bytes).update(ended ? '\n' : '');
  }

  cutOff(how: string): void {
    this.#cut = true;
    this.#line += 1;
    this.#fault('the file is damaged from here on', how);
  }

  async end(): Promise<LoadedEvidence> {
    if (this.#line === 0) throw new NoEvidenceError('the file is empty');
    await this.#insert();
    if (!this.#trailed && !this.#cut) {
      this.#line += 1;
      this.#fault('the trailer is missing', 'the file was cut off: its last line has to be the trailer');
    }
    return {
      header: this.#header,
      faults: this.#faults,
      faultCount: this.#faultCount,
      refused: this.#refused,
      refusedCount: this.#refusedCount,
      whole: this.#trailed,
      digest: this.#digestText(),
    };
  }

  #takeHeader(value: unknown): void {
    const { format, version } = (value ?? {}) as { format?: unknown; version?: unknown };
    if (format !== evidenceFormat) throw new NoEvidenceError('its first line is no header of exported evidence');
    if (version !== evidenceVersion) {
      const known = `this program reads version ${evidenceVersion}`;
      throw new NoEvidenceError(`it is of version ${shown(JSON.stringify(version))}; ${known}`);
    }
    const [error] = evidenceHeaderRecord.check(value);
    if (error !== undefined) return this.#fault('the header was changed', error);
    this.#header = value as EvidenceHeader;
    this.#total = Object.values(this.#header.counts).reduce((total, count) => total + count, 0);
  }

  #takeTrailer(value: object): void {
    this.#trailed = true;
    const [error] = evidenceTrailerRecord.check(value);
    if (error !== undefined) return this.#fault('the trailer was changed', error);
    const { counts, digest, lines } = (value as EvidenceTrailer).trailer;
    const found = this.#digestText();
    if (digest !== found)
      this.#fault('the lines are not those of the trailer', `they have ${found}, it says ${digest}`);
    if (lines !== this.#line - 1)
      this.#fault('the lines are not those of the trailer', `they are ${this.#line - 1}, it says ${lines}`);
    this.#compareCounts('trailer', this.#line, counts);
    if (this.#header !== null) this.#compareCounts('header', 1, this.#header.counts);
  }

  #compareCounts(what: string, line: number, counts: Readonly<Record<string, number>>): void {
    for (const { name } of evidenceTables) {
      const found = this.#counts[name]!;
      if (counts[name] === found) continue;
      this.#fault(`the ${what} counts other rows`, `the file has ${found} of ${name}, it says ${counts[name]}`, line);
    }
  }

  async #takeRow(value: unknown, bytes: number): Promise<void> {
    if (value === undefined) return this.#fault('the line was changed', 'it is not canonical JSON');
    const read = readRow(value);
    if (typeof read === 'string') return this.#fault('the line was changed', read);
    const { table, row } = read;
    this.#demandBounds(table, row, bytes);
    const before = this.#before;
    this.#counts[table.name]! += 1;
    this.#rows += 1;
    if (this.#rows > maximumRows) throw new NoEvidenceError(`it has more than ${maximumRows} rows`);
    // It is loaded all the same: where it stands says nothing of what it says.
    if (before !== undefined && !follows(before, read))
      this.#fault('the line is out of order', `it does not follow the row before`);
    if (this.#header === null) return;
    const { clusterId } = this.#header;
    if (row[table.owner] !== clusterId)
      return this.#fault('the row is of another cluster', `it is of ${row[table.owner]}, the file of ${clusterId}`);
    this.#compareWithHeader(table, row, this.#header);
    if (before !== undefined && before.table !== table) await this.#insert();
    this.#before = read;
    this.#batch.push(row);
    this.#batchBytes += bytes;
    if (this.#batch.length >= rowsPerInsert || this.#batchBytes >= bytesPerInsert) await this.#insert();
  }

  #demandBounds(table: EvidenceTable, row: EvidenceRow, bytes: number): void {
    const most = maximumRowBytes(table);
    if (bytes > most)
      throw new NoEvidenceError(`its line ${this.#line} has more than the ${most} bytes of a row of ${table.name}`);
    const short = table.columns.filter((column) => table.key.includes(column) || shortColumns.test(column));
    const long = short.find((column) => Buffer.byteLength(row[column] ?? '') > maximumKeyBytes);
    if (long !== undefined)
      throw new NoEvidenceError(`its line ${this.#line} has a ${long} of more than ${maximumKeyBytes} bytes`);
  }

  #compareWithHeader(table: EvidenceTable, row: EvidenceRow, header: EvidenceHeader): void {
    if (table.name === 'clusters') {
      if (row['organization_id'] !== header.organizationId || row['cluster_life'] !== header.clusterLife)
        this.#fault('the header is of another cluster', `line ${this.#line} has another organization or life`, 1);
    }
    if (table.name !== 'audit_heads') return;
    const { seq, digest } = header.auditHead ?? {};
    const stored = row['digest']?.replace('\\x', 'sha256:') ?? '';
    if (row['seq'] !== String(seq) || stored !== digest)
      this.#fault('the header names another audit head', `line ${this.#line} has ${row['seq']}:${stored}`, 1);
  }

  async #insert(): Promise<void> {
    const table = this.#before?.table;
    const rows = this.#batch;
    this.#batch = [];
    this.#batchBytes = 0;
    if (table === undefined || rows.length === 0 || this.#refusedCount > maximumListed) return;
    const replaced = Object.entries(table.leftOut).flatMap(([column, { instead }]) =>
      instead === undefined ? [] : [{ column, instead }],
    );
    const columns = [...table.columns, ...replaced.map(({ column }) => column)];
    const values = rows.map((row) => [
      ...table.columns.map((column) => row[column]!),
      ...replaced.map(({ instead }) => instead(row)),
    ]);
    for (const { index, why } of await this.#sink.insert(table.name, columns, values)) {
      const what = 'the row was changed: no such row can be stored';
      this.#refusedCount += 1;
      if (this.#refused.length < maximumListed)
        this.#refused.push({ table: table.name, key: keyOf(table, rows[index]!), what, how: why });
    }
    this.#onProgress(this.#rows, this.#total);
  }

  #digestText(): string {
    return digestText(this.#digest.copy().digest());
  }

  #fault(what: string, how: string, line = this.#line): void {
    this.#faultCount += 1;
    if (this.#faults.length < maximumListed) this.#faults.push({ line, what, how: shown(how) });
  }
}

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** What is kept of a text that quotes the file. A copy: a part of a string would keep all of it in memory. */
export function shown(text: string): string {
  return text.length <= maximumShown ? text : `${Buffer.from(text.slice(0, maximumShown)).toString()}…`;
}

/** Undefined for anything but canonical JSON, and for a line of more values than any of ours. */
export function readLine(bytes: Buffer): unknown {
  if (bytes.length > largeLineBytes && marksOf(bytes) > maximumMarks) return undefined;
  try {
    return readCanonical(utf8.decode(bytes));
  } catch {
    return undefined;
  }
}

function marksOf(bytes: Buffer): number {
  let marks = 0;
  let quoted = false;
  for (let at = 0; at < bytes.length; at += 1) {
    const byte = bytes[at];
    if (byte === 0x22) quoted = !quoted;
    else if (quoted) at += byte === 0x5c ? 1 : 0;
    else if (byte === 0x2c || byte === 0x5b || byte === 0x7b) marks += 1;
    if (marks > maximumMarks) break;
  }
  return marks;
}

function isTrailer(value: unknown): value is object {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, 'trailer');
}

/** As `verify` names the row. */
function keyOf({ key }: EvidenceTable, row: EvidenceRow): RowKey {
  return Object.fromEntries(
    key.map((column) => [column, numericKeys.has(column) ? Number(row[column]) : (row[column] ?? null)]),
  );
}

type Positioned = { readonly table: EvidenceTable; readonly row: EvidenceRow };

function follows(before: Positioned, next: Positioned): boolean {
  if (before.table !== next.table) return evidenceTables.indexOf(next.table) > evidenceTables.indexOf(before.table);
  for (const column of next.table.key) {
    const order = compareKeys(column, before.row[column] ?? '', next.row[column] ?? '');
    if (order !== 0) return order < 0;
  }
  return false;
}

function compareKeys(column: string, left: string, right: string): number {
  const difference = numericKeys.has(column) ? Number(left) - Number(right) : 0;
  return difference || Buffer.compare(Buffer.from(left), Buffer.from(right));
}
