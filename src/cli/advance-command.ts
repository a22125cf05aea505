import { type CommandUnknownOpts, Option } from '@commander-js/extra-typings';
import type { AdministratorClient } from '../client/administrator-client.js';
import { ProblemError } from '../client/errors.js';
import type { MethodResponse } from '../contract/methods.js';
import { fleetCutoverPhases, type TFleetCutoverPhase } from '../contract/runtime.js';
import { type Reference, referenceOf } from '../contract/schema.js';
import { withClient } from './client-session.js';
import { type CommandHost, guarded } from './command-host.js';
import { caFileOption, plainHttpOption, tokenFileOption, urlOption } from './connection-options.js';
import { gateLines } from './gate-lines.js';
import { mutationIdOf, mutationIdOption } from './mutation-request.js';
import { jsonOutputOption, printResult } from './output.js';

/** `advance --cluster ID --to PHASE [--dry-run]` */
export function registerAdvance(program: CommandUnknownOpts, host: CommandHost): void {
  program
    .command('advance')
    .description('move a cluster to the next phase, if every gate is met; there is no way back')
    .requiredOption('--cluster <id>', 'the cluster')
    .addOption(
      new Option('--to <phase>', 'the phase that follows').choices(fleetCutoverPhases).makeOptionMandatory(true),
    )
    .option('--dry-run', 'check the gates, change nothing')
    .addOption(mutationIdOption())
    .addOption(urlOption())
    .addOption(tokenFileOption())
    .addOption(caFileOption())
    .addOption(plainHttpOption())
    .addOption(jsonOutputOption())
    .action((options) =>
      guarded(host, options.json === true, async () => {
        const asJson = options.json === true;
        const { to, cluster: clusterId } = options;
        const dryRun = options.dryRun === true;
        if (!dryRun && !asJson) host.stderr(`${meanings[to]}\n`);
        const mutationId = mutationIdOf(host, options.mutationId);
        const answer = await withClient(host, options, async (client) => {
          const runtime = await expectedRuntime(client, clusterId, options.mutationId === undefined ? null : to);
          const request = { mutationId, clusterId, runtime, to };
          return await client
            .advanceFleetCutoverPhase(dryRun ? { ...request, dryRun } : request)
            .catch((error: unknown) => {
              if (!asJson) printUnmet(host, error);
              throw error;
            });
        });
        printResult(host, answer, asJson, () => answerLines(answer));
      }),
    );
}

/** Said before it is done. */
const meanings: Readonly<Record<TFleetCutoverPhase, string>> = {
  swarm: 'swarm is where every cluster begins.',
  draining:
    'draining: nothing is stopped, and the cluster may stay there. Every node’s Pallet holds its volumes from now on; ' +
    'a change of the handoffs makes all nodes report all their pages again. There is no way back.',
  switching:
    'switching: from now on the administrators stop the application services: this is where the outage begins. ' +
    'Targets are fixed, and only strays can be prepared. There is no way back.',
  pallet:
    'pallet: Swarm runs no application of this cluster any more, and volumes are granted to Pallet one by one. ' +
    'There is no way back.',
};

/**
 * The runtime that the advance leaves. A repeat of an attempt that was applied has to name the same one as then: where the
 * cluster is in the wanted phase already, that is its predecessor.
 */
async function expectedRuntime(
  client: AdministratorClient,
  clusterId: string,
  repeated: TFleetCutoverPhase | null,
): Promise<Reference> {
  const { runtime } = await client.readFleetCutoverState({ clusterId });
  return runtime.phase === repeated && runtime.predecessor !== null ? runtime.predecessor : referenceOf(runtime);
}

function printUnmet(host: CommandHost, error: unknown): void {
  const gates = error instanceof ProblemError ? (error.document.gates ?? []) : [];
  if (gates.length > 0) host.stdout(`${gateLines(gates).join('\n')}\n`);
}

function answerLines({
  runtime,
  gates,
  dryRun,
  replayed,
  current,
}: MethodResponse<'advanceFleetCutoverPhase'>): string[] {
  const phase = `phase ${runtime.phase} (generation ${runtime.generation})`;
  const done = dryRun ? `every gate is met; dry run: nothing was changed` : phase;
  return [
    ...gateLines(gates),
    ...(replayed ? [`replay: done before${current ? '' : ', and no longer the latest'}`] : []),
    done,
  ];
}
