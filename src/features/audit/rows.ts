/** The only SQL that writes `audit_heads`, `audit_rows` and `refusal_counts`. */
import { type RawBuilder, type Selectable, sql } from 'kysely';
import { canonicalizeStrictJson } from '../../contract/canonical-json.js';
import { bareDigestOfCanonical } from '../../contract/digest.js';
import type { IAuditHead } from '../../contract/method.js';
import { qb } from '../../db/query.js';
import type { Database } from '../../db/tables.js';
import type { ReadTx, Tx } from '../../db/transaction.js';
import { type AuditFacts, digestText, genesisDigest, rowDigest } from './chain.js';
import type { MutationContext } from './context.js';

/** The parts of a recorded mutation that a replay is judged by and answered from. */
export interface AuditRow {
  readonly chain_id: string;
  readonly seq: number;
  readonly chain_digest: Buffer;
  readonly principal_id: string;
  readonly method: string;
  readonly request_digest: string;
  readonly result: string;
}

/** What {@link auditCte} gives under the name `audit_row`. */
export interface WrittenAuditRow {
  readonly seq: number;
  readonly chain_digest: Buffer;
}

/**
 * The mutation that used this id before, by one look-up in the unique index. Send it after the locks: then one of two
 * equal requests waits there and finds what the other has committed.
 */
export function findReplay(tx: ReadTx, context: MutationContext): Promise<AuditRow | undefined> {
  const looking = tx
    .maybe(
      qb
        .selectFrom('control.audit_rows')
        .selectAll()
        .where('organization_id', '=', context.organizationId)
        .where('mutation_id', '=', context.mutationId),
    )
    .then(demandIntact);
  // Callers await their locks first: a connection lost there must not leave this rejection without a handler.
  looking.catch(() => {});
  return looking;
}

function demandIntact<R extends Selectable<Database['control.audit_rows']>>(row: R | undefined): R | undefined {
  if (row !== undefined && !rowDigest(factsOf(row)).equals(row.row_digest)) {
    throw new CorruptAuditRowError(row.chain_id, row.seq);
  }
  return row;
}

function factsOf(row: Selectable<Database['control.audit_rows']>): AuditFacts {
  return {
    chainId: row.chain_id,
    organizationId: row.organization_id,
    clusterId: row.cluster_id,
    mutationId: row.mutation_id,
    credentialId: row.credential_id,
    principalId: row.principal_id,
    method: row.method,
    requestDigest: row.request_digest,
    resultDigest: bareDigestOfCanonical(row.result),
    at: row.at,
  };
}

/** A recorded mutation does not have the digest that it was recorded with: somebody changed it, and it is not replayed. */
export class CorruptAuditRowError extends Error {
  override readonly name = 'CorruptAuditRowError';
  constructor(chainId: string, seq: number) {
    super(`row ${seq} of the audit chain ${chainId} does not match its digest`);
  }
}

/**
 * Two common table expressions, `audit_head` and `audit_row`, to append to the statement that writes a mutation's effect.
 * `audit_row (seq, chain_digest)` has the new row.
 *
 * 1. The head's row is the last lock taken, and the new digest is computed from what the lock found: a wait costs no retry.
 * 2. Without a head there is no row: the insert fails on `seq is null`, so that nothing is ever written unaudited.
 * 3. `onlyIf`, e.g. `(select count(*) from swapped) = 1`, is evaluated before the head is locked. It must not be correlated.
 *    Where it is false nothing is audited, and the caller knows from the missing row that its write had no effect.
 *
 * `result` is the recorded result and must not contain a secret.
 */
export function auditCte(
  context: MutationContext,
  result: unknown,
  onlyIf: RawBuilder<boolean> = sql<boolean>`true`,
): RawBuilder<unknown> {
  const text = canonicalizeStrictJson(result);
  const { chainId, organizationId, clusterId, mutationId, credentialId, principalId, method, requestDigest, at } =
    context;
  const row = rowDigest({
    chainId,
    organizationId,
    clusterId,
    mutationId,
    credentialId,
    principalId,
    method,
    requestDigest,
    resultDigest: bareDigestOfCanonical(text),
    at,
  });
  return sql`
    audit_head as (
      update control.audit_heads
         set seq = seq + 1, digest = sha256(digest || ${row}::bytea)
       where chain_id = ${chainId}::text and ${onlyIf}
      returning seq, digest
    ),
    audit_row as (
      insert into control.audit_rows (chain_id, seq, chain_digest, row_digest, organization_id, cluster_id, mutation_id,
                                      credential_id, principal_id, method, request_digest, result, at)
      select ${chainId}::text, head.seq, head.digest, ${row}::bytea, ${organizationId}::text, ${clusterId}::text,
             ${mutationId}::text, ${credentialId}::text, ${principalId}::text, ${method}::text, ${requestDigest}::text,
             ${text}::text, ${at}::bigint
        from (select) as one left join audit_head as head on true
       where ${onlyIf}
      returning seq, chain_digest
    )`;
}

/** The audit row alone, for operations whose effect is written by statements before it; sends COMMIT with it. */
export async function commitAudited(tx: Tx, context: MutationContext, result: unknown): Promise<IAuditHead> {
  const statement = sql<WrittenAuditRow>`with ${auditCte(context, result)} select seq, chain_digest from audit_row`;
  const [row] = await tx.commitWith(statement.compile(qb));
  if (row === undefined) throw new Error('the audit row was not written');
  return auditHead(context.chainId, row);
}

/** A chain's head as the wire writes it. */
export function auditHead(chainId: string, row: WrittenAuditRow): IAuditHead {
  return { chainId, seq: row.seq, digest: digestText(row.chain_digest) };
}

/** Begins a chain. 0: there is one of this name already. */
export function openChain(tx: Tx, chainId: string): Promise<number> {
  return tx.run(
    qb
      .insertInto('control.audit_heads')
      .values({ chain_id: chainId, seq: 0, digest: genesisDigest(chainId) })
      .onConflict((conflict) => conflict.column('chain_id').doNothing()),
  );
}

/** How often one principal was refused one method for one reason within one minute. */
export interface RefusalCount {
  readonly principalId: string;
  readonly method: string;
  readonly code: string;
  /** Begin of the minute. */
  readonly minute: Date;
  readonly chainId: string;
  readonly count: number;
}

/** Adds the counts, each with the position that its chain has now. A chain that does not exist is left out. */
export function addRefusalCounts(tx: Tx, counts: readonly RefusalCount[]): Promise<number> {
  const column = <T>(read: (count: RefusalCount) => T): T[] => counts.map(read);
  const statement = sql`
    insert into control.refusal_counts as counted (principal_id, method, code, minute, chain_id, chain_seq, count)
    select refused.principal_id, refused.method, refused.code, refused.minute, head.chain_id, head.seq, refused.count
      from unnest(${column((each) => each.principalId)}::text[], ${column((each) => each.method)}::text[],
                  ${column((each) => each.code)}::text[], ${column((each) => each.minute.toISOString())}::timestamptz[],
                  ${column((each) => each.chainId)}::text[], ${column((each) => each.count)}::bigint[])
             as refused (principal_id, method, code, minute, chain_id, count)
      join control.audit_heads as head on head.chain_id = refused.chain_id
     order by 1, 2, 3, 4, 5
    on conflict (principal_id, method, code, minute, chain_id)
    do update set count = counted.count + excluded.count, chain_seq = excluded.chain_seq`;
  return tx.run(statement.compile(qb));
}
