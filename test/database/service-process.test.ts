import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

const ROOT = join(import.meta.dirname, '..', '..');

interface Ended {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** A program of this project in a process of its own, as it was built. */
class Program {
  readonly child: ChildProcess;
  readonly ended: Promise<Ended>;
  #stdout = '';
  #stderr = '';

  constructor(file: string, args: readonly string[], environment: Record<string, string>) {
    this.child = spawn(process.execPath, [join(ROOT, 'dist', file), ...args], {
      cwd: ROOT,
      env: { PATH: process.env.PATH, HOME: process.env.HOME, ...environment },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.child.stdout?.on('data', (chunk: Buffer) => (this.#stdout += chunk.toString()));
    this.child.stderr?.on('data', (chunk: Buffer) => (this.#stderr += chunk.toString()));
    this.ended = once(this.child, 'close').then(([code]) => ({ code, stdout: this.#stdout, stderr: this.#stderr }));
  }

  /** Waits for the log to say it; gives what it said until then. */
  async says(text: string): Promise<string> {
    for (let tries = 0; tries < 600; tries += 1) {
      if (this.#stdout.includes(text)) return this.#stdout;
      if (this.child.exitCode !== null) break;
      await sleep(50);
    }
    throw new Error(`"${text}" was not said in: ${this.#stdout} ${this.#stderr}`);
  }

  async stop(): Promise<Ended> {
    this.child.kill('SIGTERM');
    return this.ended;
  }
}

let directory: string;
let settings: Record<string, string>;
let service: Program;
let url: string;

async function start(more: Record<string, string> = {}): Promise<Program> {
  const program = new Program('main.js', [], { ...settings, ...more });
  const log = await program.says('Server listening');
  url = /Server listening at (http:\/\/[^"]+)/.exec(log)?.[1] ?? '';
  return program;
}

const host = (...args: string[]): Promise<Ended> => new Program('cli/main.js', ['host', ...args], settings).ended;
const run = { timeout: 120_000 };

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'fleet-cutover-process-'));
  // The server of a root user runs as another one, who has to get there.
  await chmod(directory, 0o755);
  settings = { EMBEDDED_DATA_DIR: join(directory, 'postgres'), PORT: '0', LOG_LEVEL: 'trace' };
});
afterAll(async () => {
  if (service?.child.exitCode === null) await service.stop();
  await rm(directory, { recursive: true, force: true });
}, 60_000);

describe('the service’s process', () => {
  it('starts from nothing, with full separation, and says how to get the first token', run, async () => {
    service = await start();
    const log = await service.says('host bootstrap --organization');
    expect(log).not.toMatch(/fc\./);
    const ready = await fetch(`${url}/readiness`);
    expect(ready.status).toBe(200);
    expect(await ready.json()).toMatchObject({ ready: true, separation: 'full', database: 'embedded' });
  });

  it('prints the first administrator’s token once, beside the running service', run, async () => {
    const boot = await host('bootstrap', '--organization', 'acme', '--principal', 'alice');
    expect(boot.code).toBe(0);
    expect(boot.stdout).toMatch(/^fc\.ad-[0-9a-f]{32}\.[A-Za-z0-9_-]{43}\n$/);
    const token = boot.stdout.trim();
    expect(boot.stderr).not.toContain(token);
    const listed = await fetch(`${url}/requests/fleet/listClusters`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
      body: '{}',
    });
    expect(await listed.json()).toEqual({ clusters: [] });

    const again = await host('bootstrap', '--organization', 'acme', '--principal', 'bob');
    expect([again.code, again.stdout]).toEqual([1, '']);
    expect(again.stderr).toContain('--additional');
    const more = await host('bootstrap', '--organization', 'acme', '--principal', 'bob', '--additional');
    expect(more.code).toBe(0);
    const credentialId = token.split('.')[1] ?? '';
    expect((await host('revoke-credential', credentialId)).code).toBe(0);
    const refused = await fetch(`${url}/requests/fleet/listClusters`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token}` },
    });
    expect(refused.status).toBe(401);
  });

  it('says what is wrong with a command line, with exit code 2', run, async () => {
    const lines = [['bootstrap'], ['bootstrap', '--organization', 'a b', '--principal', 'x'], ['nonsense']];
    for (const ended of await Promise.all(lines.map((args) => host(...args)))) {
      expect([ended.code, ended.stdout]).toEqual([2, '']);
      expect(ended.stderr).not.toBe('');
    }
  });

  it('refuses a second service on the same data, clearly and without a stack trace', run, async () => {
    const second = await new Program('main.js', [], settings).ended;
    expect(second.code).toBe(1);
    expect(second.stderr).toContain('embedded-in-use');
    expect(second.stderr).toContain(String(service.child.pid));
    expect(second.stderr).not.toMatch(/^\s+at /m);
    expect((await fetch(`${url}/health`)).status).toBe(200);
  });

  it('refuses a port in use likewise, and leaves no database behind', run, async () => {
    const { port } = new URL(url);
    const data = join(directory, 'other');
    const second = await new Program('main.js', [], { ...settings, EMBEDDED_DATA_DIR: data, PORT: port }).ended;
    expect(second.code).toBe(1);
    expect(second.stderr).toContain('EADDRINUSE');
    expect(second.stderr).not.toMatch(/^\s+at /m);
    expect(await processesIn(data)).toBe('');
  });

  it('refuses settings that it can’t start with', run, async () => {
    const ended = await new Program('main.js', [], { ...settings, PORT: 'seventy' }).ended;
    expect(ended.code).toBe(1);
    expect(ended.stderr).toContain('PORT');
    expect(ended.stderr).not.toMatch(/^\s+at /m);
  });

  it('ends on SIGTERM with its database, and finds everything again', run, async () => {
    const ended = await service.stop();
    expect(ended.code).toBe(0);
    expect(ended.stdout).toContain('"msg":"stopped"');
    expect(await processesIn(settings.EMBEDDED_DATA_DIR ?? '')).toBe('');
    service = await start();
    const listed = await host('bootstrap', '--organization', 'acme', '--principal', 'carol');
    expect(listed.stderr).toContain('--additional');
  });

  it('is ended at once by a second signal', run, async () => {
    service.child.kill('SIGINT');
    service.child.kill('SIGTERM');
    const ended = await Promise.race([service.ended, sleep(10_000)]);
    expect(ended).toBeDefined();
    // Where the first signal had not ended it, the database lives on and the next start adopts it.
    service = await start();
    expect((await fetch(`${url}/health`)).status).toBe(200);
  });
});

/** Command lines that name the directory. */
function processesIn(path: string): Promise<string> {
  return new Promise((resolve) => {
    execFile('pgrep', ['-af', `postgres.*${path}`], (_error, stdout) => resolve(stdout));
  });
}
