import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import type { MethodResponse } from '../contract/methods.js';
import type { Reference } from '../contract/schema.js';
import { withClient } from './client-session.js';
import { type CommandHost, guarded } from './command-host.js';
import { urlOption, tokenFileOption, caFileOption, plainHttpOption } from './connection-options.js';
import { jsonOutputOption, printResult } from './output.js';

/** `state --cluster ID` */
export function registerState(program: CommandUnknownOpts, host: CommandHost): void {
  program
    .command('state')
    .description('phase, references and counts of a cluster')
    .requiredOption('--cluster <id>', 'the cluster')
    .addOption(urlOption())
    .addOption(tokenFileOption())
    .addOption(caFileOption())
    .addOption(plainHttpOption())
    .addOption(jsonOutputOption())
    .action((options) =>
      guarded(host, options.json === true, async () => {
        const state = await withClient(host, options, (client) =>
          client.readFleetCutoverState({ clusterId: options.cluster }),
        );
        printResult(host, state, options.json === true, () => stateLines(state));
      }),
    );
}

function stateLines(state: MethodResponse<'readFleetCutoverState'>): string[] {
  const { runtime, derivation, aggregate, verdicts, blockers } = state;
  const row = (name: string, text: string) => `${name.padEnd(18)}${text}`;
  return [
    row('phase', `${runtime.phase} (generation ${runtime.generation})`),
    row('inventory', referenceText(state.managerSnapshot)),
    row('scope', `${referenceText(state.scope)}${state.scopeState === null ? '' : `, ${state.scopeState}`}`),
    row('target set', referenceText(state.targetSet)),
    row('derivation', referenceText(derivation)),
    row(
      'aggregate',
      aggregate === null ? 'none' : `${referenceText(aggregate)}, ${aggregate.state}${state.behind ? ', behind' : ''}`,
    ),
    row(
      'handoffs',
      `${derivation.requiredCount} required, ${state.missingCount} missing, ${state.surplusCount} surplus`,
    ),
    row(
      'tasks',
      `${verdicts.live} live, ${verdicts.notStarted} not started, ${verdicts.stopped} stopped, ${verdicts.unknown} unknown`,
    ),
    row('blockers', blockers.length === 0 ? 'none' : blockers.map(({ code, count }) => `${count} ${code}`).join(', ')),
  ];
}

function referenceText(reference: Reference | null): string {
  return reference === null ? 'none' : `${reference.id} generation ${reference.generation} ${reference.digest}`;
}
