import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildFaultFleet, prepareAllKeys } from '../support/fault-fleet.js';
import { dice, fuzzInput, fuzzTargets } from '../support/fuzz-inputs.js';
import { fuzz, worldOf } from '../support/fuzz-run.js';
import { openRawClient, type RawClient } from '../support/oracle-http.js';
import { startService, type TestService } from '../support/service.js';

let service: TestService;
let client: RawClient;
beforeAll(async () => {
  service = await startService({ logLevel: 'error' });
  client = openRawClient(service.url, service.token);
});
afterAll(async () => {
  await client.close();
  await service.close();
});

describe('hostile requests', () => {
  it('never get a 5xx, and never end the process', async () => {
    const fleet = await buildFaultFleet(client, 'fuzz', { nodes: 3, volumesPerNode: 20 });
    await prepareAllKeys(client, fleet);
    const world = await worldOf(client, fleet);
    const seed = Date.now() % 2 ** 31;
    const report = await fuzz(client, world, { seed, inputs: 1_500, until: Date.now() + 12_000 });
    expect(
      report.failures.map(({ input, status }) => [status, input.how, input.path, String(input.body)]),
      `seed ${seed}`,
    ).toEqual([]);
    // Else it is the door alone that was tried.
    expect(Object.keys(report.statuses)).toEqual(expect.arrayContaining(['200', '400', '404', '409', '422']));
    expect(service.log()).toBe('');
    expect((await fetch(`${service.url}/readiness`)).status).toBe(200);
  });

  it('are made for every endpoint, and the same for the same seed', () => {
    const world = {
      token: 't',
      identifiers: ['i'],
      digests: [`sha256:${'0'.repeat(64)}`],
      references: [{}],
      cursors: [],
      nodes: [{ nodeId: 'n', token: 't' }],
      accepted: [{ path: '/', body: { a: [1, { b: 2 }] } }],
    };
    const inputs = (seed: number) => {
      const roll = dice(seed);
      return Array.from({ length: 1_500 }, () => fuzzInput(roll, world));
    };
    const made = inputs(7);
    expect(JSON.stringify(made)).toBe(JSON.stringify(inputs(7)));
    expect(JSON.stringify(made)).not.toBe(JSON.stringify(inputs(8)));
    const paths = new Set(made.map((input) => input.path));
    expect(fuzzTargets.filter((target) => !paths.has(target.path))).toEqual([]);
  });
});
