/**
 * One way to do a mutation: live authorization and locks, replay, compare, effect, audit row, commit (system rules 4, 5
 * and 12). Operations that write their effect and the audit row in one statement put the same pieces together themselves.
 */
import type { Static } from '@sinclair/typebox';
import type { IssuedSecret } from '../../contract/fleet.js';
import type { IAuditHead } from '../../contract/method.js';
import { methods, type MethodRequest, type MethodResponse, type TMethodName } from '../../contract/methods.js';
import type { Refused } from '../../contract/problems.js';
import { inTransaction, type Tx } from '../../db/transaction.js';
import type { Deps } from '../../deps.js';
import { isRefused } from '../../refusal.js';
import type { Secret } from '../../secret.js';
import {
  type AuditedCaller,
  judgeReplay,
  type MutationContext,
  mutationContext,
  type MutationInput,
} from './context.js';
import { commitAudited, findReplay } from './rows.js';

export { judgeReplay, mutationContext, type AuditedCaller, type MutationContext, type Replay } from './context.js';
export { auditCte, auditHead, findReplay, type AuditRow, type WrittenAuditRow } from './rows.js';

export type TMutationName = {
  [N in TMethodName]: (typeof methods)[N]['mutation'] extends true ? N : never;
}[TMethodName];

/** What a new bearer's holder presents. It is revealed when the first answer is made, and nowhere else. */
export type IssuedBearer = Omit<Static<typeof IssuedSecret>, 'secret'> & { readonly secret: Secret };

/** A mutation's answer without what {@link mutate} adds: this is recorded, and what a replay gets. */
export type MutationResult<N extends TMutationName> = Omit<
  MethodResponse<N>,
  'replayed' | 'current' | 'dryRun' | 'audit' | 'secrets'
>;

export interface Applied<N extends TMutationName> {
  readonly result: MutationResult<N>;
  /** Only the first answer has them. */
  readonly secrets?: readonly IssuedBearer[];
}

export interface MutationPlan<N extends TMutationName, L = unknown> {
  readonly method: N;
  /** Null: the mutation stands in the organization's chain. */
  readonly clusterId: string | null;
  /**
   * Authorizes against the owner rows and takes the locks, in feature order. What it sends before its first await travels
   * with the replay look-up, which comes after it. A refusal, such as `cluster-unknown`, ends the mutation before the replay.
   */
  readonly lock?: (tx: Tx) => Promise<L | Refused> | L | Refused;
  /** Decides and writes; gets what `lock` gave. May run several times, and for a dry run is undone. */
  readonly apply: (tx: Tx, locked: L) => Promise<Applied<N> | Refused>;
  /** Whether the recorded result is still what is current. */
  readonly isCurrent: (tx: Tx, recorded: MutationResult<N>) => Promise<boolean>;
}

/** `inTransaction` undoes whatever is marked so, which is all that a dry run needs. */
interface Undone<T> {
  readonly kind: 'refused';
  readonly undone: T;
}

/**
 * Does a mutation, or answers its replay. A dry run answers the same (without secrets, which nothing would accept) and
 * writes nothing. Throws what {@link inTransaction} throws.
 */
export async function mutate<N extends TMutationName, L = unknown>(
  deps: Deps,
  caller: AuditedCaller,
  input: MethodRequest<N> & MutationInput,
  plan: MutationPlan<N, L>,
): Promise<MethodResponse<N> | Refused> {
  const context = mutationContext(caller, plan.method, plan.clusterId, input, deps.clock);
  const dryRun = input.dryRun === true;
  const outcome = await inTransaction(deps, plan.method, (tx) => attempt(tx, context, dryRun, plan));
  return 'undone' in outcome ? outcome.undone : outcome;
}

async function attempt<N extends TMutationName, L>(
  tx: Tx,
  context: MutationContext,
  dryRun: boolean,
  plan: MutationPlan<N, L>,
): Promise<MethodResponse<N> | Refused | Undone<MethodResponse<N>>> {
  const locking = plan.lock?.(tx) as Promise<L | Refused> | L | Refused;
  const recording = findReplay(tx, context);
  const locked = await locking;
  if (isRefused(locked)) return locked;
  const recorded = await recording;
  if (recorded !== undefined) return replay(tx, context, recorded, dryRun, plan);
  const applied = await plan.apply(tx, locked);
  if (isRefused(applied)) return applied;
  const { result, secrets } = applied;
  if (dryRun) return { kind: 'refused', undone: answer(plan.method, result, { audit: null, dryRun }) };
  const audit = await commitAudited(tx, context, result);
  return answer(plan.method, result, { audit, secrets });
}

async function replay<N extends TMutationName, L>(
  tx: Tx,
  context: MutationContext,
  recorded: Parameters<typeof judgeReplay>[0],
  dryRun: boolean,
  plan: MutationPlan<N, L>,
): Promise<MethodResponse<N> | Refused> {
  const judged = judgeReplay(recorded, context);
  if (judged.kind === 'refused') return judged;
  const result = judged.result as MutationResult<N>;
  const current = await plan.isCurrent(tx, result);
  return answer(plan.method, result, { audit: dryRun ? null : judged.audit, replayed: true, current, dryRun });
}

interface Moment {
  readonly audit: IAuditHead | null;
  readonly replayed?: boolean;
  readonly current?: boolean;
  readonly dryRun?: boolean;
  readonly secrets?: readonly IssuedBearer[] | undefined;
}

/** The wire answer: the result, and how it came about now. */
export function answer<N extends TMutationName>(
  method: N,
  result: MutationResult<N>,
  moment: Moment,
): MethodResponse<N> {
  const { audit, replayed = false, current = true, dryRun = false, secrets = [] } = moment;
  const issues = 'secrets' in methods[method].response.properties;
  return {
    replayed,
    current,
    dryRun,
    audit,
    ...result,
    ...(issues ? { secrets: secrets.map((each) => ({ ...each, secret: each.secret.reveal() })) } : {}),
  } as unknown as MethodResponse<N>;
}
