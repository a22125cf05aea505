import { describe, expect, it } from 'vitest';
import { fleetCutoverPreparedVolumeHandoffAggregateRecord } from '../../src/contract/handoff.js';
import { referenceOf } from '../../src/contract/schema.js';
import {
  type AggregateHead,
  aggregateReference,
  isComplete,
  nextAggregate,
} from '../../src/features/volume-handoff/aggregate.js';
import type { HandoffWrite } from '../../src/features/volume-handoff/handoff.js';
import { referenceNamed } from '../support/handoff-set.js';
import { independentBareDigest, independentRecordDigest } from '../support/independent-digest.js';

const absent: AggregateHead = {
  generation: 0,
  digest: null,
  state: 'absent',
  preparedCount: 0,
  matchedCount: 0,
  pageCount: 0,
  derivationGeneration: 0,
  scopeGeneration: 0,
  targetSetGeneration: 0,
  completeGeneration: 0,
};

function write(nodeId: string, id: string, record: string | null): HandoffWrite {
  const { digest } = referenceNamed(id, 3);
  return { nodeId, id, generation: 3, digest, claimDigest: digest, requestDigest: digest, record, newVolume: null };
}

function next(head: AggregateHead, more: Partial<Parameters<typeof nextAggregate>[1]> = {}) {
  return nextAggregate(head, {
    clusterId: 'cluster',
    clusterLife: 'cl-1',
    runtime: referenceNamed('rt'),
    scope: referenceNamed('sc'),
    targetSet: null,
    derivation: referenceNamed('dv'),
    requiredCount: 2,
    counts: { preparedCount: 1, matchedCount: 1 },
    writes: [],
    pages: null,
    ...more,
  });
}

describe('complete', () => {
  const derivation = (requiredCount: number, blockerCount: number) => ({
    ...referenceNamed('dv'),
    requiredCount,
    blockerCount,
  });

  it.each([
    [0, 0, 0, 0, true],
    [3, 0, 3, 3, true],
    [3, 1, 3, 3, false], // a blocker
    [3, 0, 2, 2, false], // one is missing
    [3, 0, 4, 3, false], // one too many
    [3, 0, 3, 2, false], // one missing and one too many: equal counts are not equal sets
    [0, 0, 1, 0, false],
    [0, 1, 0, 0, false],
  ])(
    'required %i, blockers %i, prepared %i, of them required %i: %s',
    (required, blockers, preparedCount, matchedCount, complete) => {
      expect(isComplete(derivation(required, blockers), { preparedCount, matchedCount })).toBe(complete);
    },
  );
});

describe('the next header', () => {
  it('begins without a predecessor and goes on from the head', () => {
    const first = next(absent);
    expect(first).toMatchObject({
      generation: 1,
      predecessor: null,
      state: 'incomplete',
      pageCount: 0,
      setDigest: null,
    });
    const second = next({ ...absent, generation: 1, digest: first.digest, state: 'incomplete' });
    expect(second).toMatchObject({ id: first.id, generation: 2, predecessor: referenceOf(first) });
    for (const header of [first, second]) {
      expect(fleetCutoverPreparedVolumeHandoffAggregateRecord.validate(header)).toEqual([]);
      expect(header.digest).toBe(independentRecordDigest('fleet-cutover-prepared-volume-handoff-aggregate', header));
    }
  });

  it('is complete exactly where it has pages, of which there may be none', () => {
    const setDigest = independentBareDigest([]) as `sha256:${string}`;
    const empty = next(absent, {
      requiredCount: 0,
      counts: { preparedCount: 0, matchedCount: 0 },
      pages: { pageCount: 0, setDigest },
    });
    expect(empty).toMatchObject({ state: 'complete', pageCount: 0, setDigest });
    expect(fleetCutoverPreparedVolumeHandoffAggregateRecord.validate(empty)).toEqual([]);
  });

  it('digests its changes sorted by node and id, removals as null, whatever the order of the writes', () => {
    const writes = [write('b', 'vh-1', '{}'), write('a', 'vh-9', null), write('a', 'vh-2', '{}')];
    const listed = [
      { nodeId: 'a', id: 'vh-2', handoff: { generation: 3, digest: writes[2]!.digest } },
      { nodeId: 'a', id: 'vh-9', handoff: null },
      { nodeId: 'b', id: 'vh-1', handoff: { generation: 3, digest: writes[0]!.digest } },
    ];
    expect(next(absent, { writes }).changeDigest).toBe(independentBareDigest(listed));
    expect(next(absent, { writes: [...writes].reverse() }).changeDigest).toBe(independentBareDigest(listed));
    expect(next(absent).changeDigest).toBe(independentBareDigest([]));
  });

  it('has an id of its cluster’s life, which a restore ends', () => {
    expect(next(absent).id).not.toBe(next(absent, { clusterLife: 'cl-2' }).id);
    expect(next(absent).id).toBe(
      `ha-${independentBareDigest({ clusterLife: 'cl-1', record: 'aggregate' }).slice(7, 47)}`,
    );
  });
});

it('a head without a revision has no reference', () => {
  expect(aggregateReference('cl-1', absent)).toBeNull();
  const { digest } = referenceNamed('x');
  expect(aggregateReference('cl-1', { generation: 4, digest })).toEqual({ id: next(absent).id, generation: 4, digest });
});
