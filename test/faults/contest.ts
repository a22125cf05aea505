/** 64 writers on one aggregate, and readers during publishes, against the service's own process. */
import { buildFaultFleet, prepareAllKeys, prepareBody, upsertOf } from '../support/fault-fleet.js';
import { referenceIn } from '../support/oracle-http.js';
import { readWholeRevision } from '../support/oracle-pages.js';
import { contend, judgeContest } from '../support/oracle-writers.js';
import type { Deadline } from './deadline.js';
import type { FaultsOptions } from './options.js';
import type { Stage } from './stage.js';
import type { Tally } from './tally.js';

const WRITERS = 64;

export async function runContest(stage: Stage, options: FaultsOptions, tally: Tally, until: Deadline): Promise<void> {
  const { client } = stage;
  const fleet = await buildFaultFleet(client, 'contest', { nodes: 2, volumesPerNode: 60 });
  fleet.keys = fleet.keys.slice(1);
  const contest = { writers: WRITERS, attempts: options.attempts, from: null, until: until.at };
  const attempts = await contend(client, fleet, contest);
  if (attempts.length < options.attempts) until.leaveOut(`${options.attempts - attempts.length} attempts of writers`);
  tally.wrong.push(...(await judgeContest(client, fleet, contest, attempts)));
  tally.acknowledged += attempts.filter((attempt) => attempt.status === 200).length;
}

export async function runPublishes(stage: Stage, options: FaultsOptions, tally: Tally, until: Deadline): Promise<void> {
  const { client } = stage;
  const fleet = await buildFaultFleet(client, 'publish', { nodes: 3, volumesPerNode: 50 });
  let aggregate = await prepareAllKeys(client, fleet);
  let publishing = true;
  let reads = 0;
  const readers = fleet.nodes.map(async (node) => {
    let newest = 0;
    while (publishing) {
      const whole = await readWholeRevision(client, node).catch(
        (error: unknown) => void tally.wrong.push(String(error)),
      );
      if (!whole) continue;
      if (whole.aggregate.generation < newest)
        tally.wrong.push(`a reader was led back from ${newest} to ${whole.aggregate.generation}`);
      newest = whole.aggregate.generation;
      reads += 1;
    }
  });
  for (let publish = 1; publish <= options.publishes; publish += 1) {
    if (until.isOver()) {
      until.leaveOut(`the publishes from ${publish} on`);
      break;
    }
    const keys = publish % 3 === 0 ? [fleet.keys[0]!, fleet.keys.at(-1)!] : [fleet.keys[publish % fleet.keys.length]!];
    const upserts = keys.map((key) => upsertOf(key, publish));
    const answer = await client.done(
      'prepareFleetCutoverVolumeHandoffs',
      prepareBody(fleet, { expectedAggregate: aggregate, upserts }),
    );
    aggregate = referenceIn(answer.aggregate);
    tally.acknowledged += 1;
  }
  publishing = false;
  await Promise.all(readers);
  if (reads < 5) tally.wrong.push(`${reads} whole reads during ${options.publishes} publishes`);
}
