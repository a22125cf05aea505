import { describe, expect, it } from 'vitest';
import { bareDigest } from '../../src/contract/digest.js';
import { type IFleetCutoverScopeStatement, normalizeScopeStatement } from '../../src/contract/scope.js';
import { judgeStatement, type StatementFacts } from '../../src/features/scope/statement.js';
import { scope, scopeService, scopeStatement } from '../support/snapshots.js';

const facts = (over: Partial<StatementFacts> = {}): StatementFacts => ({
  inventory: new Set(['a', 'b']),
  predecessor: null,
  services: new Map([
    ['sv-a', 'live'],
    ['sv-b', 'live'],
    ['sv-old', 'retired'],
  ]),
  nodes: new Set(['node-1']),
  servicesWithEntries: new Set(),
  ...over,
});
const both = [scopeService('a'), scopeService('b')];
const judge = (statement: Partial<IFleetCutoverScopeStatement>, over: Partial<StatementFacts> = {}) =>
  judgeStatement(scopeStatement({ services: both, ...statement }), facts(over));
const codes = (judged: ReturnType<typeof judge>) =>
  judged.entries.map(({ list, index, code }) => `${list}[${index}] ${code}`);

describe('a whole statement', () => {
  it('is complete when every service of the inventory has a class and Coreflow is settled', () => {
    expect(judge({})).toEqual({ entries: [], unclassified: [], state: 'complete' });
    expect(judge({ services: [] }, { inventory: new Set() })).toMatchObject({ state: 'complete' });
  });

  it('is incomplete, and no less accepted, with services left out, which it names in order', () => {
    expect(judge({ services: [] })).toEqual({ entries: [], unclassified: ['a', 'b'], state: 'incomplete' });
    expect(judge({ services: [scopeService('a')] })).toMatchObject({
      entries: [],
      unclassified: ['b'],
      state: 'incomplete',
    });
  });

  it('is incomplete while nobody has said which service is Coreflow', () => {
    expect(judge({ coreflow: { state: 'undetermined' } })).toEqual({
      entries: [],
      unclassified: [],
      state: 'incomplete',
    });
  });
});

describe('services', () => {
  const a = (over: Parameters<typeof scopeService>[1]) =>
    codes(judge({ services: [scopeService('a', over), scopeService('b')] }));

  it('are stated once', () => {
    const judged = judge({ services: [...both, scopeService('a', { class: 'excluded' })] });
    expect(codes(judged)).toEqual(['services[2] entry-duplicate']);
  });

  it('are in the inventory, or were stated before', () => {
    const gone = scopeService('gone', { class: 'excluded' });
    expect(codes(judge({ services: [...both, gone] }))).toEqual(['services[2] service-not-in-inventory']);
    expect(codes(judge({ services: [...both, gone] }, { predecessor: scope({ services: [gone] }) }))).toEqual([]);
  });

  it('of class application and ingress name a live owner', () => {
    for (const kind of ['application', 'ingress'] as const) {
      expect(a({ class: kind })).toEqual([]);
      expect(a({ class: kind, serviceId: null })).toEqual(['services[0] service-id-required']);
      expect(a({ class: kind, serviceId: 'sv-nobody' })).toEqual(['services[0] service-unknown']);
      expect(a({ class: kind, serviceId: 'sv-old' })).toEqual(['services[0] service-retired']);
    }
  });

  it('of class coreflow and excluded name no owner', () => {
    expect(a({ class: 'excluded', serviceId: 'sv-a' })).toEqual(['services[0] service-id-refused']);
    const relay = scopeService('a', { class: 'coreflow', serviceId: 'sv-a' });
    const judged = judge({ services: [relay, scopeService('b')], coreflow: { state: 'classified' } });
    expect(codes(judged)).toEqual(['services[0] service-id-refused']);
  });

  it('have an owner of their own', () => {
    expect(codes(judge({ services: [scopeService('a'), scopeService('b', { serviceId: 'sv-a' })] }))).toEqual([
      'services[1] service-owned-twice',
    ]);
    const mixed = [scopeService('a', { class: 'ingress' }), scopeService('b', { serviceId: 'sv-a' })];
    expect(codes(judge({ services: mixed }))).toEqual(['services[1] service-owned-twice']);
  });

  it('are excluded with a reason', () => {
    expect(a({ class: 'excluded', reason: null })).toEqual(['services[0] reason-required']);
    expect(a({ class: 'excluded', reason: 'a batch of another team' })).toEqual([]);
  });

  it('have one class per mount', () => {
    const mount = { target: '/data', class: 'ephemeral', reason: 'a cache' } as const;
    expect(a({ mounts: [mount, { ...mount, target: '/data2' }] })).toEqual([]);
    expect(a({ mounts: [mount, { ...mount, class: 'external' }] })).toEqual(['services[0] mount-duplicate']);
  });

  it('must be stated as long as entries of them are required', () => {
    const predecessor = scope({ services: [scopeService('gone'), scopeService('empty')] });
    const judged = judge({}, { predecessor, servicesWithEntries: new Set(['gone']) });
    expect(judged.entries).toEqual([
      {
        list: 'services',
        index: 2,
        code: 'service-has-entries',
        detail: 'sv-gone has required entries: keep it, exclude it with a reason, or release them by name',
      },
    ]);
    const still = judge(
      { services: [...both, scopeService('gone', { class: 'excluded' })] },
      { predecessor, servicesWithEntries: new Set(['gone']) },
    );
    expect(codes(still)).toEqual([]);
  });

  it('are each refused for everything that is wrong with them', () => {
    const wrong = scopeService('c', { class: 'excluded', reason: null, serviceId: 'sv-a' });
    expect(codes(judge({ services: [...both, wrong, wrong] }))).toEqual([
      'services[2] service-not-in-inventory',
      'services[2] service-id-refused',
      'services[2] reason-required',
      'services[3] entry-duplicate',
      'services[3] service-not-in-inventory',
      'services[3] service-id-refused',
      'services[3] reason-required',
    ]);
  });
});

describe('Coreflow', () => {
  const relay = scopeService('a', { class: 'coreflow' });
  const relayToo = scopeService('b', { class: 'coreflow' });
  const none = { state: 'none', reason: 'there is no relay' } as const;

  it('is one service, or stated to be none', () => {
    expect(judge({ services: [relay, scopeService('b')], coreflow: { state: 'classified' } })).toMatchObject({
      entries: [],
      state: 'complete',
    });
    expect(codes(judge({ coreflow: none }))).toEqual([]);
  });

  it('excludes a statement that says otherwise', () => {
    expect(codes(judge({ services: [relay, scopeService('b')], coreflow: none }))).toEqual([
      'services[0] coreflow-mismatch',
    ]);
    expect(judge({ coreflow: { state: 'classified' } }).entries).toEqual([
      { list: 'coreflow', index: 0, code: 'coreflow-mismatch', detail: '0 services are classed coreflow' },
    ]);
    expect(codes(judge({ services: [relay, relayToo], coreflow: { state: 'classified' } }))).toEqual([
      'coreflow[0] coreflow-mismatch',
    ]);
    expect(codes(judge({ services: [relay, scopeService('b')], coreflow: { state: 'undetermined' } }))).toEqual([
      'coreflow[0] coreflow-mismatch',
    ]);
  });
});

describe('what is said about mounts and volumes', () => {
  const digest = bareDigest('mount');
  const key = (nodeId = 'node-1', serviceId = 'sv-a') => ({
    nodeId,
    serviceId,
    mountIdentityDigest: digest,
    reason: 'r',
  });
  const confirmation = (nodeId = 'node-1', target = '/data', name = 'x') => ({
    nodeId,
    mounter: { kind: 'container' as const, name },
    target,
    reason: 'r',
  });

  it.each([
    ['overlapOwners', { overlapOwners: [key(), key('node-9')] }],
    ['releasedEntries', { releasedEntries: [key(), key('node-9')] }],
    ['overlapConfirmations', { overlapConfirmations: [confirmation(), confirmation('node-9')] }],
    [
      'dormantVolumes',
      {
        dormantVolumes: [
          { nodeId: 'node-1', volumeName: 'v', reason: 'r' },
          { nodeId: 'node-9', volumeName: 'v', reason: 'r' },
        ],
      },
    ],
  ])('names nodes of the cluster: %s', (list, statement) => {
    expect(codes(judge(statement))).toEqual([`${list}[1] node-unknown`]);
  });

  it.each([
    ['overlapOwners', { overlapOwners: [key(), key('node-1', 'sv-b'), key()] }],
    ['releasedEntries', { releasedEntries: [key(), key('node-1', 'sv-b'), key()] }],
    [
      'overlapConfirmations',
      { overlapConfirmations: [confirmation(), confirmation('node-1', '/other'), confirmation()] },
    ],
    [
      'dormantVolumes',
      {
        dormantVolumes: ['v', 'w', 'v'].map((volumeName, index) => ({
          nodeId: 'node-1',
          volumeName,
          reason: `r${index}`,
        })),
      },
    ],
    [
      'releasedAnonymousVolumes',
      { releasedAnonymousVolumes: ['sv-a', 'sv-b', 'sv-a'].map((serviceId) => ({ serviceId, reason: 'r' })) },
    ],
  ])('says each thing once: %s', (list, statement) => {
    expect(codes(judge(statement))).toEqual([`${list}[2] entry-duplicate`]);
  });

  it('tells a service from a container of the same name', () => {
    const mounter = { kind: 'service' as const, swarmServiceId: 'x' };
    expect(codes(judge({ overlapConfirmations: [confirmation(), { ...confirmation(), mounter }] }))).toEqual([]);
  });
});

describe('the normalised statement', () => {
  it('is the same for every order of the same statement', () => {
    const mount = (target: string) => ({ target, class: 'ephemeral', reason: 'r' }) as const;
    const entries = ['b', 'a'].flatMap((node) =>
      ['y', 'x'].map((service) => ({
        nodeId: node,
        serviceId: service,
        mountIdentityDigest: bareDigest(service),
        reason: 'r',
      })),
    );
    const statement = scopeStatement({
      services: [scopeService('b', { mounts: [mount('/b'), mount('/a')] }), scopeService('a')],
      overlapOwners: entries,
      releasedEntries: entries,
      overlapConfirmations: [
        { nodeId: 'b', mounter: { kind: 'service', swarmServiceId: 's' }, target: '/a', reason: 'r' },
        { nodeId: 'a', mounter: { kind: 'service', swarmServiceId: 's' }, target: '/b', reason: 'r' },
        { nodeId: 'a', mounter: { kind: 'container', name: 't' }, target: '/a', reason: 'r' },
        { nodeId: 'a', mounter: { kind: 'container', name: 's' }, target: '/b', reason: 'r' },
        { nodeId: 'a', mounter: { kind: 'container', name: 's' }, target: '/a', reason: 'r' },
      ],
      dormantVolumes: ['b', 'a'].map((volumeName) => ({ nodeId: 'n', volumeName, reason: 'r' })),
      releasedAnonymousVolumes: ['b', 'a'].map((serviceId) => ({ serviceId, reason: 'r' })),
    });
    const reversed = scopeStatement({
      services: [...statement.services].reverse().map((each) => ({ ...each, mounts: [...each.mounts].reverse() })),
      overlapOwners: [...statement.overlapOwners].reverse(),
      releasedEntries: [...statement.releasedEntries].reverse(),
      overlapConfirmations: [...statement.overlapConfirmations].reverse(),
      dormantVolumes: [...statement.dormantVolumes].reverse(),
      releasedAnonymousVolumes: [...statement.releasedAnonymousVolumes].reverse(),
    });
    const normal = normalizeScopeStatement(statement);
    expect(bareDigest(normalizeScopeStatement(reversed))).toBe(bareDigest(normal));
    expect(bareDigest(normalizeScopeStatement(normal))).toBe(bareDigest(normal));
    expect(normal.services.map((each) => each.swarmServiceId)).toEqual(['a', 'b']);
    expect(normal.services[1]?.mounts.map((each) => each.target)).toEqual(['/a', '/b']);
    expect(normal.overlapConfirmations.map((each) => `${each.nodeId} ${each.mounter.kind} ${each.target}`)).toEqual([
      'a container /a',
      'a container /b',
      'a container /a',
      'a service /b',
      'b service /a',
    ]);
  });
});
