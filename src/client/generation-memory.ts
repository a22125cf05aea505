/**
 * What a node has accepted last, so that it can't be led back: by a stale replica, a restored backup that kept its ids, or
 * a service that answers under another's name. It outlives the process.
 *
 *  1. Within one aggregate id the accepted generation never falls, and one generation has one digest.
 *  2. A set under an id that was never seen is accepted: a restored cluster has new ids and starts its generations anew.
 *     The id before it is left behind for good.
 *  3. The cluster never changes.
 */
import type { IFleetCutoverPreparedVolumeHandoffAggregate } from '../contract/handoff.js';
import { type Reference, referenceOf } from '../contract/schema.js';
import type { PageReaderErrorCode } from './page-reader-error.js';

export interface AcceptedGeneration {
  readonly clusterId: string;
  /** The set that was accepted last. */
  readonly aggregate: Reference;
  /** Ids of aggregates before that one's, in the order in which they were left. */
  readonly leftIds: readonly string[];
}

/** Where it is kept. One memory belongs to one node. */
export interface GenerationMemory {
  /** What was stored last; null where nothing ever was. Throws where that can't be told: nothing is then accepted. */
  load(): Promise<AcceptedGeneration | null>;
  /**
   * Stores what `change` makes of what was stored last, one change after the other, and resolves when it is durable.
   * Where `change` throws, nothing is stored and its error is thrown.
   */
  update(change: (accepted: AcceptedGeneration | null) => AcceptedGeneration): Promise<void>;
}

/** A memory that ends with the process, for a reader that lives as long as what it reads for. */
export function createVolatileGenerationMemory(): GenerationMemory {
  let stored: AcceptedGeneration | null = null;
  return {
    load: async () => stored,
    update: async (change) => {
      stored = change(stored);
    },
  };
}

type Aggregate = IFleetCutoverPreparedVolumeHandoffAggregate;

/** Why the set must not be accepted after what was accepted before; undefined where it may be. */
export function generationFault(
  accepted: AcceptedGeneration | null,
  aggregate: Aggregate,
): Extract<PageReaderErrorCode, 'generation-led-back' | 'generation-forked' | 'cluster-changed'> | undefined {
  if (accepted === null) return undefined;
  if (aggregate.clusterId !== accepted.clusterId) return 'cluster-changed';
  if (accepted.leftIds.includes(aggregate.id)) return 'generation-led-back';
  if (aggregate.id !== accepted.aggregate.id) return undefined;
  if (aggregate.generation < accepted.aggregate.generation) return 'generation-led-back';
  if (aggregate.generation === accepted.aggregate.generation && aggregate.digest !== accepted.aggregate.digest) {
    return 'generation-forked';
  }
  return undefined;
}

/** The memory after the set was accepted. */
export function acceptGeneration(accepted: AcceptedGeneration | null, aggregate: Aggregate): AcceptedGeneration {
  const before = accepted === null || accepted.aggregate.id === aggregate.id ? [] : [accepted.aggregate.id];
  return {
    clusterId: aggregate.clusterId,
    aggregate: referenceOf(aggregate),
    leftIds: [...(accepted?.leftIds ?? []), ...before],
  };
}
