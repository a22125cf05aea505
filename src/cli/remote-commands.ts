/** Commands that talk to a running service through the typed client. */
import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import { registerAdvance } from './advance-command.js';
import { registerPrepare } from './bulk/prepare-command.js';
import { registerRequired } from './bulk/required-command.js';
import { registerCall } from './call-command.js';
import { registerCluster } from './cluster-commands.js';
import { type CommandHost, processHost } from './command-host.js';
import { registerConfig } from './config-command.js';
import { registerCredentials, registerRelay } from './credential-commands.js';
import { registerEvidence } from './evidence-commands.js';
import { registerExplain } from './explain-command.js';
import { registerFleetImport } from './fleet-import-command.js';
import { registerAggregate, registerHandoff } from './handoff-commands.js';
import { registerIngress } from './ingress-command.js';
import { registerNode } from './node-commands.js';
import { registerScope, registerTargets } from './scope-commands.js';
import { registerService, registerSpec } from './service-commands.js';
import { registerScopeApply } from './scope/apply-command.js';
import { registerScopeSuggest } from './scope/suggest-command.js';
import { registerSpark } from './spark-command.js';
import { registerState } from './state-command.js';
import { registerWatch } from './watch-command.js';
import { registerWriteOff } from './write-off-commands.js';

/** In the order of the help: what a cutover needs first stands first. */
const registrations: readonly ((program: CommandUnknownOpts, host: CommandHost) => void)[] = [
  registerConfig,
  registerCluster,
  registerFleetImport,
  registerNode,
  registerService,
  registerSpec,
  registerCredentials,
  registerRelay,
  registerState,
  registerExplain,
  registerWatch,
  registerEvidence,
  registerScope,
  registerScopeSuggest,
  registerScopeApply,
  registerTargets,
  registerRequired,
  registerPrepare,
  registerAggregate,
  registerHandoff,
  registerAdvance,
  registerIngress,
  registerWriteOff,
  registerCall,
  registerSpark,
];

/**
 * Exit codes: 0 done, 1 refused, 2 not a command that could be carried out, 3 not reached or with an unknown outcome. What
 * isn't a command line at all is the program's to refuse.
 */
export function registerRemoteCommands(program: CommandUnknownOpts, host: CommandHost = processHost): void {
  for (const register of registrations) register(program, host);
}
