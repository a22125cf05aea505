/** Commands that talk to a running service through the typed client. */
import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import { registerAdvance } from './advance-command.js';
import { registerPrepare } from './bulk/prepare-command.js';
import { registerRequired } from './bulk/required-command.js';
import { registerCall } from './call-command.js';
import { type CommandHost, processHost } from './command-host.js';
import { registerExplain } from './explain-command.js';
import { registerFleetImport } from './fleet-import-command.js';
import { registerIngress } from './ingress-command.js';
import { registerScopeApply } from './scope/apply-command.js';
import { registerScopeSuggest } from './scope/suggest-command.js';
import { registerSpark } from './spark-command.js';
import { registerState } from './state-command.js';
import { registerWatch } from './watch-command.js';

/**
 * Adds `fleet import`, `call`, `state`, `explain`, `advance`, `watch`, `ingress` and `agent spark`. Exit codes: 0 done, 1 refused, 2 not a command that could be
 * carried out, 3 not reached or with an unknown outcome. What isn't a command line at all is the program's to refuse.
 */
export function registerRemoteCommands(program: CommandUnknownOpts, host: CommandHost = processHost): void {
  registerFleetImport(program, host);
  registerCall(program, host);
  registerState(program, host);
  registerExplain(program, host);
  registerAdvance(program, host);
  registerWatch(program, host);
  registerIngress(program, host);
  registerSpark(program, host);
  registerScopeSuggest(program, host);
  registerScopeApply(program, host);
  registerRequired(program, host);
  registerPrepare(program, host);
}
