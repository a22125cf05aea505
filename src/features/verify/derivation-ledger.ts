/**
 * Which rows a derivation's current state lacks or has too much, and in which revision each belongs. A row that is gone can't
 * say when it came; the revision whose change digest holds with it can.
 */
import { bareDigest } from '../../contract/digest.js';
import type { Difference, StoredBlocker, StoredEntry } from './derived-rows.js';
import type { RowKey } from './finding.js';
import type { Verification } from './verification.js';

/** Row ids that came and went with one revision. */
export interface RevisionChange {
  readonly entriesAdded: readonly string[];
  readonly entriesRemoved: readonly string[];
  readonly blockersAdded: readonly string[];
  readonly blockersRemoved: readonly string[];
}

interface Lost {
  readonly kind: 'entry' | 'blocker';
  readonly id: string;
  readonly nodeId: string;
  /** Whether a fresh derivation makes it; an entry whose container is gone has nothing left but its handoff. */
  readonly derived: boolean;
}

const how = 'a fresh derivation from the latest accepted snapshots';
const prepared = 'a handoff was prepared of it';

export class DerivationLedger {
  readonly #verification: Verification;
  readonly #clusterId: string;
  readonly #lost = new Map<string, Lost>();
  readonly #extraEntries = new Map<string, StoredEntry>();
  readonly #extraBlockers = new Map<string, StoredBlocker>();
  readonly #restored: Lost[] = [];

  constructor(verification: Verification, clusterId: string) {
    this.#verification = verification;
    this.#clusterId = clusterId;
  }

  add(difference: Difference): void {
    const { findings } = this.#verification;
    for (const entry of difference.missingEntries)
      this.#lost.set(entry.handoffId, { kind: 'entry', id: entry.handoffId, nodeId: entry.nodeId, derived: true });
    for (const { record } of difference.missingBlockers)
      this.#lost.set(record.id, { kind: 'blocker', id: record.id, nodeId: record.nodeId ?? '', derived: true });
    for (const entry of difference.extraEntries) {
      const { nodeId, handoffId, since } = entry;
      this.#extraEntries.set(handoffId, entry);
      findings.add(
        'required_entries',
        this.#entryKey(nodeId, handoffId, since),
        'the row should not be there',
        `${how} does not make it`,
      );
    }
    for (const blocker of difference.extraBlockers) {
      this.#extraBlockers.set(blocker.id, blocker);
      findings.add(
        'blockers',
        this.#blockerKey(blocker.id, blocker.since),
        'the row should not be there',
        `${how} does not make it`,
      );
    }
  }

  /** A prepared handoff whose key was never required: its row is gone, whether it would be derived again or not. */
  addPreparedWithoutEntry(nodeId: string, handoffId: string): void {
    if (!this.#lost.has(handoffId)) this.#lost.set(handoffId, { kind: 'entry', id: handoffId, nodeId, derived: false });
  }

  /** The change as it was made, or undefined where no explanation gives the digest. Names the rows that it had to put right. */
  explain(generation: number, stored: RevisionChange, changeDigest: string): RevisionChange | undefined {
    if (digestOf(stored) === changeDigest) return stored;
    const lost = [...this.#lost.values()];
    const own = withoutExtras(stored, generation, this.#extraEntries, this.#extraBlockers);
    const candidates: (readonly Lost[])[] = [[], lost, ...lost.slice(0, 1_000).map((each) => [each])];
    for (const restored of candidates) {
      for (const base of [own, stored]) {
        const change = restore(base, restored);
        if (digestOf(change) !== changeDigest) continue;
        this.#name(generation, base, restored);
        return change;
      }
    }
    return undefined;
  }

  /** Entries that a revision has, that no derivation would make again, and whose rows are gone. */
  get restored(): readonly { readonly nodeId: string; readonly id: string }[] {
    return this.#restored;
  }

  /** What no revision explains. */
  finish(): void {
    for (const lost of this.#lost.values()) this.#report(lost, null, lost.derived ? `${how} makes it` : prepared);
    this.#lost.clear();
  }

  #name(generation: number, base: RevisionChange, restored: readonly Lost[]): void {
    for (const lost of restored) {
      // The row is there, but says that it went.
      const closed = base.entriesRemoved.includes(lost.id) || base.blockersRemoved.includes(lost.id);
      if (closed) this.#reportClosed(lost, generation);
      else
        this.#report(
          lost,
          generation,
          `the change digest of derivation ${generation} has it; ${lost.derived ? `${how} makes it` : prepared}`,
        );
      if (!lost.derived) this.#restored.push(lost);
      this.#lost.delete(lost.id);
    }
  }

  #report(lost: Lost, since: number | null, why: string): void {
    const table = lost.kind === 'entry' ? 'required_entries' : 'blockers';
    const key = lost.kind === 'entry' ? this.#entryKey(lost.nodeId, lost.id, since) : this.#blockerKey(lost.id, since);
    this.#verification.findings.add(table, key, 'the row is missing', why);
  }

  #reportClosed(lost: Lost, until: number): void {
    const [table, key] = this.#closedRow(lost);
    const why = `the change digest of derivation ${until} does not have it, and ${how} makes it`;
    this.#verification.findings.add(table, { ...key, until }, 'the row was closed', why);
  }

  #closedRow(lost: Lost): [string, RowKey] {
    if (lost.kind === 'blocker') return ['blockers', { cluster_id: this.#clusterId, blocker_id: lost.id }];
    return ['required_entries', { cluster_id: this.#clusterId, node_id: lost.nodeId, handoff_id: lost.id }];
  }

  #entryKey(nodeId: string, handoffId: string, since: number | null): RowKey {
    return { cluster_id: this.#clusterId, node_id: nodeId, handoff_id: handoffId, since };
  }

  #blockerKey(blockerId: string, since: number | null): RowKey {
    return { cluster_id: this.#clusterId, blocker_id: blockerId, since };
  }
}

function withoutExtras(
  change: RevisionChange,
  generation: number,
  entries: ReadonlyMap<string, StoredEntry>,
  blockers: ReadonlyMap<string, StoredBlocker>,
): RevisionChange {
  return {
    ...change,
    entriesAdded: change.entriesAdded.filter((id) => entries.get(id)?.since !== generation),
    blockersAdded: change.blockersAdded.filter((id) => blockers.get(id)?.since !== generation),
  };
}

/** A lost row that is said to have gone now did not go; any other came now. */
function restore(change: RevisionChange, lost: readonly Lost[]): RevisionChange {
  const side = (kind: Lost['kind'], added: readonly string[], removed: readonly string[]) => {
    const ids = lost.filter((each) => each.kind === kind).map((each) => each.id);
    const gone = new Set(removed);
    const back = new Set(ids.filter((id) => gone.has(id)));
    return [[...added, ...ids.filter((id) => !gone.has(id))], removed.filter((id) => !back.has(id))] as const;
  };
  const [entriesAdded, entriesRemoved] = side('entry', change.entriesAdded, change.entriesRemoved);
  const [blockersAdded, blockersRemoved] = side('blocker', change.blockersAdded, change.blockersRemoved);
  return { entriesAdded, entriesRemoved, blockersAdded, blockersRemoved };
}

/** As `derivationChangeDigest` takes it, from ids alone. */
function digestOf(change: RevisionChange): string {
  return bareDigest({
    entriesAdded: [...change.entriesAdded].sort(),
    entriesRemoved: [...change.entriesRemoved].sort(),
    blockersAdded: [...change.blockersAdded].sort(),
    blockersRemoved: [...change.blockersRemoved].sort(),
  });
}
