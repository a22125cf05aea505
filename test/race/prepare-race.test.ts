import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createVolatileGenerationMemory } from '../../src/client/generation-memory.js';
import { readPreparedVolumeHandoffs } from '../../src/client/page-reader.js';
import { createSparkClient } from '../../src/client/spark-client.js';
import type { IFleetCutoverPreparedVolumeHandoffAggregate } from '../../src/contract/handoff.js';
import { type Reference, referenceOf } from '../../src/contract/schema.js';
import { Secret } from '../../src/secret.js';
import { independentBareDigest, independentRecordDigest } from '../support/independent-digest.js';
import { mutationId, startService, type TestService } from '../support/service.js';
import {
  prepareKeys,
  type SyntheticFleet,
  syntheticFleet,
  type SyntheticKey,
  upsertOf,
  volumesOf,
} from '../support/synthetic-fleet.js';

const writers = 16;
const attempts = 30;

interface Acknowledged {
  readonly expected: Reference;
  readonly aggregate: IFleetCutoverPreparedVolumeHandoffAggregate;
  /** What the answer said of each entry. */
  readonly outcomes: readonly {
    readonly nodeId: string;
    readonly id: string;
    readonly change: string;
    readonly reference: Reference;
  }[];
}

interface Lost {
  readonly expected: Reference;
  readonly current: Reference;
}

interface Race {
  readonly acknowledged: Acknowledged[];
  readonly lost: Lost[];
  /** Complete sets that Spark read meanwhile. */
  readonly read: Reference[];
  readonly observed: number;
  readonly first: Reference;
}

let service: TestService;
let fleet: SyntheticFleet;
let race: Race;

beforeAll(async () => {
  service = await startService({ logLevel: 'warn' });
  fleet = await syntheticFleet(service, { nodes: 3, volumesPerNode: [40, 20, 0], services: 1 });
  race = await run();
}, 120_000);
afterAll(() => service.close());

async function run(): Promise<Race> {
  const known: SyntheticKey[] = fleet.keys();
  const first = (await prepareKeys(service, fleet, null, known))!;
  const acknowledged: Acknowledged[] = [];
  const lost: Lost[] = [];
  let running = writers;
  let next = 0;

  const write = async (writer: number) => {
    let expected = first;
    for (let attempt = 0; attempt < attempts; attempt += 1) {
      // In turns, so that keys which appear are soon prepared and complete sets are published on and on.
      const picked = Array.from(
        { length: 1 + (attempt % 3) },
        () => known[known.length - 1 - (next++ % known.length)]!,
      );
      const { clusterId, runtime, scope } = fleet;
      const answer = await service.call('prepareFleetCutoverVolumeHandoffs', {
        mutationId: mutationId(),
        clusterId,
        runtime,
        scope,
        expectedAggregate: expected,
        upserts: [...new Set(picked)].map((key) => upsertOf(key, 1 + writer * attempts + attempt)),
        removals: [],
      });
      if (answer.status === 200) {
        acknowledged.push({ expected, aggregate: answer.body.aggregate, outcomes: answer.body.handoffs });
        expected = referenceOf(answer.body.aggregate);
        continue;
      }
      expect([answer.status, answer.body.code]).toEqual([409, 'aggregate-stale']);
      expect(answer.body).toMatchObject({
        expectation: 'expectedAggregate',
        mutationOutcome: 'not-applied',
        retrySafe: false,
      });
      lost.push({ expected, current: answer.body.current! });
      expected = answer.body.current!;
    }
    running -= 1;
  };

  const read: Reference[] = [];
  const reader = async (nodeIndex: number) => {
    const { nodeId, token } = fleet.nodes[nodeIndex]!;
    const client = createSparkClient({ url: service.url, nodeId, nodeToken: new Secret(token) });
    const memory = createVolatileGenerationMemory();
    // It throws for a page that is missing, of another revision, or does not match its digest or count.
    while (running > 0) {
      const set = await readPreparedVolumeHandoffs({ client, memory });
      if (set.aggregate !== null) read.push(referenceOf(set.aggregate));
    }
    await client.close();
  };

  let observed = 0;
  const observer = async () => {
    const { nodeId } = fleet.nodes[2]!;
    while (running > 0 && observed < 12) {
      observed += 1;
      await fleet.report(nodeId, { volumes: volumesOf(observed, 1) });
      const seen = new Set(known.map((key) => key.id));
      known.push(...fleet.keys().filter((key) => !seen.has(key.id)));
    }
  };

  await Promise.all([
    ...Array.from({ length: writers }, (_, writer) => write(writer)),
    reader(0),
    reader(1),
    observer(),
  ]);
  return { acknowledged, lost, read, observed, first };
}

async function headers(): Promise<IFleetCutoverPreparedVolumeHandoffAggregate[]> {
  const { rows } = await service.database.owner.query<{ record: string }>(
    `select record from control.aggregate_revisions where cluster_id = $1 order by generation`,
    [fleet.clusterId],
  );
  return rows.map((row) => JSON.parse(row.record) as IFleetCutoverPreparedVolumeHandoffAggregate);
}

describe(`${writers} writers, ${attempts} attempts each, with readers and an observer that adds keys`, () => {
  it('answer every attempt: it was applied, or it lost against what is current', () => {
    expect(race.acknowledged.length + race.lost.length).toBe(writers * attempts);
    expect(race.acknowledged.length).toBeGreaterThanOrEqual(attempts);
    expect(race.lost.length).toBeGreaterThan(0);
    expect(race.observed).toBeGreaterThan(0);
  });

  it('make one gapless chain of exactly the acknowledged revisions', async () => {
    const chain = await headers();
    expect(chain.map((header) => header.generation)).toEqual(chain.map((_, index) => index + 1));
    for (const [index, header] of chain.entries()) {
      expect(header.predecessor).toEqual(index === 0 ? null : referenceOf(chain[index - 1]!));
      expect(header.digest).toBe(independentRecordDigest('fleet-cutover-prepared-volume-handoff-aggregate', header));
    }
    const made = chain.slice(race.first.generation);
    const answered = [...race.acknowledged].sort((a, b) => a.aggregate.generation - b.aggregate.generation);
    expect(answered.map((each) => each.aggregate)).toEqual(made);
    for (const { expected, aggregate } of answered) expect(aggregate.predecessor).toEqual(expected);
  });

  it('tell each loser a revision that was there, newer than what it expected', async () => {
    const digests = new Map((await headers()).map((header) => [header.generation, header.digest]));
    for (const { expected, current } of race.lost) {
      expect(current.id).toBe(race.first.id);
      expect(current.generation).toBeGreaterThan(expected.generation);
      expect(digests.get(current.generation)).toBe(current.digest);
    }
  });

  it('have exactly the acknowledged changes in the rows, each under its revision', async () => {
    const { rows } = await service.database.owner.query<{
      aggregate: string;
      nodeId: string;
      id: string;
      generation: string;
      digest: string;
    }>(
      `select aggregate_generation as aggregate, node_id as "nodeId", handoff_id as id, generation, digest
       from control.handoff_revisions where cluster_id = $1 and aggregate_generation > $2 order by 1, 2, 3`,
      [fleet.clusterId, race.first.generation],
    );
    const stored = rows.map((row) => `${row.aggregate} ${row.nodeId} ${row.id} ${row.generation} ${row.digest}`).sort();
    const acknowledged = race.acknowledged.flatMap(({ aggregate, outcomes }) =>
      outcomes
        .filter((each) => each.change !== 'unchanged')
        .map(
          ({ nodeId, id, reference }) =>
            `${aggregate.generation} ${nodeId} ${id} ${reference.generation} ${reference.digest}`,
        ),
    );
    expect(stored).toEqual(acknowledged.sort());
    for (const { aggregate } of race.acknowledged) {
      const changes = rows
        .filter((row) => Number(row.aggregate) === aggregate.generation)
        .map(({ nodeId, id, generation, digest }) => ({
          nodeId,
          id,
          handoff: { generation: Number(generation), digest },
        }));
      expect(aggregate.changeDigest).toBe(independentBareDigest(changes));
    }
    const generations = new Map<string, number[]>();
    for (const row of rows) generations.set(row.id, [...(generations.get(row.id) ?? []), Number(row.generation)]);
    for (const list of generations.values()) expect(list).toEqual(list.map((_, index) => list[0]! + index));
  });

  it('let Spark see whole, complete revisions only', async () => {
    expect(race.read.length).toBeGreaterThan(0);
    const complete = new Map(
      (await headers()).filter((each) => each.state === 'complete').map((each) => [each.generation, each.digest]),
    );
    for (const { generation, digest } of race.read) expect(complete.get(generation)).toBe(digest);
  });

  it('leave counts that agree with the rows, and a set that can be completed', async () => {
    const { clusterId } = fleet;
    const count = async () =>
      (
        await service.database.owner.query(
          `with prepared as (select node_id, handoff_id from control.handoff_heads where cluster_id = $1 and not removed),
                required as (select node_id, handoff_id from control.required_entries where cluster_id = $1 and until is null)
           select (select prepared_count from control.aggregate_heads where cluster_id = $1)::int as "preparedCount",
                  (select matched_count from control.aggregate_heads where cluster_id = $1)::int as "matchedCount",
                  (select count(*) from prepared)::int as prepared, (select count(*) from required)::int as required,
                  (select count(*) from prepared join required using (node_id, handoff_id))::int as matched`,
          [clusterId],
        )
      ).rows[0];
    const counted = await count();
    expect(counted).toMatchObject({
      preparedCount: counted.prepared,
      matchedCount: counted.matched,
      required: 60 + race.observed,
    });
    const { aggregate } = await service.done('readFleetCutoverState', { clusterId });
    const list = await service.done('listFleetCutoverRequiredVolumeHandoffs', { clusterId, cursor: null, limit: 1024 });
    const missing = fleet
      .keys()
      .filter((key) => list.entries.some((entry) => entry.id === key.id && entry.state === 'missing'));
    await prepareKeys(service, fleet, referenceOf(aggregate!), missing.length > 0 ? missing : fleet.keys().slice(0, 1));
    expect((await service.done('readFleetCutoverState', { clusterId })).aggregate).toMatchObject({
      state: 'complete',
      actualCount: 60 + race.observed,
      pageCount: Math.ceil((60 + race.observed) / 32),
    });
    for (const { nodeId, token } of fleet.nodes) {
      const client = createSparkClient({ url: service.url, nodeId, nodeToken: new Secret(token) });
      expect(await readPreparedVolumeHandoffs({ client, memory: createVolatileGenerationMemory() })).toMatchObject({
        referenceCount: 60 + race.observed,
      });
      await client.close();
    }
  });
});

describe('a report that waits for mutations under way', () => {
  it('is not overtaken by the mutations that come after it', async () => {
    const quiet = await syntheticFleet(service, { nodes: 1, volumesPerNode: 3, services: 1 });
    const keys = quiet.keys();
    const { clusterId, runtime, scope } = quiet;
    const { nodeId, content } = quiet.nodes[0]!;
    const waiting = async (count: number) => {
      const since = Date.now();
      for (;;) {
        const { rows } = await service.database.owner.query<{ count: number }>(
          `select count(distinct pid)::int as count from pg_locks where not granted
             and pid in (select pid from pg_stat_activity where datname = current_database())`,
        );
        if (rows[0]!.count === count) return;
        if (Date.now() - since > 4_000) throw new Error(`${rows[0]!.count} of ${count} wait`);
      }
    };
    // A mutation that takes its time: it shares the derivation's row.
    const slow = await service.database.owner.connect();
    await slow.query('begin');
    await slow.query('select from control.derivation_heads where cluster_id = $1 for share', [clusterId]);
    const report = quiet.report(nodeId, { volumes: [...content.volumes, ...volumesOf(1, 1, 3)] });
    await waiting(1);
    const mutation = service.done('prepareFleetCutoverVolumeHandoffs', {
      mutationId: mutationId(),
      clusterId,
      runtime,
      scope,
      expectedAggregate: null,
      upserts: keys.map((key) => upsertOf(key)),
      removals: [],
    });
    await waiting(2);
    await slow.query('commit');
    slow.release();
    await report;
    // It counts the report's key, so it came after it.
    expect((await mutation).aggregate).toMatchObject({ state: 'incomplete', requiredCount: 4, actualCount: 3 });
  });
});
