import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildFaultFleet, prepareAllKeys, prepareBody, upsertOf } from '../support/fault-fleet.js';
import { openRawClient, type RawClient, referenceIn } from '../support/oracle-http.js';
import { readWholeRevision } from '../support/oracle-pages.js';
import { contend, judgeContest } from '../support/oracle-writers.js';
import { startService, type TestService } from '../support/service.js';

let service: TestService;
let client: RawClient;
beforeAll(async () => {
  service = await startService({ logLevel: 'warn' });
  client = openRawClient(service.url, service.token);
});
afterAll(async () => {
  await client.close();
  await service.close();
});

describe('64 writers on one aggregate', () => {
  it('are told the truth while the set is incomplete', async () => {
    const fleet = await buildFaultFleet(client, 'open', { nodes: 2, volumesPerNode: 40 });
    // One key stays missing, so the set never completes.
    fleet.keys = fleet.keys.slice(1);
    const contest = { writers: 64, attempts: 800, from: null };
    const attempts = await contend(client, fleet, contest);
    expect(await judgeContest(client, fleet, contest, attempts)).toEqual([]);
    expect(attempts.length).toBeGreaterThanOrEqual(800);
    expect(attempts.filter((each) => each.status === 200).length).toBeGreaterThan(4);
  });

  it('are told the truth while each revision is complete', async () => {
    const fleet = await buildFaultFleet(client, 'full', { nodes: 2, volumesPerNode: 40 });
    const from = await prepareAllKeys(client, fleet);
    const contest = { writers: 64, attempts: 500, from };
    const attempts = await contend(client, fleet, contest);
    expect(await judgeContest(client, fleet, contest, attempts)).toEqual([]);
    expect(attempts.filter((each) => each.status === 200).length).toBeGreaterThan(4);
  });
});

describe('readers during publishes', () => {
  it('see only whole revisions, and never an older one than before', async () => {
    const fleet = await buildFaultFleet(client, 'read', { nodes: 2, volumesPerNode: 40 });
    let aggregate = await prepareAllKeys(client, fleet);
    let publishing = true;
    const seen: number[][] = fleet.nodes.map(() => []);
    const readers = fleet.nodes.map(async (node, reader) => {
      while (publishing) {
        const whole = await readWholeRevision(client, node);
        if (whole !== null) seen[reader]!.push(whole.aggregate.generation);
      }
    });
    const first = aggregate.generation;
    for (let publish = 1; publish <= 120; publish += 1) {
      // Now one page changes, now two.
      const changed =
        publish % 2 === 0 ? [fleet.keys[0]!, fleet.keys.at(-1)!] : [fleet.keys[publish % fleet.keys.length]!];
      const upserts = changed.map((key) => upsertOf(key, publish));
      const body = prepareBody(fleet, { expectedAggregate: aggregate, upserts });
      const answer = await client.done('prepareFleetCutoverVolumeHandoffs', body);
      aggregate = referenceIn(answer.aggregate);
    }
    publishing = false;
    await Promise.all(readers);
    expect(aggregate.generation).toBe(first + 120);
    for (const generations of seen) {
      expect(generations.length).toBeGreaterThan(5);
      expect(generations).toEqual([...generations].sort((left, right) => left - right));
    }
  });
});
