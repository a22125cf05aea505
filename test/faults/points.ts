/** Every fault point of every mutation and report: the connection cut, the session ended, then whole processes killed. */
import { systemClock } from '../../src/clock.js';
import { verify } from '../../src/features/verify/verify.js';
import { systemRandom } from '../../src/random.js';
import { isRefused } from '../../src/refusal.js';
import { bundleKillableService } from '../support/kill-bundle.js';
import { cutConnections, openTerminator } from '../support/kill-connections.js';
import { PointHook } from '../support/kill-points.js';
import { firstToken, type KillablePostgres, openKillablePostgres } from '../support/kill-postgres.js';
import { type FaultService, openFaultService, startKillableService } from '../support/kill-service.js';
import type { Act } from '../support/oracle-act.js';
import { makeActs } from '../support/oracle-acts.js';
import { openRawClient, type RawClient } from '../support/oracle-http.js';
import { judgeRepetition } from '../support/oracle-outcome.js';
import { newSealingKey, type SealingKey } from '../support/oracle-sealing.js';
import { recordPoints, strike } from '../support/oracle-strike.js';
import type { Deadline } from './deadline.js';
import type { FaultsOptions } from './options.js';
import type { Tally } from './tally.js';

/** On the wire an ended session differs from a cut connection in who ends it, whatever the act: these stand for all. */
const ended = ['prepare, in place', 'prepare, completing', 'report, of a manager', 'advance, to pallet'];

/** Acts of one shape run the same statements; of each shape one has whole processes killed at each of its points. */
const killed = [
  'prepare, in place',
  'report, another snapshot',
  'report, of held fences',
  'advance, to draining',
  'advance, to switching',
  'advance, to pallet',
  'revokeFleetCutoverCoreflowCredential',
  'ingress, designated',
  'ingress, rotated',
  'revokeFleetCutoverIngressCredential',
  'writeOffNode, confirmed',
  'writeOffVolume, confirmed',
];

/** Each kind of fault has a server of its own, all at a time: what is done to one must not be felt by the others. */
export async function runPoints(
  options: FaultsOptions,
  tally: Tally,
  until: Deadline,
  say: (text: string) => void,
): Promise<void> {
  // The services run in this process: what would end their own is counted, and the list goes on.
  const onCrash = (reason: unknown): void => {
    tally.crashes += 1;
    tally.wrong.push(`an unhandled rejection would have ended the service: ${String(reason)}`);
  };
  process.on('unhandledRejection', onCrash);
  try {
    const lanes = [onLane(tally, (lane) => breakConnections(lane, tally, until, say))];
    for (const kill of options.killAtPoints ? [killPostgres, killServices] : [])
      lanes.push(onLane(tally, (lane) => kill(lane, tally, until, say)));
    const results = await Promise.allSettled(lanes);
    for (const result of results) if (result.status === 'rejected') throw result.reason;
  } finally {
    process.removeListener('unhandledRejection', onCrash);
  }
}

interface Lane {
  readonly hook: PointHook;
  readonly postgres: KillablePostgres;
  readonly service: FaultService;
  readonly client: RawClient;
  readonly key: SealingKey;
  readonly acts: readonly Act[];
}

async function onLane(tally: Tally, work: (lane: Lane) => Promise<void>): Promise<void> {
  const hook = new PointHook();
  const key = newSealingKey();
  const postgres = await openKillablePostgres();
  const token = await firstToken(postgres.serviceUrl);
  const service = await openFaultService({ url: postgres.serviceUrl, faults: hook, sealingKey: key });
  const client = openRawClient(service.url, token);
  try {
    await work({ hook, postgres, service, client, key, acts: makeActs(client, 'p', key) });
    await verifyRows(service, tally);
  } finally {
    await client.close();
    await service.close();
    await postgres.close();
  }
}

async function verifyRows({ db }: FaultService, tally: Tally): Promise<void> {
  const report = await verify({ db, clock: systemClock, random: systemRandom }, { clusterId: null, remembered: [] });
  if (isRefused(report)) tally.wrong.push(`verify was refused: ${report.problem.code}`);
  else tally.wrong.push(...report.findings.map((finding) => `after the fault points: ${JSON.stringify(finding)}`));
}

async function attempt(
  { hook, postgres }: Lane,
  tally: Tally,
  act: Act,
  point: string,
  how: { fault: () => void; mend?: () => Promise<void> },
): Promise<void> {
  tally.wrong.push(...(await strike(act, point, { hook, database: postgres.owner, ...how })));
  tally.acknowledged += 1;
}

async function breakConnections(lane: Lane, tally: Tally, until: Deadline, say: (text: string) => void): Promise<void> {
  const { hook, postgres, service, acts } = lane;
  const terminator = openTerminator(postgres.ownerUrl);
  const interrupt = (): void => {
    throw new Error('interrupted');
  };
  let count = 0;
  try {
    for (const act of acts) {
      if (until.isOver()) return until.leaveOut(`connections cut from "${act.name}" on`);
      const passed = await recordPoints(act, hook);
      count += passed.length;
      for (const point of passed) await attempt(lane, tally, act, point, { fault: () => cutConnections(service.db) });
      await attempt(lane, tally, act, passed.at(-1)!, { fault: interrupt });
      if (!ended.includes(act.name)) continue;
      for (const point of passed)
        await attempt(lane, tally, act, point, { fault: () => terminator.terminate(service.db) });
    }
  } finally {
    await terminator.close();
  }
  say(`the connection was cut at ${count} points of ${acts.length} acts`);
}

async function killPostgres(lane: Lane, tally: Tally, until: Deadline, say: (text: string) => void): Promise<void> {
  const { hook, postgres, acts } = lane;
  const how = { fault: () => postgres.kill(), mend: () => postgres.restart() };
  for (const act of acts.filter(({ name }) => killed.includes(name))) {
    const passed = await recordPoints(act, hook);
    for (const point of passed) {
      if (until.isOver()) return until.leaveOut(`Postgres killed at the rest of "${act.name}"`);
      await attempt(lane, tally, act, point, how);
      tally.kills += 1;
    }
    say(`Postgres was killed at ${passed.length} points of "${act.name}"`);
  }
}

async function killServices(lane: Lane, tally: Tally, until: Deadline, say: (text: string) => void): Promise<void> {
  const { hook, postgres, service, client, key, acts } = lane;
  const program = await bundleKillableService();
  const start = () => startKillableService(postgres.serviceUrl, key, program.file);
  // The next one starts while this one is used.
  let next = start();
  try {
    for (const act of acts.filter(({ name }) => killed.includes(name))) {
      const passed = await recordPoints(act, hook);
      for (const point of passed) {
        if (until.isOver()) return until.leaveOut(`the service killed at the rest of "${act.name}"`);
        const victim = await next;
        next = start();
        const request = await act.next();
        await victim.arm(point);
        client.url = victim.url;
        const first = await request.send();
        client.url = service.url;
        const hit = first.status === 0 && (await victim.ended) === 'SIGKILL';
        if (!hit) await victim.stop();
        const faults = hit ? await judgeRepetition(postgres.owner, request, first) : ['the service was not killed'];
        tally.wrong.push(...faults.map((each) => `${act.name}, ${point}, service killed: ${each}`));
        tally.kills += 1;
        tally.acknowledged += 1;
      }
      say(`the service was killed at ${passed.length} points of "${act.name}"`);
    }
  } finally {
    await next.then(
      (last) => last.stop(),
      () => {},
    );
    await program.remove();
  }
}
