/**
 * Spark's page read. Costs one authentication, which also read the aggregate's head, and a copy of cached bytes.
 *
 * 1. `aggregate: null` selects the head if it is complete and has pages, else the answer is all-null.
 * 2. A pin must name a complete revision exactly; a foreign or future pin is refused, never waited for.
 * 3. What is cached is immutable and keyed by the whole pin; whether the caller may read it is asked anew every time.
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
import { readStored } from './stored-record.js';

const aggregateType = 'IFleetCutoverPreparedVolumeHandoffAggregate';
const handoffType = 'IFleetCutoverPreparedVolumeHandoffIntent';

/** Bytes of answers that are kept for the next reader. */
const maximumCachedBytes = 64 * 1024 * 1024;

export class SparkPageReader {
  readonly #deps: Deps;
  /** Answers without their closing protocol member. */
  readonly #answers = new LRUCache<string, Buffer>({
    maxSize: maximumCachedBytes,
    sizeCalculation: (bytes) => bytes.byteLength,
  });

  constructor(deps: Deps) {
    this.#deps = deps;
  }

  /** The answer's canonical JSON. */
  async read(
    actor: NodeActor,
    request: ISparkGetFleetCutoverPreparedVolumeHandoffsRequest,
    protocol: IProtocolOffer,
  ): Promise<Buffer | Refused> {
    const tail = `,"protocol":${canonicalizeStrictJson(protocol)}}`;
    const { aggregate: head } = actor;
    if (request.aggregate === null && head.state !== 'complete') return nothing(actor.nodeId, tail);
    const generation = request.aggregate?.generation ?? head.generation;
    const digest = request.aggregate?.digest ?? head.digest;
    const key = [
      actor.clusterId,
      request.aggregate?.id ?? '',
      generation,
      digest,
      request.pageIndex,
      actor.nodeId,
    ].join(' ');
    const cached = this.#answers.get(key);
    if (cached !== undefined) return Buffer.concat([cached, Buffer.from(tail)]);

    const answer = await read(this.#deps, 'readSparkPage', (tx) => this.#load(tx, actor, request, generation));
    if (answer === null) return nothing(actor.nodeId, tail);
    if (typeof answer !== 'string') return answer;
    const bytes = Buffer.from(answer);
    this.#answers.set(key, bytes);
    return Buffer.concat([bytes, Buffer.from(tail)]);
  }

  async #load(
    tx: ReadTx,
    actor: NodeActor,
    request: ISparkGetFleetCutoverPreparedVolumeHandoffsRequest,
    generation: number,
  ): Promise<string | Refused | null> {
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
    const records = await handoffRecords(tx, clusterId, nodeId, own);
    if (records.length !== own.length || records.some((record, index) => !matches(record, own[index]!))) {
      return refuse('record-corrupt');
    }
    return (
      `{"aggregate":${revision.record},"nodeHandoffs":[${records.map((each) => each.record).join(',')}],` +
      `"nodeId":${JSON.stringify(nodeId)},"page":${splicePage(reference, page.tail)}`
    );
  }
}

/** The stored handoff is what the page commits to, and its text still says so. */
function matches(stored: { id: string; digest: string; record: string }, entry: Reference): boolean {
  if (stored.id !== entry.id || stored.digest !== entry.digest) return false;
  return readStored(handoffType, stored.record, entry)?.id === entry.id;
}

function nothing(nodeId: string, tail: string): Buffer {
  return Buffer.from(`{"aggregate":null,"nodeHandoffs":[],"nodeId":${JSON.stringify(nodeId)},"page":null${tail}`);
}
