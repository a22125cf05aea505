/**
 * Audit chains, row by row: each row's digest from its facts, the chain from the row before, positions without a gap, the
 * head at the end, and that a remembered head is part of it.
 */
import { createHash } from 'node:crypto';
import { sql } from 'kysely';
import { bareDigestOfCanonical } from '../../contract/digest.js';
import { qb } from '../../db/query.js';
import { digestText, genesisDigest, organizationChainId, rowDigest } from '../audit/chain.js';
import type { RememberedHead } from './remembered-head.js';
import { readCanonical } from './sealed-record.js';
import { pagesOf, type Verification } from './verification.js';

export interface StoredAuditRow {
  readonly seq: number;
  readonly chainDigest: Buffer;
  readonly rowDigest: Buffer;
  readonly organizationId: string;
  readonly clusterId: string | null;
  readonly mutationId: string;
  readonly credentialId: string;
  readonly principalId: string;
  readonly method: string;
  readonly requestDigest: string;
  readonly result: string;
  readonly at: number;
}

const rowsPerPage = 200;

/** Rows of one chain in order; `methods` null: all. */
export function auditRows(verification: Verification, chainId: string, methods: readonly string[] | null) {
  return pagesOf<StoredAuditRow>((last) =>
    verification.tx.rows(
      sql<StoredAuditRow>`
        select seq, chain_digest as "chainDigest", row_digest as "rowDigest", organization_id as "organizationId",
          cluster_id as "clusterId", mutation_id as "mutationId", credential_id as "credentialId",
          principal_id as "principalId", method, request_digest as "requestDigest", result, at
        from control.audit_rows
        where chain_id = ${chainId} and seq > ${last?.seq ?? 0}
          and (${methods === null} or method = any(${methods ?? []}::text[]))
        order by seq limit ${rowsPerPage}`.compile(qb),
    ),
  );
}

/** The digest that a row's facts have. */
export function factsDigest(chainId: string, row: StoredAuditRow): Buffer {
  const { organizationId, clusterId, mutationId, credentialId, principalId, method, requestDigest, at } = row;
  const resultDigest = bareDigestOfCanonical(row.result);
  return rowDigest({
    chainId,
    organizationId,
    clusterId,
    mutationId,
    credentialId,
    principalId,
    method,
    requestDigest,
    resultDigest,
    at,
  });
}

/** Chains of the clusters and of the organizations that have any row or head. */
export async function verifyAuditChains(
  verification: Verification,
  chainIds: readonly string[],
  remembered: readonly RememberedHead[],
): Promise<void> {
  for (const chainId of chainIds) {
    const heads = remembered.filter((each) => each.chainId === chainId);
    await verifyChain(verification, chainId, heads);
  }
}

async function verifyChain(
  verification: Verification,
  chainId: string,
  remembered: readonly RememberedHead[],
): Promise<void> {
  const { tx, findings } = verification;
  const genesis = genesisDigest(chainId);
  const wanted = new Map(remembered.map((head) => [head.seq, head]));
  compareRemembered(verification, chainId, wanted, 0, genesis);
  let seq = 0;
  // After a row whose chain digest is wrong, either that or what it should be may go on.
  let bases: readonly Buffer[] = [genesis];
  for await (const rows of auditRows(verification, chainId, null)) {
    for (const row of rows) {
      const key = { chain_id: chainId, seq: row.seq };
      if (row.seq !== seq + 1) bases = [];
      for (let missing = seq + 1; missing < Math.min(row.seq, seq + 100); missing += 1) {
        findings.add(
          'audit_rows',
          { chain_id: chainId, seq: missing },
          'the row is missing',
          `row ${row.seq} is there`,
        );
      }
      const digest = factsDigest(chainId, row);
      const fault = faultOf(chainId, row, digest);
      if (fault !== null) findings.add('audit_rows', key, 'the row was changed', fault);
      bases = continueChain(verification, chainId, row, bases, [digest, row.rowDigest]);
      compareRemembered(verification, chainId, wanted, row.seq, row.chainDigest);
      seq = row.seq;
    }
    verification.advance(rows.length);
  }
  for (const [lost, head] of wanted) {
    findings.add(
      'audit_rows',
      { chain_id: chainId, seq: lost },
      'the chain does not reach the remembered head',
      `it ends at ${seq}; ${lost}:${head.digest} was written down before`,
    );
  }
  const head = await tx.maybe(
    sql<{
      seq: number;
      digest: Buffer;
    }>`select seq, digest from control.audit_heads where chain_id = ${chainId}`.compile(qb),
  );
  compareHead(verification, chainId, head, seq, bases);
}

function faultOf(chainId: string, row: StoredAuditRow, digest: Buffer): string | null {
  if (!digest.equals(row.rowDigest))
    return `its facts have the digest ${digestText(digest)}, the row ${digestText(row.rowDigest)}`;
  const owner = row.clusterId ?? organizationChainId(row.organizationId);
  if (owner !== chainId) return `its facts belong to chain ${owner}`;
  return readCanonical(row.result) === undefined ? 'the recorded result is not canonical JSON' : null;
}

/** The row's chain digest must follow from one of the bases and one of the row's digests. Gives the next bases. */
function continueChain(
  { findings }: Verification,
  chainId: string,
  row: StoredAuditRow,
  bases: readonly Buffer[],
  rowDigests: readonly Buffer[],
): readonly Buffer[] {
  const links = bases.flatMap((base) =>
    rowDigests.map((digest) => createHash('sha256').update(base).update(digest).digest()),
  );
  if (links.length === 0 || links.some((link) => link.equals(row.chainDigest))) return [row.chainDigest];
  findings.add(
    'audit_rows',
    { chain_id: chainId, seq: row.seq },
    'the row is not the one that was chained',
    `the row before and this one give ${digestText(links[0]!)}, the row has ${digestText(row.chainDigest)}`,
  );
  return [row.chainDigest, ...links];
}

function compareRemembered(
  { findings }: Verification,
  chainId: string,
  wanted: Map<number, RememberedHead>,
  seq: number,
  digest: Buffer,
): void {
  const head = wanted.get(seq);
  if (head === undefined) return;
  wanted.delete(seq);
  if (head.digest === digestText(digest)) return;
  findings.add(
    'audit_rows',
    { chain_id: chainId, seq },
    'the chain is not the one of the remembered head',
    `at ${seq} it has ${digestText(digest)}, ${head.digest} was written down before`,
  );
}

function compareHead(
  { findings }: Verification,
  chainId: string,
  head: { readonly seq: number; readonly digest: Buffer } | undefined,
  seq: number,
  bases: readonly Buffer[],
): void {
  const key = { chain_id: chainId };
  if (head === undefined) {
    findings.add('audit_heads', key, 'the head is missing', `the chain has ${seq} rows`);
    return;
  }
  if (head.seq > seq) {
    for (let missing = seq + 1; missing <= Math.min(head.seq, seq + 100); missing += 1) {
      findings.add(
        'audit_rows',
        { chain_id: chainId, seq: missing },
        'the row is missing',
        `the head names position ${head.seq}`,
      );
    }
    return;
  }
  if (head.seq === seq && bases.some((base) => base.equals(head.digest))) return;
  findings.add(
    'audit_heads',
    key,
    'the head is not the end of the chain',
    `it names ${head.seq}:${digestText(head.digest)}, the rows end at ${seq}`,
  );
}
