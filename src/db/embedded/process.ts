import { spawn } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import type { Account } from './account.js';
import { errorCode } from './error.js';

/** Whether a process runs. One that has ended but was not yet collected by its parent does not. */
export async function processIsAlive(pid: number): Promise<boolean> {
  try {
    process.kill(pid, 0);
  } catch (error) {
    if (errorCode(error) !== 'EPERM') return false;
  }
  const status = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
  return !/^\d+ \(.*\) [ZX]/s.test(status);
}

/** The environment of the server's programs: nothing of ours, which holds secrets. */
export const serverEnvironment = { PATH: '/usr/bin:/bin', LC_ALL: 'C', TZ: 'UTC' };

/** Runs a program to its end and gives its exit status (null: ended by a signal) and everything that it printed. */
export function runToEnd(
  program: string,
  args: readonly string[],
  options: { readonly directory: string; readonly account: Account | undefined },
): Promise<{ status: number | null; output: string }> {
  return new Promise((resolve, reject) => {
    const child = spawn(program, args, {
      cwd: options.directory,
      env: serverEnvironment,
      stdio: ['ignore', 'pipe', 'pipe'],
      ...options.account,
    });
    const parts: Buffer[] = [];
    child.stdout.on('data', (part: Buffer) => parts.push(part));
    child.stderr.on('data', (part: Buffer) => parts.push(part));
    child.once('error', reject);
    child.once('close', (status) => resolve({ status, output: Buffer.concat(parts).toString('utf8') }));
  });
}
