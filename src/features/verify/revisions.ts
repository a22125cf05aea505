/**
 * Revisioned records: a gapless chain of sealed rows, each of which names its predecessor, and a head that is the last one.
 */
import type { ContractRecord } from '../../contract/record.js';
import type { Reference } from '../../contract/schema.js';
import { sql } from 'kysely';
import { qb } from '../../db/query.js';
import type { RowKey } from './finding.js';
import { judgeSealed, type StoredRecord } from './sealed-record.js';
import { pagesOf, type Verification } from './verification.js';

export interface RevisedRecord extends Reference {
  readonly predecessor: Reference | null;
}

export interface RevisionsOf<T extends RevisedRecord, R extends StoredRecord> {
  readonly table: string;
  readonly record: ContractRecord<T>;
  /** Id that all revisions carry. */
  readonly id: string;
  key(generation: number): RowKey;
  /** What a sound record contradicts in its row's other columns or owner; null: nothing. */
  readonly contradiction?: (value: T, row: R) => string | null;
}

export interface LastRevision<T> {
  readonly generation: number;
  readonly digest: string;
  /** Null where the row is broken. */
  readonly value: T | null;
}

/** Rows of the cluster's one chain in a table that has nothing but records, after a generation. */
export function recordsAfter(
  { tx }: Verification,
  table: 'ingress_designation_revisions' | 'coreflow_retirements',
  clusterId: string,
  limit: number,
): (generation: number) => Promise<StoredRecord[]> {
  return (generation) =>
    tx.rows(
      sql<StoredRecord>`
        select generation, digest, record from ${sql.table(`control.${table}`)}
        where cluster_id = ${clusterId} and generation > ${generation} order by generation limit ${limit}`.compile(qb),
    );
}

/** Takes the rows of one chain in ascending generation. */
export class RevisionChain<T extends RevisedRecord, R extends StoredRecord> {
  readonly #verification: Verification;
  readonly #of: RevisionsOf<T, R>;
  #last: LastRevision<T> | undefined;

  constructor(verification: Verification, of: RevisionsOf<T, R>) {
    this.#verification = verification;
    this.#of = of;
  }

  get last(): LastRevision<T> | undefined {
    return this.#last;
  }

  /** Takes all rows, a page at a time; `after` gives the page after a generation. */
  async takeAll(
    after: (generation: number) => Promise<R[]>,
    each: (value: T | null, row: R) => Promise<void> = () => Promise.resolve(),
  ): Promise<void> {
    for await (const rows of pagesOf<R>((last) => after(last?.generation ?? 0))) {
      for (const row of rows) await each(this.take(row), row);
      this.#verification.advance(rows.length);
    }
  }

  /** Gives the record, or null where the row is broken. */
  take(row: R): T | null {
    const { table, record, key } = this.#of;
    const { findings } = this.#verification;
    this.#missingUpTo(row.generation - 1, `generation ${row.generation} is there`);
    const { value, fault } = judgeSealed(record, row);
    const wrong = fault ?? this.#contradiction(value, row);
    if (wrong !== null) findings.add(table, key(row.generation), 'the record was changed', wrong);
    else this.#comparePredecessor(value as T, row.generation);
    this.#last = { generation: row.generation, digest: row.digest, value: wrong === null ? value : null };
    return this.#last.value;
  }

  /** Compares the last row with what the head says. `digest` null: there is to be none. */
  end(
    head: { readonly generation: number; readonly digest: string | null } | undefined,
    headTable: string,
    headKey: RowKey,
  ): void {
    const { findings } = this.#verification;
    const last = this.#last;
    if (head === undefined) {
      findings.add(
        headTable,
        headKey,
        'the head is missing',
        `${this.#of.table} has ${last?.generation ?? 0} generations`,
      );
      return;
    }
    const known = last?.generation ?? 0;
    if (head.generation > known && !findings.has(headTable, headKey)) {
      this.#missingUpTo(head.generation, `the head names generation ${head.generation}`);
      return;
    }
    if (head.generation < known || (last?.digest ?? null) !== head.digest) {
      findings.add(
        headTable,
        headKey,
        'the head is not the newest revision',
        `it names ${head.generation} ${head.digest ?? 'none'}, the newest row is ${known} ${last?.digest ?? 'none'}`,
      );
    }
  }

  #contradiction(value: T | null, row: R): string | null {
    if (value === null) return 'the record cannot be read';
    if (value.id !== this.#of.id) return `the record has id ${value.id}; its owner's is ${this.#of.id}`;
    return this.#of.contradiction?.(value, row) ?? null;
  }

  #missingUpTo(generation: number, how: string): void {
    const first = (this.#last?.generation ?? 0) + 1;
    // A wrong head may name any number; each missing row is named as far as anybody would read.
    for (let missing = first; missing <= Math.min(generation, first + 99); missing += 1) {
      this.#verification.findings.add(this.#of.table, this.#of.key(missing), 'the row is missing', how);
    }
    if (generation >= first) this.#last = undefined;
  }

  /** A sound row that names another predecessor says that the one before was replaced. */
  #comparePredecessor(value: T, generation: number): void {
    const { table, key } = this.#of;
    const { predecessor } = value;
    const last = this.#last;
    if (generation === 1) {
      if (predecessor !== null)
        this.#verification.findings.add(
          table,
          key(1),
          'the record was changed',
          'the first generation names a predecessor',
        );
      return;
    }
    if (last === undefined) return;
    if (
      predecessor?.generation === last.generation &&
      predecessor.digest === last.digest &&
      predecessor.id === value.id
    )
      return;
    this.#verification.findings.add(
      table,
      key(last.generation),
      'the row was replaced',
      `generation ${generation} names ${predecessor?.digest ?? 'no predecessor'} as the one before, the row has ${last.digest}`,
    );
  }
}
