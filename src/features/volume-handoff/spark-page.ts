/**
 * Spark's page read. Costs one authentication, which also read the aggregate's head, and a copy of cached bytes.
 *
 * 1. `aggregate: null` selects the head if it is complete and has pages, else the answer is all-null.
 * 2. A pin must name a complete revision exactly; a foreign or future pin is refused, never waited for.
 * 3. What is cached is immutable and keyed by cluster and whole pin, a node's own handoffs by the node as well; whether the
 *    caller may read it is asked anew every time.
 */
import { LRUCache } from 'lru-cache';
import { canonicalizeStrictJson } from '../../contract/canonical-json.js';
import type {
  IFleetCutoverPreparedVolumeHandoffAggregate,
  ISparkGetFleetCutoverPreparedVolumeHandoffsRequest,
} from '../../contract/handoff.js';
import { refuse, type Refused } from '../../contract/problems.js';
import type { IProtocolOffer } from '../../contract/protocol.js';
import { type Reference, sameReference } from '../../contract/schema.js';
import { read, type ReadTx } from '../../db/transaction.js';
import type { Deps } from '../../deps.js';
import type { NodeActor } from '../auth/actor.js';
import { clusterOfNode } from '../fleet/facts.js';
import { aggregateReference } from './aggregate.js';
import { readPage, splicePage } from './page.js';
import { aggregateRevision, handoffRecords, pageAt } from './rows.js';
import { readStored } from '../../stored-record.js';

const aggregateType = 'IFleetCutoverPreparedVolumeHandoffAggregate';
const handoffType = 'IFleetCutoverPreparedVolumeHandoffIntent';

/** Bytes that are kept for the next readers: pages are shared by all nodes, subsets are a node's own. */
const maximumPageBytes = 40 * 1024 * 1024;
const maximumSubsetBytes = 24 * 1024 * 1024;

/** A complete revision of which pages are cached. */
interface PinnedRevision {
  readonly reference: Reference;
  /** Up to where the node's handoffs begin. One buffer for all pages of the revision. */
  readonly beginning: Buffer;
  /** Begins the keys of its pages: looking up a short key costs less than the whole pin would. */
  readonly number: number;
}

/** One page of a pinned revision, as the parts of an answer. */
interface PinnedPage {
  /** The member `page`, with the comma before it. */
  readonly page: Buffer;
  /** Nodes that have handoffs on it: all others get an empty subset without another look-up. */
  readonly nodeIds: ReadonlySet<string>;
}

interface LoadedPage extends PinnedPage {
  readonly reference: Reference;
  readonly beginning: Buffer;
  /** The reading node's handoffs on the page, separated by commas. */
  readonly subset: Buffer;
}

type AnswerParts = Pick<LoadedPage, 'beginning' | 'subset' | 'page'>;

const emptySubset = Buffer.alloc(0);

/** Longer answers have memory of their own: nine of the usual ones share this much. */
const SHARED_BYTES = 65_536;

/**
 * Memory for answers, one behind the other: to allocate for each costs as much as the copy. What is given is given once, and
 * freed with the last answer in it.
 */
class AnswerMemory {
  #shared = Buffer.alloc(0);
  #used = 0;

  take(bytes: number): Buffer {
    if (bytes > SHARED_BYTES / 4) return Buffer.allocUnsafe(bytes);
    if (this.#used + bytes > this.#shared.length) {
      this.#shared = Buffer.allocUnsafeSlow(SHARED_BYTES);
      this.#used = 0;
    }
    const start = this.#used;
    this.#used += bytes;
    return this.#shared.subarray(start, this.#used);
  }
}

const memory = new AnswerMemory();

/** The node has been authenticated: its token is not there any more. */
type PageRequest = Omit<ISparkGetFleetCutoverPreparedVolumeHandoffsRequest, 'nodeToken'>;

export class SparkPageReader {
  readonly #deps: Deps;
  /** By cluster and generation. A restored database may give a generation again, with another digest: then it is replaced. */
  readonly #revisions = new LRUCache<string, PinnedRevision>({ max: 64 });
  readonly #pages = new LRUCache<string, PinnedPage>({
    maxSize: maximumPageBytes,
    sizeCalculation: ({ page, nodeIds }) => page.byteLength + 128 * nodeIds.size,
  });
  readonly #subsets = new LRUCache<string, Buffer>({
    maxSize: maximumSubsetBytes,
    sizeCalculation: (bytes) => bytes.byteLength,
  });
  #revisionsSeen = 0;

  constructor(deps: Deps) {
    this.#deps = deps;
  }

  /** The answer's canonical JSON. */
  async read(actor: NodeActor, request: PageRequest, protocol: IProtocolOffer): Promise<Buffer | Refused> {
    const tail = tailOf(protocol);
    const { nodeId, aggregate: head } = actor;
    if (request.aggregate === null && head.state !== 'complete') return nothing(nodeId, tail);
    const generation = request.aggregate?.generation ?? head.generation;
    const revision = this.#revision(actor, generation, request.aggregate);
    const cached = revision === undefined ? undefined : this.#cached(revision, request.pageIndex, nodeId);
    if (cached !== undefined) return answerOf(cached, nodeId, tail);

    const loaded = await read(this.#deps, 'readSparkPage', (tx) => this.#load(tx, actor, request, generation));
    if (loaded === null) return nothing(nodeId, tail);
    if ('kind' in loaded) return loaded;
    this.#keep(actor, request.pageIndex, loaded);
    return answerOf(loaded, nodeId, tail);
  }

  /** The cached revision that is exactly the pin, or without one the head that was read with the credential. */
  #revision(
    { clusterId, aggregate: head }: NodeActor,
    generation: number,
    pin: Reference | null,
  ): PinnedRevision | undefined {
    const known = this.#revisions.get(`${clusterId} ${generation}`);
    if (known === undefined) return undefined;
    const { reference } = known;
    const same = pin === null ? reference.digest === head.digest : sameReference(reference, pin);
    return same ? known : undefined;
  }

  #cached(revision: PinnedRevision, pageIndex: number, nodeId: string): AnswerParts | undefined {
    const key = `${revision.number} ${pageIndex}`;
    const known = this.#pages.get(key);
    if (known === undefined) return undefined;
    const subset = known.nodeIds.has(nodeId) ? this.#subsets.get(`${key} ${nodeId}`) : emptySubset;
    return subset === undefined ? undefined : { beginning: revision.beginning, subset, page: known.page };
  }

  #keep({ clusterId, nodeId }: NodeActor, pageIndex: number, loaded: LoadedPage): void {
    const { reference, beginning, page, nodeIds, subset } = loaded;
    const place = `${clusterId} ${reference.generation}`;
    let revision = this.#revisions.get(place);
    if (revision === undefined || !sameReference(revision.reference, reference)) {
      revision = { reference, beginning, number: (this.#revisionsSeen += 1) };
      this.#revisions.set(place, revision);
    }
    const key = `${revision.number} ${pageIndex}`;
    this.#pages.set(key, { page, nodeIds });
    if (nodeIds.has(nodeId)) this.#subsets.set(`${key} ${nodeId}`, subset);
  }

  async #load(
    tx: ReadTx,
    actor: NodeActor,
    request: PageRequest,
    generation: number,
  ): Promise<LoadedPage | Refused | null> {
    const { clusterId, nodeId } = actor;
    const [cluster, revision, page] = await Promise.all([
      clusterOfNode(tx, actor),
      aggregateRevision(tx, clusterId, generation),
      pageAt(tx, clusterId, request.pageIndex, generation),
    ]);
    const reference =
      revision === undefined ? null : aggregateReference(cluster.clusterLife, { generation, digest: revision.digest });
    if (request.aggregate !== null && !sameReference(request.aggregate, reference)) return refuse('pin-unknown');
    if (revision === undefined || reference === null || revision.state !== 'complete') return refuse('pin-unknown');
    const header = readStored<IFleetCutoverPreparedVolumeHandoffAggregate>(aggregateType, revision.record, reference);
    if (header === null) return refuse('record-corrupt');
    const { pageCount } = header;
    if (pageCount === 0 && request.aggregate === null) return null;
    if (request.pageIndex >= pageCount || page === undefined) return refuse('page-unknown');
    const content = readPage(page.tail, page.contentDigest);
    if (content === null || content.pageIndex !== request.pageIndex) return refuse('record-corrupt');
    const own = content.handoffs.filter((entry) => entry.nodeId === nodeId);
    const records = own.length === 0 ? [] : await handoffRecords(tx, clusterId, nodeId, own);
    if (records.length !== own.length || records.some((record, index) => !matches(record, own[index]!))) {
      return refuse('record-corrupt');
    }
    return {
      reference,
      beginning: Buffer.from(`{"aggregate":${revision.record},"nodeHandoffs":[`),
      page: Buffer.from(`,"page":${splicePage(reference, page.tail)}`),
      nodeIds: new Set(content.handoffs.map((entry) => entry.nodeId)),
      subset: Buffer.from(records.map((each) => each.record).join(',')),
    };
  }
}

const tails = new Map<number, string>();

/** What follows the page. A negotiated protocol has our major and one of at most as many minors as we know. */
function tailOf(protocol: IProtocolOffer): string {
  let tail = tails.get(protocol.minor);
  if (tail === undefined) tails.set(protocol.minor, (tail = `,"protocol":${canonicalizeStrictJson(protocol)}}`));
  return tail;
}

/** `nodeId` is an identifier and the tail a protocol: ASCII, so that their characters are their bytes. */
function answerOf({ beginning, subset, page }: AnswerParts, nodeId: string, tail: string): Buffer {
  const middle = `],"nodeId":"${nodeId}"`;
  const answer = memory.take(beginning.length + subset.length + middle.length + page.length + tail.length);
  let at = 0;
  answer.set(beginning, at);
  answer.set(subset, (at += beginning.length));
  at += subset.length;
  at += answer.write(middle, at, 'latin1');
  answer.set(page, at);
  answer.write(tail, at + page.length, 'latin1');
  return answer;
}

/** The stored handoff is what the page commits to, and its text still says so. */
function matches(stored: { id: string; digest: string; record: string }, entry: Reference): boolean {
  if (stored.id !== entry.id || stored.digest !== entry.digest) return false;
  return readStored(handoffType, stored.record, entry)?.id === entry.id;
}

function nothing(nodeId: string, tail: string): Buffer {
  return Buffer.from(`{"aggregate":null,"nodeHandoffs":[],"nodeId":${JSON.stringify(nodeId)},"page":null${tail}`);
}
