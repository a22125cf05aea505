/** What `verify` found: which row is wrong, and how it knows. */

export type RowKey = Readonly<Record<string, string | number | null>>;

export interface Finding {
  /** Table of schema `control`. */
  readonly table: string;
  /** The row's key by column name; a part that nobody can know is null. */
  readonly key: RowKey;
  readonly what: string;
  readonly how: string;
}

/** More findings than these are counted, not listed. */
const maximumListed = 1_000;

/** Collects findings. A row is listed once, with what was found first: later ones mostly follow from it. */
export class Findings {
  readonly list: Finding[] = [];
  /** Of the listed rows; see {@link has}. */
  readonly #rows = new Set<string>();
  #unlisted = 0;

  constructor(known: readonly Finding[] = []) {
    for (const { table, key, what, how } of known) this.add(table, key, what, how);
  }

  get total(): number {
    return this.list.length + this.#unlisted;
  }

  add(table: string, key: RowKey, what: string, how: string): void {
    const row = rowText(table, key);
    if (this.#rows.has(row)) return;
    if (this.list.length >= maximumListed) {
      this.#unlisted += 1;
      return;
    }
    this.#rows.add(row);
    this.list.push({ table, key, what, how });
  }

  has(table: string, key: RowKey): boolean {
    return this.#rows.has(rowText(table, key));
  }

  hasAny(table: string, part: RowKey): boolean {
    return this.list.some(
      (finding) =>
        finding.table === table && Object.entries(part).every(([name, value]) => finding.key[name] === value),
    );
  }
}

function rowText(table: string, key: RowKey): string {
  return JSON.stringify([
    table,
    ...Object.keys(key)
      .sort()
      .map((name) => [name, key[name]]),
  ]);
}
