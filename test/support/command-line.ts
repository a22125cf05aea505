/** The program's commands, in this process or in one of their own. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { Command, CommanderError, type CommandUnknownOpts } from '@commander-js/extra-typings';
import type { CommandHost } from '../../src/cli/command-host.js';
import { printFailure, UsageError } from '../../src/cli/output.js';
import { registerRemoteCommands } from '../../src/cli/remote-commands.js';

export interface CommandEnd {
  /** Null where a signal ended it. */
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly stdout: string;
  readonly stderr: string;
}

export type Environment = Readonly<Record<string, string>>;

/** What a command has to know of a service. */
export const environmentOf = ({ url, token }: { readonly url: string; readonly token: string }): Environment => ({
  FLEET_CUTOVER_URL: url,
  FLEET_CUTOVER_TOKEN: token,
});

export function programOf(host: CommandHost): CommandUnknownOpts {
  const program = new Command('fleet-cutover')
    .exitOverride()
    .configureOutput({ writeErr: host.stderr, writeOut: host.stdout }) as unknown as CommandUnknownOpts;
  registerRemoteCommands(program, host);
  return program;
}

/** Runs one command line in this process, with nothing of its environment. */
export async function runCommand(environment: Environment, args: readonly string[]): Promise<CommandEnd> {
  const result = { code: 0, signal: null, stdout: '', stderr: '' };
  const host: CommandHost = {
    environment,
    stdout: (text) => (result.stdout += text),
    stderr: (text) => (result.stderr += text),
    setExitCode: (code) => (result.code = code),
  };
  await programOf(host)
    .parseAsync(args, { from: 'user' })
    .catch((error: unknown) => {
      if (error instanceof UsageError) result.code = printFailure(host, error, false);
      else if (error instanceof CommanderError) result.code = error.exitCode === 0 ? 0 : 2;
      else throw error;
    });
  return result;
}

const root = join(import.meta.dirname, '..', '..');

/** The built program as a process; what it prints may be read by somebody else, who may close it. */
export function spawnProgram(environment: Environment, args: readonly string[]) {
  return spawn(process.execPath, [join(root, 'dist', 'cli', 'main.js'), ...args], {
    env: { PATH: process.env['PATH'] ?? '', ...environment },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
}

export interface RunningProgram {
  readonly child: ChildProcess;
  /** When its output has ended, too. */
  readonly ended: Promise<CommandEnd>;
}

/** The built program as a process, all of whose output is kept. */
export function startProgram(environment: Environment, args: readonly string[]): RunningProgram {
  const child = spawnProgram(environment, args);
  const result = { stdout: '', stderr: '' };
  child.stdout.setEncoding('utf8').on('data', (text: string) => (result.stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (result.stderr += text));
  const ended = once(child, 'close').then(([code, signal]) => ({
    ...result,
    code: code as number | null,
    signal: signal as NodeJS.Signals | null,
  }));
  return { child, ended };
}

/** The last line that a `--json` command prints. */
export function lastJson<T>({ stdout }: Pick<CommandEnd, 'stdout'>): T {
  return JSON.parse(stdout.trimEnd().split('\n').at(-1)!) as T;
}

/** All commands below this one that do something, by their words. */
export function commandsOf(parent: CommandUnknownOpts, before = ''): Map<string, CommandUnknownOpts> {
  const found = new Map<string, CommandUnknownOpts>();
  for (const command of parent.commands) {
    const words = `${before}${command.name()}`;
    if (command.commands.length === 0) found.set(words, command);
    for (const [name, each] of commandsOf(command, `${words} `)) found.set(name, each);
  }
  return found;
}
