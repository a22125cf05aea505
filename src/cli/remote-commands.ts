/** Commands that talk to a running service through the typed client. */
import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import { registerCall } from './call-command.js';
import { type CommandHost, processHost } from './command-host.js';
import { registerFleetImport } from './fleet-import-command.js';
import { registerSpark } from './spark-command.js';
import { registerState } from './state-command.js';

/**
 * Adds `fleet import`, `call`, `state` and `agent spark`. Exit codes: 0 done, 1 refused, 2 not a command that could be
 * carried out, 3 not reached or with an unknown outcome. What isn't a command line at all is the program's to refuse.
 */
export function registerRemoteCommands(program: CommandUnknownOpts, host: CommandHost = processHost): void {
  registerFleetImport(program, host);
  registerCall(program, host);
  registerState(program, host);
  registerSpark(program, host);
}
