/** The command line as people run it, a process of its own, from the source; and the same without one. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { Command, CommanderError } from '@commander-js/extra-typings';
import type { CommandHost } from '../../src/cli/command-host.js';
import { registerRemoteCommands } from '../../src/cli/remote-commands.js';

const root = join(import.meta.dirname, '..', '..');

export interface CliProcess {
  readonly child: ChildProcess;
  /** When its output has ended, too. */
  readonly ended: Promise<CliEnd>;
  stderr(): string;
}

export interface CliEnd {
  /** Null where a signal ended it. */
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export interface CliService {
  readonly url: string;
  readonly token: string;
}

export function startCli({ url, token }: CliService, args: readonly string[]): CliProcess {
  const child = spawn(process.execPath, ['--import', 'tsx', join(root, 'src', 'cli', 'main.ts'), ...args], {
    cwd: root,
    env: {
      PATH: process.env['PATH'] ?? '',
      HOME: process.env['HOME'] ?? '',
      FLEET_CUTOVER_URL: url,
      FLEET_CUTOVER_TOKEN: token,
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let stdout = '';
  let stderr = '';
  child.stdout.on('data', (chunk: Buffer) => (stdout += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
  const ended = once(child, 'close').then(([code, signal]) => ({
    code: code as number | null,
    signal: signal as NodeJS.Signals | null,
    stdout,
    stderr,
  }));
  return { child, ended, stderr: () => stderr };
}

/** The last line that a `--json` command prints. */
export function lastJson<T>({ stdout }: Pick<CliEnd, 'stdout'>): T {
  return JSON.parse(stdout.trimEnd().split('\n').at(-1)!) as T;
}

/** The same command in this process, for what needs no process of its own; `printed` hears of stdout as it comes. */
export async function runHere(
  { url, token }: CliService,
  args: readonly string[],
  printed: (text: string) => void = () => {},
): Promise<CliEnd> {
  let stdout = '';
  let stderr = '';
  let code = 0;
  const host: CommandHost = {
    environment: { FLEET_CUTOVER_URL: url, FLEET_CUTOVER_TOKEN: token },
    stdout: (text) => {
      stdout += text;
      printed(text);
    },
    stderr: (text) => (stderr += text),
    setExitCode: (given) => (code = given),
  };
  const program = new Command().exitOverride().configureOutput({ writeErr: host.stderr, writeOut: host.stdout });
  registerRemoteCommands(program, host);
  await program.parseAsync([...args], { from: 'user' }).catch((error: unknown) => {
    if (!(error instanceof CommanderError)) throw error;
    code = 2; // as the program's entry does
  });
  return { code, signal: null, stdout, stderr };
}
