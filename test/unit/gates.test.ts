import { describe, expect, it } from 'vitest';
import type { IFleetCutoverCoreflowRelay } from '../../src/contract/coreflow.js';
import type { TGateCode } from '../../src/contract/gate.js';
import { bareDigest } from '../../src/contract/digest.js';
import type { TFleetCutoverPhase } from '../../src/contract/runtime.js';
import { type GateFacts, gatesTo, nextPhase, type RelayFacts, type Shortage } from '../../src/features/gate/gates.js';
import { referenceNamed } from '../support/handoff-set.js';

const none: Shortage = { count: 0, first: [] };
/** Twelve are missing, of which ten can be shown. */
const twelve = (what: string): Shortage => ({
  count: 12,
  first: Array.from({ length: 12 }, (_, index) => item(`${what} ${index}`)),
});
const item = (detail: string) => ({ nodeId: 'n-1', swarmServiceId: 's-1', detail });
const few = (what: string): Shortage => ({ count: 2, first: [item(`${what} 0`), item(`${what} 1`)] });

const live: IFleetCutoverCoreflowRelay = {
  swarmServiceId: 'relay',
  specVersion: 7,
  specDigest: bareDigest('spec'),
  nodeId: 'n-1',
  containerId: 'c-relay',
  imageDigest: null,
  managerSnapshot: referenceNamed('ms-1'),
  localSnapshot: referenceNamed('ls-1'),
};
type Classified = Extract<RelayFacts, { kind: 'classified' }>;
const aliveRelay: Classified = {
  kind: 'classified',
  swarmServiceId: 'relay',
  labelled: none,
  service: { specVersion: 7, specDigest: bareDigest('spec') },
  containers: { count: 1, first: [item('container relay.1 of the relay is running')] },
  live,
  bound: null,
  oldModeAccepted: few('old mode'),
  credential: { credentialId: 'cd-1', generation: 1, revoked: false },
};
const retiredRelay: Classified = {
  ...aliveRelay,
  service: null,
  containers: none,
  live: null,
  bound: live,
  oldModeAccepted: none,
  credential: { credentialId: 'cd-1', generation: 2, revoked: true },
};

function met(phase: TFleetCutoverPhase): GateFacts {
  return {
    scope: { reference: referenceNamed('sc-1'), complete: true, unclassified: none },
    targetSet: referenceNamed('ts-1'),
    managerSnapshot: { reference: referenceNamed('ms-1'), ageMs: 5, current: true, incomplete: null },
    unobservedTargets: none,
    unobservedNodes: none,
    oldestSnapshots: [{ reference: referenceNamed('ls-1'), ageMs: 9 }],
    entriesOutsideTargets: none,
    quarantined: none,
    blockers: none,
    aggregate: { reference: referenceNamed('ha-1'), complete: true, behind: false },
    missingHandoffs: none,
    surplusHandoffs: none,
    uncovered: none,
    vanishedVolumes: none,
    unkeptVolumes: none,
    unjudgedVolumes: none,
    unjudgedRevoked: none,
    relay: phase === 'pallet' ? retiredRelay : aliveRelay,
    runningServices: none,
    runningTasks: none,
    activeContainers: none,
    confirmedContainers: none,
    palletNotReady: none,
  };
}

const draining: TGateCode[] = [
  'scope-complete',
  'inventory-current',
  'targets-accepted',
  'targets-observed',
  'targets-cover-entries',
  'no-quarantine',
];
const prepared: TGateCode[] = [
  'no-blocker',
  'aggregate-complete',
  'aggregate-current',
  'coverage-complete',
  'volumes-present',
  'anonymous-volumes-kept',
];
const stopped: TGateCode[] = [
  'applications-stopped',
  'containers-stopped',
  'no-stray',
  'confirmed-overlaps-gone',
  'pallet-ready',
  'coreflow-retired',
  'coreflow-credential-revoked',
];
const gatesOf: Record<TFleetCutoverPhase, TGateCode[]> = {
  swarm: [],
  draining,
  switching: [...draining, ...prepared, 'coreflow-identified'],
  pallet: [...draining, ...prepared, ...stopped],
};

interface Break {
  readonly of: string;
  readonly facts: (facts: GateFacts) => Partial<GateFacts>;
  /** Gates that this one fact leaves unmet: one, except where two ask for the same. */
  readonly unmet: readonly TGateCode[];
  readonly count: number;
  readonly first: string;
  readonly acts: string;
  /** Phases whose way asks for it. */
  readonly ways: readonly TFleetCutoverPhase[];
}
const all = ['draining', 'switching', 'pallet'] as const;
const later = ['switching', 'pallet'] as const;
const relayOf = (facts: GateFacts, over: Partial<Classified>): Partial<GateFacts> => ({
  relay: { ...(facts.relay as Classified), ...over },
});

const breaks: readonly Break[] = [
  {
    of: 'no scope',
    facts: () => ({ scope: null }),
    unmet: ['scope-complete'],
    count: 1,
    first: 'no scope was accepted',
    acts: 'administrator',
    ways: all,
  },
  {
    of: 'unclassified services',
    facts: ({ scope }) => ({ scope: { ...scope!, complete: false, unclassified: twelve('unclassified') } }),
    unmet: ['scope-complete'],
    count: 12,
    first: 'unclassified 0',
    acts: 'administrator',
    ways: all,
  },
  {
    of: 'a scope in which everything is classified but the relay',
    facts: ({ scope }) => ({ scope: { ...scope!, complete: false } }),
    unmet: ['scope-complete'],
    count: 1,
    first: 'the scope does not say which service is Coreflow, or that there is none',
    acts: 'administrator',
    ways: all,
  },
  {
    of: 'no manager snapshot',
    facts: () => ({ managerSnapshot: null }),
    unmet: ['inventory-current'],
    count: 1,
    first: 'no manager snapshot was accepted',
    acts: 'spark',
    ways: all,
  },
  {
    of: 'an incomplete manager snapshot',
    facts: ({ managerSnapshot }) => ({ managerSnapshot: { ...managerSnapshot!, incomplete: 'truncated' } }),
    unmet: ['inventory-current'],
    count: 1,
    first: 'the latest manager snapshot is incomplete: truncated',
    acts: 'spark',
    ways: all,
  },
  {
    of: 'a manager snapshot of another runtime',
    facts: ({ managerSnapshot }) => ({ managerSnapshot: { ...managerSnapshot!, current: false } }),
    unmet: ['inventory-current'],
    count: 1,
    first: 'the latest manager snapshot was not taken under the runtime being left',
    acts: 'spark',
    ways: all,
  },
  {
    of: 'no target set',
    facts: () => ({ targetSet: null }),
    unmet: ['targets-accepted'],
    count: 1,
    first: 'no target set was accepted',
    acts: 'administrator',
    ways: all,
  },
  {
    of: 'unobserved targets',
    facts: () => ({ unobservedTargets: twelve('unobserved') }),
    unmet: ['targets-observed'],
    count: 12,
    first: 'unobserved 0',
    acts: 'spark',
    ways: all,
  },
  {
    of: 'entries outside the targets',
    facts: () => ({ entriesOutsideTargets: few('outside') }),
    unmet: ['targets-cover-entries'],
    count: 2,
    first: 'outside 0',
    acts: 'administrator',
    ways: all,
  },
  {
    of: 'a quarantine',
    facts: () => ({ quarantined: few('quarantined') }),
    unmet: ['no-quarantine'],
    count: 2,
    first: 'quarantined 0',
    acts: 'administrator',
    ways: all,
  },
  {
    of: 'a blocker',
    facts: () => ({ blockers: twelve('blocker') }),
    unmet: ['no-blocker'],
    count: 12,
    first: 'blocker 0',
    acts: 'administrator',
    ways: later,
  },
  {
    of: 'no aggregate',
    facts: () => ({ aggregate: null }),
    unmet: ['aggregate-complete', 'aggregate-current', 'coverage-complete'],
    count: 1,
    first: 'there is no aggregate',
    acts: 'administrator',
    ways: later,
  },
  {
    of: 'an incomplete aggregate, which nobody can cover',
    facts: ({ aggregate }) => ({ aggregate: { ...aggregate!, complete: false } }),
    unmet: ['aggregate-complete', 'coverage-complete'],
    count: 1,
    first: 'the aggregate is incomplete',
    acts: 'administrator',
    ways: later,
  },
  {
    of: 'an aggregate that is behind',
    facts: ({ aggregate }) => ({ aggregate: { ...aggregate!, behind: true } }),
    unmet: ['aggregate-current'],
    count: 1,
    first: 'keys, blockers, scope or targets changed since: rederive or prepare',
    acts: 'administrator',
    ways: later,
  },
  {
    of: 'missing handoffs, on the way to switching',
    facts: () => ({ missingHandoffs: twelve('missing') }),
    unmet: ['aggregate-complete'],
    count: 12,
    first: 'missing 0',
    acts: 'administrator',
    ways: ['switching'],
  },
  {
    of: 'missing handoffs, which later are strays too',
    facts: () => ({ missingHandoffs: twelve('missing') }),
    unmet: ['aggregate-complete', 'no-stray'],
    count: 12,
    first: 'missing 0',
    acts: 'administrator',
    ways: ['pallet'],
  },
  {
    of: 'surplus handoffs',
    facts: () => ({ surplusHandoffs: few('surplus') }),
    unmet: ['aggregate-complete'],
    count: 2,
    first: 'surplus 0',
    acts: 'administrator',
    ways: later,
  },
  {
    of: 'uncovered pages',
    facts: () => ({ uncovered: { count: 4_000, first: [item('covered 96 of 4096 pages')] } }),
    unmet: ['coverage-complete'],
    count: 4_000,
    first: 'covered 96 of 4096 pages',
    acts: 'pallet',
    ways: later,
  },
  {
    of: 'a volume that is gone',
    facts: () => ({ vanishedVolumes: few('vanished') }),
    unmet: ['volumes-present'],
    count: 2,
    first: 'vanished 0',
    acts: 'administrator',
    ways: later,
  },
  {
    of: 'anonymous volumes that nothing keeps',
    facts: () => ({ unkeptVolumes: twelve('unkept') }),
    unmet: ['anonymous-volumes-kept'],
    count: 12,
    first: 'unkept 0',
    acts: 'administrator',
    ways: later,
  },
  {
    of: 'volumes that nobody judged yet',
    facts: () => ({ unjudgedVolumes: few('unjudged') }),
    unmet: ['volumes-present', 'anonymous-volumes-kept'],
    count: 2,
    first: 'unjudged 0',
    acts: 'spark',
    ways: later,
  },
  {
    of: 'volumes that nobody judged yet, of nodes that report no more',
    facts: () => ({ unjudgedVolumes: few('unjudged'), unjudgedRevoked: few('revoked') }),
    unmet: ['volumes-present', 'anonymous-volumes-kept'],
    count: 4,
    first: 'revoked 0',
    acts: 'administrator',
    ways: later,
  },
  {
    of: 'a scope that does not say who the relay is',
    facts: () => ({ relay: { kind: 'undetermined' } }),
    unmet: ['coreflow-identified'],
    count: 1,
    first: 'the scope does not say which service is Coreflow, or that there is none',
    acts: 'administrator',
    ways: ['switching'],
  },
  {
    of: 'a labelled relay although there is said to be none',
    facts: () => ({ relay: { kind: 'none', labelled: few('labelled') } }),
    unmet: ['coreflow-identified'],
    count: 2,
    first: 'labelled 0',
    acts: 'administrator',
    ways: ['switching'],
  },
  {
    of: 'a relay whose service is gone already',
    facts: (facts) => relayOf(facts, { live: null, service: null }),
    unmet: ['coreflow-identified'],
    count: 1,
    first: 'the relay’s service is not in the manager snapshot',
    acts: 'administrator',
    ways: ['switching'],
  },
  {
    of: 'two containers of the relay',
    facts: (facts) => relayOf(facts, { live: null, containers: few('relay') }),
    unmet: ['coreflow-identified'],
    count: 2,
    first: 'relay 0',
    acts: 'administrator',
    ways: ['switching'],
  },
  {
    of: 'a relay that does not run',
    facts: (facts) => relayOf(facts, { live: null, containers: none }),
    unmet: ['coreflow-identified'],
    count: 1,
    first: 'no running container of the relay was reported under the runtime being left',
    acts: 'spark',
    ways: ['switching'],
  },
  {
    of: 'another service that is labelled a relay',
    facts: (facts) => relayOf(facts, { labelled: few('labelled') }),
    unmet: ['coreflow-identified'],
    count: 2,
    first: 'labelled 0',
    acts: 'administrator',
    ways: ['switching'],
  },
  {
    of: 'a relay that nobody registered, whose credential nobody could revoke',
    facts: (facts) => relayOf(facts, { credential: null }),
    unmet: ['coreflow-identified'],
    count: 1,
    first: 'no relay is registered, whose credential could be revoked',
    acts: 'administrator',
    ways: ['switching'],
  },
  {
    of: 'another service that is labelled a relay, when the known one is gone',
    facts: (facts) => relayOf(facts, { labelled: few('labelled') }),
    unmet: ['coreflow-retired'],
    count: 2,
    first: 'labelled 0',
    acts: 'administrator',
    ways: ['pallet'],
  },
  {
    of: 'an application service that is not at zero',
    facts: () => ({ runningServices: few('service') }),
    unmet: ['applications-stopped'],
    count: 2,
    first: 'service 0',
    acts: 'administrator',
    ways: ['pallet'],
  },
  {
    of: 'a task that may run',
    facts: () => ({ runningTasks: twelve('task') }),
    unmet: ['applications-stopped'],
    count: 12,
    first: 'task 0',
    acts: 'administrator',
    ways: ['pallet'],
  },
  {
    of: 'a container that may write',
    facts: () => ({ activeContainers: twelve('container') }),
    unmet: ['containers-stopped'],
    count: 12,
    first: 'container 0',
    acts: 'administrator',
    ways: ['pallet'],
  },
  {
    of: 'a node outside the targets that was not looked at',
    facts: () => ({ unobservedNodes: few('unobserved') }),
    unmet: ['containers-stopped'],
    count: 2,
    first: 'unobserved 0',
    acts: 'administrator',
    ways: ['pallet'],
  },
  {
    of: 'a confirmed overlap that is there still',
    facts: () => ({ confirmedContainers: few('confirmed') }),
    unmet: ['confirmed-overlaps-gone'],
    count: 2,
    first: 'confirmed 0',
    acts: 'administrator',
    ways: ['pallet'],
  },
  {
    of: 'a Pallet that is not ready',
    facts: () => ({ palletNotReady: few('pallet') }),
    unmet: ['pallet-ready'],
    count: 2,
    first: 'pallet 0',
    acts: 'pallet',
    ways: ['pallet'],
  },
  {
    of: 'a relay that nobody had identified',
    facts: (facts) => relayOf(facts, { bound: null }),
    unmet: ['coreflow-retired'],
    count: 1,
    first: 'the relay was not identified before the switch',
    acts: 'administrator',
    ways: ['pallet'],
  },
  {
    of: 'a relay whose service is seen',
    facts: (facts) => relayOf(facts, { service: { specVersion: 8, specDigest: bareDigest('other') } }),
    unmet: ['coreflow-retired'],
    count: 1,
    first: 'the relay’s service is in the manager snapshot still',
    acts: 'administrator',
    ways: ['pallet'],
  },
  {
    of: 'a container of the relay in any state',
    facts: (facts) => relayOf(facts, { containers: few('relay') }),
    unmet: ['coreflow-retired'],
    count: 2,
    first: 'relay 0',
    acts: 'administrator',
    ways: ['pallet'],
  },
  {
    of: 'a Spark that takes the old mode',
    facts: (facts) => relayOf(facts, { oldModeAccepted: few('old') }),
    unmet: ['coreflow-retired'],
    count: 2,
    first: 'old 0',
    acts: 'administrator',
    ways: ['pallet'],
  },
  {
    of: 'a relay that was never registered',
    facts: (facts) => relayOf(facts, { credential: null }),
    unmet: ['coreflow-credential-revoked'],
    count: 1,
    first: 'no relay is registered',
    acts: 'administrator',
    ways: ['pallet'],
  },
  {
    of: 'a credential of the relay that is accepted still',
    facts: (facts) => relayOf(facts, { credential: { credentialId: 'cd-1', generation: 2, revoked: false } }),
    unmet: ['coreflow-credential-revoked'],
    count: 1,
    first: 'the relay’s credential is not revoked',
    acts: 'administrator',
    ways: ['pallet'],
  },
];

describe('the order of phases', () => {
  it('goes forward one by one and ends', () => {
    expect((['swarm', 'draining', 'switching', 'pallet'] as const).map(nextPhase)).toEqual([
      'draining',
      'switching',
      'pallet',
      null,
    ]);
  });
});

describe('gates', () => {
  it.each(Object.entries(gatesOf) as [TFleetCutoverPhase, TGateCode[]][])(
    'of the way to %s are these, and all met where nothing is missing',
    (phase, codes) => {
      const gates = gatesTo(phase, met(phase));
      expect(gates.map((gate) => gate.code)).toEqual(codes);
      for (const gate of gates) {
        expect(gate).toMatchObject({ met: true, missingCount: 0, missing: [], acts: 'nobody' });
      }
    },
  );

  it('are cumulative: the way to a later phase asks for everything of the earlier ones but the relay’s identity', () => {
    const codes = (phase: TFleetCutoverPhase) => gatesTo(phase, met(phase)).map((gate) => gate.code);
    expect(codes('switching')).toEqual(expect.arrayContaining(codes('draining')));
    expect(codes('pallet')).toEqual(
      expect.arrayContaining(codes('switching').filter((code) => code !== 'coreflow-identified')),
    );
  });

  for (const phase of all) {
    describe(`on the way to ${phase}`, () => {
      const asked = breaks.filter((each) => each.ways.includes(phase));

      it.each(asked)('$of leaves unmet exactly $unmet', ({ facts, unmet, count, first, acts }) => {
        const whole = met(phase);
        const gates = gatesTo(phase, { ...whole, ...facts(whole) });
        expect(gates.filter((gate) => !gate.met).map((gate) => gate.code)).toEqual(unmet);
        const gate = gates.find((each) => each.code === unmet[0])!;
        expect(gate.missingCount).toBe(count);
        expect(gate.missing[0]!.detail).toBe(first);
        expect(gate.missing).toHaveLength(Math.min(count, gate.missing.length, 10));
        expect(gate.acts).toBe(acts);
      });

      it('what is asked for later only leaves nothing unmet', () => {
        const whole = met(phase);
        for (const each of breaks) {
          const [way] = each.ways as readonly (typeof all)[number][];
          if (all.indexOf(way!) <= all.indexOf(phase)) continue;
          // What is wrong with a relay that is gone is wrong with one that lives, too.
          if (each.unmet.some((code) => gatesOf[phase].includes(code) || code.startsWith('coreflow-'))) continue;
          const gates = gatesTo(phase, { ...whole, ...each.facts(whole) });
          expect(gates.filter((gate) => !gate.met).map((gate) => gate.code)).toEqual([]);
        }
      });

      it('every gate fails in some row of the table', () => {
        const failing = new Set(asked.flatMap((each) => each.unmet));
        expect(gatesOf[phase].filter((code) => !failing.has(code))).toEqual([]);
      });
    });
  }

  it('show at most ten of what is missing and of the evidence, and count all', () => {
    const seen = Array.from({ length: 12 }, (_, index) => ({ reference: referenceNamed(`ls-${index}`), ageMs: index }));
    const gates = gatesTo('draining', {
      ...met('draining'),
      oldestSnapshots: seen,
      unobservedTargets: twelve('unobserved'),
    });
    const gate = gates.find((each) => each.code === 'targets-observed')!;
    expect([gate.missingCount, gate.missing.length, gate.evidence.length]).toEqual([12, 10, 10]);
    expect(gate.missing.map((each) => each.detail)).toEqual(
      Array.from({ length: 10 }, (_, index) => `unobserved ${index}`),
    );
    expect(gate.evidence[0]).toEqual({ reference: referenceNamed('ls-0'), ageMs: 0 });
  });

  it('add up services and tasks, and unseen nodes and containers', () => {
    const gates = gatesTo('pallet', {
      ...met('pallet'),
      runningServices: few('service'),
      runningTasks: twelve('task'),
      unobservedNodes: few('node'),
      activeContainers: few('container'),
    });
    const counts = new Map(gates.map((gate) => [gate.code, gate.missingCount]));
    expect([counts.get('applications-stopped'), counts.get('containers-stopped')]).toEqual([14, 4]);
  });

  it('rest on the records that they name', () => {
    const gates = gatesTo('switching', met('switching'));
    const evidence = (code: TGateCode) =>
      gates.find((gate) => gate.code === code)!.evidence.map(({ reference, ageMs }) => [reference.id, ageMs]);
    expect(evidence('scope-complete')).toEqual([['sc-1', null]]);
    expect(evidence('inventory-current')).toEqual([['ms-1', 5]]);
    expect(evidence('targets-observed')).toEqual([['ls-1', 9]]);
    expect(evidence('coverage-complete')).toEqual([['ha-1', null]]);
    expect(evidence('coreflow-identified')).toEqual([
      ['ms-1', null],
      ['ls-1', null],
    ]);
  });

  it('of a cluster without a relay ask that none is labelled one, and for no credential', () => {
    const facts: GateFacts = { ...met('pallet'), relay: { kind: 'none', labelled: none } };
    const codes = gatesTo('pallet', facts).map((gate) => gate.code);
    expect(codes).not.toContain('coreflow-credential-revoked');
    expect(gatesTo('pallet', facts).every((gate) => gate.met)).toBe(true);
    expect(gatesTo('switching', facts).every((gate) => gate.met)).toBe(true);
    const seen: GateFacts = { ...facts, relay: { kind: 'none', labelled: few('labelled') } };
    expect(gatesTo('pallet', seen).filter((gate) => !gate.met)).toMatchObject([
      { code: 'coreflow-retired', missingCount: 2, acts: 'administrator' },
    ]);
    const undetermined: GateFacts = { ...facts, relay: { kind: 'undetermined' } };
    expect(gatesTo('pallet', undetermined).filter((gate) => !gate.met)).toMatchObject([
      { code: 'coreflow-retired', missingCount: 1, acts: 'administrator' },
    ]);
  });
});
