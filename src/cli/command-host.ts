/** What a command needs of the process, and how it fails. */
import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import type { Environment } from './connection-options.js';
import { type CommandStreams, exitCodes, printFailure, type TExitCode } from './output.js';

/** What the commands need of the process. */
export interface CommandHost extends CommandStreams {
  readonly environment: Environment;
  /** The code with which the process ends by itself. */
  setExitCode(code: TExitCode): void;
  /** Ends the process now: for a command line that isn't one. */
  exit(code: TExitCode): never;
}

export const processHost: CommandHost = {
  environment: process.env,
  stdout: (text) => process.stdout.write(text),
  stderr: (text) => process.stderr.write(text),
  setExitCode: (code) => {
    process.exitCode = code;
  },
  exit: (code) => process.exit(code),
};

/** A subcommand whose usage errors end the process with exit code 2. */
export function subcommand(parent: CommandUnknownOpts, name: string, description: string, host: CommandHost) {
  return parent
    .command(name)
    .description(description)
    .exitOverride((error) => host.exit(error.exitCode === 0 ? exitCodes.done : exitCodes.usage));
}

/** Runs a command's work; a failure is printed and gives the exit code. */
export async function guarded(host: CommandHost, asJson: boolean, work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    host.setExitCode(printFailure(host, error, asJson));
  }
}
