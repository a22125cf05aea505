/** The largest report that there is: a census of 4 MiB and, in `draining`, held fences of 128 KiB. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createDatabase, type TestDatabase } from '../support/database.js';
import type { FaultCutover } from '../support/fault-cutover.js';
import { censusBytes, fenceBytes, fullReport } from '../support/full-report.js';
import { firstToken } from '../support/kill-postgres.js';
import { type FaultService, openFaultService } from '../support/kill-service.js';
import { openWire, type Wire } from '../support/kill-wire.js';
import type { Act } from '../support/oracle-act.js';
import { drainingCutover, heldFenceAct } from '../support/oracle-cutover-acts.js';
import { openRawClient, type RawClient } from '../support/oracle-http.js';
import { judgeRepetition } from '../support/oracle-outcome.js';

let database: TestDatabase;
let wire: Wire;
let service: FaultService;
let client: RawClient;
let cut: FaultCutover;
/** What the next report is made of; the limits where nothing else is said. */
let size = { census: censusBytes, fences: fenceBytes };
let act: Act;
/** The newest of them. */
let sent = '';

beforeAll(async () => {
  database = await createDatabase();
  const token = await firstToken(database.serviceUrl);
  wire = await openWire(database.serviceUrl);
  service = await openFaultService({ url: wire.url });
  client = openRawClient(service.url, token);
  cut = await drainingCutover(client, 'census');
  act = heldFenceAct(
    client,
    () => Promise.resolve(cut),
    (body) => (sent = fullReport(body, size)),
  );
});
afterAll(async () => {
  await client.close();
  await service.close();
  await wire.close();
  await database.drop();
});

/** Reports of this size are parsed, digested and derived from, some of them several times. */
const slow = { timeout: 120_000 };

describe('a report of 4 MiB and 128 KiB', () => {
  it('is taken whole, and its page is covered', slow, async () => {
    const request = await act.next();
    expect(Buffer.byteLength(sent)).toBe(4 * 1024 * 1024 + 128 * 1024);
    const first = await request.send();
    expect([first.status, first.text]).toEqual([200, expect.stringContaining('"coveredPages":2')]);
    expect(first.body.localSnapshot.state).toBe('accepted');
    expect(first.body.managerSnapshot.state).toBe('accepted');
    expect(await judgeRepetition(database.owner, request, first)).toEqual([]);
  });

  it.each([
    ['the fences', { census: censusBytes - 1, fences: fenceBytes + 1 }, `held fences may have ${fenceBytes} bytes`],
    [
      'the census',
      { census: censusBytes + 1, fences: fenceBytes - 1 },
      `the report without held fences may have ${censusBytes} bytes`,
    ],
    ['both together', { census: censusBytes + 1, fences: fenceBytes }, undefined],
  ])('is refused with one byte more in %s, and nothing of it is taken', slow, async (_what, larger, detail) => {
    size = larger;
    const request = await act.next().finally(() => (size = { census: censusBytes, fences: fenceBytes }));
    const { status, body } = await request.send();
    expect([status, body.code, body.detail]).toEqual([413, 'body-too-large', detail]);
    for (const { table, where } of request.counts) {
      const { rows } = await database.owner.query<{ count: string }>(
        `select count(*) from control.${table} where ${where}`,
      );
      expect([table, rows[0]?.count]).toEqual([table, '0']);
    }
  });
});

describe('its connection', () => {
  /** Statements by what they are for; at each of them the small report of held fences is struck as well. */
  const chosen = ['control.held_fences as known', 'control.coverage as known', 'control.reporter_sessions', 'COMMIT'];

  it('lost at a statement of the thread that takes it: its page is covered once or not at all', slow, async () => {
    const recording = await act.next();
    const statements = await wire.record(async () => expect((await recording.send()).status).toBe(200));
    expect(statements[0]).toMatch(/^BEGIN/);
    expect(statements.at(-1)).toBe('COMMIT');
    const indexes = chosen.map((text) => statements.findLastIndex((each) => each.includes(text)));
    expect(Math.min(...indexes)).toBeGreaterThan(0);
    const wrong: string[] = [];
    for (const [answer, index] of [
      ...indexes.map((each) => [false, each] as const),
      [true, indexes.at(-1)!] as const,
    ]) {
      const request = await act.next();
      wire.arm(index, answer);
      const first = await request.send();
      const faults = wire.disarm() ? await judgeRepetition(database.owner, request, first) : ['was not hit'];
      wrong.push(...faults.map((fault) => `${statements[index]!.slice(0, 60)}: ${fault}`));
      // A COMMIT of which nobody has an answer leaves it open whether it was one.
      const code: unknown = first.body?.code;
      expect([first.status, code]).toEqual([503, index === indexes.at(-1) ? 'outcome-unknown' : 'unavailable']);
    }
    expect(wrong).toEqual([]);
  });
});
