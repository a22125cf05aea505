/**
 * The set of prepared handoffs as it was at one aggregate generation, and the pages of its last complete revision. One set
 * is held in memory: at most 131,072 references, the contract's ceiling, whatever the length of the history.
 */
import { comparePageOrder, type IFleetCutoverPreparedVolumeHandoffPageEntry } from '../../contract/handoff.js';
import { entriesPerPage, makePage, type PageContent } from '../volume-handoff/page.js';

type Entry = IFleetCutoverPreparedVolumeHandoffPageEntry;
type Digest = Entry['digest'];

/** One change; `handoff` null removes it. */
export interface SetChange {
  readonly nodeId: string;
  readonly id: string;
  readonly handoff: { readonly generation: number; readonly digest: Digest } | null;
}

export interface PageHead {
  readonly contentDigest: Digest;
  readonly first: Entry;
}

export class HandoffSet {
  /** In page order. */
  readonly #entries: Entry[] = [];
  #layout: PageHead[] = [];
  /** Positions from here on have moved since the layout was made. */
  #moved = 0;
  #revised = new Set<number>();

  get size(): number {
    return this.#entries.length;
  }

  /** Pages of the newest complete revision so far. */
  get layout(): readonly PageHead[] {
    return this.#layout;
  }

  get(nodeId: string, id: string): Entry | undefined {
    const position = this.#position(nodeId, id);
    const entry = this.#entries[position];
    return entry !== undefined && entry.nodeId === nodeId && entry.id === id ? entry : undefined;
  }

  apply({ nodeId, id, handoff }: SetChange): void {
    const position = this.#position(nodeId, id);
    const known = this.get(nodeId, id) !== undefined;
    if (handoff === null) {
      if (!known) return;
      this.#entries.splice(position, 1);
      this.#moved = Math.min(this.#moved, position);
      return;
    }
    const entry = { nodeId, id, ...handoff };
    if (known) {
      this.#entries[position] = entry;
      this.#revised.add(Math.floor(position / entriesPerPage));
      return;
    }
    this.#entries.splice(position, 0, entry);
    this.#moved = Math.min(this.#moved, position);
  }

  /** Lays the set out anew; gives the pages that differ from the layout before, in order, one at a time. */
  *publish(): Generator<PageContent, void, undefined> {
    const count = Math.ceil(this.#entries.length / entriesPerPage);
    const firstMoved = Math.floor(this.#moved / entriesPerPage);
    const revised = [...this.#revised]
      .filter((index) => index < Math.min(firstMoved, count))
      .sort((left, right) => left - right);
    this.#moved = this.#entries.length;
    this.#revised = new Set();
    this.#layout.length = Math.min(this.#layout.length, count);
    for (const index of revised) yield* this.#publishPage(index);
    for (let index = firstMoved; index < count; index += 1) yield* this.#publishPage(index);
  }

  *#publishPage(index: number): Generator<PageContent, void, undefined> {
    const page = makePage(index, this.#entries.slice(index * entriesPerPage, (index + 1) * entriesPerPage));
    const before = this.#layout[index]?.contentDigest;
    this.#layout[index] = { contentDigest: page.contentDigest, first: page.first };
    if (before !== page.contentDigest) yield page;
  }

  #position(nodeId: string, id: string): number {
    let low = 0;
    let high = this.#entries.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (comparePageOrder(this.#entries[middle]!, { nodeId, id }) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
