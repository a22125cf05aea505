/** What a command needs of the process, and how it fails. */
import { type CommandStreams, printFailure, type TExitCode } from './output.js';
import type { Environment } from './settings.js';

/** What the commands need of the process. */
export interface CommandHost extends CommandStreams {
  readonly environment: Environment;
  /** Aborts when nobody reads the results any more, as of `… | head`. */
  readonly outputClosed?: AbortSignal;
  /** The code with which the process ends by itself. */
  setExitCode(code: TExitCode): void;
}

/** The process itself. A reader that has closed its end of the pipe is no failure: the command ends as it would have. */
function openProcessHost(): CommandHost {
  const closed = new AbortController();
  for (const stream of [process.stdout, process.stderr]) {
    stream.on('error', (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EPIPE') throw error;
      if (stream === process.stdout) closed.abort();
    });
  }
  return {
    environment: process.env,
    stdout: (text) => process.stdout.write(text),
    stderr: (text) => process.stderr.write(text),
    outputClosed: closed.signal,
    setExitCode: (code) => {
      process.exitCode = code;
    },
  };
}

export const processHost: CommandHost = openProcessHost();

/** Runs a command's work; a failure is printed and gives the exit code. `goOn` as of {@link printFailure}. */
export async function guarded(
  host: CommandHost,
  asJson: boolean,
  work: () => Promise<void>,
  goOn?: string,
): Promise<void> {
  try {
    await work();
  } catch (error) {
    host.setExitCode(printFailure(host, error, asJson, goOn));
  }
}
