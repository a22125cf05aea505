/**
 * Waiting for the next change. Many waiters cost one query a turn for all of them: while anybody waits, one loop looks at
 * the heads of all watched clusters together.
 */
import { sql } from 'kysely';
import type { MethodRequest, MethodResponse } from '../../contract/methods.js';
import type { Refused } from '../../contract/problems.js';
import type { TFleetCutoverPhase } from '../../contract/runtime.js';
import { query } from '../../db/transaction.js';
import { qb } from '../../db/query.js';
import type { Reference } from '../../contract/schema.js';
import type { Deps } from '../../deps.js';
import { isRefused } from '../../refusal.js';
import type { AdministratorActor } from '../auth/actor.js';
import { readCluster } from '../fleet/read-cluster.js';
import { runtimeReference } from '../phase/facts.js';
import { aggregateReference } from '../volume-handoff/aggregate.js';

/** What a watcher compares. A cursor is the encoding of one. */
export interface Marks {
  readonly life: string;
  readonly runtime: number;
  readonly aggregate: number;
  readonly derivation: number;
  readonly coverage: string;
}

interface MarkRow extends Marks {
  readonly clusterId: string;
  readonly runtimeDigest: Reference['digest'];
  readonly phase: TFleetCutoverPhase;
  readonly aggregateDigest: Reference['digest'] | null;
}

type Changed = MethodResponse<'watchFleetCutover'>['changed'];

export function encodeCursor(marks: Marks): string {
  const { life, runtime, aggregate, derivation, coverage } = marks;
  return Buffer.from(JSON.stringify([life, runtime, aggregate, derivation, coverage])).toString('base64url');
}

/** Null where the text is no cursor of ours: then the watcher is told to read everything again. */
export function decodeCursor(text: string): Marks | null {
  let value: unknown;
  try {
    value = JSON.parse(Buffer.from(text, 'base64url').toString('utf8'));
  } catch {
    return null;
  }
  if (!Array.isArray(value) || value.length !== 5) return null;
  const [life, runtime, aggregate, derivation, coverage] = value as unknown[];
  if (typeof life !== 'string' || typeof coverage !== 'string') return null;
  if (![runtime, aggregate, derivation].every(Number.isSafeInteger)) return null;
  return {
    life,
    runtime: runtime as number,
    aggregate: aggregate as number,
    derivation: derivation as number,
    coverage,
  };
}

/**
 * What differs from the cursor. A cursor of another life of the cluster, or one that is ahead of it (a database that was
 * led back), is answered with `reset`.
 */
export function compareMarks(cursor: Marks | null, now: Marks): { readonly reset: boolean; readonly changed: Changed } {
  const ahead =
    cursor !== null &&
    (cursor.runtime > now.runtime || cursor.aggregate > now.aggregate || cursor.derivation > now.derivation);
  if (cursor === null || cursor.life !== now.life || ahead) return { reset: true, changed: [] };
  const changed: Changed = [];
  if (cursor.runtime !== now.runtime) changed.push('runtime');
  if (cursor.aggregate !== now.aggregate) changed.push('aggregate');
  if (cursor.derivation !== now.derivation) changed.push('derivation');
  if (cursor.coverage !== now.coverage) changed.push('coverage');
  return { reset: false, changed };
}

/** How often the loop looks while somebody waits, in ms. */
const turnMs = 500;

interface Waiter {
  readonly clusterId: string;
  readonly cursor: Marks;
  readonly wake: (row: MarkRow | undefined) => void;
}

/** One per server. */
export class Watch {
  readonly #deps: Deps;
  readonly #waiters = new Set<Waiter>();
  #timer: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(deps: Deps) {
    this.#deps = deps;
  }

  async watch(
    actor: AdministratorActor,
    input: MethodRequest<'watchFleetCutover'>,
  ): Promise<MethodResponse<'watchFleetCutover'> | Refused> {
    const { clusterId } = input;
    const allowed = await readCluster(this.#deps, 'watchFleetCutover', actor, clusterId, () => Promise.resolve({}));
    if (isRefused(allowed)) return allowed;
    return this.watchCluster(clusterId, input.cursor, input.timeoutMs);
  }

  /** For whoever was allowed to see the cluster. */
  async watchCluster(
    clusterId: string,
    cursorText: string | null,
    timeoutMs: number,
  ): Promise<MethodResponse<'watchFleetCutover'>> {
    const cursor = cursorText === null ? null : decodeCursor(cursorText);
    const row = await this.#row(clusterId);
    const { reset, changed } = compareMarks(cursor, row);
    if (reset || changed.length > 0 || cursor === null || timeoutMs === 0) {
      return answerOf(cursor, row, cursorText === null);
    }
    const later = await this.#wait(clusterId, cursor, timeoutMs);
    return answerOf(cursor, later ?? (await this.#row(clusterId)), false);
  }

  /** Answers everybody who waits. */
  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    for (const waiter of this.#waiters) waiter.wake(undefined);
  }

  #wait(clusterId: string, cursor: Marks, timeoutMs: number): Promise<MarkRow | undefined> {
    if (this.#closed) return Promise.resolve(undefined);
    return new Promise((resolve) => {
      const waiter: Waiter = {
        clusterId,
        cursor,
        wake: (row) => {
          clearTimeout(timeout);
          this.#waiters.delete(waiter);
          resolve(row);
        },
      };
      const timeout = setTimeout(() => waiter.wake(undefined), timeoutMs);
      this.#waiters.add(waiter);
      this.#timer ??= setTimeout(() => void this.#turn(), turnMs);
    });
  }

  async #turn(): Promise<void> {
    const clusterIds = [...new Set([...this.#waiters].map((waiter) => waiter.clusterId))];
    if (clusterIds.length > 0) {
      // A database that is away wakes nobody; whoever waits is answered at the end of the time, or told then.
      const rows = await marksOf(this.#deps, clusterIds).catch((): MarkRow[] => []);
      const byCluster = new Map(rows.map((row) => [row.clusterId, row]));
      for (const waiter of [...this.#waiters]) {
        const row = byCluster.get(waiter.clusterId);
        if (row === undefined) continue;
        const { reset, changed } = compareMarks(waiter.cursor, row);
        if (reset || changed.length > 0) waiter.wake(row);
      }
    }
    this.#timer = this.#waiters.size > 0 && !this.#closed ? setTimeout(() => void this.#turn(), turnMs) : undefined;
  }

  async #row(clusterId: string): Promise<MarkRow> {
    const [row] = await marksOf(this.#deps, [clusterId]);
    if (row === undefined) throw new Error('a cluster has no heads');
    return row;
  }
}

function answerOf(cursor: Marks | null, row: MarkRow, first: boolean): MethodResponse<'watchFleetCutover'> {
  const { reset, changed } = compareMarks(cursor, row);
  return {
    cursor: encodeCursor(row),
    // Who comes without a cursor has nothing to throw away.
    reset: reset && !first,
    changed,
    runtime: runtimeReference(row.life, { generation: row.runtime, digest: row.runtimeDigest, phase: row.phase }),
    phase: row.phase,
    aggregate: aggregateReference(row.life, { generation: row.aggregate, digest: row.aggregateDigest }),
  };
}

function marksOf(deps: Deps, clusterIds: readonly string[]): Promise<MarkRow[]> {
  return query(
    deps.db,
    sql<MarkRow>`
      select cluster.cluster_id as "clusterId", cluster.cluster_life as life, runtime.generation as runtime,
        runtime.digest as "runtimeDigest", runtime.phase, aggregate.generation as aggregate, aggregate.digest as "aggregateDigest",
        derivation.generation as derivation,
        (select coalesce(max(version), 0) || '.' || coalesce(sum(covered), 0) from control.coverage coverage
          where coverage.cluster_id = cluster.cluster_id) as coverage
      from control.clusters cluster
      join control.runtime_heads runtime using (cluster_id)
      join control.aggregate_heads aggregate using (cluster_id)
      join control.derivation_heads derivation using (cluster_id)
      where cluster.cluster_id = any(${[...clusterIds]}::text[])`.compile(qb),
  );
}
