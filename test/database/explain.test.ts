import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Reference, referenceOf } from '../../src/contract/schema.js';
import { type Cutover, cutover, relayContainer } from '../support/cutover.js';
import { mutationId, startService, type TestService } from '../support/service.js';
import {
  container,
  incompleteSnapshot,
  scopeService,
  swarmService,
  taskContainer,
  volumeMount,
} from '../support/snapshots.js';

let service: TestService;
let made = 0;
beforeAll(async () => {
  service = await startService({ logLevel: 'warn' });
});
afterAll(() => service.close());

function newCutover(): Promise<Cutover> {
  made += 1;
  return cutover(service, `ex-${made}`);
}

interface Case {
  readonly of: string;
  /** Gates that it leaves unmet: one, except where one fact is asked for by several. */
  readonly unmet: readonly string[];
  readonly break: (cut: Cutover) => unknown;
  readonly repair: (cut: Cutover) => unknown;
}

const applications = (cut: Cutover, change: (each: Cutover['world']['services'][number]) => object) => {
  cut.world.services = cut.world.services.map((each) => (each.id === 'app-0' ? { ...each, ...change(each) } : each));
  return cut.report(0);
};
async function quarantine(cut: Cutover, node: number): Promise<void> {
  const nodeId = cut.nodeIds[node]!;
  const session = `rs-clone-${made}`;
  await cut.report(node, undefined, { session, sequence: 1 });
  cut.fleet.restart(nodeId);
  await cut.report(node);
  await cut.report(node, undefined, { session, sequence: 2 });
}
async function release(cut: Cutover, node: number): Promise<void> {
  const nodeId = cut.nodeIds[node]!;
  const released = await service.done('releaseNodeQuarantine', {
    mutationId: mutationId(),
    clusterId: cut.clusterId,
    nodeId,
  });
  cut.fleet.setToken(nodeId, released.secrets[0]!.secret);
  cut.fleet.restart(nodeId);
  await cut.report(node);
}
async function again(cut: Cutover): Promise<void> {
  await cut.prepare();
  await cut.holdAll();
  await cut.reportAll();
}

/** A quarantine takes back the node's coverage with its next session: a node without entries has nothing to prove again. */
const quarantined: Case = {
  of: 'a quarantined node',
  unmet: ['no-quarantine'],
  break: (cut) => quarantine(cut, 2),
  repair: (cut) => release(cut, 2),
};
/** Reports that were begun under an earlier runtime. */
const lateReports = (runtime: Reference, unmetOfLocal: readonly string[]): Case[] => [
  {
    of: 'a late manager snapshot',
    unmet: ['inventory-current'],
    break: async (cut) => cut.fleet.reported(cut.nodeIds[0]!, { manager: await cut.manager(runtime) }),
    repair: (cut) => cut.report(0),
  },
  {
    of: 'a late local snapshot',
    unmet: unmetOfLocal,
    break: (cut) => cut.report(2, runtime),
    repair: (cut) => cut.report(2),
  },
];
const observed: readonly Case[] = [
  {
    of: 'a manager snapshot that is incomplete',
    unmet: ['inventory-current'],
    break: (cut) => cut.fleet.reported(cut.nodeIds[0]!, { manager: incompleteSnapshot('truncated') }),
    repair: (cut) => cut.report(0),
  },
  {
    of: 'a local snapshot that is incomplete',
    unmet: ['targets-observed'],
    break: (cut) => cut.fleet.reported(cut.nodeIds[2]!, { local: incompleteSnapshot('timeout') }),
    repair: (cut) => cut.report(2),
  },
  quarantined,
];
const toDraining: readonly Case[] = [
  {
    of: 'a service without a class',
    unmet: ['scope-complete'],
    break: async (cut) => {
      cut.world.services.push(swarmService('late'));
      await cut.report(0);
      await cut.classify();
    },
    repair: (cut) =>
      cut.classify({
        ...cut.statement,
        services: [...cut.statement.services, scopeService('late', { class: 'excluded' })],
      }),
  },
  {
    of: 'a scope that does not say who the relay is',
    unmet: ['scope-complete'],
    break: (cut) => {
      const services = cut.statement.services.map((each) =>
        each.class === 'coreflow' ? { ...each, class: 'excluded' as const, reason: 'unknown' } : each,
      );
      return cut.classify({
        ...cut.statement,
        services: [...services, scopeService('late', { class: 'excluded' })],
        coreflow: { state: 'undetermined' },
      });
    },
    repair: (cut) =>
      cut.classify({
        ...cut.statement,
        services: [...cut.statement.services, scopeService('late', { class: 'excluded' })],
      }),
  },
  {
    of: 'targets without a node that has entries',
    unmet: ['targets-cover-entries'],
    break: (cut) => cut.accept([cut.nodeIds[0]!, cut.nodeIds[2]!]),
    repair: (cut) => cut.accept(),
  },
];
const toSwitching: readonly Case[] = [
  {
    // A blocker always makes the aggregate either behind or incomplete.
    of: 'a blocker',
    unmet: ['no-blocker', 'aggregate-current'],
    break: (cut) => {
      cut.world.services.push(swarmService('late'));
      return cut.report(0);
    },
    repair: (cut) => {
      cut.world.services = cut.world.services.filter((each) => each.id !== 'late');
      return cut.report(0);
    },
  },
  {
    of: 'an aggregate that is incomplete',
    unmet: ['aggregate-complete', 'coverage-complete'],
    break: async (cut) => {
      const [app] = cut.world.nodes[1]!.containers;
      cut.world.nodes[1]!.containers[0] = { ...app!, mounts: [...app!.mounts, volumeMount('late', '/late')] };
      await cut.report(1);
      await cut.rederive();
    },
    repair: again,
  },
  {
    of: 'an aggregate that is behind a newer scope',
    unmet: ['aggregate-current'],
    break: (cut) => cut.classify(),
    repair: again,
  },
  {
    of: 'a new reporter session',
    unmet: ['coverage-complete'],
    break: (cut) => {
      cut.fleet.restart(cut.nodeIds[0]!);
      return cut.report(0);
    },
    repair: (cut) => cut.holdAll(),
  },
  {
    of: 'two running relays',
    unmet: ['coreflow-identified'],
    break: (cut) => {
      cut.world.nodes[2]!.containers = [relayContainer('relay.2')];
      return cut.report(2);
    },
    repair: (cut) => {
      cut.world.nodes[2]!.containers = [];
      return cut.report(2);
    },
  },
];
const toPallet: readonly Case[] = [
  {
    of: 'an application that is not at zero',
    unmet: ['applications-stopped'],
    break: (cut) => applications(cut, () => ({ replicas: 1 })),
    repair: (cut) => applications(cut, () => ({ replicas: 0 })),
  },
  {
    of: 'a global application, which has no zero',
    unmet: ['applications-stopped'],
    break: (cut) => applications(cut, () => ({ mode: 'global', replicas: null })),
    repair: (cut) => applications(cut, () => ({ mode: 'replicated', replicas: 0 })),
  },
  {
    of: 'a container that may write',
    unmet: ['containers-stopped'],
    break: (cut) => {
      cut.world.nodes[2]!.containers = [taskContainer('app-1', [], { ordinal: 9, state: 'created' })];
      return cut.report(2);
    },
    repair: (cut) => {
      cut.world.nodes[2]!.containers = [];
      return cut.report(2);
    },
  },
  {
    of: 'a mount that came up late',
    unmet: ['aggregate-complete', 'aggregate-current', 'no-stray'],
    break: (cut) => {
      const [app] = cut.world.nodes[1]!.containers;
      cut.world.nodes[1]!.containers[0] = { ...app!, mounts: [...app!.mounts, volumeMount('stray', '/stray')] };
      return cut.report(1);
    },
    repair: again,
  },
  {
    of: 'a confirmed overlap that is there still',
    unmet: ['confirmed-overlaps-gone'],
    break: (cut) => {
      cut.world.nodes[0]!.containers.push(container('backup', { mounts: [volumeMount('v00', '/backup')] }));
      return cut.report(0);
    },
    repair: (cut) => {
      cut.world.nodes[0]!.containers.pop();
      return cut.report(0);
    },
  },
  {
    of: 'a Pallet that is not ready',
    unmet: ['pallet-ready'],
    break: (cut) => {
      cut.world.nodes[2]!.palletReady = false;
      return cut.report(2);
    },
    repair: (cut) => {
      cut.world.nodes[2]!.palletReady = true;
      return cut.report(2);
    },
  },
  {
    of: 'a container of the relay',
    unmet: ['coreflow-retired'],
    break: (cut) => {
      cut.world.nodes[2]!.containers = [{ ...relayContainer(), state: 'exited' }];
      return cut.report(2);
    },
    repair: (cut) => {
      cut.world.nodes[2]!.containers = [];
      return cut.report(2);
    },
  },
  {
    of: 'a new reporter session in switching',
    unmet: ['coverage-complete'],
    break: (cut) => {
      cut.fleet.restart(cut.nodeIds[1]!);
      return cut.report(1);
    },
    repair: (cut) => cut.hold(1, 0),
  },
];

/** One fact is broken, stays so whatever is asked how often, and is repaired. */
async function goesThrough(cut: Cutover, each: Case, to: 'draining' | 'switching' | 'pallet'): Promise<void> {
  const from = await cut.phase();
  await each.break(cut);
  for (const _time of [1, 2]) {
    const unmet = await cut.unmet();
    expect([each.of, unmet.map((gate) => gate.code)]).toEqual([each.of, each.unmet]);
    const refused = await cut.advance(to);
    expect([refused.status, refused.body.code, refused.body.detail]).toEqual([
      422,
      'gate-unmet',
      each.unmet.join(', '),
    ]);
    expect(refused.body.gates!.map((gate) => gate.code)).toEqual(each.unmet);
    for (const gate of refused.body.gates!) {
      expect(gate.met).toBe(false);
      expect(gate.missingCount).toBeGreaterThan(0);
      expect(gate.missing.length).toBeGreaterThan(0);
      expect(gate.acts).not.toBe('nobody');
    }
    expect(await cut.phase()).toBe(from);
  }
  await each.repair(cut);
  const left = await cut.unmet();
  expect([each.of, left.map((gate) => gate.code)]).toEqual([each.of, []]);
}

describe('every gate alone, through the whole service', () => {
  it('on the way to draining', async () => {
    const cut = await newCutover();
    // Without targets every entry is outside of them.
    expect((await cut.unmet()).map((gate) => gate.code)).toEqual(['targets-accepted', 'targets-cover-entries']);
    expect((await cut.advance('draining')).body.code).toBe('gate-unmet');
    const empty = await cutover(service, 'ex-empty', { volumes: [0, 0, 0] });
    expect((await empty.unmet()).map((gate) => gate.code)).toEqual(['targets-accepted']);
    await cut.readyFor('draining');
    for (const each of [...toDraining, ...observed]) await goesThrough(cut, each, 'draining');
    expect((await cut.advance('draining')).status).toBe(200);
  });

  it('on the way to switching', async () => {
    const cut = await newCutover();
    await cut.bringTo('draining');
    await cut.readyFor('switching');
    const late = lateReports(cut.fleet.runtime, ['targets-observed']);
    for (const each of [...toSwitching, ...late, quarantined]) await goesThrough(cut, each, 'switching');
    expect((await cut.advance('switching')).status).toBe(200);
  });

  it('on the way to pallet', async () => {
    const cut = await newCutover();
    const confirmation = {
      nodeId: cut.nodeIds[0]!,
      mounter: { kind: 'container' as const, name: 'backup' },
      target: '/backup',
      reason: 'it ends before the switch',
    };
    await cut.classify({ ...cut.statement, overlapConfirmations: [confirmation] });
    await cut.bringTo('switching');
    cut.stopEverything();
    await cut.reportAll();
    expect((await cut.unmet()).map((gate) => gate.code)).toEqual(['coreflow-credential-revoked']);
    await cut.readyFor('pallet');
    const late = lateReports(cut.fleet.runtime, ['targets-observed', 'containers-stopped']);
    for (const each of [...toPallet, ...late]) await goesThrough(cut, each, 'pallet');
    // A node that nobody looked at yet: outside the targets, but applications could run there.
    await service.done('registerNode', {
      mutationId: mutationId(),
      clusterId: cut.clusterId,
      nodeId: `${cut.clusterId}-new`,
      corestorePublicKey: null,
    });
    expect(await cut.unmet()).toMatchObject([
      {
        code: 'containers-stopped',
        missing: [{ nodeId: `${cut.clusterId}-new`, detail: 'has no accepted local snapshot' }],
      },
    ]);
    await service.done('revokeNode', {
      mutationId: mutationId(),
      clusterId: cut.clusterId,
      nodeId: `${cut.clusterId}-new`,
    });
    expect((await cut.advance('pallet')).status).toBe(200);
    // Nothing follows; what stands is the retirement, which is void while the relay is seen again.
    const standing = async () => {
      const { next, gates } = await cut.explain();
      return [next, gates.map((gate) => `${gate.code} ${gate.met}`)];
    };
    expect(await standing()).toEqual([null, ['coreflow-retired true', 'coreflow-credential-revoked true']]);
    cut.world.nodes[2]!.containers = [relayContainer()];
    await cut.report(2);
    expect(await standing()).toEqual([null, ['coreflow-retired false', 'coreflow-credential-revoked true']]);
  });
});

describe('an explanation', () => {
  it('of a node, a service or a handoff shows what concerns it', async () => {
    const cut = await newCutover();
    await cut.bringTo('draining');
    await cut.prepare();
    const [app] = cut.world.nodes[1]!.containers;
    cut.world.nodes[1]!.containers[0] = { ...app!, mounts: [...app!.mounts, volumeMount('late', '/late')] };
    await cut.report(0);
    await cut.report(1);
    await cut.hold(0, 0);
    const codes = (gates: readonly { code: string }[]) => gates.map((gate) => gate.code);
    const cluster = await cut.explain();
    expect(cluster.gates.length).toBe(13);
    expect(cluster.entries).toEqual([]);

    const first = await cut.explain({ kind: 'node', nodeId: cut.nodeIds[0]! });
    expect(codes(first.gates)).toEqual([]);
    expect(first.entries.map((each) => each.state)).toEqual(['prepared', 'prepared']);
    const second = await cut.explain({ kind: 'node', nodeId: cut.nodeIds[1]! });
    expect(codes(second.gates)).toEqual(['aggregate-complete', 'coverage-complete']);
    expect(second.entries.map((each) => `${each.mountPath} ${each.state}`).sort()).toEqual([
      '/data/00 prepared',
      '/late missing',
    ]);
    expect(second.verdicts.map((each) => each.swarmTaskId).sort()).toEqual(['app-1.1', 'edge.1']);
    const third = await cut.explain({ kind: 'node', nodeId: cut.nodeIds[2]! });
    expect(codes(third.gates)).toEqual(['targets-observed', 'coverage-complete']);
    expect([third.entries, third.verdicts]).toEqual([[], []]);

    const serviceId = second.entries[0]!.serviceId;
    const owned = await cut.explain({ kind: 'service', serviceId });
    expect(codes(owned.gates)).toEqual(['aggregate-complete']);
    expect(owned.entries.map((each) => each.serviceId)).toEqual([serviceId, serviceId]);
    const late = second.entries.find((each) => each.state === 'missing')!;
    const handoff = await cut.explain({ kind: 'handoff', nodeId: cut.nodeIds[1]!, id: late.id });
    expect(handoff.entries).toMatchObject([{ id: late.id, mountPath: '/late', handoff: null }]);
    expect(codes(handoff.gates)).toEqual(['aggregate-complete']);
  });

  it('of what is not known is refused', async () => {
    const cut = await newCutover();
    const [entry] = await cut.fleet.entries();
    for (const subject of [
      { kind: 'node', nodeId: 'nobody' },
      { kind: 'service', serviceId: 'nothing' },
      { kind: 'handoff', nodeId: cut.nodeIds[0]!, id: 'vh-none' },
      { kind: 'handoff', nodeId: cut.nodeIds[2]!, id: entry!.id },
    ] as const) {
      const answer = await service.call('explainFleetCutover', { clusterId: cut.clusterId, subject });
      expect([answer.status, answer.body.code]).toEqual([404, 'record-unknown']);
    }
  });

  it('names the records that a gate rests on, with how long ago each was seen', async () => {
    const cut = await newCutover();
    await cut.bringTo('draining');
    await cut.readyFor('switching');
    const { gates, runtime } = await cut.explain();
    const state = await cut.fleet.state();
    const evidence = (code: string) => gates.find((gate) => gate.code === code)!.evidence;
    expect(runtime).toEqual(state.runtime);
    expect(evidence('scope-complete')).toEqual([{ reference: state.scope, ageMs: null }]);
    expect(evidence('targets-accepted')).toEqual([{ reference: state.targetSet, ageMs: null }]);
    expect(evidence('coverage-complete')).toEqual([{ reference: referenceOf(state.aggregate!), ageMs: null }]);
    const [inventory] = evidence('inventory-current');
    expect(inventory!.reference).toEqual(state.managerSnapshot);
    expect(inventory!.ageMs).toBeGreaterThanOrEqual(0);
    const locals = await Promise.all(cut.nodeIds.map((nodeId) => cut.fleet.node(nodeId)));
    // Seen longest ago first.
    const seen = evidence('targets-observed');
    expect(seen.map((each) => each.reference)).toEqual(
      expect.arrayContaining(locals.map((node) => node.localSnapshot)),
    );
    expect([...seen].sort((a, b) => b.ageMs! - a.ageMs!)).toEqual(seen);
  });
});
