/** Mutations of prepared handoffs. */
import { sql } from 'kysely';
import type { MethodRequest, MethodResponse } from '../../contract/methods.js';
import { refuse, type Refused, refuseStale } from '../../contract/problems.js';
import type { Reference } from '../../contract/schema.js';
import { referenceOf, sameReference } from '../../contract/schema.js';
import { qb } from '../../db/query.js';
import { present } from '../../db/present.js';
import { inTransaction, type Tx } from '../../db/transaction.js';
import type { Deps } from '../../deps.js';
import { isRefused } from '../../refusal.js';
import {
  answer,
  auditCte,
  auditHead,
  findReplay,
  judgeReplay,
  type MutationContext,
  mutationContext,
  type MutationResult,
  type WrittenAuditRow,
} from '../audit/mutation.js';
import type { AdministratorActor } from '../auth/actor.js';
import type { Cluster } from '../fleet/facts.js';
import { localSnapshotReference, managerSnapshotReference } from '../inventory/facts.js';
import { permission, refuseByPhase, type TAct } from '../phase/phase.js';
import { refuseOtherRuntime, runtimeReference } from '../phase/facts.js';
import { refuseOtherScope, targetSetReference } from '../scope/facts.js';
import { type AggregateHead, aggregateReference, type Counts, isComplete, nextAggregate } from './aggregate.js';
import { decideBatch, type HandoffBatch, type HandoffEvidence, type HandoffWrite } from './handoff.js';
import { type CurrentHeads, currentHeads, type SharedHeads, shareHeads } from './heads.js';
import { type Published, publishFromFirstChange, publishInPlace } from './publish.js';
import { handoffsCte, keyFacts, lockExpectedAggregate, swapAggregateCte } from './rows.js';
import { referenceOfHead } from './steps.js';

type HandoffMutation = 'prepareFleetCutoverVolumeHandoffs' | 'rederiveFleetCutoverVolumeHandoffs';
type Answer<N extends HandoffMutation> = MethodResponse<N> | Refused;

/** Upserts and removes prepared handoffs: 1..32 entries, all or none. */
export function prepareFleetCutoverVolumeHandoffs(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'prepareFleetCutoverVolumeHandoffs'>,
): Promise<Answer<'prepareFleetCutoverVolumeHandoffs'>> {
  const entries = input.upserts.length + input.removals.length;
  if (entries < 1 || entries > 32) {
    return Promise.resolve(
      refuse('body-schema', {
        errors: [`/ upserts and removals must be 1..32 together, not ${entries}`],
        mutationOutcome: 'not-applied',
      }),
    );
  }
  const method = 'prepareFleetCutoverVolumeHandoffs';
  const keys = [...input.upserts, ...input.removals];
  const facts = (tx: Tx) => keyFacts(tx, input.clusterId, keys);
  return swapAggregate(deps, actor, method, input, 'prepare-handoffs', facts, (current, known) => {
    const { cluster, managerSnapshot } = current;
    if (managerSnapshot === null) throw new Error('a scope was accepted without a manager snapshot');
    const batch = decideBatch({
      upserts: input.upserts,
      removals: input.removals,
      upsertFacts: known.slice(0, input.upserts.length),
      removalFacts: known.slice(input.upserts.length),
      owner: cluster,
      evidence: evidenceOf(current, managerSnapshotReference(cluster.clusterLife, managerSnapshot), input.scope),
      straysOnly: permission(current.runtime.phase, 'prepare-handoffs') === 'strays',
    });
    if (batch.entries.length > 0) {
      return refuse('batch-refused', { entries: [...batch.entries], mutationOutcome: 'not-applied', retrySafe: false });
    }
    return batch;
  });
}

/** Makes the aggregate's next revision from current evidence, also the first and empty one. It changes no handoff. */
export function rederiveFleetCutoverVolumeHandoffs(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'rederiveFleetCutoverVolumeHandoffs'>,
): Promise<Answer<'rederiveFleetCutoverVolumeHandoffs'>> {
  const nothing = () => Promise.resolve(null);
  return swapAggregate(deps, actor, 'rederiveFleetCutoverVolumeHandoffs', input, 'rederive', nothing, () => null);
}

type Current = SharedHeads & CurrentHeads;

function evidenceOf(current: Current, managerSnapshot: Reference, scope: Reference): HandoffEvidence {
  const { clusterLife } = current.cluster;
  return {
    runtime: runtimeReference(clusterLife, current.runtime),
    scope,
    managerSnapshot,
    localSnapshot: (nodeId, generation, digest) => localSnapshotReference(clusterLife, nodeId, { generation, digest }),
  };
}

type Undone<N extends HandoffMutation> = { readonly kind: 'refused'; readonly undone: MethodResponse<N> };

/**
 * The one way to move the aggregate: locks in order (runtime, scope, derivation, aggregate, audit), replay, compare,
 * decide, swap. Two round trips while the set is incomplete: locks and reads, then one write statement with COMMIT.
 */
async function swapAggregate<N extends HandoffMutation, F>(
  deps: Deps,
  actor: AdministratorActor,
  method: N,
  input: MethodRequest<N>,
  act: TAct,
  /** What the decision needs besides the heads; it is read behind the locks, in the same round trip. */
  facts: (tx: Tx) => Promise<F>,
  /** Null: the revision changes no handoff. */
  decide: (current: Current, facts: F) => HandoffBatch | Refused | null,
): Promise<Answer<N>> {
  const { clusterId, expectedAggregate } = input;
  const context = mutationContext(actor, method, clusterId, input, deps.clock);
  const outcome = await inTransaction(deps, method, async (tx): Promise<Answer<N> | Undone<N>> => {
    const [shared, locked, recorded, heads, known] = await Promise.all([
      shareHeads(tx, actor.organizationId, clusterId),
      lockExpectedAggregate(tx, clusterId, expectedAggregate),
      findReplay(tx, context),
      currentHeads(tx, clusterId),
      facts(tx),
    ]);
    if (isRefused(shared)) return shared;
    const current: Current = { ...shared, ...present(heads) };
    const { cluster, runtime, scope, aggregate } = current;
    if (recorded !== undefined) {
      const judged = judgeReplay(recorded, context);
      if (judged.kind === 'refused') return judged;
      const result = judged.result as MutationResult<N>;
      const reference = aggregateReference(cluster.clusterLife, aggregate);
      const isCurrent = sameReference(referenceOf(result.aggregate), reference);
      const dryRun = input.dryRun === true;
      return answer(method, result, {
        audit: dryRun ? null : judged.audit,
        replayed: true,
        current: isCurrent,
        dryRun,
      });
    }
    const stale =
      refuseOtherRuntime(cluster.clusterLife, runtime, input.runtime) ??
      refuseByPhase(runtime.phase, act) ??
      refuseOtherScope(cluster.clusterLife, scope, input.scope) ??
      refuseOtherAggregate(cluster, locked, aggregate, expectedAggregate);
    if (stale !== null) return stale;
    const batch = decide(current, known);
    if (isRefused(batch)) return batch;
    return writeRevision(tx, { method, context, input, current, batch });
  });
  return 'undone' in outcome ? outcome.undone : outcome;
}

function refuseOtherAggregate(
  cluster: Cluster,
  locked: AggregateHead | undefined,
  aggregate: AggregateHead,
  expected: Reference | null,
): Refused | null {
  const current = aggregateReference(cluster.clusterLife, aggregate);
  if (locked !== undefined && sameReference(expected, current)) return null;
  return refuseStale('aggregate-stale', 'expectedAggregate', current);
}

interface Revision<N extends HandoffMutation> {
  readonly method: N;
  readonly context: MutationContext;
  readonly input: MethodRequest<N>;
  readonly current: Current;
  readonly batch: HandoffBatch | null;
}

async function writeRevision<N extends HandoffMutation>(
  tx: Tx,
  revision: Revision<N>,
): Promise<MethodResponse<N> | Undone<N>> {
  const { method, context, input, current, batch } = revision;
  const { cluster, aggregate: before, derivation } = current;
  const { clusterId, clusterLife } = cluster;
  const dryRun = input.dryRun === true;
  const writes = batch?.writes ?? [];
  const counts: Counts = {
    preparedCount: before.preparedCount + (batch?.preparedDelta ?? 0),
    matchedCount: before.matchedCount + (batch?.matchedDelta ?? 0),
  };
  const generation = before.generation + 1;
  const complete = isComplete(derivation, counts);
  if (complete) await writeHandoffs(tx, clusterId, generation, writes);
  const pages = complete ? await publish(tx, clusterId, before, generation, batch) : null;
  const aggregate = nextAggregate(before, {
    clusterId,
    clusterLife,
    runtime: input.runtime,
    scope: input.scope,
    targetSet: targetSetReference(clusterLife, current.targetSet),
    derivation: referenceOfHead(clusterLife, derivation),
    requiredCount: derivation.requiredCount,
    counts,
    writes,
    pages,
  });
  const result = (batch === null
    ? { aggregate }
    : { aggregate, handoffs: [...batch.outcomes] }) as unknown as MutationResult<N>;
  if (dryRun) return { kind: 'refused', undone: answer(method, result, { audit: null, dryRun }) };

  const swapped = sql<boolean>`(select count(*) from swap) = 1`;
  const handoffs = complete ? sql`` : sql`, ${handoffsCte(clusterId, generation, writes, sql`, swap`)}`;
  const statement = sql<WrittenAuditRow>`
    with ${swapAggregateCte({ aggregate, counts, before })}${handoffs}, ${auditCte(context, result, swapped)}
    select seq, chain_digest from audit_row`.compile(qb);
  // Pages were written by statements of their own: then COMMIT goes only after the compare was seen to hold.
  const rows = complete ? await tx.rows(statement) : await tx.commitWith(statement);
  const [row] = rows;
  if (row === undefined) throw new Error('the aggregate moved although its row is locked');
  return answer(method, result, { audit: auditHead(context.chainId, row) });
}

async function writeHandoffs(
  tx: Tx,
  clusterId: string,
  generation: number,
  writes: readonly HandoffWrite[],
): Promise<void> {
  if (writes.length === 0) return;
  await tx.run(sql`with ${handoffsCte(clusterId, generation, writes, sql``)} select`.compile(qb));
}

function publish(
  tx: Tx,
  clusterId: string,
  before: AggregateHead,
  generation: number,
  batch: HandoffBatch | null,
): Promise<Published> {
  const inPlace = before.state === 'complete' && batch !== null && !batch.membershipChanged && batch.writes.length > 0;
  return inPlace
    ? publishInPlace(tx, clusterId, before, generation, batch.writes)
    : publishFromFirstChange(tx, clusterId, before.completeGeneration, generation);
}
