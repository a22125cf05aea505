import { describe, expect, it } from 'vitest';
import { fleetCutoverWriteOffRecord, type IFleetCutoverWriteOff } from '../../src/contract/write-off.js';
import { bareDigest } from '../../src/contract/digest.js';
import { referenceOf } from '../../src/contract/schema.js';
import { isRefused } from '../../src/refusal.js';
import { decideWriteOff, type WriteOffRequest, writeOffId } from '../../src/features/write-off/write-off.js';
import { referenceNamed } from '../support/handoff-set.js';

const request = (over: Partial<WriteOffRequest> = {}): WriteOffRequest => ({
  clusterId: 'cluster-1',
  clusterLife: 'life-1',
  subject: { kind: 'node', nodeId: 'n-1' },
  proposal: null,
  reason: 'the building burned down',
  verified: 'seen by two people',
  principalId: 'alice',
  ...over,
});

function written(current: IFleetCutoverWriteOff | undefined, over: Partial<WriteOffRequest> = {}) {
  const decided = decideWriteOff(current, request(over));
  if (isRefused(decided)) throw new Error(decided.problem.code);
  return decided;
}
function refusal(current: IFleetCutoverWriteOff | undefined, over: Partial<WriteOffRequest> = {}) {
  const decided = decideWriteOff(current, request(over));
  if (!isRefused(decided)) throw new Error('it was decided');
  return decided.problem;
}

describe('a write-off', () => {
  const proposed = written(undefined);
  const confirmed = written(proposed, { proposal: referenceOf(proposed), principalId: 'bob', verified: 'went there' });

  it('is proposed by one and confirmed by another, each a sealed generation', () => {
    expect(proposed).toMatchObject({
      generation: 1,
      state: 'proposed',
      proposedBy: 'alice',
      confirmedBy: null,
      predecessor: null,
    });
    expect(confirmed).toMatchObject({
      id: proposed.id,
      generation: 2,
      state: 'confirmed',
      proposedBy: 'alice',
      confirmedBy: 'bob',
      reason: proposed.reason,
      verified: 'went there',
      predecessor: referenceOf(proposed),
    });
    for (const each of [proposed, confirmed]) expect(fleetCutoverWriteOffRecord.validate(each)).toEqual([]);
  });

  it('keeps the reason of the proposal, whatever the confirmation says', () => {
    const other = written(proposed, { proposal: referenceOf(proposed), principalId: 'bob', reason: 'something else' });
    expect(other.reason).toBe('the building burned down');
  });

  it('is not confirmed by who proposed it', () => {
    expect(refusal(proposed, { proposal: referenceOf(proposed) })).toEqual({
      code: 'write-off-refused',
      detail: 'another administrator has to confirm it',
      mutationOutcome: 'not-applied',
      retrySafe: false,
    });
  });

  it('is confirmed only as it was proposed', () => {
    const { id, generation, digest } = referenceOf(proposed);
    const others = [
      null,
      referenceNamed(id),
      { id, generation: 2, digest },
      { id: 'wo-other', generation, digest },
      { id, generation, digest: bareDigest('other') },
    ];
    for (const proposal of others) {
      expect(refusal(proposed, { proposal, principalId: 'bob' })).toMatchObject({
        code: 'write-off-stale',
        expectation: 'proposal',
        current: referenceOf(proposed),
      });
    }
    expect(refusal(undefined, { proposal: referenceOf(proposed) })).toMatchObject({
      code: 'write-off-stale',
      current: null,
    });
  });

  it('is for ever', () => {
    for (const proposal of [null, referenceOf(proposed), referenceOf(confirmed)]) {
      expect(refusal(confirmed, { proposal, principalId: 'carol' })).toMatchObject({
        code: 'write-off-refused',
        detail: 'it is written off already',
      });
    }
  });

  it('has one id per subject and life of the cluster', () => {
    const key = { nodeId: 'n-1', serviceId: 'sv-1', mountIdentityDigest: bareDigest('mount') };
    const ids = [
      writeOffId('life-1', { kind: 'node', nodeId: 'n-1' }),
      writeOffId('life-2', { kind: 'node', nodeId: 'n-1' }),
      writeOffId('life-1', { kind: 'node', nodeId: 'n-2' }),
      writeOffId('life-1', { kind: 'volume', ...key }),
      writeOffId('life-1', { kind: 'volume', ...key, serviceId: 'sv-2' }),
    ];
    expect(new Set(ids).size).toBe(ids.length);
    expect(writeOffId('life-1', { kind: 'node', nodeId: 'n-1' })).toBe(ids[0]);
  });
});
