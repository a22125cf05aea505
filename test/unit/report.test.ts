import { describe, expect, it } from 'vitest';
import type { TSparkSwarmObservation } from '../../src/contract/observation.js';
import type { ReportingNode } from '../../src/features/fleet/report-rows.js';
import { decideReport, type ReporterSession } from '../../src/features/inventory/report.js';

const node = (over: Partial<ReportingNode> = {}): ReportingNode => ({
  nodeId: 'node-1',
  state: 'active',
  swarmNodeId: 'sn-1',
  reportedSwarmNodeId: null,
  reporterSessionId: 'rs-1',
  observationSequence: 5,
  localGeneration: 1,
  localDigest: 'sha256:0',
  localIncomplete: null,
  fenceStoreId: null,
  volumesJudged: true,
  ...over,
});
const session = (over: Partial<ReporterSession> = {}): ReporterSession => ({
  observationSequence: 5,
  requestDigest: 'digest-5',
  receipt: 'the receipt',
  ...over,
});
const base = { observedAt: 0, reporterSessionId: 'rs-1', observationSequence: 6 };
const member = (over: Partial<typeof base> & { localSwarmNodeId?: string } = {}): TSparkSwarmObservation => ({
  ...base,
  state: 'member',
  localSwarmNodeId: 'sn-1',
  controlAvailable: false,
  ...over,
});
const decide = (
  observation: TSparkSwarmObservation,
  over: {
    node?: Partial<ReportingNode>;
    session?: ReporterSession | undefined;
    holder?: { nodeId: string } | undefined;
    digest?: string;
  } = {},
) =>
  decideReport(
    node(over.node),
    'session' in over ? over.session : session(),
    'holder' in over ? over.holder : { nodeId: 'node-1' },
    observation,
    over.digest ?? 'another digest',
  );
const codeOf = (decision: ReturnType<typeof decide>) =>
  decision.kind === 'refused'
    ? decision.problem.code
    : 'refusal' in decision
      ? decision.refusal.problem.code
      : decision.kind;

describe('the sequence (invariant 1)', () => {
  it('rises strictly within a session', () => {
    expect(decide(member({ observationSequence: 6 }))).toEqual({ kind: 'accept', opensSession: false });
    expect(decide(member({ observationSequence: 1_000_000 }))).toEqual({ kind: 'accept', opensSession: false });
    for (const observationSequence of [1, 4, 5]) {
      const decision = decide(member({ observationSequence }));
      expect(decision).toMatchObject({
        kind: 'refused',
        problem: { code: 'sequence-stale', detail: 'the last accepted sequence is 5' },
      });
    }
  });

  it('begins anew with every session', () => {
    const fresh = member({ reporterSessionId: 'rs-2', observationSequence: 1 });
    expect(decide(fresh, { session: undefined })).toEqual({ kind: 'accept', opensSession: true });
  });
});

describe('an exact repeat (invariant 2)', () => {
  const repeat = member({ observationSequence: 5 });

  it('gets the receipt that it had, also from a replaced session and after a release', () => {
    const expected = { kind: 'repeat', receipt: 'the receipt' };
    expect(decide(repeat, { digest: 'digest-5' })).toEqual(expected);
    expect(decide(repeat, { digest: 'digest-5', node: { reporterSessionId: 'rs-2' } })).toEqual(expected);
    expect(decide(repeat, { digest: 'digest-5', node: { reporterSessionId: null } })).toEqual(expected);
  });

  it('is no repeat with another body or another sequence', () => {
    expect(codeOf(decide(repeat, { digest: 'digest-6' }))).toBe('sequence-stale');
    expect(codeOf(decide(member({ observationSequence: 4 }), { digest: 'digest-5' }))).toBe('sequence-stale');
    expect(codeOf(decide(member({ observationSequence: 6 }), { digest: 'digest-5' }))).toBe('accept');
  });

  it('gets nothing while the node is quarantined', () => {
    const decision = decide(repeat, { digest: 'digest-5', node: { state: 'quarantined' } });
    expect(codeOf(decision)).toBe('node-quarantined');
  });
});

describe('two reporters (invariant 3)', () => {
  it('lets a new session replace the old', () => {
    const decision = decide(member({ reporterSessionId: 'rs-2' }), { session: undefined });
    expect(decision).toEqual({ kind: 'accept', opensSession: true });
  });

  it('refuses a late report of a replaced session, which is no second reporter', () => {
    const decision = decide(member({ observationSequence: 4 }), { node: { reporterSessionId: 'rs-2' } });
    expect(codeOf(decision)).toBe('sequence-stale');
  });

  it.each([5, 6, 7])('quarantines at a new report of a replaced session (%i)', (sequence) => {
    const decision = decide(member({ observationSequence: sequence }), { node: { reporterSessionId: 'rs-2' } });
    expect(decision).toMatchObject({
      kind: 'quarantine',
      reason: 'two live reporters: rs-1 reported after rs-2 replaced it',
      refusal: { problem: { code: 'reporter-replaced' } },
    });
  });

  it('takes a session from before a release for a second reporter', () => {
    const decision = decide(member(), { node: { reporterSessionId: null } });
    expect(decision).toMatchObject({
      kind: 'quarantine',
      reason: 'two live reporters: rs-1 reported after its release replaced it',
    });
  });

  it('accepts nothing of a quarantined node', () => {
    for (const known of [undefined, session()]) {
      expect(codeOf(decide(member(), { node: { state: 'quarantined' }, session: known }))).toBe('node-quarantined');
    }
  });
});

describe('swarm node ids (invariant 4)', () => {
  it('binds a free one, and keeps the bound one', () => {
    expect(codeOf(decide(member(), { node: { swarmNodeId: null }, holder: undefined }))).toBe('accept');
    expect(codeOf(decide(member(), { holder: { nodeId: 'node-1' } }))).toBe('accept');
  });

  it('notes another one than the bound one and refuses', () => {
    const decision = decide(member({ localSwarmNodeId: 'sn-2' }), { holder: undefined });
    expect(decision).toMatchObject({
      kind: 'claim',
      swarmNodeId: 'sn-2',
      refusal: { problem: { code: 'swarm-node-changed', detail: 'bound to sn-1, reported sn-2' } },
    });
  });

  it('notes one that another node has and refuses', () => {
    const decision = decide(member(), { node: { swarmNodeId: null }, holder: { nodeId: 'node-0' } });
    expect(decision).toMatchObject({
      kind: 'claim',
      swarmNodeId: 'sn-1',
      refusal: { problem: { code: 'swarm-node-taken', detail: 'sn-1 is reported by node node-0 too' } },
    });
  });

  it('does not look at it where the node is in no swarm, or cannot tell', () => {
    const inactive: TSparkSwarmObservation = { ...base, state: 'inactive' };
    const unknown: TSparkSwarmObservation = { ...base, state: 'unknown', reason: 'timeout' };
    for (const observation of [inactive, unknown]) {
      expect(codeOf(decide(observation, { holder: { nodeId: 'node-0' } }))).toBe('accept');
    }
  });

  it('comes after the sequence and the session: a stale report claims nothing', () => {
    const claim = { localSwarmNodeId: 'sn-2' };
    expect(codeOf(decide(member({ ...claim, observationSequence: 5 })))).toBe('sequence-stale');
    expect(codeOf(decide(member(claim), { node: { reporterSessionId: 'rs-2' } }))).toBe('reporter-replaced');
  });
});
