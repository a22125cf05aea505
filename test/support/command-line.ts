/** The program's commands, in this process or in one of their own. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { Command, CommanderError, type CommandUnknownOpts } from '@commander-js/extra-typings';
import type { CommandHost } from '../../src/cli/command-host.js';
import { printFailure, UsageError } from '../../src/cli/output.js';
import { registerRemoteCommands } from '../../src/cli/remote-commands.js';

export interface Ended {
  readonly stdout: string;
  readonly stderr: string;
  readonly code: number;
}

export type Environment = Readonly<Record<string, string>>;

export function programOf(host: CommandHost): CommandUnknownOpts {
  const program = new Command('fleet-cutover')
    .exitOverride()
    .configureOutput({ writeErr: host.stderr, writeOut: host.stdout }) as unknown as CommandUnknownOpts;
  registerRemoteCommands(program, host);
  return program;
}

/** Runs one command line in this process, with nothing of its environment. */
export async function runCommand(environment: Environment, args: readonly string[]): Promise<Ended> {
  const result = { stdout: '', stderr: '', code: 0 };
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

const entry = join(import.meta.dirname, '..', '..', 'src', 'cli', 'main.ts');

/** The program as a process. The reader of its output may close it. */
export function startProgram(environment: Environment, args: readonly string[]) {
  return spawn(process.execPath, ['--import', 'tsx', entry, ...args], {
    env: { PATH: process.env['PATH'] ?? '', ...environment },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
}

/** Runs one command line as a process. */
export async function runProgram(environment: Environment, args: readonly string[]): Promise<Ended> {
  const child = startProgram(environment, args);
  const result = { stdout: '', stderr: '', code: 0 };
  child.stdout.setEncoding('utf8').on('data', (text: string) => (result.stdout += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (result.stderr += text));
  const [code] = (await once(child, 'close')) as [number];
  return { ...result, code };
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
