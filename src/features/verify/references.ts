/** Accepted records that another record names: each must be there and have the digest by which it is named. */
import { sql } from 'kysely';
import type { Reference } from '../../contract/schema.js';
import { qb } from '../../db/query.js';
import type { RowKey } from './finding.js';
import type { Verification } from './verification.js';

export type ReferencedTable =
  | 'runtime_revisions'
  | 'scope_revisions'
  | 'target_set_revisions'
  | 'derivation_revisions'
  | 'aggregate_revisions'
  | 'manager_snapshots'
  | 'local_snapshots'
  | 'coreflow_retirements'
  | 'service_spec_revisions'
  | 'write_offs';

export interface NamedRecord {
  /** What the naming record calls it. */
  readonly name: string;
  readonly table: ReferencedTable;
  /** Null names nothing. */
  readonly reference: Reference | null;
  /** Id that the owner's records carry; absent where the row's key is enough. */
  readonly id?: string;
  /** The rest of the row's key where a cluster has more than one chain of them. */
  readonly owner?: { readonly column: 'node_id' | 'service_id' | 'write_off_id'; readonly value: string };
}

/** A row that is gone or was changed, and was named by its own chain, is not held against the record that names it. */
export async function compareReferences(
  { tx, findings }: Verification,
  clusterId: string,
  naming: { readonly table: string; readonly key: RowKey },
  named: readonly NamedRecord[],
): Promise<void> {
  for (const { name, table, reference, id, owner } of named) {
    if (reference === null) continue;
    const { generation, digest } = reference;
    const ofOwner = owner === undefined ? sql`true` : sql`${sql.ref(owner.column)} = ${owner.value}`;
    const row = await tx.maybe(
      sql<{ digest: string }>`
        select digest from ${sql.table(`control.${table}`)}
        where cluster_id = ${clusterId} and generation = ${generation} and ${ofOwner}`.compile(qb),
    );
    if (row?.digest === digest && (id === undefined || id === reference.id)) continue;
    const key = { cluster_id: clusterId, generation, ...(owner === undefined ? {} : { [owner.column]: owner.value }) };
    if (findings.hasAny(table, key)) continue;
    findings.add(
      naming.table,
      naming.key,
      `${name} is no accepted record`,
      `${table} has no ${reference.id} ${generation} with ${digest}`,
    );
  }
}
