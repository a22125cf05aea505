/** Every fault point of every mutation and report: the connection cut, the session ended, then whole processes killed. */
import { cutConnections, openTerminator } from '../support/kill-connections.js';
import { firstToken, openKillablePostgres } from '../support/kill-postgres.js';
import { isBackgroundPoint, PointHook } from '../support/kill-points.js';
import { openFaultService, startKillableService } from '../support/kill-service.js';
import { type Act, makeActs } from '../support/oracle-acts.js';
import { openRawClient } from '../support/oracle-http.js';
import { judgeRepetition } from '../support/oracle-outcome.js';
import type { FaultsOptions } from './options.js';
import type { Tally } from './tally.js';

/** A process takes a second or two to come back, so these are killed at each point, the others only cut. */
const killed = ['prepare, in place', 'report, another snapshot'];

export async function runPoints(options: FaultsOptions, tally: Tally, say: (text: string) => void): Promise<void> {
  const hook = new PointHook();
  const postgres = await openKillablePostgres();
  const token = await firstToken(postgres.serviceUrl);
  const service = await openFaultService({ url: postgres.serviceUrl, faults: hook });
  const client = openRawClient(service.url, token);
  const terminator = openTerminator(postgres.ownerUrl);
  // The service runs in this process: what would end its own is counted, and the list goes on.
  const onCrash = (reason: unknown): void => {
    tally.crashes += 1;
    tally.wrong.push(`an unhandled rejection would have ended the service: ${String(reason)}`);
  };
  process.on('unhandledRejection', onCrash);
  try {
    const acts = await makeActs(client, 'p');
    const points = new Map<Act, string[]>();
    for (const act of acts) points.set(act, await recordPoints(act, hook));
    say(`${[...points.values()].flat().length} fault points of ${acts.length} acts`);
    const strike = async (act: Act, point: string, fault: () => void, mend?: () => Promise<void>): Promise<void> => {
      const request = await act.next();
      hook.arm(point, fault);
      const first = await request.send();
      const hit = hook.disarm();
      await mend?.();
      const faults = hit ? await judgeRepetition(postgres.owner, request, first) : ['was not hit'];
      tally.wrong.push(...faults.map((each) => `${act.name}, ${point}: ${each}`));
      tally.acknowledged += 1;
    };
    for (const [act, passed] of points) {
      for (const point of passed) await strike(act, point, () => cutConnections(service.db));
      for (const point of passed) await strike(act, point, () => terminator.terminate(service.db));
      await strike(act, passed.at(-1)!, () => {
        throw new Error('interrupted');
      });
    }
    if (!options.killAtPoints) return;
    await terminator.close();
    for (const [act, passed] of points) {
      if (!killed.includes(act.name)) continue;
      say(`killing at ${passed.length} points of "${act.name}"`);
      for (const point of passed) {
        await strike(
          act,
          point,
          () => postgres.kill(),
          () => postgres.restart(),
        );
        tally.kills += 1;
      }
      // The next one starts while this one is used.
      let next = startKillableService(postgres.serviceUrl);
      for (const point of passed) {
        const victim = await next;
        next = startKillableService(postgres.serviceUrl);
        const request = await act.next();
        await victim.arm(point);
        client.url = victim.url;
        const first = await request.send();
        client.url = service.url;
        const hit = first.status === 0 && (await victim.ended) === 'SIGKILL';
        const faults = hit ? await judgeRepetition(postgres.owner, request, first) : ['the service was not killed'];
        if (!hit) await victim.stop();
        tally.wrong.push(...faults.map((each) => `${act.name}, ${point}: ${each}`));
        tally.kills += 1;
        tally.acknowledged += 1;
      }
      await (await next).stop();
    }
  } finally {
    process.removeListener('unhandledRejection', onCrash);
    await terminator.close();
    await client.close();
    await service.close();
    await postgres.close();
  }
}

async function recordPoints(act: Act, hook: PointHook): Promise<string[]> {
  const request = await act.next();
  const passed = await hook.record(async () => {
    const answer = await request.send();
    if (answer.status !== 200) throw new Error(`${act.name}: ${answer.status} ${answer.text}`);
  });
  return passed.filter((point) => !isBackgroundPoint(point));
}
