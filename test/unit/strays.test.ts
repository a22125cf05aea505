import { describe, expect, it } from 'vitest';
import { bareDigest } from '../../src/contract/digest.js';
import type { IFleetCutoverScopeStatement } from '../../src/contract/scope.js';
import { judgeStrays } from '../../src/features/scope/strays.js';
import { scope, scopeService, scopeStatement } from '../support/snapshots.js';

const key = { nodeId: 'n-1', serviceId: 'sv-a', mountIdentityDigest: bareDigest('mount') };
const confirmation = {
  nodeId: 'n-1',
  mounter: { kind: 'container' as const, name: 'backup' },
  target: '/data',
  reason: 'ends before the switch',
};
const stated: IFleetCutoverScopeStatement = scopeStatement({
  services: [
    scopeService('a', { mounts: [{ target: '/cache', class: 'ephemeral', reason: 'a cache' }] }),
    scopeService('x', { class: 'excluded' }),
  ],
  overlapOwners: [{ ...key, reason: 'the owner' }],
  overlapConfirmations: [confirmation],
  dormantVolumes: [{ nodeId: 'n-1', volumeName: 'old', reason: 'dormant' }],
  releasedEntries: [{ ...key, serviceId: 'sv-x', reason: 'released' }],
  releasedAnonymousVolumes: [{ serviceId: 'sv-a', reason: 'old ones' }],
});
const before = scope({ ...stated });
const judge = (statement: Partial<IFleetCutoverScopeStatement>, targets: string[] = [], keys: string[] = []) =>
  judgeStrays(before, { ...stated, ...statement }, { targets: new Set(targets), keys: new Set(keys) }).map(
    ({ list, index, code, detail }) => {
      expect(code).toBe('strays-only');
      return `${list}[${index}] ${detail}`;
    },
  );
const [a, x] = stated.services as [(typeof stated.services)[number], (typeof stated.services)[number]];

describe('what may be stated while the cluster switches', () => {
  it('is what was stated before, in any order', () => {
    expect(judge({})).toEqual([]);
    expect(judge({ services: [x, a] })).toEqual([]);
  });

  it('is the class of a service that is new', () => {
    expect(judge({ services: [a, x, scopeService('late', { class: 'excluded' }), scopeService('later')] })).toEqual([]);
  });

  it('is the class of a mount that is not prepared', () => {
    const mounts = [...a.mounts, { target: '/stray', class: 'ephemeral' as const, reason: 'came up late' }];
    expect(judge({ services: [{ ...a, mounts }, x] }, ['sv-a\0/data'])).toEqual([]);
    expect(judge({ services: [x, { ...a, mounts }] }, ['sv-a\0/stray'])).toEqual([
      'services[1] /stray is prepared and no stray',
    ]);
    // The same target of another owner is another mount.
    expect(judge({ services: [{ ...a, mounts }, x] }, ['sv-x\0/stray', 'a\0/stray', 'sv-a/stray'])).toEqual([]);
  });

  it('is the release of an entry that is not prepared', () => {
    const more = { releasedEntries: [...stated.releasedEntries, { ...key, reason: 'came up late' }] };
    const identity = (serviceId: string) => `${key.nodeId}\0${serviceId}\0${key.mountIdentityDigest}`;
    expect(judge(more, [], [identity('sv-b')])).toEqual([]);
    expect(judge(more, [], [identity('sv-a')])).toEqual(['releasedEntries[1] it is prepared and no stray']);
  });

  it('is a confirmation more', () => {
    expect(judge({ overlapConfirmations: [{ ...confirmation, target: '/other' }, confirmation] })).toEqual([]);
    expect(
      judge({
        dormantVolumes: [{ nodeId: 'n-2', volumeName: 'old', reason: 'dormant too' }, ...stated.dormantVolumes],
      }),
    ).toEqual([]);
  });

  it.each<[string, Partial<IFleetCutoverScopeStatement>, string[]]>([
    ['another class', { services: [{ ...a, class: 'ingress' }, x] }, ['services[0] a class cannot change any more']],
    ['another owner', { services: [{ ...a, serviceId: 'sv-b' }, x] }, ['services[0] a class cannot change any more']],
    ['another reason', { services: [a, { ...x, reason: 'why not' }] }, ['services[1] a class cannot change any more']],
    ['a service less', { services: [a] }, ['services[1] x must stay stated']],
    ['no service', { services: [] }, ['services[0] a must stay stated', 'services[0] x must stay stated']],
    [
      'a mount class less',
      { services: [{ ...a, mounts: [] }, x] },
      ['services[0] the class of /cache cannot change any more'],
    ],
    [
      'another mount class',
      { services: [{ ...a, mounts: [{ target: '/cache', class: 'external', reason: 'a cache' }] }, x] },
      ['services[0] the class of /cache cannot change any more'],
    ],
    ['an owner less', { overlapOwners: [] }, ['overlapOwners[0] cannot change any more']],
    [
      'an owner more',
      { overlapOwners: [...stated.overlapOwners, { ...key, nodeId: 'n-2', reason: 'x' }] },
      ['overlapOwners[0] cannot change any more'],
    ],
    ['a release less', { releasedEntries: [] }, ['releasedEntries[0] what was confirmed must stay']],
    [
      'a release of anonymous volumes',
      { releasedAnonymousVolumes: [] },
      ['releasedAnonymousVolumes[0] cannot change any more'],
    ],
    ['a confirmation less', { overlapConfirmations: [] }, ['overlapConfirmations[0] what was confirmed must stay']],
    [
      'a confirmation with another reason',
      { overlapConfirmations: [{ ...confirmation, reason: 'other' }] },
      ['overlapConfirmations[0] what was confirmed must stay'],
    ],
    ['a dormant volume less', { dormantVolumes: [] }, ['dormantVolumes[0] what was confirmed must stay']],
    ['another relay', { coreflow: { state: 'undetermined' } }, ['coreflow[0] cannot change any more']],
    [
      'another reason for none',
      { coreflow: { state: 'none', reason: 'other' } },
      ['coreflow[0] cannot change any more'],
    ],
  ])('is not %s', (_name, statement, entries) => {
    expect(judge(statement)).toEqual(entries);
  });
});
