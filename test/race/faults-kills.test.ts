/** Few of them: `npm run faults` kills at every point, and at random. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { bundleKillableService, type KillableProgram } from '../support/kill-bundle.js';
import { firstToken, type KillablePostgres, openKillablePostgres } from '../support/kill-postgres.js';
import { PointHook } from '../support/kill-points.js';
import {
  type FaultService,
  type KillableService,
  openFaultService,
  startKillableService,
} from '../support/kill-service.js';
import type { Act } from '../support/oracle-act.js';
import { makeActs } from '../support/oracle-acts.js';
import { openRawClient, type RawClient } from '../support/oracle-http.js';
import { judgeRepetition } from '../support/oracle-outcome.js';
import { newSealingKey } from '../support/oracle-sealing.js';

const hook = new PointHook();
const sealingKey = newSealingKey();
let postgres: KillablePostgres;
let program: KillableProgram;
/** Lives on through the kills of Postgres and of the other service. */
let survivor: FaultService;
let client: RawClient;
let acts: Act[];

beforeAll(async () => {
  [postgres, program] = await Promise.all([openKillablePostgres(), bundleKillableService()]);
  const token = await firstToken(postgres.serviceUrl);
  survivor = await openFaultService({ url: postgres.serviceUrl, faults: hook, sealingKey });
  client = openRawClient(survivor.url, token);
  acts = makeActs(client, 'k', sealingKey);
});
afterAll(async () => {
  await client.close();
  await survivor.close();
  await Promise.all([postgres.close(), program.remove()]);
});

const points: [act: string, point: (passed: string[]) => string][] = [
  ['prepare, incomplete', (passed) => passed.find((point) => point.endsWith(':commit'))!],
  ['report, of a manager', (passed) => passed.find((point) => point.endsWith(':commit'))!],
];

async function pointOf(act: Act, choose: (passed: string[]) => string): Promise<string> {
  const request = await act.next();
  return choose(await hook.record(() => request.send()));
}

/** A child reads the whole program anew, beside everything else that runs. */
const run = { timeout: 120_000 };

describe('kill -9', () => {
  it.each(points)('of the service during "%s": done once by the next one', run, async (name, choose) => {
    const act = acts.find((each) => each.name === name)!;
    const point = await pointOf(act, choose);
    const request = await act.next();
    const killable: KillableService = await startKillableService(postgres.serviceUrl, sealingKey, program.file);
    await killable.arm(point);
    client.url = killable.url;
    const first = await request.send();
    client.url = survivor.url;
    expect(first.status).toBe(0);
    expect(await killable.ended).toBe('SIGKILL');
    expect(await judgeRepetition(postgres.owner, request, first)).toEqual([]);
  });

  it.each(points)('of Postgres during "%s": done once after its recovery', run, async (name, choose) => {
    const act = acts.find((each) => each.name === name)!;
    const point = await pointOf(act, choose);
    const request = await act.next();
    hook.arm(point, () => postgres.kill());
    const first = await request.send();
    expect(hook.disarm()).toBe(true);
    await postgres.restart();
    expect(await judgeRepetition(postgres.owner, request, first)).toEqual([]);
  });
});
