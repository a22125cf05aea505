/**
 * A process beside the one that has a temporary database, to outlive it: removes the directory in `argv[2]` and the server in
 * it when that process ends, in whatever way. It knows by the channel between them, which the system closes.
 */
import { access, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { livingPostmaster } from './db/embedded/postmaster.js';

/** What the ended process had begun, a server that starts or a cluster that is being made, needs so long to see that it is over. */
const QUIET_MS = 500;
const PAUSE_MS = 20;

async function removeAll(directory: string): Promise<void> {
  const cluster = join(directory, 'server', 'cluster');
  for (let goneFor = 0; goneFor < QUIET_MS; goneFor += PAUSE_MS) {
    // Its data are thrown away: it need not write them.
    const server = await livingPostmaster({ cluster }).catch(() => undefined);
    if (server !== undefined) end(server.pid);
    else await rm(directory, { recursive: true, force: true }).catch(() => {});
    if (await exists(directory)) goneFor = -PAUSE_MS;
    await sleep(PAUSE_MS);
  }
}

function end(pid: number): void {
  try {
    process.kill(pid, 'SIGQUIT');
  } catch {
    // It has ended since we looked.
  }
}

function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

const [, , directory] = process.argv;
if (directory === undefined || process.send === undefined) throw new Error('this is started by temporary-database.ts');
// Whoever ends a whole group of processes means the other one.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => {});
process.once('disconnect', () => {
  // After an orderly end there is nothing to wait for.
  void exists(directory).then((left) => (left ? removeAll(directory) : undefined));
});
process.send('ready');
