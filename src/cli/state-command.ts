import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import type { MethodResponse } from '../contract/methods.js';
import type { CommandHost } from './command-host.js';
import { query } from './method-command.js';
import { referenceText } from './reference-text.js';
import { fields } from './terminal-text.js';

/** `state` */
export function registerState(program: CommandUnknownOpts, host: CommandHost): void {
  const command = program.command('state').description('phase, references and counts of a cluster');
  query(host, command, 'readFleetCutoverState', { request: () => ({}), lines: stateLines });
}

function stateLines(state: MethodResponse<'readFleetCutoverState'>): string[] {
  const { runtime, derivation, aggregate, verdicts, blockers } = state;
  return fields([
    ['phase', `${runtime.phase} (generation ${runtime.generation})`],
    ['inventory', referenceText(state.managerSnapshot)],
    ['scope', `${referenceText(state.scope)}${state.scopeState === null ? '' : `, ${state.scopeState}`}`],
    ['target set', referenceText(state.targetSet)],
    ['derivation', referenceText(derivation)],
    [
      'aggregate',
      aggregate === null ? 'none' : `${referenceText(aggregate)}, ${aggregate.state}${state.behind ? ', behind' : ''}`,
    ],
    ['handoffs', `${derivation.requiredCount} required, ${state.missingCount} missing, ${state.surplusCount} surplus`],
    [
      'tasks',
      `${verdicts.live} live, ${verdicts.notStarted} not started, ${verdicts.stopped} stopped, ${verdicts.unknown} unknown`,
    ],
    ['blockers', blockers.length === 0 ? 'none' : blockers.map(({ code, count }) => `${count} ${code}`).join(', ')],
  ]);
}
