/** What a command needs of the process, and how it fails. */
import type { Environment } from './connection-options.js';
import { type CommandStreams, printFailure, type TExitCode } from './output.js';

/** What the commands need of the process. */
export interface CommandHost extends CommandStreams {
  readonly environment: Environment;
  /** The code with which the process ends by itself. */
  setExitCode(code: TExitCode): void;
}

export const processHost: CommandHost = {
  environment: process.env,
  stdout: (text) => process.stdout.write(text),
  stderr: (text) => process.stderr.write(text),
  setExitCode: (code) => {
    process.exitCode = code;
  },
};

/** Runs a command's work; a failure is printed and gives the exit code. */
export async function guarded(host: CommandHost, asJson: boolean, work: () => Promise<void>): Promise<void> {
  try {
    await work();
  } catch (error) {
    host.setExitCode(printFailure(host, error, asJson));
  }
}
