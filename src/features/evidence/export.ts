/** The rows of one cluster as lines, at one moment and beside a serving service; a page of rows is in memory at a time. */
import { createHash, type Hash } from 'node:crypto';
import { sql } from 'kysely';
import { refuse, type Refused } from '../../contract/problems.js';
import { qb } from '../../db/query.js';
import { read, type ReadTx } from '../../db/transaction.js';
import type { Deps } from '../../deps.js';
import { digestText } from '../audit/chain.js';
import { pagesOf } from '../verify/verification.js';
import { type EvidenceHeader, evidenceFormat, type EvidenceRow, evidenceVersion, lineOf, rowLine } from './format.js';
import { evidenceTables, type EvidenceTable } from './tables.js';

export interface ExportedEvidence {
  readonly clusterId: string;
  readonly auditHead: EvidenceHeader['auditHead'];
  readonly rows: number;
  /** What the trailer says. */
  readonly digest: string;
}

export interface ExportProgress {
  readonly table: string;
  /** Rows written, of so many. */
  readonly rows: number;
  readonly total: number;
}

/**
 * Gives all lines, a few at a time, to `write`, which takes them as fast as it can store them. It is called again, from the
 * first line on, where the database asks for another try. Refused: `cluster-unknown`.
 */
export function exportEvidence(
  deps: Deps,
  clusterId: string,
  write: (chunks: AsyncIterable<string>) => Promise<void>,
  onProgress: (progress: ExportProgress) => void = () => {},
): Promise<ExportedEvidence | Refused> {
  return read(deps, 'exportEvidence', async (tx) => {
    const header = await readHeader(tx, clusterId);
    if (header === undefined) return refuse('cluster-unknown');
    const { counts, auditHead } = header;
    const digest = createHash('sha256');
    await write(chunksOf(tx, header, digest, onProgress));
    return { clusterId, auditHead, rows: sum(counts), digest: digestText(digest.copy().digest()) };
  });
}

async function* chunksOf(
  tx: ReadTx,
  header: EvidenceHeader,
  digest: Hash,
  onProgress: (progress: ExportProgress) => void,
): AsyncGenerator<string, void, undefined> {
  const counts: Record<string, number> = {};
  const total = sum(header.counts);
  let rows = 0;
  const first = lineOf(header);
  digest.update(first);
  yield first;
  for (const table of evidenceTables) {
    counts[table.name] = 0;
    for await (const page of rowsOf(tx, table, header.clusterId)) {
      const chunk = page.map((row) => rowLine(table, row)).join('');
      digest.update(chunk);
      yield chunk;
      counts[table.name]! += page.length;
      rows += page.length;
      onProgress({ table: table.name, rows, total });
    }
  }
  yield lineOf({ trailer: { counts, digest: digestText(digest.copy().digest()), lines: rows + 1 } });
}

function sum(counts: Readonly<Record<string, number>>): number {
  return Object.values(counts).reduce((total, count) => total + count, 0);
}

async function readHeader(tx: ReadTx, clusterId: string): Promise<EvidenceHeader | undefined> {
  const cluster = await tx.maybe(
    sql<{ organizationId: string; clusterLife: string }>`
      select organization_id as "organizationId", cluster_life as "clusterLife"
      from control.clusters where cluster_id = ${clusterId}`.compile(qb),
  );
  if (cluster === undefined) return undefined;
  const head = await tx.maybe(
    sql<{
      seq: number;
      digest: Buffer;
    }>`select seq, digest from control.audit_heads where chain_id = ${clusterId}`.compile(qb),
  );
  const counts: Record<string, number> = {};
  for (const { name, owner } of evidenceTables) {
    const { count } = await tx.one(
      sql<{
        count: number;
      }>`select count(*) as count from ${sql.table(`control.${name}`)} where ${sql.ref(owner)} = ${clusterId}`.compile(
        qb,
      ),
    );
    counts[name] = count;
  }
  return {
    format: evidenceFormat,
    version: evidenceVersion,
    clusterId,
    ...cluster,
    auditHead: head === undefined ? null : { seq: head.seq, digest: digestText(head.digest) },
    counts,
  };
}

/** In the order of the key, by one index. */
function rowsOf(tx: ReadTx, table: EvidenceTable, clusterId: string): AsyncGenerator<EvidenceRow[], void, undefined> {
  const { name, owner, key, columns, byteColumns, rowsPerPage } = table;
  const after = key.filter((column) => column !== owner);
  const reference = (column: string) => sql.ref(`stored.${column}`);
  const texts = columns.map((column) => {
    const text = byteColumns.includes(column)
      ? sql`'\\x' || encode(${reference(column)}, 'hex')`
      : sql`${reference(column)}::text`;
    return sql`${text} as ${sql.id(column)}`;
  });
  return pagesOf<EvidenceRow>((last) => {
    // Whose key is the owner alone has one row.
    if (last !== undefined && after.length === 0) return Promise.resolve([]);
    const beyond =
      last === undefined
        ? sql``
        : sql`and (${sql.join(after.map(reference))}) > (${sql.join(after.map((column) => last[column]))})`;
    return tx.rows(
      sql<EvidenceRow>`
        select ${sql.join(texts)} from ${sql.table(`control.${name}`)} stored
        where ${reference(owner)} = ${clusterId} ${beyond}
        order by ${sql.join((after.length === 0 ? key : after).map(reference))} limit ${rowsPerPage}`.compile(qb),
    );
  });
}
