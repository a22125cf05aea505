/** Where the README's commands are run: a directory that looks like a checkout, with a service of its own. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { stopUnusedEmbedded } from '../../src/db/embedded.js';
import { demandDone, projectRoot, runProgram, typescript } from './installed-package.js';

export interface Output {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A command that goes on until it is told to end. */
export interface Going {
  /** Waits until either stream has said it; gives both. */
  says(text: RegExp): Promise<string>;
  end(signal: NodeJS.Signals): Promise<Output>;
}

export interface ReadmeWorld {
  readonly directory: string;
  /** What is in the environment of every command; a step may add to it. */
  readonly environment: Record<string, string>;
  /** What stands in a command line for what the README can't know, e.g. an id that is made on the way. */
  readonly substitutions: Map<string, string>;
  run(line: string): Promise<Output>;
  start(line: string): Going;
  write(name: string, content: string): Promise<void>;
  read(name: string): Promise<string>;
  close(): Promise<void>;
}

export async function openReadmeWorld(): Promise<ReadmeWorld> {
  // A server of root's runs as another user, who has to get there.
  const directory = await mkdtemp(join(tmpdir(), 'fleet-cutover-readme-'));
  await chmod(directory, 0o755);
  await demandDone(
    runProgram(process.execPath, [typescript, '-b', 'tsconfig.build.json'], { cwd: projectRoot }),
    'the build',
  );
  const bin = join(directory, 'bin');
  await mkdir(bin);
  await symlink(join(projectRoot, 'dist'), join(directory, 'dist'));
  const command = `#!/bin/sh\nexec node '${join(projectRoot, 'dist', 'cli', 'main.js')}' "$@"\n`;
  await writeFile(join(bin, 'fleet-cutover'), command, { mode: 0o755 });
  const scripts = await builtScripts();
  const environment: Record<string, string> = {
    PATH: `${bin}:${process.env['PATH'] ?? ''}`,
    HOME: directory,
    EMBEDDED_DATA_DIR: join(directory, '.data', 'postgres'),
    PORT: '0',
  };
  const substitutions = new Map<string, string>();
  const going = new Set<ChildProcess>();

  const spawned = (line: string) => {
    let text = scripts.get(line) ?? line;
    for (const [from, to] of substitutions) text = text.replaceAll(from, to);
    const child = spawn('sh', ['-c', text], { cwd: directory, env: environment, stdio: ['ignore', 'pipe', 'pipe'] });
    const output = { stdout: '', stderr: '' };
    child.stdout.on('data', (chunk: Buffer) => (output.stdout += chunk.toString()));
    child.stderr.on('data', (chunk: Buffer) => (output.stderr += chunk.toString()));
    going.add(child);
    const ended = once(child, 'close').then(([code]): Output => {
      going.delete(child);
      return { code: code as number | null, ...output };
    });
    return { child, output, ended };
  };

  return {
    directory,
    environment,
    substitutions,
    run: (line) => spawned(line).ended,
    start: (line) => {
      // In place of the shell, so that a signal reaches the program.
      const { child, output, ended } = spawned(`exec ${scripts.get(line) ?? line}`);
      return {
        says: (text) =>
          new Promise((resolve, reject) => {
            const look = () => {
              const said = `${output.stdout}${output.stderr}`;
              if (text.test(said)) resolve(said);
            };
            child.stdout.on('data', look);
            child.stderr.on('data', look);
            look();
            void ended.then(({ code, stdout, stderr }) =>
              reject(new Error(`ended with ${code} before it said ${text}: ${stdout}${stderr}`)),
            );
          }),
        end: (signal) => {
          child.kill(signal);
          return ended;
        },
      };
    },
    write: (name, content) => writeFile(join(directory, name), content, { mode: 0o600 }),
    read: (name) => readFile(join(directory, name), 'utf8'),
    close: async () => {
      for (const child of going) {
        child.kill('SIGTERM');
        await once(child, 'close');
      }
      await stopUnusedEmbedded(environment['EMBEDDED_DATA_DIR'] ?? '');
      await rm(directory, { recursive: true, force: true });
    },
  };
}

/**
 * `npm start` and `npm run X` by what `package.json` says of them. The build that they begin with was made; npm itself is
 * left out, since it does not hand every signal on.
 */
async function builtScripts(): Promise<ReadonlyMap<string, string>> {
  const manifest = JSON.parse(await readFile(join(projectRoot, 'package.json'), 'utf8')) as {
    scripts: Record<string, string>;
  };
  const build = 'npm run build && ';
  return new Map(
    Object.entries(manifest.scripts)
      .filter(([, script]) => script.startsWith(build))
      .map(([name, script]) => [name === 'start' ? 'npm start' : `npm run ${name}`, script.slice(build.length)]),
  );
}
