/** The only SQL that writes `organizations` and `credentials`, and the queries that authenticate. */
import { type CompiledQuery, type RawBuilder, sql } from 'kysely';
import type { TRole } from '../../contract/fleet.js';
import type { Db } from '../../db/pool.js';
import { qb } from '../../db/query.js';
import { inTransaction, query, type ReadTx, type Tx } from '../../db/transaction.js';
import type { Deps } from '../../deps.js';
import type { AggregateHead } from './actor.js';
import type { KeptHashes, TCredentialKind } from './credential.js';

/** A credential without its hashes. */
export interface CredentialRow {
  readonly credential_id: string;
  readonly cluster_id: string | null;
  readonly kind: TCredentialKind;
  readonly subject_id: string;
  readonly role: TRole | null;
  readonly newest_generation: number;
  readonly used_generation: number | null;
  readonly revoked: boolean;
}

const credentialColumns = [
  'credential_id',
  'cluster_id',
  'kind',
  'subject_id',
  'role',
  'newest_generation',
  'used_generation',
  'revoked',
] as const;

// Authentication ----------------------------------------------------------------------------------------------------

export interface AdministratorRow extends KeptHashes {
  readonly credential_id: string;
  readonly organization_id: string;
  readonly subject_id: string;
  readonly role: TRole;
  readonly revoked: boolean;
}

/** A look-up of keys, compiled once for all: its text does not depend on them. */
function lookUp<R>(query: (keys: string[]) => RawBuilder<R>): (keys: string[]) => CompiledQuery<R> {
  const compiled = query([]).compile(qb);
  return (keys) => ({ ...compiled, parameters: [keys] });
}

const administratorsQuery = lookUp<AdministratorRow>(
  (credentialIds) => sql`
    select credential_id, organization_id, subject_id, role, revoked,
           newest_generation, newest_hash, used_generation, used_hash
      from control.credentials
     where credential_id = any(${credentialIds}::text[]) and kind = 'administrator'`,
);

export async function loadAdministrators(db: Db, credentialIds: string[]): Promise<Map<string, AdministratorRow>> {
  const rows = await query(db, administratorsQuery(credentialIds));
  return new Map(rows.map((row) => [row.credential_id, row]));
}

export interface NodeCredentialRow extends KeptHashes {
  readonly credential_id: string;
  readonly node_id: string;
  readonly cluster_id: string;
  readonly organization_id: string;
  readonly revoked: boolean;
  readonly state: 'active' | 'quarantined' | 'revoked' | 'written-off';
  readonly aggregate_generation: number | null;
  readonly aggregate_digest: string | null;
  readonly aggregate_state: AggregateHead['state'] | null;
  readonly complete_generation: number | null;
}

/**
 * Reads the node and the aggregate's head beside the credential, although they belong to features below: the answer must
 * be of one moment, and a page read then needs no second query. A used hash that is the newest one is not told twice. All rows
 * come as one JSON text: reading their columns one by one took a twentieth of a page read.
 */
const nodesQuery = lookUp<{ nodes: SpelledNode[] }>(
  (nodeIds) => sql`
    select coalesce(json_agg(node), '[]') as nodes from (
    select credential.credential_id, node.node_id, node.cluster_id, credential.organization_id, credential.revoked, node.state,
           credential.newest_generation, encode(credential.newest_hash, 'hex') as newest_hash, credential.used_generation,
           encode(nullif(credential.used_hash, credential.newest_hash), 'hex') as used_hash,
           head.generation as aggregate_generation, head.digest as aggregate_digest, head.state as aggregate_state,
           head.complete_generation
      from control.credentials as credential
      join control.nodes as node on node.node_id = credential.subject_id
      left join control.aggregate_heads as head on head.cluster_id = node.cluster_id
     where credential.kind = 'node-token' and credential.subject_id = any(${nodeIds}::text[])
    ) as node`,
);

type SpelledNode = Omit<NodeCredentialRow, 'newest_hash' | 'used_hash'> & {
  readonly newest_hash: string;
  readonly used_hash: string | null;
};

export async function loadNodes(db: Db, nodeIds: string[]): Promise<Map<string, NodeCredentialRow>> {
  const [answer] = await query(db, nodesQuery(nodeIds));
  const found = new Map<string, NodeCredentialRow>();
  for (const node of answer?.nodes ?? []) {
    found.set(node.node_id, {
      ...node,
      newest_hash: Buffer.from(node.newest_hash, 'hex'),
      used_hash: node.used_hash === null ? null : Buffer.from(node.used_hash, 'hex'),
    });
  }
  return found;
}

export interface LauncherRow extends KeptHashes {
  readonly credential_id: string;
  readonly organization_id: string;
  readonly cluster_id: string;
  /** The designated service. */
  readonly subject_id: string;
  readonly revoked: boolean;
}

const launchersQuery = lookUp<LauncherRow>(
  (credentialIds) => sql`
    select credential_id, organization_id, cluster_id, subject_id, revoked,
           newest_generation, newest_hash, used_generation, used_hash
      from control.credentials
     where credential_id = any(${credentialIds}::text[]) and kind = 'ingress-launcher'`,
);

export async function loadLaunchers(db: Db, credentialIds: string[]): Promise<Map<string, LauncherRow>> {
  const rows = await query(db, launchersQuery(credentialIds));
  return new Map(rows.map((row) => [row.credential_id, row]));
}

/** Notes the first use of the newest generation, which retires the other one. False: it is not the newest any more. */
export async function useNewest(deps: Deps, credentialId: string, generation: number): Promise<boolean> {
  const statement = sql<{ credential_id: string }>`
    update control.credentials
       set used_generation = newest_generation, used_hash = newest_hash
     where credential_id = ${credentialId} and newest_generation = ${generation} and not revoked
       and used_generation is distinct from newest_generation
    returning credential_id`.compile(qb);
  const rows = await inTransaction(deps, 'useCredential', (tx) => tx.commitWith(statement));
  return rows.length === 1;
}

// Owner rows --------------------------------------------------------------------------------------------------------

/** Whether there is any: without one nobody has a token. */
export async function hasOrganization(db: Db): Promise<boolean> {
  const [row] = await query(
    db,
    sql<{ present: boolean }>`select exists (select from control.organizations) as present`.compile(qb),
  );
  return row?.present === true;
}

/** Begins an organization. 0: it exists. */
export function insertOrganization(tx: Tx, organizationId: string): Promise<number> {
  return tx.run(
    qb
      .insertInto('control.organizations')
      .values({ organization_id: organizationId })
      .onConflict((conflict) => conflict.column('organization_id').doNothing()),
  );
}

/**
 * The lock under which an organization's own rows change: its administrators, its services, its set of clusters. It leaves
 * the rows that refer to the organization free.
 */
export function lockOrganizationRow(tx: Tx, organizationId: string): Promise<{ organization_id: string } | undefined> {
  return tx.maybe(
    qb
      .selectFrom('control.organizations')
      .select('organization_id')
      .where('organization_id', '=', organizationId)
      .forNoKeyUpdate(),
  );
}

export interface NewCredentialRow {
  readonly credential_id: string;
  readonly organization_id: string;
  readonly cluster_id: string | null;
  readonly kind: TCredentialKind;
  readonly subject_id: string;
  readonly role: TRole | null;
  readonly hash: Buffer;
}

/** One statement for up to thousands of rows. */
export function insertCredentials(tx: Tx, rows: readonly NewCredentialRow[]): Promise<number> {
  const column = <T>(read: (row: NewCredentialRow) => T): T[] => rows.map(read);
  const statement = sql`
    insert into control.credentials (credential_id, organization_id, cluster_id, kind, subject_id, role, newest_generation, newest_hash)
    select credential_id, organization_id, cluster_id, kind, subject_id, role, 1, hash
      from unnest(${column((row) => row.credential_id)}::text[], ${column((row) => row.organization_id)}::text[],
                  ${column((row) => row.cluster_id)}::text[], ${column((row) => row.kind)}::text[],
                  ${column((row) => row.subject_id)}::text[], ${column((row) => row.role)}::text[],
                  ${column((row) => row.hash)}::bytea[])
             as fresh (credential_id, organization_id, cluster_id, kind, subject_id, role, hash)`;
  return tx.run(statement.compile(qb));
}

/** Locks the credential of an organization's principal, if it is one of these. */
export function lockAdministratorCredential(
  tx: Tx,
  organizationId: string,
  credentialId: string,
): Promise<CredentialRow | undefined> {
  return tx.maybe(
    qb
      .selectFrom('control.credentials')
      .select(credentialColumns)
      .where('credential_id', '=', credentialId)
      .where('organization_id', '=', organizationId)
      .where('kind', '=', 'administrator')
      .forUpdate()
      .$castTo<CredentialRow>(),
  );
}

/** Locks the credentials of a cluster's node or relay, in the order of their ids. */
export function lockSubjectCredentials(
  tx: Tx,
  clusterId: string,
  subjectId: string,
  kinds: readonly TCredentialKind[],
): Promise<CredentialRow[]> {
  return tx.rows(
    qb
      .selectFrom('control.credentials')
      .select(credentialColumns)
      .where('cluster_id', '=', clusterId)
      .where('subject_id', '=', subjectId)
      .where('kind', 'in', kinds)
      .orderBy('credential_id')
      .forUpdate()
      .$castTo<CredentialRow>(),
  );
}

/** A cluster's relay credentials, revoked ones too. */
export function lockRelayCredentials(tx: Tx, clusterId: string): Promise<CredentialRow[]> {
  return tx.rows(
    qb
      .selectFrom('control.credentials')
      .select(credentialColumns)
      .where('cluster_id', '=', clusterId)
      .where('kind', '=', 'coreflow-relay')
      .orderBy('credential_id')
      .forUpdate()
      .$castTo<CredentialRow>(),
  );
}

/** Living credentials of an organization's administrators and operators. */
export function liveAdministrators(tx: ReadTx, organizationId: string): Promise<CredentialRow[]> {
  return tx.rows(
    qb
      .selectFrom('control.credentials')
      .select(credentialColumns)
      .where('organization_id', '=', organizationId)
      .where('kind', '=', 'administrator')
      .where('revoked', '=', false)
      .$castTo<CredentialRow>(),
  );
}

/** Raises the newest generation by one. `forgetUsed`: the one that was used is refused from now on, too. */
export function rotateCredential(
  tx: Tx,
  credentialId: string,
  hash: Buffer,
  options: { readonly forgetUsed: boolean },
): Promise<CredentialRow> {
  const forgotten = options.forgetUsed ? { used_generation: null, used_hash: null } : {};
  return tx.one(
    qb
      .updateTable('control.credentials')
      .set((of) => ({ newest_generation: of('newest_generation', '+', 1), newest_hash: hash, ...forgotten }))
      .where('credential_id', '=', credentialId)
      .where('revoked', '=', false)
      .returning(credentialColumns)
      .$castTo<CredentialRow>(),
  );
}

/** Ends all generations for good. */
export function revokeCredentials(tx: Tx, credentialIds: readonly string[]): Promise<CredentialRow[]> {
  return tx.rows(
    sql<CredentialRow>`
      update control.credentials set revoked = true where credential_id = any(${[...credentialIds]}::text[])
      returning credential_id, cluster_id, kind, subject_id, role, newest_generation, used_generation, revoked`.compile(
      qb,
    ),
  );
}

export function findCredential(
  tx: ReadTx,
  organizationId: string,
  credentialId: string,
): Promise<CredentialRow | undefined> {
  return tx.maybe(
    qb
      .selectFrom('control.credentials')
      .select(credentialColumns)
      .where('credential_id', '=', credentialId)
      .where('organization_id', '=', organizationId)
      .$castTo<CredentialRow>(),
  );
}

/** The organization of a credential of any kind, for the command on the host. */
export function organizationOfCredential(
  tx: ReadTx,
  credentialId: string,
): Promise<{ organization_id: string; kind: TCredentialKind } | undefined> {
  return tx.maybe(
    qb
      .selectFrom('control.credentials')
      .select(['organization_id', 'kind'])
      .where('credential_id', '=', credentialId)
      .$castTo<{ organization_id: string; kind: TCredentialKind }>(),
  );
}

/** At most `limit` credentials after the cursor, in the order of their ids. */
export function pageOfCredentials(
  tx: ReadTx,
  organizationId: string,
  page: { readonly clusterId: string | null; readonly cursor: string | null; readonly limit: number },
): Promise<CredentialRow[]> {
  let select = qb
    .selectFrom('control.credentials')
    .select(credentialColumns)
    .where('organization_id', '=', organizationId)
    .orderBy('credential_id')
    .limit(page.limit);
  if (page.clusterId !== null) select = select.where('cluster_id', '=', page.clusterId);
  if (page.cursor !== null) select = select.where('credential_id', '>', page.cursor);
  return tx.rows(select.$castTo<CredentialRow>());
}
