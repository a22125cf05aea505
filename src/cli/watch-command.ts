import { setTimeout as pause } from 'node:timers/promises';
import { type CommandUnknownOpts, Option } from '@commander-js/extra-typings';
import type { AdministratorClient } from '../client/administrator-client.js';
import { ProblemError, TransportError } from '../client/errors.js';
import type { MethodResponse } from '../contract/methods.js';
import { withClient } from './client-session.js';
import { type CommandHost, guarded } from './command-host.js';
import { addConnectionOptions, clusterOption } from './connection-options.js';
import { namedFor } from './method-command.js';
import { clusterOf } from './settings.js';
import { jsonText, printable } from './terminal-text.js';
import { untilSignalled } from './until-signalled.js';

type Change = MethodResponse<'watchFleetCutover'>;

/** `watch` */
export function registerWatch(program: CommandUnknownOpts, host: CommandHost): void {
  const command = program
    .command('watch')
    .description('say every change of phase, aggregate, derivation and coverage, until it is interrupted')
    .addOption(clusterOption())
    .addOption(new Option('--json', 'print one JSON document per change'));
  namedFor(command, 'watchFleetCutover');
  addConnectionOptions(command).action((options) =>
    guarded(host, options.json === true, async () => {
      const asJson = options.json === true;
      await withClient(host, options, (client, settings) => {
        const clusterId = clusterOf(settings);
        return untilSignalled((signal) => watch(client, host, { clusterId, asJson, signal }), host.outputClosed);
      });
    }),
  );
}

interface Watching {
  readonly clusterId: string;
  readonly asJson: boolean;
  readonly signal: AbortSignal;
}

/** How long the service holds one question, in ms. */
const timeoutMs = 30_000;
/** Pause after a question that got no answer, in ms. */
const retryMs = 2_000;

/**
 * Resolves when the signal aborts. What fails before the first answer is thrown, as are refusals; later a service that is
 * away is waited for, since the cursor still tells what was missed.
 */
async function watch(client: AdministratorClient, host: CommandHost, watching: Watching): Promise<void> {
  const { clusterId, asJson, signal } = watching;
  let cursor: string | null = null;
  let away = false;
  while (!signal.aborted) {
    try {
      const change: Change = await client.watchFleetCutover({ clusterId, cursor, timeoutMs }, { signal });
      if (away) host.stderr('the service answers again\n');
      away = false;
      if (cursor === null || change.reset || change.changed.length > 0) {
        host.stdout(
          `${asJson ? jsonText(change) : printable(await changeLine(client, watching, change, cursor === null))}\n`,
        );
      }
      cursor = change.cursor;
    } catch (error) {
      if (signal.aborted) return;
      if (cursor === null || !mayHeal(error)) throw error;
      if (!away) host.stderr('the service does not answer; waiting for it\n');
      away = true;
      await pause(retryMs, undefined, { signal }).catch(() => {}); // the loop's condition ends it
    }
  }
}

function mayHeal(error: unknown): boolean {
  return (
    error instanceof TransportError || (error instanceof ProblemError && (error.status >= 500 || error.status === 429))
  );
}

async function changeLine(
  client: AdministratorClient,
  { clusterId, signal }: Watching,
  { phase, runtime, aggregate, changed, reset }: Change,
  first: boolean,
): Promise<string> {
  const { coverage } = await client.explainFleetCutover({ clusterId, subject: { kind: 'cluster' } }, { signal });
  const what = first ? 'now' : reset ? 'another life of the database; now' : `changed: ${changed.join(', ')};`;
  const handoffs = aggregate === null ? 'no aggregate' : `aggregate generation ${aggregate.generation}`;
  return (
    `${new Date().toISOString()} ${what} phase ${phase} (generation ${runtime.generation}), ${handoffs}, ` +
    `coverage ${coverage.covered}/${coverage.total}`
  );
}
