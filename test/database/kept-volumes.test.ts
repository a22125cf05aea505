import { copyFile, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../src/clock.js';
import type { IFleetCutoverGate } from '../../src/contract/gate.js';
import type { IFleetCutoverRequiredEntry } from '../../src/contract/derivation.js';
import { referenceOf } from '../../src/contract/schema.js';
import { migrate } from '../../src/db/migrate.js';
import { verify } from '../../src/features/verify/verify.js';
import { anonymousVolume, type Cutover, cutover, keeper } from '../support/cutover.js';
import { createEmptyDatabase, type TestDatabase } from '../support/database.js';
import { gatesBothWays } from '../support/gate-view.js';
import { mutationId, startService, type TestService } from '../support/service.js';
import { container, taskContainer, volumeMount } from '../support/snapshots.js';

const MIGRATIONS = join(import.meta.dirname, '..', '..', 'migrations');

let service: TestService;
let bob: string;
let made = 0;
beforeAll(async () => {
  service = await startService({ logLevel: 'warn' });
  const issued = await service.done('issueAdministratorToken', {
    mutationId: mutationId(),
    principalId: 'bob',
    role: 'administrator',
  });
  bob = issued.secrets[0]!.secret;
});
afterAll(() => service.close());

/** Everything is there but what a test takes away. */
async function readyFor(phase: 'switching' | 'pallet'): Promise<Cutover> {
  made += 1;
  const cut = await cutover(service, `kv-${made}`, { kept: true });
  await cut.bringTo(phase === 'switching' ? 'draining' : 'switching');
  await cut.readyFor(phase);
  expect(await cut.unmet()).toEqual([]);
  return cut;
}

const shown = (gates: readonly IFleetCutoverGate[]) =>
  gates.map(({ code, missingCount, missing, acts }) => [code, missingCount, missing[0]?.detail, acts]);
const unkept = [
  'anonymous-volumes-kept',
  1,
  `anonymous volume ${anonymousVolume} at /data/anonymous goes with its service: create a container outside Swarm that mounts ` +
    'it, or copy it to a named volume and release the entry',
  'administrator',
];
const gone = (volume: string, path: string) => [
  'volumes-present',
  1,
  `volume ${volume} at ${path} is not on the node any more: write it off, or before switching release the entry`,
  'administrator',
];

function withoutKeeper(cut: Cutover): Promise<unknown> {
  const [node] = cut.world.nodes;
  node!.containers = node!.containers.filter((each) => each.id !== keeper().id);
  return cut.report(0);
}
function withKeeper(cut: Cutover): Promise<unknown> {
  cut.world.nodes[0]!.containers.push(keeper());
  return cut.report(0);
}

describe('an anonymous volume on the way to switching', () => {
  it('holds the phase back until something keeps it, and again when that goes', async () => {
    const cut = await readyFor('switching');
    for (const _time of [1, 2]) {
      await withoutKeeper(cut);
      const unmet = await cut.unmet();
      expect(shown(unmet)).toEqual([unkept]);
      expect(unmet[0]!.missing).toMatchObject([{ nodeId: cut.nodeIds[0], swarmServiceId: 'app-0' }]);
      expect(unmet[0]!.evidence).toHaveLength(3);
      expect((await cut.advance('switching')).body).toMatchObject({ code: 'gate-unmet', detail: unkept[0] });
      await withKeeper(cut);
      expect(await cut.unmet()).toEqual([]);
    }
    // A keeper that is there and not confirmed blocks the entry instead; a bind keeps nothing.
    cut.world.nodes[0]!.containers.push(container('other', { mounts: [volumeMount(anonymousVolume, '/other')] }));
    await withoutKeeper(cut);
    expect((await cut.unmet()).map(({ code }) => code)).toEqual(['no-blocker', 'aggregate-current']);
    cut.world.nodes[0]!.containers.pop();
    await withKeeper(cut);
    expect((await cut.advance('switching')).body.gates!.map(({ code }) => code)).toContain('anonymous-volumes-kept');
  });

  it('is asked of the service and the node that have it, and of nobody else', async () => {
    const cut = await readyFor('switching');
    await withoutKeeper(cut);
    const codes = async (subject: Parameters<Cutover['explain']>[0]) =>
      (await cut.explain(subject)).gates.map(({ code, missingCount }) => [code, missingCount]);
    const [own, other] = [0, 1].map((node) => cut.fleet.owner(`${cut.clusterId}-app-${node}`)) as [string, string];
    expect(await codes({ kind: 'node', nodeId: cut.nodeIds[0]! })).toEqual([[unkept[0], 1]]);
    expect(await codes({ kind: 'service', serviceId: own })).toEqual([[unkept[0], 1]]);
    expect(await codes({ kind: 'node', nodeId: cut.nodeIds[1]! })).toEqual([]);
    expect(await codes({ kind: 'service', serviceId: other })).toEqual([]);
  });

  it('needs no keeper once its entry is released, as after a copy', async () => {
    const cut = await readyFor('switching');
    await withoutKeeper(cut);
    const { nodeId, serviceId, mountIdentityDigest } = await entryOf(cut, anonymousVolume);
    const key = { nodeId, serviceId, mountIdentityDigest };
    const released = { ...cut.statement, releasedEntries: [{ ...key, reason: 'its data is copied' }] };
    expect((await cut.classify(released)).status).toBe(200);
    const state = await cut.fleet.state();
    await service.done('prepareFleetCutoverVolumeHandoffs', {
      mutationId: mutationId(),
      clusterId: cut.clusterId,
      runtime: await cut.runtime(),
      scope: state.scope!,
      expectedAggregate: referenceOf(state.aggregate!),
      upserts: [],
      removals: [key],
    });
    await cut.holdAll();
    expect(await cut.unmet()).toEqual([]);
  });

  it('that is gone before is not waved through, whatever is said to keep it', async () => {
    const cut = await readyFor('switching');
    const [node] = cut.world.nodes;
    node!.containers = node!.containers.map((each) => ({
      ...each,
      mounts: each.mounts.filter(({ name }) => name !== anonymousVolume),
    }));
    node!.volumes = node!.volumes.filter((name) => name !== anonymousVolume);
    await cut.report(0);
    expect(shown(await cut.unmet())).toEqual([gone(anonymousVolume, '/data/anonymous')]);
  });
});

describe('a node that was derived by a program that does not look at volumes', () => {
  const unjudged = ['volumes-present', 'anonymous-volumes-kept'].map((code) => [
    code,
    1,
    'its volumes were not judged yet: its next report judges them',
    'spark',
  ]);
  const withoutKeys = `detail = detail - 'unkept' - 'vanished'`;

  /** `counts`: as the columns are after the migration that adds them. */
  async function deriveAsBefore(cut: Cutover, node: number, counts = ''): Promise<void> {
    const { rowCount } = await service.database.owner.query(
      `update control.node_gate_facts set ${counts} ${withoutKeys} where cluster_id = $1 and node_id = $2`,
      [cut.clusterId, cut.nodeIds[node]],
    );
    expect(rowCount).toBe(1);
  }
  const asMigrated = 'unkept_volumes = null, vanished_volumes = null,';
  const derivations = async (cut: Cutover) =>
    // Whoever derives locks the row, and leaves its transaction there.
    (
      await service.database.owner.query<{ by: string }>(
        'select xmax::text as by from control.derivation_heads where cluster_id = $1',
        [cut.clusterId],
      )
    ).rows[0]!.by;
  const agreed = async (cut: Cutover) => {
    const { view, program } = await gatesBothWays(service, cut.clusterId);
    expect(view).toEqual(program);
    expect(await verify(service.deps, { clusterId: cut.clusterId, remembered: [] })).toMatchObject({ findings: [] });
  };

  it.each(['switching', 'pallet'] as const)(
    'meets neither gate to %s until its next report, which may be the same as before',
    async (phase) => {
      const cut = await readyFor(phase);
      await deriveAsBefore(cut, 1, asMigrated);
      const unmet = await cut.unmet();
      expect(shown(unmet)).toEqual(unjudged);
      expect(unmet[0]!.missing).toMatchObject([{ nodeId: cut.nodeIds[1], swarmServiceId: null }]);
      await agreed(cut);
      // Another node's report says nothing of it.
      const before = await derivations(cut);
      await cut.report(2);
      expect(shown(await cut.unmet())).toEqual(unjudged);
      expect(await derivations(cut)).toBe(before);

      const revision = (await cut.fleet.state()).derivation;
      expect((await cut.report(1)).body).toMatchObject({ localSnapshot: { state: 'unchanged' } });
      expect(await cut.unmet()).toEqual([]);
      expect((await cut.fleet.state()).derivation).toEqual(revision);
      await agreed(cut);
      // From then on a report that changes nothing derives nothing.
      const judged = await derivations(cut);
      expect(judged).not.toBe(before);
      await cut.report(1);
      expect(await derivations(cut)).toBe(judged);
    },
  );

  it('takes its counts for nothing while an old replica takes reports, too', async () => {
    const cut = await readyFor('switching');
    const { rows } = await service.database.owner.query(
      'select unkept_volumes, vanished_volumes from control.node_gate_facts where cluster_id = $1 and node_id = $2',
      [cut.clusterId, cut.nodeIds[0]],
    );
    expect(rows).toEqual([{ unkept_volumes: '0', vanished_volumes: '0' }]);
    await withoutKeeper(cut);
    // The old replica took that report: it wrote the detail that it knows, and left the counts of the report before.
    await deriveAsBefore(cut, 0, 'unkept_volumes = 0, vanished_volumes = 0,');
    expect(shown(await cut.unmet())).toEqual(unjudged);
    expect((await cut.advance('switching')).body).toMatchObject({ code: 'gate-unmet' });
    await agreed(cut);
    await cut.report(0);
    expect(shown(await cut.unmet())).toEqual([unkept]);
    // What is known of one node is for a person to do, whatever is not known of another.
    await deriveAsBefore(cut, 1);
    expect((await cut.unmet()).map(({ code, missingCount, acts }) => [code, missingCount, acts])).toEqual([
      ['volumes-present', 1, 'spark'],
      ['anonymous-volumes-kept', 2, 'administrator'],
    ]);
    await agreed(cut);
  });

  it('is judged by a report without a snapshot, and where it is revoked by the next scope', async () => {
    const cut = await readyFor('switching');
    await deriveAsBefore(cut, 1, asMigrated);
    await cut.hold(1, 0);
    expect(await cut.unmet()).toEqual([]);
    const nodeId = cut.nodeIds[2]!;
    await cut.accept(cut.nodeIds.slice(0, 2));
    await service.done('revokeNode', { mutationId: mutationId(), clusterId: cut.clusterId, nodeId });
    await deriveAsBefore(cut, 2, asMigrated);
    const gates = async () =>
      (await cut.explain()).gates.filter(({ code }) => unjudged.some(([each]) => each === code));
    expect((await gates()).map(({ missingCount, acts, missing }) => [missingCount, acts, missing[0]!.detail])).toEqual(
      unjudged.map(() => [
        1,
        'administrator',
        'its volumes were not judged yet, and it is revoked: classify the scope again before switching, or write the node off',
      ]),
    );
    expect((await cut.classify()).status).toBe(200);
    expect((await gates()).map(({ met }) => met)).toEqual([true, true]);
  });

  it('comes through a real upgrade: the database of 0005 with its rows, migrated to the newest', async () => {
    const cut = await readyFor('switching');
    await withoutKeeper(cut);
    const old = await createEmptyDatabase();
    const directory = await mkdtemp(join(tmpdir(), 'fleet-cutover-upgrade-'));
    const clock = systemClock;
    try {
      const names = (await readdir(MIGRATIONS)).filter((name) => name < '0006');
      expect(names).toHaveLength(5);
      for (const name of names) await copyFile(join(MIGRATIONS, name), join(directory, name));
      await migrate({ ownerUrl: old.ownerUrl, serviceUrl: old.serviceUrl, directory, clock });
      await copyRows(service.database, old);
      await old.owner.query(`update control.node_gate_facts set ${withoutKeys}`);
      const { ownerUrl, serviceUrl } = old;
      expect((await migrate({ ownerUrl, serviceUrl, directory: MIGRATIONS, clock })).applied).toEqual([6, 7, 8, 9]);
      expect(await verify({ ...service.deps, db: old.db }, { clusterId: null, remembered: [] })).toMatchObject({
        clean: true,
        skipped: [],
      });
      const unmet = async (database: TestDatabase) =>
        (
          await database.owner.query<{ gate: string; missing: number }>(
            'select gate, missing_count::int as missing from operator.gates where cluster_id = $1 and not met order by place',
            [cut.clusterId],
          )
        ).rows.map(({ gate, missing }) => [gate, missing]);
      expect(await unmet(service.database)).toEqual([['anonymous-volumes-kept', 1]]);
      // Nothing is known of any of the three nodes, and nothing else has changed.
      expect(await unmet(old)).toEqual([
        ['volumes-present', 3],
        ['anonymous-volumes-kept', 3],
      ]);
    } finally {
      await old.drop();
      await rm(directory, { recursive: true });
    }
  });
});

/** Every row of the one database into the tables of the other, as far as it has their columns. */
async function copyRows(from: TestDatabase, to: TestDatabase): Promise<void> {
  const { rows: tables } = await to.owner.query<{ name: string }>(
    `select tablename as name from pg_tables where schemaname = 'control' and tablename <> 'migrations'`,
  );
  const client = await to.owner.connect();
  try {
    await client.query('set session_replication_role = replica');
    for (const { name } of tables) {
      const { rows } = await from.owner.query<{ text: string }>(
        `select coalesce(json_agg(t), '[]')::text as text from control.${name} t`,
      );
      await client.query(`delete from control.${name}`);
      await client.query(
        `insert into control.${name} select * from json_populate_recordset(null::control.${name}, $1::json)`,
        [rows[0]!.text],
      );
    }
  } finally {
    await client.query('reset session_replication_role');
    client.release();
  }
}

describe('in switching', () => {
  it('the service goes, its volume stays, its keeper goes: the phase advances', async () => {
    const cut = await readyFor('switching');
    expect((await cut.advance('switching')).status).toBe(200);
    await cut.revokeRelay();
    await cut.reportAll();
    const codes = async () => (await cut.unmet()).map(({ code }) => code);
    const running = await codes();
    expect(running).toContain('applications-stopped');
    expect(running).toContain('confirmed-overlaps-gone');
    expect(running).not.toContain('anonymous-volumes-kept');
    // Too early: Swarm has the containers still, and would delete the volume with them.
    await withoutKeeper(cut);
    expect(await codes()).toContain('anonymous-volumes-kept');
    await withKeeper(cut);

    cut.removeContainers('app-0');
    await cut.reportAll();
    expect(cut.world.nodes[0]!.volumes).toContain(anonymousVolume);
    const stopped = await codes();
    expect(stopped).toContain('confirmed-overlaps-gone');
    expect(stopped).not.toContain('volumes-present');
    cut.stopEverything();
    await withoutKeeper(cut);
    await cut.reportAll();
    expect(await codes()).toEqual([]);
    const advanced = await cut.advance('pallet');
    expect(advanced.status).toBe(200);
    expect(advanced.body.gates!.map(({ code }) => code)).toEqual(
      expect.arrayContaining(['volumes-present', 'anonymous-volumes-kept']),
    );
  });

  it('a stray that is anonymous needs a keeper, too', async () => {
    const cut = await readyFor('pallet');
    const stray = 'c'.repeat(64);
    cut.world.nodes[1]!.containers.push(
      taskContainer('app-1', [volumeMount(stray, '/stray')], { ordinal: 2, state: 'exited' }),
    );
    await cut.report(1);
    expect((await cut.unmet()).map(({ code }) => code)).toEqual([
      'aggregate-complete',
      'aggregate-current',
      'anonymous-volumes-kept',
      'no-stray',
    ]);
  });

  it.each([
    ['anonymous', anonymousVolume, '/data/anonymous'],
    ['named', 'v01', '/data/01'],
  ])(
    'a volume that is gone, and was %s, keeps the phase where it is until it is written off',
    async (_kind, name, path) => {
      const cut = await readyFor('pallet');
      const [node] = cut.world.nodes;
      node!.containers = node!.containers.filter((each) => each.swarmServiceId !== 'app-0');
      node!.volumes = node!.volumes.filter((each) => each !== name);
      await cut.report(0);
      const unmet = await cut.unmet();
      expect(shown(unmet)).toEqual([gone(name, path)]);
      expect(unmet[0]!.missing).toMatchObject([{ nodeId: cut.nodeIds[0], swarmServiceId: 'app-0' }]);
      expect((await cut.advance('pallet')).body).toMatchObject({ code: 'gate-unmet', detail: 'volumes-present' });

      const { nodeId, serviceId, mountIdentityDigest } = await entryOf(cut, name);
      const writeOff = {
        clusterId: cut.clusterId,
        runtime: await cut.runtime(),
        nodeId,
        serviceId,
        mountIdentityDigest,
        reason: 'somebody removed it',
        verified: 'the directory is not there',
      };
      const proposed = await service.done('writeOffVolume', { ...writeOff, mutationId: mutationId(), proposal: null });
      expect(shown(await cut.unmet())).toEqual([gone(name, path)]);
      const proposal = referenceOf(proposed.writeOff);
      await service.done('writeOffVolume', { ...writeOff, mutationId: mutationId(), proposal }, bob);
      expect(await cut.unmet()).toEqual([]);
      expect((await cut.advance('pallet')).status).toBe(200);
    },
  );
});

async function entryOf(cut: Cutover, volumeName: string): Promise<IFleetCutoverRequiredEntry> {
  const { entries } = await cut.explain({ kind: 'node', nodeId: cut.nodeIds[0]! });
  return entries.find((entry) => entry.volumeName === volumeName)!;
}
