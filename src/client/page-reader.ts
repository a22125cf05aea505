/**
 * Reads the whole set of prepared volume handoffs under one pin and proves that it is whole: no page missing, duplicate,
 * stale, out of order or of another revision, every digest and count right (see page-set.ts), and not older than what the
 * node had accepted before (see generation-memory.ts). Either all of that holds, or nothing is returned.
 *
 * The first answer, asked for without a pin, brings the header and page 0; its reference pins every other page. It isn't
 * read again: its content digest is part of the set digest. Nor is the current revision asked for at the end: the pin is
 * immutable, and a newer set is the next reading's.
 */
import type {
  IFleetCutoverPreparedVolumeHandoffAggregate,
  IFleetCutoverPreparedVolumeHandoffIntent,
} from '../contract/handoff.js';
import type { TSha256Digest } from '../contract/digest.js';
import { type Reference, referenceOf } from '../contract/schema.js';
import { mapBounded } from './bounded-map.js';
import { ContractViolationError, ProblemError } from './errors.js';
import { acceptGeneration, generationFault, type GenerationMemory } from './generation-memory.js';
import { PageReaderError } from './page-reader-error.js';
import { type PageSummary, proveSet, referenceCount, summarizePage } from './page-set.js';
import type { SparkClient } from './spark-client.js';

export interface PageReaderOptions {
  readonly client: Pick<SparkClient, 'getPreparedVolumeHandoffs'>;
  readonly memory: GenerationMemory;
  /** Pages asked for at once (default 4). */
  readonly concurrency?: number;
  /** How often a reading begins anew when its pin expires under it (default 3). */
  readonly maximumRestarts?: number;
  readonly signal?: AbortSignal;
}

/** One proved page: what a node needs to say what it holds of it. */
export interface ProvedPage {
  readonly pageIndex: number;
  readonly contentDigest: TSha256Digest;
  /** References of this node's handoffs on the page, in page order. */
  readonly handoffs: readonly Reference[];
}

export interface ProvedHandoffSet {
  readonly aggregate: IFleetCutoverPreparedVolumeHandoffAggregate;
  readonly pageCount: number;
  /** All pages, those without a handoff of this node too. */
  readonly pages: readonly ProvedPage[];
  /** This node's handoffs, in page order. */
  readonly handoffs: readonly IFleetCutoverPreparedVolumeHandoffIntent[];
  /** Handoffs of all nodes. */
  readonly referenceCount: number;
  /** How often the pin had expired before. */
  readonly restarts: number;
}

/** There is no complete revision now, or it has no pages: it says nothing about what was accepted before. */
export interface NoHandoffSet {
  readonly aggregate: null;
  readonly restarts: number;
}

/**
 * The proved set, which is then also the remembered one.
 *
 * @throws PageReaderError whose `code` says what was wrong; nothing was remembered
 * @throws ProblemError, TransportError as the client does; and whatever the memory throws
 */
export async function readPreparedVolumeHandoffs(options: PageReaderOptions): Promise<ProvedHandoffSet | NoHandoffSet> {
  const maximumRestarts = options.maximumRestarts ?? 3;
  for (let restarts = 0; ; restarts += 1) {
    try {
      const set = await readSet(options);
      return { ...set, restarts };
    } catch (error) {
      if (!(error instanceof ProblemError) || error.code !== 'pin-expired') throw asReaderError(error);
      if (restarts >= maximumRestarts) {
        throw new PageReaderError('pin-expired', [`the pin expired under each of ${restarts + 1} readings`]);
      }
    }
  }
}

type Reading = Omit<ProvedHandoffSet, 'restarts'> | Omit<NoHandoffSet, 'restarts'>;

async function readSet(options: PageReaderOptions): Promise<Reading> {
  const { client, memory, signal } = options;
  const first = await client.getPreparedVolumeHandoffs(null, 0, signal);
  if (first.aggregate === null) return { aggregate: null };
  const { aggregate } = first;
  refuseLedBack(generationFault(await memory.load(), aggregate));
  const others = await readOtherPages(options, referenceOf(aggregate), aggregate.pageCount - 1);
  const pages = [summarizePage(first.page, first.nodeHandoffs), ...others];
  proveSet(aggregate, pages);
  await memory.update((accepted) => {
    // Once more: another reading of the same memory may have accepted a newer set meanwhile.
    refuseLedBack(generationFault(accepted, aggregate));
    return acceptGeneration(accepted, aggregate);
  });
  return {
    aggregate,
    pageCount: pages.length,
    pages: pages.map(provedPage),
    handoffs: pages.flatMap((page) => page.handoffs),
    referenceCount: referenceCount(pages),
  };
}

function provedPage({ pageIndex, contentDigest, handoffs }: PageSummary): ProvedPage {
  return { pageIndex, contentDigest, handoffs: handoffs.map(referenceOf) };
}

function readOtherPages(options: PageReaderOptions, pin: Reference, count: number): Promise<PageSummary[]> {
  const { client, signal, concurrency = 4 } = options;
  return mapBounded(
    count,
    concurrency,
    async (index, ending) => {
      const answer = await client.getPreparedVolumeHandoffs(pin, index + 1, ending);
      if (answer.aggregate === null) throw new PageReaderError('page-missing');
      return summarizePage(answer.page, answer.nodeHandoffs);
    },
    signal,
  );
}

function refuseLedBack(fault: ReturnType<typeof generationFault>): void {
  if (fault !== undefined) throw new PageReaderError(fault);
}

function asReaderError(error: unknown): unknown {
  if (error instanceof PageReaderError) return error;
  if (error instanceof ContractViolationError) return new PageReaderError('response-malformed', error.errors);
  if (error instanceof ProblemError && error.code === 'page-unknown') return new PageReaderError('page-missing');
  if (error instanceof ProblemError && error.code === 'pin-unknown') return new PageReaderError('pin-unknown');
  return error;
}
