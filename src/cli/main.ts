#!/usr/bin/env node
/** Entry of the command line. Exit codes: 0 done, 1 refused, 2 usage, 3 unreachable or outcome unknown. */
import { Command, CommanderError } from '@commander-js/extra-typings';
import { processHost } from './command-host.js';
import { registerExport } from './export-command.js';
import { registerHostCommands } from './host-commands.js';
import { registerOpenApi } from './openapi-command.js';
import { exitCodes, printLine, type TExitCode, UsageError } from './output.js';
import { registerRemoteCommands } from './remote-commands.js';
import { registerVerify } from './verify-command.js';

const program = new Command('fleet-cutover')
  .description('moves a fleet of stateful services from Docker Swarm to Pallet')
  .exitOverride();
registerHostCommands(program);
registerRemoteCommands(program);
registerVerify(program);
registerExport(program);
registerOpenApi(program);

try {
  await program.parseAsync();
} catch (error) {
  process.exitCode = await exitCodeOf(error);
}

async function exitCodeOf(error: unknown): Promise<TExitCode> {
  // Commander has said what is wrong, or printed the help that was asked for.
  if (error instanceof CommanderError) return error.exitCode === 0 ? exitCodes.done : exitCodes.usage;
  if (error instanceof UsageError) {
    for (const line of [error.message, ...error.details]) printLine(processHost, `fleet-cutover: ${line}`);
    return exitCodes.usage;
  }
  // Of commands that load the server's parts, and only where they fail.
  const { explainStartupError } = await import('../startup-error.js');
  const explanation = explainStartupError(error);
  if (explanation === undefined) throw error;
  printLine(processHost, `fleet-cutover: ${explanation}`);
  return exitCodes.unreachable;
}
