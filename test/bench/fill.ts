/** Fills a fleet's set, 32 handoffs a mutation, and times every mutation. */
import { newMutationId } from '../../src/client/mutation-id.js';
import { fleetCutoverContract } from '../../src/contract/limits.js';
import { type Reference, referenceOf } from '../../src/contract/schema.js';
import { type SyntheticFleet, type SyntheticKey, upsertOf } from '../support/synthetic-fleet.js';
import type { OwnerClient } from './owner-client.js';
import { quantile, rounded } from './quantile.js';

const batch = fleetCutoverContract.maximumPreparedVolumeHandoffMutationEntries;

const MUTATIONS_OF_TURN = 256;

export interface Fill {
  readonly ms: number;
  /** Of each mutation, in order. */
  readonly latencies: readonly number[];
  readonly aggregate: Reference;
  readonly state: 'incomplete' | 'complete';
}

export interface Mutated {
  readonly ms: number;
  readonly aggregate: Reference;
  readonly state: 'incomplete' | 'complete';
}

export async function prepare(
  client: OwnerClient,
  fleet: SyntheticFleet,
  expectedAggregate: Reference | null,
  keys: readonly SyntheticKey[],
  requestedCapacityBytes: number | null = null,
): Promise<Mutated> {
  const { clusterId, runtime, scope } = fleet;
  const upserts = keys.map((key) => upsertOf(key, requestedCapacityBytes));
  const mutationId = newMutationId();
  const started = performance.now();
  const { aggregate } = await client.done('prepareFleetCutoverVolumeHandoffs', {
    mutationId,
    clusterId,
    runtime,
    scope,
    expectedAggregate,
    upserts,
    removals: [],
  });
  return { ms: performance.now() - started, aggregate: referenceOf(aggregate), state: aggregate.state };
}

export async function fill(
  client: OwnerClient,
  fleet: SyntheticFleet,
  keys: readonly SyntheticKey[],
  /** Called after every 256 mutations and after the last one. Its time is not the fill's. */
  between: (share: number, mutations: number) => Promise<void> | void,
): Promise<Fill> {
  const latencies: number[] = [];
  let last: Mutated | undefined;
  let ms = 0;
  let started = performance.now();
  for (let from = 0; from < keys.length; from += batch) {
    last = await prepare(client, fleet, last?.aggregate ?? null, keys.slice(from, from + batch));
    latencies.push(last.ms);
    const isLast = from + batch >= keys.length;
    if (latencies.length % MUTATIONS_OF_TURN !== 0 && !isLast) continue;
    ms += performance.now() - started;
    await between(latencies.length / Math.ceil(keys.length / batch), latencies.length);
    started = performance.now();
  }
  if (last === undefined) throw new Error('there is nothing to fill');
  return { ms, latencies, aggregate: last.aggregate, state: last.state };
}

/** Of the mutations that found about this many handoffs; of the last ones before the set was complete at the ceiling. */
export function latencyAt(filled: Fill, present: number, samples: number): { p50: number; p99: number } {
  const incomplete = filled.latencies.slice(0, -1);
  const first = Math.max(0, Math.min(present / batch, incomplete.length - samples));
  const window = incomplete.slice(first, first + samples);
  return { p50: rounded(quantile(window, 0.5)), p99: rounded(quantile(window, 0.99)) };
}
