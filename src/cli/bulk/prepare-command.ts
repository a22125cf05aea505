import { type CommandUnknownOpts, InvalidArgumentError, Option } from '@commander-js/extra-typings';
import { withClient } from '../client-session.js';
import { type CommandHost, guarded } from '../command-host.js';
import { addConnectionOptions, clusterOption } from '../connection-options.js';
import { exitCodes, jsonOutputOption, printResult, UsageError } from '../output.js';
import { clusterOf } from '../settings.js';
import { untilSignalled } from '../until-signalled.js';
import { preparationLines, preparationResult } from './preparation.js';
import { type FleetPreparation, nothingDone, prepareFleet } from './prepare-fleet.js';
import { ProgressLine } from './progress-line.js';

/** `prepare --cluster ID [--dry-run] [--yes]` */
export function registerPrepare(program: CommandUnknownOpts, host: CommandHost): void {
  const command = program
    .command('prepare')
    .description('prepare every required volume that is missing and not blocked; run it again to go on')
    .addOption(clusterOption())
    .addOption(
      new Option(
        '--capacity-bytes <n>',
        'capacity to request with each handoff that is made (default: none stated)',
      ).argParser(capacityBytes),
    )
    .option('--dry-run', 'say what would be done, change nothing')
    .option('--yes', 'in draining and switching, too, where every change starts coverage again')
    .addOption(jsonOutputOption())
    .addHelpText(
      'after',
      '\nMay be interrupted at any moment: what is prepared stays, and the next run goes on.' +
        '\nExit codes: 0 the set is complete, 1 it is not, with the reasons, 2 usage, 3 unreachable or outcome unknown.',
    );
  addConnectionOptions(command).action((options) =>
    guarded(
      host,
      options.json === true,
      async () => {
        const asJson = options.json === true;
        await withClient(host, options, (client, settings) =>
          untilSignalled(async (signal) => {
            const task: FleetPreparation = {
              clusterId: clusterOf(settings),
              capacityBytes: options.capacityBytes ?? null,
              dryRun: options.dryRun === true,
              confirmed: options.yes === true,
              signal,
            };
            await prepare(host, task, asJson, (observer, running) => prepareFleet(client, task, observer, running));
          }),
        );
      },
      goOn,
    ),
  );
}

/** The list says what is missing: it needs no mutation id of an earlier run. */
const goOn = 'run `prepare` again when the service answers: what is prepared stays, and it goes on with the rest';

type Work = (
  observer: { progress(done: number, total: number): void; note(text: string): void },
  running: ReturnType<typeof nothingDone>,
) => Promise<void>;

async function prepare(host: CommandHost, task: FleetPreparation, asJson: boolean, work: Work): Promise<void> {
  const { clusterId, dryRun } = task;
  const line = new ProgressLine(host, process.stderr.isTTY === true);
  const running = nothingDone();
  const began = performance.now();
  let shown: readonly [number, number] | null = null;
  const observer = {
    progress: (done: number, total: number) => {
      shown = [done, total];
      line.show(done, total);
    },
    note: (text: string) => line.note(text),
  };
  const result = (stop: Parameters<typeof preparationResult>[0]['stop']) => {
    const { state, blocked, tally } = running;
    return preparationResult({ clusterId, dryRun, state, blocked, tally, stop, ms: performance.now() - began });
  };
  try {
    await work(observer, running);
  } catch (error) {
    line.stop();
    // Programs read the last line of every run that reached the service.
    if (asJson && running.state !== null) printResult(host, result('unreachable'), true, () => []);
    throw error;
  }
  if (shown === null) line.stop();
  else line.end(...(shown as readonly [number, number]));
  const { stop, state, tally } = running;
  if (stop === 'confirmation-needed' && tally.mutations === 0) {
    throw new UsageError(
      `the phase is ${state!.runtime.phase}: every change starts coverage again from nothing; give --yes to make it`,
    );
  }
  const ended = result(stop);
  printResult(host, ended, asJson, () => preparationLines(ended));
  if (ended.reasons.length > 0 || (ended.state !== 'complete' && !dryRun)) host.setExitCode(exitCodes.refused);
}

function capacityBytes(text: string): number {
  const bytes = Number(text);
  if (/^[1-9]\d{0,15}$/.test(text) && Number.isSafeInteger(bytes)) return bytes;
  throw new InvalidArgumentError('A whole number of bytes.');
}
