import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { startEmbedded } from '../../src/db/embedded.js';

/** A service in a process of its own, to be killed. `report` is the first line that it printed. */
export interface EmbeddedProcess {
  readonly child: ChildProcess;
  readonly report: {
    readonly pid?: number;
    readonly origin?: string;
    readonly code?: string;
    readonly message?: string;
  };
}

/** Starts this file as a program and waits for its report. */
export async function spawnEmbedded(dataDirectory: string): Promise<EmbeddedProcess> {
  const program = fileURLToPath(import.meta.url);
  const child = spawn(process.execPath, ['--import', 'tsx', program, dataDirectory], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
  return { child, report: JSON.parse(line) as EmbeddedProcess['report'] };
}

async function main(dataDirectory: string): Promise<void> {
  try {
    const server = await startEmbedded({ dataDirectory });
    console.log(JSON.stringify({ pid: server.pid, origin: server.origin }));
    await once(process, 'SIGTERM');
    await server.stop();
  } catch (error) {
    const { code, message } = error as Error & { code?: string };
    console.log(JSON.stringify({ code, message }));
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main(process.argv[2] ?? '');
