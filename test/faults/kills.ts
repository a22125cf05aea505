/** Kills at random moments under load; then the books are compared with what is there. */
import { setTimeout as sleep } from 'node:timers/promises';
import { buildFaultFleet, prepareAllKeys } from '../support/fault-fleet.js';
import { type Dice, dice } from '../support/fuzz-inputs.js';
import { auditBooks, type Books, startLoad } from '../support/kill-load.js';
import type { Deadline } from './deadline.js';
import type { FaultsOptions } from './options.js';
import type { Stage } from './stage.js';
import type { Tally } from './tally.js';

/** Mutations that settle between two kills, and the milliseconds after which nobody waits for them any more. */
const PROGRESS = 10;
const PROGRESS_MS = 20_000;
const LATE_PROGRESS_MS = 500;

export async function runKills(
  stage: Stage,
  options: FaultsOptions,
  tally: Tally,
  until: Deadline,
  say: (text: string) => void,
): Promise<void> {
  const { client } = stage;
  const fleet = await buildFaultFleet(client, 'kills', { nodes: 2, volumesPerNode: 40 });
  const from = await prepareAllKeys(client, fleet);
  if (options.plant !== undefined) await stage.breakService();
  const load = startLoad(client, fleet, from, { writers: 6 });
  const roll = dice(options.seed);
  for (let kill = 1; kill <= options.kills; kill += 1) {
    // However slow the machine is, there are as many kills: they get quicker, and cheaper, where time runs out.
    const late = until.used > kill / options.kills;
    await someProgress(load.books, late ? LATE_PROGRESS_MS : PROGRESS_MS);
    await sleep(roll.below(late ? 50 : 400));
    await killSomething(stage, roll, late);
    tally.kills += 1;
    if (kill % 20 === 0)
      say(`${kill} kills, ${load.books.settled.length} mutations settled, ${load.books.wholeReads} whole reads`);
  }
  await sleep(500);
  await load.stop();
  const audit = await stage.withOwner((owner) => auditBooks(client, owner, fleet, from, load.books));
  tally.acknowledged += audit.acknowledged;
  tally.lost.push(...audit.lost);
  tally.doubled.push(...audit.doubled);
  tally.wrong.push(...audit.wrong);
  tally.serverErrors.push(...load.books.serverErrors);
  if (load.books.wholeReads === 0) tally.wrong.push('nobody has read a whole revision');
}

/** So that each kill strikes something: a slow machine needs longer than the moment chosen at random. */
async function someProgress(books: Books, atMostMs: number): Promise<void> {
  const enough = books.settled.length + books.serverErrors.length + PROGRESS;
  const deadline = Date.now() + atMostMs;
  while (books.settled.length + books.serverErrors.length < enough && Date.now() < deadline) await sleep(10);
}

/** Sessions most often, since a process takes its time to come back. */
async function killSomething(stage: Stage, roll: Dice, late: boolean): Promise<void> {
  const what = roll.below(late ? 60 : 10);
  if (what === 0) await stage.killPostgres();
  else if (what < 4) await stage.killService();
  else return stage.endSessions();
  await stage.start();
}
