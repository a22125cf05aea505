/** The service as operators run it, in a process of its own that is killed and comes back. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const ROOT = join(import.meta.dirname, '..', '..');

export interface ServiceProcess {
  readonly child: ChildProcess;
  readonly url: string;
  /** The end of what it has logged. */
  log(): string;
  readonly ended: Promise<{ readonly code: number | null; readonly signal: NodeJS.Signals | null }>;
}

export interface ServiceProcessOptions {
  readonly environment: Readonly<Record<string, string>>;
  /** A module that is loaded before the service. */
  readonly preload?: string;
  /** Where the built program lies, if not in this project. */
  readonly builtIn?: string;
}

const KEPT_LOG = 200_000;

/** As it was built, on a free port. Throws with the log's end where it does not come up. */
export async function startServiceProcess(options: ServiceProcessOptions): Promise<ServiceProcess> {
  const { environment, preload, builtIn = ROOT } = options;
  const before = preload === undefined ? [] : ['--import', 'tsx', '--import', pathToFileURL(preload).href];
  const child = spawn(process.execPath, [...before, 'dist/main.js'], {
    cwd: builtIn,
    env: { PATH: process.env['PATH'] ?? '', HOME: process.env['HOME'] ?? '', PORT: '0', ...environment },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let log = '';
  let heard: (() => void) | undefined;
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', (chunk: Buffer) => {
      log = (log + chunk.toString()).slice(-KEPT_LOG);
      heard?.();
    });
  }
  const ended = once(child, 'exit').then(([code, signal]) => ({
    code: code as number | null,
    signal: signal as NodeJS.Signals | null,
  }));
  const url = await new Promise<string>((resolve, reject) => {
    heard = () => {
      const found = /Server listening at (http:\/\/[^"]+)/.exec(log)?.[1];
      if (found !== undefined) resolve(found);
    };
    void ended.then(({ code, signal }) =>
      reject(new Error(`the service ended with ${code ?? signal}: ${log.slice(-2_000)}`)),
    );
  });
  heard = undefined;
  return { child, url, log: () => log, ended };
}

/** A command of the host, as it was built; gives its output. */
export async function runHostCommand(args: readonly string[], environment: Readonly<Record<string, string>>) {
  const child = spawn(process.execPath, [join(ROOT, 'dist', 'cli', 'main.js'), ...args], {
    cwd: ROOT,
    env: { PATH: process.env['PATH'] ?? '', HOME: process.env['HOME'] ?? '', ...environment },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const output = { stdout: '', stderr: '' };
  child.stdout.on('data', (chunk: Buffer) => (output.stdout += chunk.toString()));
  child.stderr.on('data', (chunk: Buffer) => (output.stderr += chunk.toString()));
  const [code] = (await once(child, 'close')) as [number | null];
  return { code, ...output };
}
