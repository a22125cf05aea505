/** Stored pages against pages that were laid out anew. */
import { sql } from 'kysely';
import { qb } from '../../db/query.js';
import type { PageContent } from '../volume-handoff/page.js';
import { pagesOf, type Verification } from './verification.js';

const pagesPerRead = 64;

interface PageCount {
  readonly since: number;
  readonly count: number;
}

interface StoredPage {
  readonly pageIndex: number;
  readonly contentDigest: string;
  readonly bytes: Buffer;
}

/** Takes the complete generations in ascending order. */
export class PageRows {
  readonly #verification: Verification;
  readonly #clusterId: string;
  #counts: AsyncGenerator<PageCount, void, undefined> | undefined;
  #next: PageCount | undefined;

  constructor(verification: Verification, clusterId: string) {
    this.#verification = verification;
    this.#clusterId = clusterId;
  }

  async open(): Promise<void> {
    this.#counts = countsByGeneration(this.#verification, this.#clusterId);
    await this.#advance();
  }

  /** `pages`: exactly those that the generation must have stored. */
  async compare(generation: number, pages: Iterable<PageContent>): Promise<void> {
    await this.#refuseBefore(generation);
    const stored = this.#next?.since === generation ? this.#next.count : 0;
    if (stored > 0) await this.#advance();
    const published = new Set<number>();
    let matched = 0;
    let chunk: PageContent[] = [];
    for (const page of pages) {
      published.add(page.pageIndex);
      chunk.push(page);
      if (chunk.length < pagesPerRead) continue;
      matched += await this.#compareChunk(generation, chunk);
      chunk = [];
    }
    if (chunk.length > 0) matched += await this.#compareChunk(generation, chunk);
    if (stored > matched)
      await this.#nameRows(
        generation,
        (index) => !published.has(index),
        'the page was the same before: nothing was to be stored',
      );
    this.#verification.advance(matched);
  }

  /** What is left was published by nobody. */
  async close(): Promise<void> {
    await this.#refuseBefore(Number.MAX_SAFE_INTEGER);
  }

  #key(pageIndex: number, since: number) {
    return { cluster_id: this.#clusterId, page_index: pageIndex, since_generation: since };
  }

  async #advance(): Promise<void> {
    const { value } = (await this.#counts?.next()) ?? {};
    this.#next = value ?? undefined;
  }

  async #refuseBefore(generation: number): Promise<void> {
    while (this.#next !== undefined && this.#next.since < generation) {
      await this.#nameRows(this.#next.since, () => true, 'no complete revision of this generation published it');
      await this.#advance();
    }
  }

  async #compareChunk(generation: number, pages: readonly PageContent[]): Promise<number> {
    const { tx, findings } = this.#verification;
    const rows = await tx.rows(
      sql<StoredPage>`
        select page_index as "pageIndex", content_digest as "contentDigest", bytes from control.handoff_pages
        where cluster_id = ${this.#clusterId} and since_generation = ${generation}
          and page_index = any(${pages.map((page) => page.pageIndex)}::integer[])`.compile(qb),
    );
    const stored = new Map(rows.map((row) => [row.pageIndex, row]));
    for (const page of pages) {
      const key = this.#key(page.pageIndex, generation);
      const row = stored.get(page.pageIndex);
      if (row === undefined) {
        findings.add(
          'handoff_pages',
          key,
          'the row is missing',
          `the handoff revisions make a page with ${page.contentDigest}`,
        );
      } else if (row.contentDigest !== page.contentDigest) {
        findings.add(
          'handoff_pages',
          key,
          'the page was changed',
          `the handoff revisions make ${page.contentDigest}, the row says ${row.contentDigest}`,
        );
      } else if (!row.bytes.equals(Buffer.from(page.tail))) {
        findings.add(
          'handoff_pages',
          key,
          'the page was changed',
          `its bytes are not those that ${page.contentDigest} was taken of`,
        );
      }
    }
    return rows.length;
  }

  async #nameRows(since: number, isWrong: (pageIndex: number) => boolean, how: string): Promise<void> {
    const { tx, findings } = this.#verification;
    const rows = await tx.rows(
      sql<{ pageIndex: number }>`
        select page_index as "pageIndex" from control.handoff_pages
        where cluster_id = ${this.#clusterId} and since_generation = ${since} order by page_index`.compile(qb),
    );
    for (const { pageIndex } of rows) {
      if (isWrong(pageIndex))
        findings.add('handoff_pages', this.#key(pageIndex, since), 'the row should not be there', how);
    }
  }
}

/** In ascending order of the generations. */
async function* countsByGeneration(
  { tx }: Verification,
  clusterId: string,
): AsyncGenerator<PageCount, void, undefined> {
  const pages = pagesOf<PageCount>((last) =>
    tx.rows(
      sql<PageCount>`
        select since_generation as since, count(*) as count from control.handoff_pages
        where cluster_id = ${clusterId} and since_generation > ${last?.since ?? -1}
        group by since_generation order by since_generation limit 10000`.compile(qb),
    ),
  );
  for await (const rows of pages) yield* rows;
}
