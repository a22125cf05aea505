/** The largest report that there is, 4 MiB and 128 KiB, with everything lost at each statement of the thread that takes it. */
import { firstToken, openKillablePostgres } from '../support/kill-postgres.js';
import { startServiceProcess } from '../support/kill-process.js';
import { openWire } from '../support/kill-wire.js';
import { censusBytes, fenceBytes, fullReport } from '../support/full-report.js';
import { drainingCutover, heldFenceAct } from '../support/oracle-cutover-acts.js';
import { openRawClient } from '../support/oracle-http.js';
import { judgeRepetition } from '../support/oracle-outcome.js';
import type { Deadline } from './deadline.js';
import type { FaultsOptions } from './options.js';
import type { Tally } from './tally.js';

/** From the back: COMMIT, the receipt, the coverage, the fences. Processes are killed at these, the connection is cut at all. */
const KILLED_FROM_THE_END = 4;

export async function runLargestReport(
  options: FaultsOptions,
  tally: Tally,
  until: Deadline,
  say: (text: string) => void,
): Promise<void> {
  const postgres = await openKillablePostgres();
  const token = await firstToken(postgres.serviceUrl);
  const wire = await openWire(postgres.serviceUrl);
  const start = () =>
    startServiceProcess({
      environment: { DATABASE_URL: wire.url.reveal(), LOG_LEVEL: 'info', DATABASE_TLS: 'insecure' },
    });
  let service = await start();
  const client = openRawClient(service.url, token);
  try {
    const cut = await drainingCutover(client, 'largest');
    const size = { census: censusBytes, fences: fenceBytes };
    const act = heldFenceAct(
      client,
      () => Promise.resolve(cut),
      (body) => fullReport(body, size),
    );
    // The first one brings the census with it, which takes statements that the next ones don't.
    await (await act.next()).send();
    const recording = await act.next();
    const statements = await wire.record(() => recording.send());
    say(`${statements.length} statements of the largest report`);
    const strike = async (
      index: number,
      answer: boolean,
      fault: () => void = () => {},
      mend: () => Promise<void> = async () => {},
    ): Promise<void> => {
      const request = await act.next();
      wire.arm(index, answer, fault);
      const first = await request.send();
      const hit = wire.disarm();
      await mend();
      const faults = hit ? await judgeRepetition(postgres.owner, request, first) : ['was not hit'];
      tally.wrong.push(...faults.map((each) => `largest report, ${statements[index]?.slice(0, 60)}: ${each}`));
      tally.acknowledged += 1;
    };
    const restart = async (): Promise<void> => {
      // Also where the point was not passed, which is a finding, and no reason to wait for ever.
      service.child.kill('SIGKILL');
      await service.ended;
      service = await start();
      client.url = service.url;
    };
    for (let back = 1; options.killAtPoints && back <= KILLED_FROM_THE_END; back += 1) {
      const index = statements.length - back;
      await strike(
        index,
        back === 1,
        () => postgres.kill(),
        () => postgres.restart(),
      );
      await strike(index, back === 1, () => service.child.kill('SIGKILL'), restart);
      tally.kills += 2;
    }
    if (options.killAtPoints) say('processes were killed at the last of them');
    await strike(statements.length - 1, true);
    for (const index of statements.keys()) {
      if (until.isOver()) return until.leaveOut(`the largest report cut at the statements from ${index} on`);
      await strike(index, false);
    }
  } finally {
    await client.close();
    service.child.kill('SIGTERM');
    await service.ended;
    await wire.close();
    await postgres.close();
  }
}
