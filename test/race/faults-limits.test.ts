/** What is full, slow, too large or too many: refused in words, and nobody else notices. */
import { connect, type Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { buildFaultFleet, type FaultFleet, nextReport, prepareBody, upsertOf } from '../support/fault-fleet.js';
import { openFaultService } from '../support/kill-service.js';
import {
  type AnswerBody,
  observationPath,
  openRawClient,
  oracleMutationId,
  type RawClient,
} from '../support/oracle-http.js';
import { countRows } from '../support/oracle-outcome.js';
import { startService, type TestService } from '../support/service.js';

let service: TestService;
let client: RawClient;
let fleet: FaultFleet;
beforeAll(async () => {
  service = await startService({ logLevel: 'silent', requestTimeoutMs: 4_000 });
  client = openRawClient(service.url, service.token);
  fleet = await buildFaultFleet(client, 'full', { nodes: 2, volumesPerNode: 3 });
});
afterAll(async () => {
  await client.close();
  await service.close();
});

const prepare = (capacity: number) =>
  prepareBody(fleet, { expectedAggregate: null, upserts: [upsertOf(fleet.keys[0]!, capacity)] });

/** Everything that a mutation of handoffs may write. */
async function written(): Promise<number[]> {
  const tables = [
    'audit_rows',
    'aggregate_revisions',
    'handoff_revisions',
    'handoff_heads',
    'volumes',
    'handoff_pages',
  ];
  return Promise.all(tables.map((table) => countRows(service.database.owner, table, 'true')));
}

describe('an audit that can’t be written', () => {
  it('keeps everything from being written, and says so', async () => {
    const { owner } = service.database;
    const before = await written();
    await owner.query(`alter table control.audit_rows add constraint no_more check (mutation_id not like 'audit-%')`);
    try {
      const body = { ...prepare(1), mutationId: 'audit-1' };
      const answer = await client.owner('prepareFleetCutoverVolumeHandoffs', body);
      expect([answer.status, answer.body.code, answer.body.mutationOutcome]).toEqual([500, 'internal', 'not-applied']);
      const other = await client.owner('createService', { mutationId: 'audit-2', name: 'unaudited' });
      expect([other.status, other.body.mutationOutcome]).toEqual([500, 'not-applied']);
      expect(await written()).toEqual(before);
      expect(await countRows(owner, 'services', `name = 'unaudited'`)).toBe(0);
    } finally {
      await owner.query('alter table control.audit_rows drop constraint no_more');
    }
    expect((await client.owner('createService', { mutationId: 'audit-2', name: 'unaudited' })).body.replayed).toBe(
      false,
    );
  });

  it('is no chain without its head', async () => {
    const { owner } = service.database;
    const before = await written();
    await owner.query(`update control.audit_heads set chain_id = 'elsewhere' where chain_id = 'full'`);
    try {
      const answer = await client.owner('prepareFleetCutoverVolumeHandoffs', prepare(2));
      expect([answer.status, answer.body.mutationOutcome]).toEqual([500, 'not-applied']);
      expect(await written()).toEqual(before);
    } finally {
      await owner.query(`update control.audit_heads set chain_id = 'full' where chain_id = 'elsewhere'`);
    }
  });
});

describe('a database that is slow or short of connections', () => {
  it('ends a statement at its timeout: 503, not applied, repeatable', async () => {
    const slow = await openFaultService({ url: service.database.serviceUrl, statementTimeoutMs: 150 });
    const { owner } = service.database;
    const holder = await owner.connect();
    const there = openRawClient(slow.url, service.token);
    try {
      await holder.query('begin');
      await holder.query(`select from control.runtime_heads where cluster_id = 'full' for update`);
      const answer = await there.owner('prepareFleetCutoverVolumeHandoffs', prepare(3));
      expect([answer.status, answer.body.code]).toEqual([503, 'unavailable']);
      expect(answer.body).toMatchObject({ mutationOutcome: 'not-applied', retrySafe: true });
      expect(answer.headers['retry-after']).toBe('1');
      const report = await there.spark(observationPath, nextReport(fleet, fleet.nodes[1]!, 'slow'));
      expect([report.status, report.body.retrySafe]).toEqual([503, true]);
    } finally {
      await holder.query('rollback');
      holder.release();
      await there.close();
      await slow.close();
    }
  });

  it('serves 50 requests at once with a pool of two', async () => {
    const narrow = await openFaultService({ url: service.database.serviceUrl, poolSize: 2 });
    const there = openRawClient(narrow.url, service.token);
    try {
      const answers = await Promise.all(
        Array.from({ length: 50 }, (_, index) => {
          if (index % 3 === 0) return there.owner('readFleetCutoverState', { clusterId: 'full' });
          if (index % 3 === 1)
            return there.owner('createService', { mutationId: oracleMutationId(), name: `narrow-${index}` });
          return there.owner('prepareFleetCutoverVolumeHandoffs', { ...prepare(index), dryRun: true });
        }),
      );
      expect(answers.map((answer) => answer.status)).toEqual(Array(50).fill(200));
    } finally {
      await there.close();
      await narrow.close();
    }
  });
});

describe('reports at the contract’s limits', () => {
  const census = 4_194_304;

  /** A report of exactly so many bytes, with an even fill of volumes. */
  function reportOfBytes(bytes: number): string {
    const report = nextReport(fleet, fleet.nodes[1]!, `of ${bytes}`);
    const { volumes } = report.observation.fleetCutoverLocalNodeSnapshot;
    const room = (): number => bytes - Buffer.byteLength(JSON.stringify(report));
    const volume = (index: number, length: number) => ({
      name: `w${index}`,
      driver: 'local',
      options: null,
      mountpoint: 'm'.repeat(length),
    });
    const size = JSON.stringify(volume(1_000, 3_000)).length + 1;
    const count = Math.floor((room() - 10_000) / size);
    for (let index = 0; index < count; index += 1) volumes.push(volume(index + 1_000, 3_000));
    for (let index = 0; room() > 0; index += 1) {
      const empty = JSON.stringify(volume(index + 9_000, 0)).length + 1;
      const length = room() - empty;
      // The last one takes the rest; a rest smaller than a volume is avoided.
      volumes.push(volume(index + 9_000, length > 4_000 ? 2_000 : length));
    }
    return JSON.stringify(report);
  }

  it('takes the whole 4 MiB of a census, and not one byte more', async () => {
    const whole = reportOfBytes(census);
    expect(Buffer.byteLength(whole)).toBe(census);
    const taken = await client.send(observationPath, whole, {});
    expect([taken.status, taken.body.localSnapshot?.state]).toEqual([200, 'accepted']);
    const over = reportOfBytes(census + 1);
    expect(Buffer.byteLength(over)).toBe(census + 1);
    const refused = await client.send(observationPath, over, {});
    expect([refused.status, refused.body.code]).toEqual([413, 'body-too-large']);
  });

  it('takes 4,096 live tasks, and not one more', async () => {
    const [node] = fleet.nodes;
    const withTasks = (live: number): AnswerBody => {
      const report = nextReport(fleet, node!);
      const { fleetCutoverManagerSnapshot: snapshot } = report.observation;
      while (snapshot.tasks.length < live) {
        snapshot.tasks.push({
          ...snapshot.tasks[0],
          id: `task-${snapshot.tasks.length}`,
          nodeId: null,
          slot: 1,
          state: 'pending',
          containerId: null,
        });
      }
      // One that has ended does not count.
      snapshot.tasks.push({ ...snapshot.tasks[0], id: 'ended', slot: 9, state: 'shutdown', containerId: null });
      return report;
    };
    const taken = await client.spark(observationPath, withTasks(4_096));
    expect([taken.status, taken.body.managerSnapshot?.state]).toEqual([200, 'accepted']);
    const refused = await client.spark(observationPath, withTasks(4_097));
    expect([refused.status, refused.body.code]).toEqual([400, 'body-schema']);
    // The tasks are gone again for the other tests.
    expect((await client.spark(observationPath, nextReport(fleet, node!))).status).toBe(200);
  });

  it('takes 32 mounts of a container, refuses the 33rd, and lets a count of more block', async () => {
    const node = fleet.nodes[1]!;
    const report = nextReport(fleet, node);
    const [container] = report.observation.fleetCutoverLocalNodeSnapshot.containers;
    const mount = (index: number) => ({
      ...container.mounts[0],
      name: `m${index}`,
      source: `/var/lib/docker/volumes/m${index}/_data`,
      destination: `/m/${index}`,
    });
    container.mounts = Array.from({ length: 33 }, (_, index) => mount(index));
    const refused = await client.spark(observationPath, report);
    expect([refused.status, refused.body.code]).toEqual([400, 'body-schema']);
    container.mounts.pop();
    container.mountsBeyond = 1;
    expect((await client.spark(observationPath, report)).status).toBe(200);
    const state = await client.done('readFleetCutoverState', { clusterId: 'full' });
    expect(state.blockers).toContainEqual({ code: 'mount-limit', count: 1 });
  });
});

describe('hostile clients', () => {
  it('a flood of failed logins keeps no valid token out', async () => {
    const wrong = `fc.nobody.${'A'.repeat(43)}`;
    const { clusterId } = fleet;
    const node = fleet.nodes[1]!;
    let flooding = true;
    const seen = new Set<number>();
    const flood = Array.from({ length: 8 }, async () => {
      while (flooding) {
        seen.add((await client.owner('readFleetCutoverState', { clusterId }, wrong)).status);
        // Also in the name of a node that exists.
        seen.add(
          (await client.spark(observationPath, { ...nextReport(fleet, { ...node }), nodeToken: 'B'.repeat(43) }))
            .status,
        );
      }
    });
    const valid: number[] = [];
    for (let index = 0; index < 25; index += 1) {
      valid.push((await client.owner('readFleetCutoverState', { clusterId })).status);
      valid.push((await client.spark(observationPath, nextReport(fleet, node))).status);
    }
    flooding = false;
    await Promise.all(flood);
    expect(new Set(valid)).toEqual(new Set([200]));
    expect([...seen].sort()).toEqual([401, 429]);
  });

  it('bodies that trickle in hold up nobody, and end with 408', async () => {
    const { hostname, port } = new URL(service.url);
    const paths = [observationPath, '/requests/fleet/createService'];
    const slow = Array.from({ length: 100 }, (_, index) =>
      trickle(Number(port), hostname, paths[index % 2]!, service.token),
    );
    for (let index = 0; index < 10; index += 1) {
      expect((await client.owner('readFleetCutoverState', { clusterId: 'full' })).status).toBe(200);
      expect((await client.spark(observationPath, nextReport(fleet, fleet.nodes[1]!))).status).toBe(200);
    }
    const answers = await Promise.all(slow);
    expect(new Set(answers.map((answer) => answer.slice(0, 12)))).toEqual(new Set(['HTTP/1.1 408']));
  });
});

/** Sends a byte now and then of a body that never ends; gives what was answered. */
async function trickle(port: number, host: string, path: string, token: string): Promise<string> {
  const socket: Socket = connect(port, host);
  socket.on('error', () => {});
  socket.write(
    `POST ${path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nauthorization: Bearer ${token}\r\ncontent-length: 2000\r\n\r\n{`,
  );
  const timer = setInterval(() => socket.writable && socket.write(' '), 300);
  try {
    return (await socket.toArray()).join('');
  } catch {
    return '';
  } finally {
    clearInterval(timer);
    socket.destroy();
  }
}
