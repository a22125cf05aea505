/** A disk that fills up under the database, where this user may mount a small one. */
import { spawnSync } from 'node:child_process';
import { chmod, mkdir, rm, statfs, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { makeDataDirectory } from '../support/kill-postgres.js';
import { runHostCommand, startServiceProcess } from '../support/kill-process.js';
import { openRawClient, oracleMutationId } from '../support/oracle-http.js';
import type { Deadline } from './deadline.js';
import type { Tally } from './tally.js';

const SIZE = '160m';

export async function runDiskFull(tally: Tally, until: Deadline, say: (text: string) => void): Promise<void> {
  const directory = await makeDataDirectory();
  const disk = join(directory, 'disk');
  await mkdir(disk);
  const mounted =
    process.platform === 'linux' &&
    spawnSync('mount', ['-t', 'tmpfs', '-o', `size=${SIZE}`, 'tmpfs', disk]).status === 0;
  try {
    if (!mounted) return say('disk full: skipped, this user may not mount a tmpfs');
    await chmod(disk, 0o711);
    await fillUp(disk, tally, until);
  } finally {
    if (mounted) spawnSync('umount', [disk]);
    await rm(directory, { recursive: true, force: true });
  }
}

async function fillUp(disk: string, tally: Tally, until: Deadline): Promise<void> {
  const environment = { EMBEDDED_DATA_DIR: join(disk, 'postgres'), LOG_LEVEL: 'info' };
  let service = await startServiceProcess({ environment });
  const issued = await runHostCommand(
    ['host', 'bootstrap', '--organization', 'acme', '--principal', 'ada'],
    environment,
  );
  const client = openRawClient(service.url, issued.stdout.trim());
  const ballast = join(disk, 'ballast');
  const acknowledged: string[] = [];
  const unsettled: string[] = [];
  const create = async (): Promise<number> => {
    const mutationId = oracleMutationId('full');
    const answer = await client.owner('createService', { mutationId, name: `${mutationId}-${'x'.repeat(200)}` });
    (answer.status === 200 ? acknowledged : unsettled).push(mutationId);
    if (answer.status === 500) tally.serverErrors.push(`disk full: ${answer.text}`);
    return answer.status;
  };
  try {
    for (let index = 0; index < 20; index += 1) await create();
    const { bavail, bsize } = await statfs(disk);
    await writeFile(ballast, Buffer.alloc(Number(bavail) * Number(bsize)));
    const statuses = new Set<number>();
    // Until the log's next segment is needed, there is room in this one.
    for (let index = 0; index < 30_000 && !statuses.has(503) && !statuses.has(0) && !until.isOver(); index += 1)
      statuses.add(await create());
    if (!statuses.has(503) && !statuses.has(0)) tally.wrong.push('the disk was never full');
    await rm(ballast);
    // Postgres ends itself where it can't write its log; then the service does, and both come back.
    const up = await client.owner('listClusters', {});
    if (up.status !== 200) {
      service.child.kill('SIGTERM');
      await service.ended;
      service = await startServiceProcess({ environment });
      client.url = service.url;
    }
    if ((await create()) !== 200) tally.wrong.push('nothing can be written though there is room again');
    const names = await allServices(client);
    for (const id of acknowledged) if (!names.has(id)) tally.lost.push(`disk full: ${id}`);
    tally.acknowledged += acknowledged.length;
  } finally {
    await client.close();
    service.child.kill('SIGTERM');
    await service.ended;
  }
}

async function allServices(client: ReturnType<typeof openRawClient>): Promise<Set<string>> {
  await client.owner('createCluster', {
    mutationId: oracleMutationId(),
    clusterId: 'disk',
    controllerId: 'c',
    runtimeNamespace: 'r',
  });
  const names = new Set<string>();
  let cursor: string | null = null;
  do {
    const page: { services: { name: string }[]; nextCursor: string | null } = await client.done('listServices', {
      clusterId: 'disk',
      cursor,
      limit: 1000,
    });
    for (const { name } of page.services) names.add(name.replace(/-x+$/, ''));
    cursor = page.nextCursor;
  } while (cursor !== null);
  return names;
}
