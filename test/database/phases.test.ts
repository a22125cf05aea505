import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { MethodRequest } from '../../src/contract/methods.js';
import { fleetCutoverPhases, fleetCutoverRuntimeRecord, type TFleetCutoverPhase } from '../../src/contract/runtime.js';
import { referenceOf } from '../../src/contract/schema.js';
import { sparkSwarmNodeContracts } from '../../src/contract/limits.js';
import { type Cutover, cutover } from '../support/cutover.js';
import { gatesBothWays } from '../support/gate-view.js';
import { referenceNamed } from '../support/handoff-set.js';
import { mutationId, startService, type TestService } from '../support/service.js';
import { scopeService, swarmNode, swarmService, taskContainer, volumeMount } from '../support/snapshots.js';
import { dumpTables } from '../support/table-dump.js';

let service: TestService;
/** One cluster in each phase, for tests that change nothing. */
const standing = new Map<TFleetCutoverPhase, Cutover>();
let made = 0;

beforeAll(async () => {
  service = await startService({ logLevel: 'warn' });
  for (const phase of fleetCutoverPhases) {
    const cut = await newCutover();
    await cut.bringTo(phase);
    standing.set(phase, cut);
  }
});
afterAll(() => service.close());

function newCutover(options?: Parameters<typeof cutover>[2]): Promise<Cutover> {
  made += 1;
  return cutover(service, `ph-${made}`, options);
}
const outcome = ({ status, body }: { status: number; body: { code?: string } }) =>
  status === 200 ? 'done' : `${status} ${body.code}`;

describe('an advance', () => {
  it('goes through all phases, each a sealed record with what closed its gate', async () => {
    const cut = standing.get('pallet')!;
    const { rows } = await service.database.owner.query<{ record: string; phase: string }>(
      'select phase, record from control.runtime_revisions where cluster_id = $1 order by generation',
      [cut.clusterId],
    );
    const records = rows.map((row) => JSON.parse(row.record) as Awaited<ReturnType<Cutover['explain']>>['runtime']);
    expect(records.map((each) => [each.generation, each.phase])).toEqual([
      [1, 'swarm'],
      [2, 'draining'],
      [3, 'switching'],
      [4, 'pallet'],
    ]);
    for (const [index, record] of records.entries()) {
      expect(fleetCutoverRuntimeRecord.validate(record)).toEqual([]);
      expect(record.predecessor).toEqual(index === 0 ? null : referenceOf(records[index - 1]!));
    }
    const [swarm, draining, switching, pallet] = records;
    expect(swarm!.gate).toBeNull();
    expect(draining!.gate).toMatchObject({ aggregate: null, coreflowRelay: null, coreflowRetirement: null });
    expect(switching!.gate).toMatchObject({
      aggregate: await cut.aggregate(),
      coreflowRelay: { swarmServiceId: 'relay', nodeId: cut.nodeIds[0], containerId: 'c-relay.1' },
      coreflowRetirement: null,
    });
    expect(pallet!.gate).toMatchObject({ aggregate: await cut.aggregate(), coreflowRelay: null });
    expect(pallet!.gate!.coreflowRetirement).not.toBeNull();
    const state = await cut.fleet.state();
    for (const each of [draining, switching, pallet]) {
      expect(each!.gate).toMatchObject({ scope: state.scope, targetSet: state.targetSet });
    }
    expect(pallet!.gate!.managerSnapshot).toEqual(state.managerSnapshot);
    expect(pallet!.gate!.derivation).toEqual(referenceOf(state.derivation));
    // Operators see the same.
    const { rows: seen } = await service.database.owner.query(
      'select phase, gate_evidence from operator.phases where cluster_id = $1 order by generation',
      [cut.clusterId],
    );
    expect(seen.map((each: { phase: string; gate_evidence: unknown }) => [each.phase, each.gate_evidence])).toEqual(
      records.map((each) => [each.phase, each.gate]),
    );
  });

  it.each(fleetCutoverPhases)('from %s goes to the next phase only', async (phase) => {
    const cut = standing.get(phase)!;
    const next = fleetCutoverPhases[fleetCutoverPhases.indexOf(phase) + 1];
    for (const to of fleetCutoverPhases.filter((each) => each !== next)) {
      const answer = await cut.advance(to);
      expect(outcome(answer)).toBe('422 phase-order');
      expect(answer.body).toMatchObject({
        detail: `${to} does not follow ${phase}`,
        mutationOutcome: 'not-applied',
        retrySafe: false,
      });
    }
    expect(await cut.phase()).toBe(phase);
  });

  it('names the current runtime, or is told which one is', async () => {
    const cut = standing.get('draining')!;
    const current = await cut.runtime();
    for (const runtime of [cut.fleet.runtime, referenceNamed(current.id, 2), { ...current, generation: 3 }]) {
      const answer = await cut.advance('switching', { runtime });
      expect([outcome(answer), answer.body.expectation, answer.body.current]).toEqual([
        '409 runtime-stale',
        'runtime',
        current,
      ]);
    }
  });

  it('is replayed by its mutation id, as current until the next one, and refused for another body', async () => {
    const cut = await newCutover();
    await cut.readyFor('draining');
    const runtime = await cut.runtime();
    const id = mutationId();
    const first = await cut.advance('draining', { mutationId: id, runtime });
    const again = await cut.advance('draining', { mutationId: id, runtime });
    expect([outcome(first), outcome(again)]).toEqual(['done', 'done']);
    expect(again.body).toEqual({ ...first.body, replayed: true });
    expect(outcome(await cut.advance('switching', { mutationId: id, runtime }))).toBe('422 mutation-id-reused');
    await cut.bringTo('switching');
    expect(await cut.advance('draining', { mutationId: id, runtime })).toMatchObject({
      status: 200,
      body: { replayed: true, current: false, runtime: { generation: 2 } },
    });
  });

  it('that is a dry run answers the same and writes nothing', async () => {
    const cut = await newCutover();
    for (const phase of ['draining', 'switching', 'pallet'] as const) {
      await cut.readyFor(phase);
      const before = await dumpTables(service.database);
      const dry = await cut.advance(phase, { dryRun: true });
      expect(dry).toMatchObject({ status: 200, body: { dryRun: true, audit: null } });
      expect(await dumpTables(service.database)).toEqual(before);
      const done = await cut.advance(phase);
      expect(done.status).toBe(200);
      expect(done.body.runtime).toEqual(dry.body.runtime);
      const ageless = (gates: typeof done.body.gates) =>
        gates.map((gate) => ({ ...gate, evidence: gate.evidence.map((each) => each.reference) }));
      expect(ageless(done.body.gates)).toEqual(ageless(dry.body.gates));
    }
  });

  it('is an administrator’s of the organization, no operator’s and nobody else’s', async () => {
    const cut = await newCutover();
    await cut.readyFor('draining');
    const issued = await service.done('issueAdministratorToken', {
      mutationId: mutationId(),
      principalId: 'olga',
      role: 'operator',
    });
    const body = {
      mutationId: mutationId(),
      clusterId: cut.clusterId,
      runtime: await cut.runtime(),
      to: 'draining' as const,
    };
    const operator = issued.secrets[0]!.secret;
    expect(outcome(await service.call('advanceFleetCutoverPhase', body, operator))).toBe('403 role-refused');
    const foreign = await service.organization('other-phases');
    expect(outcome(await service.call('advanceFleetCutoverPhase', body, foreign))).toBe('404 cluster-unknown');
    const subject = { clusterId: cut.clusterId, subject: { kind: 'cluster' as const } };
    expect(outcome(await service.call('explainFleetCutover', subject, operator))).toBe('done');
    expect(outcome(await service.call('explainFleetCutover', subject, foreign))).toBe('404 cluster-unknown');
    expect(await cut.phase()).toBe('swarm');
  });
});

describe('the database', () => {
  it.each(fleetCutoverPhases)('lets nobody, not even its owner, move a head but from %s to the next', async (phase) => {
    const { clusterId } = standing.get(phase)!;
    const { owner } = service.database;
    const rank = fleetCutoverPhases.indexOf(phase);
    for (const [index, to] of [...fleetCutoverPhases, 'nonsense'].entries()) {
      if (index === rank + 1) continue;
      await expect(
        owner.query('update control.runtime_heads set phase = $2, generation = generation + 1 where cluster_id = $1', [
          clusterId,
          to,
        ]),
      ).rejects.toMatchObject({ code: '23001', message: `phase ${to} does not follow ${phase}` });
    }
    const next = fleetCutoverPhases[rank + 1] ?? 'pallet';
    const attempts: [string, unknown[]][] = [
      ['update control.runtime_heads set phase = $2 where cluster_id = $1', [clusterId, next]],
      [
        'update control.runtime_heads set phase = $2, generation = generation + 2 where cluster_id = $1',
        [clusterId, next],
      ],
      ["update control.runtime_heads set digest = 'x' where cluster_id = $1", [clusterId]],
      [
        "update control.runtime_heads set cluster_id = 'other', phase = $2, generation = generation + 1 where cluster_id = $1",
        [clusterId, next],
      ],
      ['delete from control.runtime_heads where cluster_id = $1', [clusterId]],
      ['update control.runtime_revisions set phase = $2 where cluster_id = $1', [clusterId, next]],
      ['delete from control.runtime_revisions where cluster_id = $1', [clusterId]],
    ];
    for (const [statement, values] of attempts) {
      await expect(owner.query(statement, values), statement).rejects.toMatchObject({ code: '23001' });
    }
    expect(await standing.get(phase)!.phase()).toBe(phase);
  });

  it('lets no runtime begin in another phase or generation, and no revision skip or repeat a phase', async () => {
    const { owner } = service.database;
    const head = (generation: number, phase: string) =>
      owner.query(
        "insert into control.runtime_heads (cluster_id, generation, digest, phase) values ('raw', $1, 'd', $2)",
        [generation, phase],
      );
    for (const [generation, phase] of [
      [1, 'draining'],
      [1, 'pallet'],
      [2, 'swarm'],
      [2, 'draining'],
      [1, 'nonsense'],
    ] as const) {
      await expect(head(generation, phase)).rejects.toMatchObject({ code: expect.stringMatching(/^23/) });
    }
    const revision = (clusterId: string, generation: number, phase: string) =>
      owner.query(
        "insert into control.runtime_revisions (cluster_id, generation, digest, phase, record) values ($1, $2, 'd', $3, '{}')",
        [clusterId, generation, phase],
      );
    const { clusterId } = standing.get('draining')!;
    for (const [generation, phase] of [
      [3, 'swarm'],
      [3, 'draining'],
      [3, 'pallet'],
      [4, 'switching'],
      [4, 'pallet'],
      [3, 'nonsense'],
    ] as const) {
      await expect(revision(clusterId, generation, phase)).rejects.toMatchObject({
        code: expect.stringMatching(/^23/),
      });
    }
    await expect(revision('raw', 1, 'draining')).rejects.toMatchObject({ code: '23001' });
    await expect(revision('raw', 2, 'swarm')).rejects.toMatchObject({ code: '23001' });
  });

  it('takes no truncation of what was', async () => {
    const { owner } = service.database;
    for (const table of [
      'runtime_revisions',
      'coreflow_retirements',
      'write_offs',
      'target_set_nodes',
      'runtime_heads',
    ]) {
      await expect(owner.query(`truncate control.${table} cascade`), table).rejects.toMatchObject({ code: '23001' });
    }
  });
});

/** The table of the acts, cell by cell, through the wire. */
describe('what each phase permits', () => {
  type Act = (cut: Cutover) => Promise<string>;
  const refused = '422 phase-refused';

  /** The entry of the first node's first volume. */
  async function someEntry(cut: Cutover) {
    const [entry] = (await cut.fleet.entries()).filter((each) => each.nodeId === cut.nodeIds[0]);
    return entry!;
  }
  async function upsertOf(cut: Cutover, requestId: string) {
    const { nodeId, serviceId, mountIdentityDigest, mountPath } = await someEntry(cut);
    return {
      nodeId,
      serviceId,
      mountIdentityDigest,
      request: {
        requestId,
        kind: 'filesystem' as const,
        mountPath,
        accessMode: 'ReadWriteOnce' as const,
        reclaimPolicy: 'Retain' as const,
        requestedCapacityBytes: null,
      },
    };
  }
  async function prepare(cut: Cutover, over: Partial<MethodRequest<'prepareFleetCutoverVolumeHandoffs'>>) {
    const state = await cut.fleet.state();
    const answer = await service.call('prepareFleetCutoverVolumeHandoffs', {
      mutationId: mutationId(),
      clusterId: cut.clusterId,
      runtime: await cut.runtime(),
      scope: state.scope!,
      expectedAggregate: state.aggregate === null ? null : referenceOf(state.aggregate),
      upserts: [],
      removals: [],
      dryRun: true,
      ...over,
    });
    return outcome(answer) + (answer.body.entries ?? []).map((entry) => ` ${entry.code}`).join('');
  }

  const acts: Record<string, { act: Act; cells: readonly string[] }> = {
    'a scope as it was': {
      act: async (cut) => outcome(await cut.classify(undefined, { dryRun: true })),
      cells: ['done', 'done', 'done', refused],
    },
    'a scope that changes a class': {
      act: async (cut) => {
        const services = cut.statement.services.map((each) =>
          each.swarmServiceId === 'edge' ? scopeService('edge', { class: 'excluded' }) : each,
        );
        return outcome(await cut.classify({ ...cut.statement, services }, { dryRun: true }));
      },
      cells: ['done', 'done', '422 scope-refused', refused],
    },
    targets: {
      act: async (cut) => outcome(await cut.accept()),
      cells: ['done', 'done', refused, refused],
    },
    rederive: {
      act: async (cut) => outcome(await cut.rederive()),
      cells: ['done', 'done', 'done', refused],
    },
    'a write-off': {
      act: async (cut) =>
        outcome(
          await service.call('writeOffNode', {
            mutationId: mutationId(),
            clusterId: cut.clusterId,
            runtime: await cut.runtime(),
            nodeId: cut.nodeIds[2]!,
            proposal: null,
            reason: 'it burned',
            verified: 'seen',
            dryRun: true,
          }),
        ),
      cells: ['done', 'done', 'done', 'done'],
    },
    'the relay’s revocation': {
      act: async (cut) =>
        outcome(
          await service.call('revokeFleetCutoverCoreflowCredential', {
            mutationId: mutationId(),
            clusterId: cut.clusterId,
            runtime: await cut.runtime(),
            dryRun: true,
          }),
        ),
      cells: ['done', 'done', 'done', refused],
    },
    'a handoff’s revision': {
      act: async (cut) => prepare(cut, { upserts: [await upsertOf(cut, 'rq-another')] }),
      cells: ['done', 'done', '422 batch-refused strays-only', refused],
    },
    'a handoff’s removal': {
      act: async (cut) => {
        const { nodeId, serviceId, mountIdentityDigest } = await someEntry(cut);
        return prepare(cut, { removals: [{ nodeId, serviceId, mountIdentityDigest }] });
      },
      // In `swarm` nothing is prepared yet.
      cells: ['422 batch-refused entry-absent', 'done', '422 batch-refused strays-only', refused],
    },
    'a page read': {
      act: async (cut) => {
        const response = await fetch(
          service.url + sparkSwarmNodeContracts.fleetCutoverPreparedVolumeHandoffs.endpoint,
          {
            method: 'POST',
            headers: { 'content-type': 'application/json' },
            body: JSON.stringify({
              nodeId: cut.nodeIds[0],
              nodeToken: cut.fleet.token(cut.nodeIds[0]!),
              protocol: { major: 32, minor: 15 },
              aggregate: null,
              pageIndex: 0,
            }),
          },
        );
        const { page } = (await response.json()) as { page: object | null };
        return `${response.status} ${page === null ? 'nothing' : 'a page'}`;
      },
      cells: ['200 nothing', '200 a page', '200 a page', '200 a page'],
    },
    'evidence of holds': {
      act: async (cut) => {
        const held = (await cut.pageCount()) === 0 ? standing.get('draining')! : cut;
        const evidence = { ...(await held.evidence(0, 0, 7)), nodeId: cut.nodeIds[0]! };
        const own = held === cut ? evidence : { ...evidence, fences: [] };
        const { heldVolumeFences } = (await cut.send(0, own)).body;
        return heldVolumeFences.code ?? heldVolumeFences.state;
      },
      cells: ['phase-refused', 'accepted', 'accepted', 'accepted'],
    },
  };

  beforeAll(async () => {
    // What `switching` and `pallet` have already; `draining` gets a complete aggregate, too.
    await standing.get('draining')!.prepare();
  });

  it.each(
    Object.entries(acts).flatMap(([name, { act, cells }]) =>
      fleetCutoverPhases.map((phase, index) => ({ name, phase, act, cell: cells[index]! })),
    ),
  )('$name in $phase: $cell', async ({ phase, act, cell }) => {
    expect(await act(standing.get(phase)!)).toBe(cell);
    expect(await standing.get(phase)!.phase()).toBe(phase);
  });
});

describe('a stray in switching', () => {
  it('is prepared and covered before the phase advances; nothing else of the set changes', async () => {
    const cut = await newCutover();
    await cut.bringTo('switching');
    const [stray] = cut.world.nodes[1]!.containers;
    cut.world.nodes[1]!.containers = [
      { ...stray!, mounts: [...stray!.mounts, volumeMount('late', '/late')] },
      ...cut.world.nodes[1]!.containers.slice(1),
    ];
    await cut.readyFor('pallet');
    const codes = async () => (await cut.unmet()).map((gate) => gate.code);
    expect(await codes()).toEqual(['aggregate-complete', 'aggregate-current', 'no-stray']);
    const strayGate = (await cut.unmet()).find((gate) => gate.code === 'no-stray')!;
    expect(strayGate).toMatchObject({
      missingCount: 1,
      missing: [{ nodeId: cut.nodeIds[1], swarmServiceId: 'app-1', detail: 'the volume at /late is not prepared' }],
    });
    await cut.prepare();
    // A new aggregate has a coverage of its own.
    expect(await codes()).toEqual(['coverage-complete']);
    await cut.holdAll();
    expect(await codes()).toEqual([]);
    expect(outcome(await cut.advance('pallet'))).toBe('done');
  });

  it('gets a class instead; a class of what is prepared is refused', async () => {
    const cut = await newCutover();
    await cut.bringTo('switching');
    const [app] = cut.world.nodes[1]!.containers;
    cut.world.nodes[1]!.containers[0] = { ...app!, mounts: [...app!.mounts, volumeMount('late', '/late')] };
    await cut.readyFor('pallet');
    const classed = (target: string) => ({
      ...cut.statement,
      services: cut.statement.services.map((each) =>
        each.swarmServiceId === 'app-1'
          ? { ...each, mounts: [{ target, class: 'ephemeral' as const, reason: 'a cache' }] }
          : each,
      ),
    });
    const refusedClass = await cut.classify(classed('/data/00'));
    expect(refusedClass.body).toMatchObject({
      code: 'scope-refused',
      entries: [{ list: 'services', code: 'strays-only', detail: '/data/00 is prepared and no stray' }],
    });
    expect(outcome(await cut.classify(classed('/late')))).toBe('done');
    // The scope changed, so the aggregate is behind; the key stays required until a scope lets it go.
    const unmet = (await cut.unmet()).map((gate) => gate.code);
    expect(unmet).toContain('aggregate-current');
    await cut.prepare();
    await cut.holdAll();
    expect((await cut.unmet()).map((gate) => gate.code)).toEqual([]);
  });

  it('of a service that is new in the inventory gets its class, with an owner or as excluded', async () => {
    const cut = await newCutover();
    await cut.bringTo('switching');
    cut.world.services.push(swarmService('late'));
    await cut.readyFor('pallet');
    expect((await cut.unmet()).map((gate) => gate.code)).toEqual(['no-blocker', 'aggregate-current']);
    const services = [...cut.statement.services, scopeService('late', { class: 'excluded' })];
    expect(outcome(await cut.classify({ ...cut.statement, services }))).toBe('done');
    await cut.prepare();
    await cut.holdAll();
    expect(await cut.unmet()).toEqual([]);
  });
});

describe('evidence', () => {
  it('counts only where it was taken under the runtime being left', async () => {
    const cut = await newCutover();
    await cut.bringTo('draining');
    const [swarm, draining] = [cut.fleet.runtime, await cut.runtime()];
    await cut.prepare();
    await cut.holdAll();
    const unmet = async () => (await cut.unmet()).map(({ code, missingCount }) => `${code} ${missingCount}`);
    // Nobody reported since the phase began.
    const nothing = ['inventory-current 1', 'targets-observed 3', 'coreflow-identified 1'];
    expect(await unmet()).toEqual(nothing);
    // Late reports that were begun before.
    for (const node of [0, 1, 2]) expect((await cut.report(node, swarm)).status).toBe(200);
    expect(await unmet()).toEqual(nothing);
    // Of nobody's runtime, of another cluster's, and of one that is to come.
    for (const runtime of [null, referenceNamed('rt-other', 2), { ...draining, generation: 3 }]) {
      for (const node of [0, 1, 2]) expect((await cut.report(node, runtime)).status).toBe(200);
      expect(await unmet()).toEqual(nothing);
    }
    await cut.report(0);
    expect(await unmet()).toEqual(['targets-observed 2']);
    await cut.report(1);
    await cut.report(2);
    expect(await unmet()).toEqual([]);
    // A collector that had begun before sends late: it takes the gate back.
    await cut.report(2, swarm);
    expect(await unmet()).toEqual(['targets-observed 1']);
    await cut.report(2);
    expect(outcome(await cut.advance('switching'))).toBe('done');
    await cut.report(1, draining);
    const late = (await cut.explain()).gates.find((gate) => gate.code === 'targets-observed')!;
    expect([late.met, late.missingCount]).toEqual([false, 3]);
  });

  it('is of the sequence, whatever an agent’s clock says', async () => {
    const cut = await newCutover();
    await cut.readyFor('draining');
    const year = 365 * 86_400_000;
    const at = async (node: number, observedAt: number) => {
      const nodeId = cut.nodeIds[node]!;
      const answer = await cut.fleet.observe(nodeId, {
        observedAt,
        state: 'member',
        localSwarmNodeId: `sn-${nodeId}`,
        controlAvailable: node === 0,
        fleetCutoverLocalNodeSnapshot: await cut.local(node),
        ...(node === 0 ? { fleetCutoverManagerSnapshot: await cut.manager() } : {}),
      });
      expect(answer.status).toBe(200);
    };
    const now = Date.now();
    for (const observedAt of [now + year, now - year, 0, Number.MAX_SAFE_INTEGER, now]) {
      for (const node of [0, 1, 2]) await at(node, observedAt);
      expect(await cut.unmet()).toEqual([]);
      const { gates } = await cut.explain();
      const ages = gates.flatMap((gate) => gate.evidence.flatMap((each) => each.ageMs ?? []));
      expect(ages.length).toBeGreaterThan(0);
      for (const age of ages) expect(age).toBeLessThan(600_000);
    }
    expect(outcome(await cut.advance('draining'))).toBe('done');
  });

  it('of a node that rejoined under another swarm node id counts once an administrator has confirmed it', async () => {
    const cut = await newCutover();
    await cut.bringTo('draining');
    await cut.readyFor('switching');
    expect(await cut.unmet()).toEqual([]);
    const nodeId = cut.nodeIds[1]!;
    const rejoined = { local: await cut.local(1), swarmNodeId: 'sn-again' };
    cut.world.tasks = cut.world.tasks.map((task) => ({
      ...task,
      nodeId: task.nodeId === `sn-${nodeId}` ? 'sn-again' : task.nodeId,
    }));
    const manager = await cut.manager();
    const nodes = [...manager.nodes.filter((node) => node.id !== `sn-${nodeId}`), swarmNode('sn-again')];
    await cut.fleet.reported(cut.nodeIds[0]!, { local: await cut.local(0), manager: { ...manager, nodes } });
    expect((await cut.fleet.report(nodeId, rejoined)).body.code).toBe('swarm-node-changed');
    // Its tasks are nobody's until then.
    expect((await cut.unmet()).map((gate) => gate.code)).toEqual(['no-blocker', 'aggregate-current']);
    await service.done('confirmNodeRejoin', {
      mutationId: mutationId(),
      clusterId: cut.clusterId,
      nodeId,
      swarmNodeId: 'sn-again',
    });
    expect((await cut.fleet.report(nodeId, rejoined)).status).toBe(200);
    expect(await cut.unmet()).toEqual([]);
    expect(outcome(await cut.advance('switching'))).toBe('done');
  });

  it('of a stray container keeps the phase where it is when it comes after everything was met', async () => {
    const cut = await newCutover();
    await cut.bringTo('switching');
    await cut.readyFor('pallet');
    expect(await cut.unmet()).toEqual([]);
    cut.world.nodes[2]!.containers.push(taskContainer('app-0', [], { ordinal: 9 }));
    await cut.report(2);
    expect((await cut.unmet()).map((gate) => gate.code)).toEqual(['containers-stopped']);
  });
});

it('operators see of every gate what an advance would count, in whatever state the clusters above are', async () => {
  const { rows } = await service.database.owner.query<{ cluster_id: string; phase: string }>(
    'select cluster_id, phase from control.runtime_heads where cluster_id like $1 order by cluster_id',
    ['ph-%'],
  );
  const unmet = new Set<string>();
  for (const { cluster_id: clusterId } of rows) {
    const { view, program } = await gatesBothWays(service, clusterId);
    expect(view, clusterId).toEqual(program);
    for (const { gate, missing } of view) if (missing !== null && missing > 0) unmet.add(gate);
  }
  expect(new Set(rows.map((row) => row.phase))).toEqual(new Set(fleetCutoverPhases));
  // They were unmet somewhere, so that equal zeros are not all that was compared.
  expect([...unmet].sort()).toEqual(expect.arrayContaining(['applications-stopped', 'targets-observed']));
});
