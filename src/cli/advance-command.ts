import { type CommandUnknownOpts, Option } from '@commander-js/extra-typings';
import { ProblemError } from '../client/errors.js';
import { fleetCutoverPhases, type TFleetCutoverPhase } from '../contract/runtime.js';
import type { CommandHost } from './command-host.js';
import { gateLines } from './gate-lines.js';
import { mutation } from './method-command.js';

/** `advance --to PHASE [--dry-run]` */
export function registerAdvance(program: CommandUnknownOpts, host: CommandHost): void {
  mutation(
    host,
    program
      .command('advance')
      .description('move a cluster to the next phase, if every gate is met; there is no way back')
      .addOption(
        new Option('--to <phase>', 'the phase that follows').choices(fleetCutoverPhases).makeOptionMandatory(true),
      ),
    'advanceFleetCutoverPhase',
    {
      request: ({ options: { to } }) => ({ to }),
      warning: ({ to }) => meanings[to],
      failed: (error) => gateLines(error instanceof ProblemError ? (error.document.gates ?? []) : []),
      lines: ({ runtime, gates, dryRun }) => [
        ...gateLines(gates),
        dryRun ? 'every gate is met' : `phase ${runtime.phase} (generation ${runtime.generation})`,
      ],
    },
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
