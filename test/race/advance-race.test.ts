import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connectionConfig, parseDatabaseUrl } from '../../src/db/connection.js';
import { referenceOf } from '../../src/contract/schema.js';
import { type Cutover, cutover, type CutoverOptions, keeper } from '../support/cutover.js';
import { dumpTables } from '../support/table-dump.js';
import { cutConnections } from '../support/kill-connections.js';
import { isBackgroundPoint, PointHook } from '../support/kill-points.js';
import { mutationId, startService, type TestService } from '../support/service.js';
import { incompleteSnapshot, volumeMount } from '../support/snapshots.js';

const hook = new PointHook();
let service: TestService;
let bob: string;
let made = 0;

beforeAll(async () => {
  service = await startService({ logLevel: 'silent', faults: hook });
  const issued = await service.done('issueAdministratorToken', {
    mutationId: mutationId(),
    principalId: 'bob',
    role: 'administrator',
  });
  bob = issued.secrets[0]!.secret;
});
afterAll(() => service.close());

/** Everything that the next phase needs is there. */
async function ready(
  phase: 'draining' | 'switching' | 'pallet',
  options: CutoverOptions = { relay: false },
): Promise<Cutover> {
  made += 1;
  const cut = await cutover(service, `ar-${made}`, options);
  const before = { draining: 'swarm', switching: 'draining', pallet: 'switching' } as const;
  await cut.bringTo(before[phase]);
  await cut.readyFor(phase);
  return cut;
}

interface Answered {
  readonly status: number;
  readonly body: { readonly code?: string };
}
const said = ({ status, body }: Answered) => (status === 200 ? 'done' : `${status} ${body.code ?? ''}`);

/** Prepared so that the falsifying request itself is one round trip. */
type Falsifier = (cut: Cutover) => Promise<() => Promise<Answered>>;

const named = (cut: Cutover) => ({ mutationId: mutationId(), clusterId: cut.clusterId });

/** Administrators name the runtime: after the advance they are stale. */
const administrators: Record<string, Falsifier> = {
  'a target set': async (cut) => {
    const { targetSet } = await cut.fleet.state();
    const body = {
      ...named(cut),
      runtime: await cut.runtime(),
      expectedTargetSet: targetSet,
      nodeIds: [cut.nodeIds[0]!],
    };
    return () => service.call('acceptFleetCutoverTargetSet', body);
  },
  'a scope': async (cut) => {
    const { scope, managerSnapshot } = await cut.fleet.state();
    const body = {
      ...named(cut),
      runtime: await cut.runtime(),
      inventory: managerSnapshot!,
      expectedScope: scope,
      statement: { ...cut.statement, services: cut.statement.services.slice(0, 2) },
    };
    return () => service.call('classifyFleetCutoverScope', body);
  },
  'a new aggregate': async (cut) => {
    const { scope, aggregate } = await cut.fleet.state();
    const body = {
      ...named(cut),
      runtime: await cut.runtime(),
      scope: scope!,
      expectedAggregate: referenceOf(aggregate!),
    };
    return () => service.call('rederiveFleetCutoverVolumeHandoffs', body);
  },
  'a write-off': async (cut) => {
    const body = {
      ...named(cut),
      runtime: await cut.runtime(),
      nodeId: cut.nodeIds[0]!,
      reason: 'it burned',
      verified: 'seen',
    };
    const proposed = await service.done('writeOffNode', { ...body, proposal: null });
    const confirming = { ...body, mutationId: mutationId(), proposal: referenceOf(proposed.writeOff) };
    return () => service.call('writeOffNode', confirming, bob);
  },
};
/** Nodes, and administrators of nodes, name no runtime: they come before the advance or after it. */
const others: Record<string, Falsifier> = {
  'an incomplete local snapshot': (cut) =>
    Promise.resolve(() => cut.fleet.report(cut.nodeIds[1]!, { local: incompleteSnapshot('timeout') })),
  'a local snapshot with another mount': async (cut) => {
    const local = await cut.local(1);
    const [app, ...rest] = local.containers;
    const containers = [{ ...app!, mounts: [...app!.mounts, volumeMount('late', '/late')] }, ...rest];
    return () => cut.fleet.report(cut.nodeIds[1]!, { local: { ...local, containers } });
  },
  'a local snapshot without the keeper of an anonymous volume': async (cut) => {
    const local = await cut.local(0);
    const containers = local.containers.filter((each) => each.id !== keeper().id);
    return () => cut.fleet.report(cut.nodeIds[0]!, { local: { ...local, containers } });
  },
  'a manager snapshot of another moment': async (cut) => {
    const manager = { ...(await cut.manager()), runtime: null };
    return () => cut.fleet.report(cut.nodeIds[0]!, { manager });
  },
  'a new reporter session': (cut) => {
    cut.fleet.restart(cut.nodeIds[0]!);
    return Promise.resolve(() => cut.fleet.report(cut.nodeIds[0]!, {}));
  },
  'a quarantine': async (cut) => {
    const nodeId = cut.nodeIds[2]!;
    cut.fleet.restart(nodeId);
    await cut.report(2);
    const session = `rs-${cut.clusterId}-${nodeId}-1`;
    return () => cut.fleet.report(nodeId, {}, { session, sequence: 1_000 });
  },
  'a revoked node': (cut) => {
    const body = { ...named(cut), nodeId: cut.nodeIds[2]! };
    return Promise.resolve(() => service.call('revokeNode', body));
  },
  'a registered node': (cut) => {
    const body = { ...named(cut), nodeId: `${cut.clusterId}-more`, corestorePublicKey: null };
    return Promise.resolve(() => service.call('registerNode', body));
  },
  'an imported node': (cut) => {
    const nodes = [{ nodeId: `${cut.clusterId}-import`, corestorePublicKey: null }];
    const body = { ...named(cut), nodes, services: [], specs: [] };
    return Promise.resolve(() => service.call('importFleet', body));
  },
  'a rejoined node': async (cut) => {
    const nodeId = cut.nodeIds[1]!;
    await cut.fleet.report(nodeId, { swarmNodeId: 'sn-again' });
    const body = { ...named(cut), nodeId, swarmNodeId: 'sn-again' };
    return () => service.call('confirmNodeRejoin', body);
  },
};

/** Holds an advance between its last look at the gates and its commit, for as long as `while_` takes. */
async function holdingAdvance<T>(work: (advancing: Promise<Answered>) => Promise<T>, begin: () => Promise<Answered>) {
  const gate = new pg.Client(connectionConfig(parseDatabaseUrl(service.database.ownerUrl)));
  await gate.connect();
  try {
    await gate.query('select pg_advisory_lock($1)', [pauseLock]);
    const advancing = begin();
    await waiting('advisory', 1);
    const result = await work(advancing);
    await gate.query('select pg_advisory_unlock($1)', [pauseLock]);
    return { result, advanced: await advancing };
  } finally {
    await gate.end();
  }
}
const pauseLock = 7_003_900;

/** Until so many sessions of the database wait for a lock. */
async function waiting(kind: 'advisory' | 'any', count: number): Promise<void> {
  for (;;) {
    const { rows } = await service.database.owner.query<{ count: number }>(
      `select count(*)::int as count from pg_locks lock join pg_stat_activity on pg_stat_activity.pid = lock.pid
       where datname = current_database() and not granted and ($1 = 'any' or locktype = 'advisory')`,
      [kind],
    );
    if (rows[0]!.count >= count) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

describe('while an advance is between its look at the gates and its commit', () => {
  beforeAll(async () => {
    await service.database.owner.query(`
      create function control.pause_for_test() returns trigger language plpgsql as $$
      begin
        perform pg_advisory_xact_lock_shared(${pauseLock});
        return new;
      end $$;
      create trigger pause_for_test before update on control.runtime_heads
        for each row execute function control.pause_for_test();
      grant execute on function control.pause_for_test() to public`);
  });
  afterAll(() => service.database.owner.query('drop trigger pause_for_test on control.runtime_heads'));

  it.each(Object.entries({ ...administrators, ...others }))('%s waits for it', async (name, falsifier) => {
    const cut = await ready('switching', { relay: false, kept: true });
    const falsify = await falsifier(cut);
    expect(await cut.unmet()).toEqual([]);
    const before = await dumpTables(service.database);
    const { result, advanced } = await holdingAdvance(
      async () => {
        let ended = false;
        const falsifying = falsify().finally(() => (ended = true));
        await Promise.race([waiting('any', 2), falsifying]);
        // It has not ended, and nothing of it is visible.
        expect(ended).toBe(false);
        expect(await dumpTables(service.database)).toEqual(before);
        return { falsifying };
      },
      () => cut.advance('switching'),
    );
    expect(said(advanced)).toBe('done');
    const after = await result.falsifying;
    if (name in administrators) expect(said(after)).toBe('409 runtime-stale');
    else expect(said(after)).toBe(name === 'a quarantine' ? '409 reporter-replaced' : 'done');
  });

  it('evidence that only adds coverage waits for nobody', async () => {
    const cut = await ready('switching');
    const evidence = await cut.evidence(0, 0, 3);
    const { result, advanced } = await holdingAdvance(
      () => cut.send(0, evidence),
      () => cut.advance('switching'),
    );
    expect([said(advanced), result.body.heldVolumeFences.state]).toEqual(['done', 'accepted']);
  });
});

describe('an advance against what falsifies its gates', () => {
  it('never commits after it: many rounds, in any order', async () => {
    let seed = 7;
    const random = (below: number) => {
      seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
      return Math.floor((seed / 2_147_483_648) * below);
    };
    const after = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
    const names = [
      'a target set',
      'a scope',
      'a write-off',
      'an incomplete local snapshot',
      'a manager snapshot of another moment',
      'a quarantine',
    ];
    const outcomes = new Map<string, number>();
    for (let round = 0; round < 24; round += 1) {
      const name = names[round % names.length]!;
      const cut = await ready('draining');
      const falsify = await (administrators[name] ?? others[name])!(cut);
      const runtime = await cut.runtime();
      const [advanced, falsified] = await Promise.all([
        after(random(12)).then(() => cut.advance('draining', { runtime })),
        after(random(12)).then(falsify),
      ]);
      const phase = await cut.phase();
      const moved = said(advanced) === 'done';
      expect(phase).toBe(moved ? 'draining' : 'swarm');
      outcomes.set(moved ? 'moved' : 'kept', (outcomes.get(moved ? 'moved' : 'kept') ?? 0) + 1);
      if (!moved) expect([name, said(advanced)]).toEqual([name, '422 gate-unmet']);

      if (name in administrators && name !== 'a write-off') {
        // Exactly one of both: the advance saw the other's effect, or the other names a runtime that was left.
        expect([name, said(falsified)]).toEqual([name, moved ? '409 runtime-stale' : 'done']);
      }
      if (name === 'a write-off') {
        // It falsifies nothing of this way, so whoever is second may come as well, but never with the runtime left.
        expect(moved).toBe(true);
        const { rows } = await service.database.owner.query<{ method: string }>(
          `select method from control.audit_rows where cluster_id = $1
             and method in ('advanceFleetCutoverPhase', 'writeOffNode') order by seq`,
          [cut.clusterId],
        );
        const order = rows.map((row) => row.method);
        expect(order.at(-1)).toBe('advanceFleetCutoverPhase');
        expect(order.filter((each) => each === 'writeOffNode')).toHaveLength(said(falsified) === 'done' ? 2 : 1);
      }
      if (name.includes('snapshot')) {
        // The receipt says under which runtime the report was taken: one that came before the advance kept it back.
        const { body } = falsified as Awaited<ReturnType<Cutover['report']>>;
        expect([name, body.runtime.generation]).toEqual([name, moved ? 2 : 1]);
      }
      if (moved) {
        // What the record binds is what was current when it was written.
        const { gate } = (await cut.explain()).runtime;
        const state = await cut.fleet.state();
        expect([gate!.scope, gate!.targetSet]).toEqual([state.scope, state.targetSet]);
      }
    }
    expect([...outcomes.keys()].sort()).toEqual(['kept', 'moved']);
  }, 120_000);

  it('sees the keeper of an anonymous volume that goes first, and is seen by the one that goes after', async () => {
    const outcomes = new Set<string>();
    for (const order of ['keeper first', 'advance first', 'at once', 'at once']) {
      const cut = await ready('switching', { relay: false, kept: true });
      const falsify = await others['a local snapshot without the keeper of an anonymous volume']!(cut);
      const advance = () => cut.advance('switching');
      const [advanced, reported] =
        order === 'keeper first'
          ? await falsify().then(async (answer) => [await advance(), answer] as const)
          : order === 'advance first'
            ? await advance().then(async (answer) => [answer, await falsify()] as const)
            : await Promise.all([advance(), falsify()]);
      const moved = said(advanced) === 'done';
      outcomes.add(moved ? 'moved' : 'kept');
      if (order === 'keeper first') expect(moved).toBe(false);
      if (order === 'advance first') expect(moved).toBe(true);
      if (!moved) expect(advanced.body).toMatchObject({ code: 'gate-unmet', detail: 'anonymous-volumes-kept' });
      // The receipt says under which runtime the report was taken.
      const { body } = reported as Awaited<ReturnType<Cutover['report']>>;
      expect([order, body.runtime.generation]).toEqual([order, moved ? 3 : 2]);
    }
    expect([...outcomes].sort()).toEqual(['kept', 'moved']);
  });

  it('of two at once moves the phase once', async () => {
    const cut = await ready('draining');
    const runtime = await cut.runtime();
    const answers = await Promise.all(Array.from({ length: 6 }, () => cut.advance('draining', { runtime })));
    expect(answers.map(said).sort()).toEqual([...Array<string>(5).fill('409 runtime-stale'), 'done']);
    const id = mutationId();
    const next = await ready('draining');
    const same = { runtime: await next.runtime(), mutationId: id };
    const repeated = await Promise.all(Array.from({ length: 6 }, () => next.advance('draining', same)));
    expect(repeated.map(said)).toEqual(Array<string>(6).fill('done'));
    expect(repeated.filter((each) => !each.body.replayed)).toHaveLength(1);
  });
});

describe('an advance that is struck at any of its statements', () => {
  const faults: Record<string, () => void> = {
    'the process is interrupted': () => {
      throw new Error('interrupted');
    },
    'the connection is cut': () => cutConnections(service.database.db),
  };

  async function kept(cut: Cutover) {
    // What was sent before the connection was cut is still done; this waits for it.
    await service.database.owner.query('select from control.runtime_heads where cluster_id = $1 for update', [
      cut.clusterId,
    ]);
    const { rows } = await service.database.owner.query<{
      phase: string;
      revisions: number;
      audits: number;
      retired: number;
    }>(
      `select head.phase,
         (select count(*) from control.runtime_revisions where cluster_id = $1)::int as revisions,
         (select count(*) from control.audit_rows where cluster_id = $1 and method = 'advanceFleetCutoverPhase')::int as audits,
         (select count(*) from control.coreflow_retirements where cluster_id = $1)::int as retired
       from control.runtime_heads head where cluster_id = $1`,
      [cut.clusterId],
    );
    return rows[0]!;
  }

  it.each(Object.keys(faults))(
    'because %s, has moved with its audit row or not at all',
    async (what) => {
      const recorded = await ready('pallet', { relay: true });
      const points = (await hook.record(() => recorded.advance('pallet'))).filter((point) => !isBackgroundPoint(point));
      expect(await recorded.phase()).toBe('pallet');
      const own = points.filter((point) => point.startsWith('advanceFleetCutoverPhase:'));
      expect(own.length).toBeGreaterThan(10);
      let cut = await ready('pallet', { relay: true });
      let moves = 0;
      for (const point of own) {
        const request = { mutationId: mutationId(), runtime: await cut.runtime() };
        hook.arm(point, faults[what]!);
        const struck = await cut.advance('pallet', request).catch(() => null);
        expect([point, hook.disarm()]).toEqual([point, true]);
        const now = await kept(cut);
        const moved = now.phase === 'pallet';
        expect([point, now]).toEqual([
          point,
          moved
            ? { phase: 'pallet', revisions: 4, audits: 3, retired: 1 }
            : { phase: 'switching', revisions: 3, audits: 2, retired: 0 },
        ]);
        if (struck?.status === 200) expect(moved).toBe(true);
        if (!moved) continue;
        moves += 1;
        // Repeated, it is told that it was done.
        const repeated = await cut.advance('pallet', request);
        expect([repeated.status, repeated.body.replayed]).toEqual([200, true]);
        cut = await ready('pallet', { relay: true });
      }
      expect(moves).toBeGreaterThan(0);
      expect((await cut.advance('pallet')).status).toBe(200);
    },
    120_000,
  );
});
