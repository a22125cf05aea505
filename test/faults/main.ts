/**
 * `npm run faults`: the long forms of the fault tests, in under 15 minutes. The last line of standard output is one JSON
 * object with the counts; the exit code is 0 only where all of them are what they should be. `--plant lost`, `doubled` or
 * `serverError` breaks the service on purpose: then the run must find it (exit code 1), and exits with 2 where it does not.
 */
import { buildFaultFleet, prepareAllKeys } from '../support/fault-fleet.js';
import { fuzz, worldOf } from '../support/fuzz-run.js';
import { runHostCommand } from '../support/kill-process.js';
import { runContest, runPublishes } from './contest.js';
import { Deadline } from './deadline.js';
import { runDiskFull } from './disk-full.js';
import { runKills } from './kills.js';
import { runLargestReport } from './largest-report.js';
import { type FaultsOptions, readOptions } from './options.js';
import { runPoints } from './points.js';
import { Stage } from './stage.js';
import { Tally } from './tally.js';

const started = performance.now();

function say(text: string): void {
  process.stderr.write(`[${((performance.now() - started) / 1000).toFixed(0).padStart(4)} s] ${text}\n`);
}

/**
 * Seconds that each part may take, and what the parts before it have left: together with starts and stops less than 15 minutes,
 * whatever the machine is.
 */
const seconds = { kills: 280, writers: 60, publishes: 60, fuzzer: 45, points: 270, largest: 80, disk: 45 };

async function runFuzzer(stage: Stage, options: FaultsOptions, tally: Tally, until: Deadline): Promise<void> {
  const { client } = stage;
  const fleet = await buildFaultFleet(client, 'fuzz', { nodes: 3, volumesPerNode: 30 });
  await prepareAllKeys(client, fleet);
  const world = await worldOf(client, fleet);
  say(`fuzzer: seed ${options.seed}`);
  const report = await fuzz(client, world, {
    seed: options.seed,
    inputs: options.fuzzInputs,
    until: until.at,
  });
  tally.badInputs += report.inputs;
  for (const { input, status, text } of report.failures) {
    tally.serverErrors.push(
      `fuzzer: ${status} ${text} for ${input.verb} ${input.path} (${input.how}) ${String(input.body).slice(0, 300)}`,
    );
  }
  say(`fuzzer: ${JSON.stringify(report.statuses)}`);
}

async function runVerify(stage: Stage, tally: Tally): Promise<void> {
  const { code, stdout, stderr } = await runHostCommand(['verify', '--json'], stage.environment);
  tally.verify = code === 0 ? 'clean' : code === 1 ? 'findings' : 'unavailable';
  if (code !== 0) process.stderr.write(`verify: ${stdout.slice(0, 2_000)} ${stderr.slice(0, 2_000)}\n`);
}

async function run(options: FaultsOptions, tally: Tally): Promise<void> {
  const stage = await Stage.open(tally, options.plant);
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.once(signal, () => void stage.close().finally(() => process.exit(130)));
  }
  try {
    let end = Date.now();
    const until = (part: keyof typeof seconds) => new Deadline(tally, (end += seconds[part] * 1_000));
    const parts: [name: string, part: () => Promise<void>][] = [
      ['kills under load', () => runKills(stage, options, tally, until('kills'), say)],
      ...(options.plant !== undefined
        ? []
        : ([
            ['writers', () => runContest(stage, options, tally, until('writers'))],
            ['publishes', () => runPublishes(stage, options, tally, until('publishes'))],
            ['fuzzer', () => runFuzzer(stage, options, tally, until('fuzzer'))],
            ['fault points', () => runPoints(options, tally, until('points'), say)],
            ['largest report', () => runLargestReport(options, tally, until('largest'), say)],
            ['disk full', () => runDiskFull(tally, until('disk'), say)],
          ] as [string, () => Promise<void>][])),
      ['verify', () => runVerify(stage, tally)],
    ];
    for (const [name, part] of parts) {
      say(name);
      await part();
    }
  } finally {
    await stage.close();
  }
}

function wasFound(plant: NonNullable<FaultsOptions['plant']>, tally: Tally): boolean {
  const found = { lost: tally.lost, doubled: tally.doubled, serverError: tally.serverErrors };
  return found[plant].length > 0;
}

const options = readOptions(process.argv.slice(2));
const tally = new Tally();
say(`seed ${options.seed}${options.plant === undefined ? '' : `, planted: ${options.plant}`}`);
try {
  await run(options, tally);
} catch (error) {
  tally.wrong.push(error instanceof Error ? (error.stack ?? error.message) : String(error));
}
tally.print();
if (options.plant !== undefined && !wasFound(options.plant, tally)) {
  say(`what was planted (${options.plant}) was not found`);
  process.exitCode = 2;
} else {
  process.exitCode = tally.isClean ? 0 : 1;
}
