/**
 * The aggregate from its first revision to its head: every revision's header, the handoffs that it changed, and the pages of
 * every complete one, laid out anew from the handoffs.
 */
import { sql } from 'kysely';
import {
  fleetCutoverPreparedVolumeHandoffAggregateRecord,
  handoffChangeDigest,
  handoffSetDigest,
  type IFleetCutoverPreparedVolumeHandoffAggregate,
} from '../../contract/handoff.js';
import { aggregateId } from '../../contract/record-id.js';
import type { Reference } from '../../contract/schema.js';
import { qb } from '../../db/query.js';
import { type AcceptedRevision, AcceptedRevisions } from './accepted-revisions.js';
import { HandoffSet, type SetChange } from './handoff-set.js';
import { PageRows } from './page-rows.js';
import { comparePageHeads } from './page-heads.js';
import { type LastRevision, RevisionChain } from './revisions.js';
import type { StoredRecord } from './sealed-record.js';
import { pagesOf, type Verification, type VerifiedCluster } from './verification.js';

type Aggregate = IFleetCutoverPreparedVolumeHandoffAggregate;

export interface StoredAggregate extends StoredRecord {
  readonly state: string;
}

const revisionsPerPage = 64;

export interface ReplayedAggregate {
  /** The prepared handoffs of the head. */
  readonly set: HandoffSet;
  readonly last: LastRevision<Aggregate> | undefined;
  /** 0: none was complete. */
  readonly completeGeneration: number;
}

export async function verifyAggregate(
  verification: Verification,
  cluster: VerifiedCluster,
): Promise<ReplayedAggregate> {
  const replay = new AggregateReplay(verification, cluster);
  await replay.run();
  return replay.result();
}

class AggregateReplay {
  readonly #verification: Verification;
  readonly #cluster: VerifiedCluster;
  readonly #chain: RevisionChain<Aggregate, StoredAggregate>;
  readonly #accepted: AcceptedRevisions;
  readonly #pages: PageRows;
  readonly #set = new HandoffSet();
  #completeGeneration = 0;

  constructor(verification: Verification, cluster: VerifiedCluster) {
    this.#verification = verification;
    this.#cluster = cluster;
    const { clusterId } = cluster;
    this.#chain = new RevisionChain(verification, {
      table: 'aggregate_revisions',
      record: fleetCutoverPreparedVolumeHandoffAggregateRecord,
      id: aggregateId(cluster.clusterLife),
      key: (generation) => this.#key(generation),
      contradiction: (value, row) => {
        if (value.clusterId !== clusterId) return `the record is of cluster ${value.clusterId}`;
        return value.state === row.state ? null : `the record is ${value.state}, the row ${row.state}`;
      },
    });
    this.#accepted = new AcceptedRevisions(verification, clusterId);
    this.#pages = new PageRows(verification, clusterId);
  }

  async run(): Promise<void> {
    const { tx } = this.#verification;
    const { clusterId } = this.#cluster;
    let next = 1;
    const pages = pagesOf<StoredAggregate>((last) =>
      tx.rows(
        sql<StoredAggregate>`
          select generation, digest, state, record from control.aggregate_revisions
          where cluster_id = ${clusterId} and generation > ${last?.generation ?? 0}
          order by generation limit ${revisionsPerPage}`.compile(qb),
      ),
    );
    await this.#pages.open();
    for await (const rows of pages) {
      const until = rows.at(-1)!.generation;
      const stored = await changesBetween(this.#verification, clusterId, next, until);
      await this.#compareReferences(rows);
      for (const row of rows) {
        // A revision that is missing has changed the set all the same.
        for (; next < row.generation; next += 1) await this.#replay(next, null, stored.get(next) ?? []);
        const value = this.#chain.take(row);
        await this.#replay(row.generation, value, stored.get(row.generation) ?? []);
        next = row.generation + 1;
      }
      this.#verification.advance(rows.length);
    }
    await this.#replayBeyond(next);
    await this.#pages.close();
    await comparePageHeads(this.#verification, clusterId, this.#set.layout);
  }

  result(): ReplayedAggregate {
    return { set: this.#set, last: this.#chain.last, completeGeneration: this.#completeGeneration };
  }

  #key(generation: number) {
    return { cluster_id: this.#cluster.clusterId, generation };
  }

  /** Revisions behind the last row: the audit chain, or handoffs, may know of them. */
  async #replayBeyond(first: number): Promise<void> {
    const { clusterId } = this.#cluster;
    const { findings } = this.#verification;
    for (let generation = first; ; generation += 1) {
      const accepted = await this.#accepted.of(generation);
      const stored =
        (await changesBetween(this.#verification, clusterId, generation, generation)).get(generation) ?? [];
      if (accepted === undefined && stored.length === 0) return;
      const how = accepted === undefined ? 'handoff revisions name it' : `audit row ${accepted.seq} accepted it`;
      findings.add('aggregate_revisions', this.#key(generation), 'the row is missing', how);
      await this.#replay(generation, null, stored);
    }
  }

  async #replay(generation: number, value: Aggregate | null, stored: readonly StoredChange[]): Promise<void> {
    const { findings } = this.#verification;
    const accepted = await this.#accepted.of(generation);
    if (accepted === undefined) this.#unaccepted(generation);
    else if (value !== null && accepted.aggregate.digest !== value.digest) {
      findings.add(
        'aggregate_revisions',
        this.#key(generation),
        'the row was replaced',
        `audit row ${accepted.seq} accepted ${accepted.aggregate.digest}`,
      );
    }
    const aggregate = accepted?.aggregate ?? value;
    for (const change of this.#changes(generation, aggregate, accepted, stored)) this.#set.apply(change);
    if (aggregate === null) {
      this.#verification.skipped.push(
        `pages of aggregate generation ${generation}: its row is broken and no audit row has it`,
      );
      return;
    }
    const { size } = this.#set;
    if (aggregate.actualCount !== size) {
      findings.add(
        'aggregate_revisions',
        this.#key(generation),
        'actualCount is wrong',
        `the handoff revisions make ${size}, the record says ${aggregate.actualCount}`,
      );
    }
    if (aggregate.state === 'complete') await this.#comparePages(generation, aggregate);
  }

  /** A broken audit chain has named its own rows. */
  #unaccepted(generation: number): void {
    const { findings } = this.#verification;
    if (findings.hasAny('audit_rows', { chain_id: this.#cluster.clusterId })) return;
    findings.add(
      'aggregate_revisions',
      this.#key(generation),
      'nobody made the revision',
      'no audit row has it as its result',
    );
  }

  /** The revision's changes as the audit row has them, else as the rows have them. Names the rows that differ. */
  #changes(
    generation: number,
    aggregate: Aggregate | null,
    accepted: AcceptedRevision | undefined,
    stored: readonly StoredChange[],
  ): readonly SetChange[] {
    const { findings } = this.#verification;
    if (accepted !== undefined && accepted.changes !== null) {
      compareChanges(this.#verification, this.#cluster.clusterId, generation, accepted.changes, stored, accepted.seq);
      return accepted.changes;
    }
    const changes = stored.map(asChange);
    if (aggregate !== null && handoffChangeDigest([...changes]) !== aggregate.changeDigest) {
      findings.add(
        'aggregate_revisions',
        this.#key(generation),
        'changeDigest is wrong',
        'the handoff revisions of this generation give another digest',
      );
    }
    return changes;
  }

  async #comparePages(generation: number, aggregate: Aggregate): Promise<void> {
    const { findings } = this.#verification;
    this.#completeGeneration = generation;
    await this.#pages.compare(generation, this.#set.publish());
    const { layout } = this.#set;
    const setDigest = handoffSetDigest(layout.map((page) => page.contentDigest));
    if (aggregate.setDigest !== setDigest || aggregate.pageCount !== layout.length) {
      findings.add(
        'aggregate_revisions',
        this.#key(generation),
        'setDigest or pageCount is wrong',
        `the handoff revisions make ${layout.length} pages with ${setDigest}, the record says ${aggregate.pageCount} with ${aggregate.setDigest}`,
      );
    }
  }

  /** What a header was derived from exists and says what the header repeats. */
  async #compareReferences(rows: readonly StoredAggregate[]): Promise<void> {
    const { tx, findings } = this.#verification;
    const { clusterId } = this.#cluster;
    const values = rows.flatMap((row) => {
      const value = readAggregate(row.record);
      return value === null ? [] : [value];
    });
    const generations = (of: (value: Aggregate) => Reference | null) => [
      ...new Set(values.flatMap((value) => of(value)?.generation ?? [])),
    ];
    const digests = async (
      table: 'runtime' | 'scope' | 'target_set' | 'derivation',
      of: (value: Aggregate) => Reference | null,
    ) => {
      const found = await tx.rows(
        sql<{ generation: number; digest: string }>`
          select generation, digest from ${sql.table(`control.${table}_revisions`)}
          where cluster_id = ${clusterId} and generation = any(${generations(of)}::bigint[])`.compile(qb),
      );
      return new Map(found.map((row) => [row.generation, row.digest]));
    };
    const compare = async (
      table: 'runtime' | 'scope' | 'target_set' | 'derivation',
      of: (value: Aggregate) => Reference | null,
    ) => {
      const known = await digests(table, of);
      for (const value of values) {
        const reference = of(value);
        if (reference === null || known.get(reference.generation) === reference.digest) continue;
        // A row of that table that is gone or was replaced is named by its own chain.
        if (findings.hasAny(`${table}_revisions`, { cluster_id: clusterId, generation: reference.generation }))
          continue;
        findings.add(
          'aggregate_revisions',
          this.#key(value.generation),
          `${table} is no accepted record`,
          `${table}_revisions has no ${reference.generation} with ${reference.digest}`,
        );
      }
    };
    await compare('runtime', (value) => value.runtime);
    await compare('scope', (value) => value.scope);
    await compare('target_set', (value) => value.targetSet);
    await compare('derivation', (value) => value.derivation);
  }
}

function readAggregate(text: string): Aggregate | null {
  try {
    const value: unknown = JSON.parse(text);
    return fleetCutoverPreparedVolumeHandoffAggregateRecord.check(value).length === 0 ? (value as Aggregate) : null;
  } catch {
    return null;
  }
}

interface StoredChange {
  readonly nodeId: string;
  readonly id: string;
  readonly aggregateGeneration: number;
  readonly generation: number;
  readonly digest: Reference['digest'];
  readonly removed: boolean;
}

/** Handoff revisions by aggregate generation; both ends inclusive. */
async function changesBetween(
  { tx }: Verification,
  clusterId: string,
  from: number,
  to: number,
): Promise<ReadonlyMap<number, StoredChange[]>> {
  const rows = await tx.rows(
    sql<StoredChange>`
      select node_id as "nodeId", handoff_id as id, aggregate_generation as "aggregateGeneration", generation, digest, record is null as removed
      from control.handoff_revisions
      where cluster_id = ${clusterId} and aggregate_generation between ${from} and ${to}`.compile(qb),
  );
  const byGeneration = new Map<number, StoredChange[]>();
  for (const row of rows) {
    const known = byGeneration.get(row.aggregateGeneration);
    if (known === undefined) byGeneration.set(row.aggregateGeneration, [row]);
    else known.push(row);
  }
  return byGeneration;
}

function asChange({ nodeId, id, generation, digest, removed }: StoredChange): SetChange {
  return { nodeId, id, handoff: removed ? null : { generation, digest } };
}

function compareChanges(
  { findings }: Verification,
  clusterId: string,
  aggregateGeneration: number,
  accepted: readonly SetChange[],
  stored: readonly StoredChange[],
  seq: number,
): void {
  const keyOf = ({ nodeId, id }: { nodeId: string; id: string }) => ({
    cluster_id: clusterId,
    node_id: nodeId,
    handoff_id: id,
    aggregate_generation: aggregateGeneration,
  });
  const left = new Map(stored.map((row) => [`${row.nodeId}\0${row.id}`, row]));
  for (const change of accepted) {
    const identity = `${change.nodeId}\0${change.id}`;
    const row = left.get(identity);
    left.delete(identity);
    if (row === undefined) {
      findings.add('handoff_revisions', keyOf(change), 'the row is missing', `audit row ${seq} accepted it`);
    } else if (row.removed !== (change.handoff === null)) {
      findings.add(
        'handoff_revisions',
        keyOf(change),
        'the row was changed',
        `audit row ${seq} ${row.removed ? 'made' : 'removed'} the handoff`,
      );
    } else if (
      change.handoff !== null &&
      (row.generation !== change.handoff.generation || row.digest !== change.handoff.digest)
    ) {
      const { generation, digest } = change.handoff;
      findings.add(
        'handoff_revisions',
        keyOf(change),
        'the row was changed',
        `audit row ${seq} accepted ${generation} ${digest}, the row has ${row.generation} ${row.digest}`,
      );
    }
  }
  for (const row of left.values()) {
    findings.add('handoff_revisions', keyOf(row), 'the row should not be there', `audit row ${seq} did not accept it`);
  }
}
