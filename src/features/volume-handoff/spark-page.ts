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

/** One page of a pinned revision, as the parts of an answer. */
interface PinnedPage {
  /** Up to where the node's handoffs begin. One buffer for all pages of a revision. */
  readonly beginning: Buffer;
  /** The member `page`, with the comma before it. */
  readonly page: Buffer;
  /** Nodes that have handoffs on it: all others get an empty subset without another look-up. */
  readonly nodeIds: ReadonlySet<string>;
}

interface LoadedPage extends PinnedPage {
  /** The reading node's handoffs on the page, separated by commas. */
  readonly subset: Buffer;
}

const emptySubset = Buffer.alloc(0);

/** The node has been authenticated: its token is not there any more. */
type PageRequest = Omit<ISparkGetFleetCutoverPreparedVolumeHandoffsRequest, 'nodeToken'>;

export class SparkPageReader {
  readonly #deps: Deps;
  readonly #pages = new LRUCache<string, PinnedPage>({
    maxSize: maximumPageBytes,
    sizeCalculation: ({ page, nodeIds }) => page.byteLength + 128 * nodeIds.size,
  });
  readonly #subsets = new LRUCache<string, Buffer>({
    maxSize: maximumSubsetBytes,
    sizeCalculation: (bytes) => bytes.byteLength,
  });
  readonly #beginnings = new LRUCache<string, Buffer>({ max: 64 });

  constructor(deps: Deps) {
    this.#deps = deps;
  }

  /** The answer's canonical JSON. */
  async read(actor: NodeActor, request: PageRequest, protocol: IProtocolOffer): Promise<Buffer | Refused> {
    const tail = `,"protocol":${canonicalizeStrictJson(protocol)}}`;
    const { nodeId, aggregate: head } = actor;
    if (request.aggregate === null && head.state !== 'complete') return nothing(nodeId, tail);
    const generation = request.aggregate?.generation ?? head.generation;
    const digest = request.aggregate?.digest ?? head.digest;
    const pin = [actor.clusterId, request.aggregate?.id ?? '', generation, digest].join(' ');
    const key = `${pin} ${request.pageIndex}`;
    const cached = this.#cached(key, nodeId);
    if (cached !== undefined) return answerOf(cached, nodeId, tail);

    const loaded = await read(this.#deps, 'readSparkPage', (tx) => this.#load(tx, actor, request, generation));
    if (loaded === null) return nothing(nodeId, tail);
    if ('kind' in loaded) return loaded;
    const beginning = this.#beginnings.get(pin) ?? loaded.beginning;
    this.#beginnings.set(pin, beginning);
    this.#pages.set(key, { beginning, page: loaded.page, nodeIds: loaded.nodeIds });
    if (loaded.nodeIds.has(nodeId)) this.#subsets.set(`${key} ${nodeId}`, loaded.subset);
    return answerOf(loaded, nodeId, tail);
  }

  #cached(key: string, nodeId: string): LoadedPage | undefined {
    const known = this.#pages.get(key);
    if (known === undefined) return undefined;
    const subset = known.nodeIds.has(nodeId) ? this.#subsets.get(`${key} ${nodeId}`) : emptySubset;
    return subset === undefined ? undefined : { ...known, subset };
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
      beginning: Buffer.from(`{"aggregate":${revision.record},"nodeHandoffs":[`),
      page: Buffer.from(`,"page":${splicePage(reference, page.tail)}`),
      nodeIds: new Set(content.handoffs.map((entry) => entry.nodeId)),
      subset: Buffer.from(records.map((each) => each.record).join(',')),
    };
  }
}

function answerOf({ beginning, subset, page }: LoadedPage, nodeId: string, tail: string): Buffer {
  return Buffer.concat([
    beginning,
    subset,
    Buffer.from(`],"nodeId":${JSON.stringify(nodeId)}`),
    page,
    Buffer.from(tail),
  ]);
}

/** The stored handoff is what the page commits to, and its text still says so. */
function matches(stored: { id: string; digest: string; record: string }, entry: Reference): boolean {
  if (stored.id !== entry.id || stored.digest !== entry.digest) return false;
  return readStored(handoffType, stored.record, entry)?.id === entry.id;
}

function nothing(nodeId: string, tail: string): Buffer {
  return Buffer.from(`{"aggregate":null,"nodeHandoffs":[],"nodeId":${JSON.stringify(nodeId)},"page":null${tail}`);
}
