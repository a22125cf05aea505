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

/** Two servers at a time, one for each processor: what is done to one must not be felt by the other. */
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
    const lanes = [onLane(tally, (lane) => breakConnections(lane, options, tally, until, say))];
    if (options.killAtPoints) lanes.push(onLane(tally, (lane) => killServices(lane, tally, until, say)));
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

async function breakConnections(
  lane: Lane,
  options: FaultsOptions,
  tally: Tally,
  until: Deadline,
  say: (text: string) => void,
): Promise<void> {
  const { hook, postgres, service, acts } = lane;
  const terminator = openTerminator(postgres.ownerUrl);
  const points = new Map<Act, string[]>();
  for (const act of acts) points.set(act, await recordPoints(act, hook));
  say(`${[...points.values()].flat().length} fault points of ${acts.length} acts`);
  const attempt = async (act: Act, point: string, fault: () => void, mend?: () => Promise<void>): Promise<void> => {
    const how = mend === undefined ? { fault } : { fault, mend };
    tally.wrong.push(...(await strike(act, point, { hook, database: postgres.owner, ...how })));
    tally.acknowledged += 1;
  };
  try {
    for (const [act, passed] of points) {
      for (const point of passed) await attempt(act, point, () => cutConnections(service.db));
      await attempt(act, passed.at(-1)!, () => {
        throw new Error('interrupted');
      });
      if (!ended.includes(act.name)) continue;
      for (const point of passed) await attempt(act, point, () => terminator.terminate(service.db));
    }
  } finally {
    await terminator.close();
  }
  if (!options.killAtPoints) return;
  say('every connection was cut; Postgres is killed now');
  for (const [act, passed] of points) {
    if (!killed.includes(act.name)) continue;
    for (const point of passed) {
      if (until.isOver()) return until.leaveOut(`Postgres killed at the rest of "${act.name}"`);
      await attempt(
        act,
        point,
        () => postgres.kill(),
        () => postgres.restart(),
      );
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
