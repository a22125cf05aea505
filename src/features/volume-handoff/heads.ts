/**
 * The heads that a mutation of handoffs is decided against. Each statement costs both sides some hundred microseconds, whatever
 * it reads, so that the rows of several features are read together here. Their own features are the only ones to write them.
 */
import { sql } from 'kysely';
import { refuse, type Refused } from '../../contract/problems.js';
import { qb } from '../../db/query.js';
import { present } from '../../db/present.js';
import { queueFor } from '../../db/queue.js';
import type { ReadTx, Tx } from '../../db/transaction.js';
import { type Cluster, clusterColumns } from '../fleet/facts.js';
import type { EvidenceHead } from '../inventory/facts.js';
import type { RuntimeHead } from '../phase/facts.js';
import type { RevisionHead, ScopeHead } from '../scope/facts.js';
import type { AggregateHead } from './aggregate.js';
import { type DerivationHead, shareDerivationHead } from './derivation-rows.js';
import { aggregateColumns } from './rows.js';

/** What stays as it is until the transaction ends: phase, scope, keys and blockers cannot change under a mutation. */
export interface SharedHeads {
  readonly cluster: Cluster;
  readonly runtime: RuntimeHead;
  readonly scope: ScopeHead;
  readonly derivation: DerivationHead;
}

type Prefixed<P extends string, T> = { [K in keyof T & string as `${P}.${K}`]: T[K] };
type SharedRow = Cluster & Prefixed<'runtime', RuntimeHead> & Prefixed<'scope', ScopeHead>;

/**
 * Locks the cluster's runtime, scope and derivation heads `for share`, in this order, and gives them as they are under the
 * locks: a row that was waited for is read anew. The derivation is queued for behind the scope's lock, as everybody else does:
 * whoever holds the scope waits for the derivation. Refused: `cluster-unknown`.
 */
export async function shareHeads(tx: Tx, organizationId: string, clusterId: string): Promise<SharedHeads | Refused> {
  void queueFor(tx, 'runtime', clusterId, 'shared');
  const owned = tx.maybe(
    sql<SharedRow>`
      select ${clusterColumns},
        runtime.generation as "runtime.generation", runtime.digest as "runtime.digest", runtime.phase as "runtime.phase",
        scope.generation as "scope.generation", scope.digest as "scope.digest", scope.state as "scope.state"
      from control.clusters cluster
      join control.runtime_heads runtime on runtime.cluster_id = cluster.cluster_id
      join control.scope_heads scope on scope.cluster_id = cluster.cluster_id
      where cluster.cluster_id = ${clusterId} and cluster.organization_id = ${organizationId}
      for share of runtime, scope`.compile(qb),
  );
  const [row, derivation] = await Promise.all([owned, shareDerivationHead(tx, clusterId)]);
  if (row === undefined) return refuse('cluster-unknown');
  const {
    'runtime.generation': runtimeGeneration,
    'runtime.digest': runtimeDigest,
    'runtime.phase': phase,
    'scope.generation': scopeGeneration,
    'scope.digest': scopeDigest,
    'scope.state': state,
    ...cluster
  } = row;
  return {
    cluster,
    runtime: { generation: runtimeGeneration, digest: runtimeDigest, phase },
    scope: { generation: scopeGeneration, digest: scopeDigest, state },
    derivation: present(derivation),
  };
}

export interface CurrentHeads {
  readonly aggregate: AggregateHead;
  readonly targetSet: RevisionHead;
  /** Null where no manager snapshot was ever accepted. */
  readonly managerSnapshot: EvidenceHead | null;
}

interface CurrentRow extends AggregateHead {
  readonly acceptedTargetSet: number;
  readonly acceptedTargetSetDigest: RevisionHead['digest'];
  readonly manager: number | null;
  readonly managerDigest: EvidenceHead['digest'] | null;
}

/** Undefined where there is no such cluster. Send it behind the locks. */
export async function currentHeads(tx: ReadTx, clusterId: string): Promise<CurrentHeads | undefined> {
  const row = await tx.maybe(
    sql<CurrentRow>`
      select ${aggregateColumns}, targets.generation as "acceptedTargetSet", targets.digest as "acceptedTargetSetDigest",
        manager.generation as manager, manager.digest as "managerDigest"
      from control.aggregate_heads head
      join control.target_set_heads targets on targets.cluster_id = head.cluster_id
      left join control.manager_snapshot_heads manager on manager.cluster_id = head.cluster_id
      where head.cluster_id = ${clusterId}`.compile(qb),
  );
  if (row === undefined) return undefined;
  const { acceptedTargetSet, acceptedTargetSetDigest, manager, managerDigest, ...aggregate } = row;
  return {
    aggregate,
    targetSet: { generation: acceptedTargetSet, digest: acceptedTargetSetDigest },
    managerSnapshot: manager === null || managerDigest === null ? null : { generation: manager, digest: managerDigest },
  };
}
