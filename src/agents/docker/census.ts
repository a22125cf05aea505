/** What the collectors share: a census is whole, or it says why it is not and how far it came. */
import type { IIncompleteSnapshot } from '../../contract/observation.js';
import type { ContractRecord } from '../../contract/record.js';
import type { Reference } from '../../contract/schema.js';
import { asCensusFailure, CensusFailure } from './census-failure.js';

/** Time for one whole census, in ms, where the caller gives no signal. */
const defaultCensusTimeoutMs = 120_000;

export interface CensusOptions {
  /** Ends the census with `timeout` (default: after 120 s). */
  readonly signal?: AbortSignal;
  /** Told why a census is not whole; the failure names no value of an answer, so it may be logged. */
  readonly onFailure?: (failure: CensusFailure) => void;
}

export function censusSignal(options: CensusOptions): AbortSignal {
  return options.signal ?? AbortSignal.timeout(defaultCensusTimeoutMs);
}

type Counts = NonNullable<IIncompleteSnapshot['counts']>;

/** One census under way: its deadline, and what it has counted so far. */
export interface Census {
  readonly signal: AbortSignal;
  /** Records a count and refuses one over its bound. Throws `CensusFailure` with `truncated`. */
  count(what: keyof Counts, value: number, bound: number): void;
}

/**
 * Takes a census and checks the snapshot against its record. Never throws: whatever goes wrong is a `complete: false`.
 */
export async function takeCensus<S extends { readonly complete: boolean }>(
  record: ContractRecord<S>,
  runtime: Reference | null,
  options: CensusOptions,
  take: (census: Census) => Promise<S>,
): Promise<S | IIncompleteSnapshot> {
  let counts: Counts | null = null;
  const census: Census = {
    signal: censusSignal(options),
    count: (what, value, bound) => {
      counts = { containers: 0, volumes: 0, services: 0, tasks: 0, ...counts, [what]: value };
      refuseBeyond(what, value, bound);
    },
  };
  try {
    const snapshot = await take(census);
    const [error] = record.validate(snapshot);
    if (error !== undefined) throw new CensusFailure('engine-error', `the census is no valid snapshot: ${error}`);
    return snapshot;
  } catch (error) {
    const failure = asCensusFailure(error);
    options.onFailure?.(failure);
    return { complete: false, runtime, reason: failure.reason, counts };
  }
}

/** @throws CensusFailure `truncated` where there is more than the contract can say */
export function refuseBeyond(what: string, value: number, bound: number): void {
  if (value > bound) throw new CensusFailure('truncated', `${value} ${what} are over the bound of ${bound}`);
}

/** @throws CensusFailure `inconsistent` where one key stands for two things */
export function refuseRepeated(keys: readonly string[], what: string): void {
  if (new Set(keys).size !== keys.length) throw new CensusFailure('inconsistent', `the engine named one ${what} twice`);
}
