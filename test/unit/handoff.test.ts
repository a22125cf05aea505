import { describe, expect, it } from 'vitest';
import { canonicalizeStrictJson } from '../../src/contract/canonical-json.js';
import type { IHandoffRemoval, IHandoffUpsert } from '../../src/contract/cutover-methods.js';
import {
  fleetCutoverPreparedVolumeHandoffIntentRecord,
  type IFleetCutoverPreparedVolumeHandoffIntent,
} from '../../src/contract/handoff.js';
import { observedMountOf } from '../../src/contract/mount.js';
import { handoffId } from '../../src/contract/record-id.js';
import { decideBatch, defaultRequest, type KeyFacts } from '../../src/features/volume-handoff/handoff.js';
import { independentBareDigest } from '../support/independent-digest.js';
import { referenceNamed } from '../support/handoff-set.js';

const clusterLife = 'cl-1';
const owner = {
  clusterId: 'cluster',
  clusterLife,
  organizationId: 'org',
  controllerId: 'controller',
  controllerEpoch: 3,
  runtimeNamespace: 'apps',
};
const evidence = {
  runtime: referenceNamed('rt'),
  scope: referenceNamed('sc'),
  managerSnapshot: referenceNamed('ms'),
  localSnapshot: (nodeId: string, generation: number, digest: `sha256:${string}`) => ({
    id: `ls-${nodeId}`,
    generation,
    digest,
  }),
};

function keyOf(ordinal: number): IHandoffRemoval & { mountPath: string } {
  const mountPath = `/data/${ordinal}`;
  const { mountIdentityDigest } = observedMountOf(`/volumes/${ordinal}`, mountPath);
  return { nodeId: 'node-1', serviceId: 'sv-1', mountIdentityDigest, mountPath };
}

function upsert(ordinal: number, more: Partial<IHandoffUpsert['request']> = {}): IHandoffUpsert {
  const { mountPath, ...key } = keyOf(ordinal);
  return { ...key, request: { ...defaultRequest(handoffId(clusterLife, key), mountPath), ...more } };
}

function removal(ordinal: number): IHandoffRemoval {
  const { mountPath: _mountPath, ...key } = keyOf(ordinal);
  return key;
}

function facts(ordinal: number, more: Partial<KeyFacts> = {}): KeyFacts {
  const key = keyOf(ordinal);
  const { sourceDigest, targetDigest } = observedMountOf(`/volumes/${ordinal}`, key.mountPath);
  return {
    handoffId: handoffId(clusterLife, key),
    required: true,
    writtenOff: false,
    sourceDigest,
    targetDigest,
    mountPath: key.mountPath,
    blockers: [],
    generation: null,
    digest: null,
    claimDigest: null,
    requestDigest: null,
    removed: null,
    localGeneration: 4,
    localDigest: referenceNamed('ls').digest,
    serviceState: 'live',
    ...more,
  };
}

/** Facts of a key whose handoff is what the first batch made. */
function prepared(ordinal: number, more: Partial<KeyFacts> = {}): KeyFacts {
  const [write] = decide([upsert(ordinal)], [], [facts(ordinal)]).writes;
  const { generation, digest, claimDigest, requestDigest } = write!;
  return facts(ordinal, { generation, digest, claimDigest, requestDigest, removed: false, ...more });
}

function decide(
  upserts: IHandoffUpsert[],
  removals: IHandoffRemoval[],
  upsertFacts: KeyFacts[],
  removalFacts: KeyFacts[] = [],
  straysOnly = false,
) {
  return decideBatch({ upserts, removals, upsertFacts, removalFacts, owner, evidence, straysOnly });
}

const codes = (batch: ReturnType<typeof decide>) => batch.entries.map((entry) => entry.code);

describe('a first handoff', () => {
  const batch = decide([upsert(1)], [], [facts(1)]);
  const [write] = batch.writes;
  const record = JSON.parse(write!.record!) as IFleetCutoverPreparedVolumeHandoffIntent;

  it('is a valid record in canonical JSON, with its volume made to exist', () => {
    expect(fleetCutoverPreparedVolumeHandoffIntentRecord.check(record)).toEqual([]);
    expect(write!.record).toBe(canonicalizeStrictJson(record));
    expect(write).toMatchObject({
      generation: 1,
      digest: record.digest,
      claimDigest: record.claimIntent.digest,
      requestDigest: independentBareDigest(upsert(1).request),
      newVolume: { ...removal(1), volumeId: record.volumeId },
    });
  });

  it('takes its facts from the owner rows, none from the caller but the request', () => {
    expect(record).toMatchObject({
      id: handoffId(clusterLife, removal(1)),
      clusterId: 'cluster',
      nodeId: 'node-1',
      serviceId: 'sv-1',
      observedMount: observedMountOf('/volumes/1', '/data/1'),
      evidence: { runtime: evidence.runtime, scope: evidence.scope, localSnapshot: { id: 'ls-node-1', generation: 4 } },
      predecessor: null,
    });
    const { clusterLife: _life, ...identity } = owner;
    expect(record.claimIntent).toMatchObject({
      ...identity,
      binding: { serviceId: 'sv-1', request: upsert(1).request },
    });
  });

  it('counts as prepared and matched, and shifts pages', () => {
    expect(batch).toMatchObject({ entries: [], preparedDelta: 1, matchedDelta: 1, membershipChanged: true });
    expect(batch.outcomes).toEqual([
      {
        nodeId: 'node-1',
        id: record.id,
        change: 'created',
        reference: { id: record.id, generation: 1, digest: record.digest },
      },
    ]);
  });

  it('depends on nothing but its facts', () => {
    expect(decide([upsert(1)], [], [facts(1)])).toEqual(batch);
  });
});

describe('what is there', () => {
  it('stays as it is for an equal request, also where the evidence is newer', () => {
    const before = prepared(1, { localGeneration: 9 });
    const batch = decide([upsert(1)], [], [before]);
    expect(batch).toMatchObject({
      entries: [],
      writes: [],
      preparedDelta: 0,
      matchedDelta: 0,
      membershipChanged: false,
    });
    expect(batch.outcomes[0]).toMatchObject({
      change: 'unchanged',
      reference: { generation: 1, digest: before.digest },
    });
  });

  it('is revised for another request: next generation, predecessors named, no page shifts', () => {
    const before = prepared(1);
    for (const more of [{ requestedCapacityBytes: 1 }, { requestId: 'rq-other' }]) {
      const batch = decide([upsert(1, more)], [], [before]);
      expect(batch).toMatchObject({ entries: [], preparedDelta: 0, matchedDelta: 0, membershipChanged: false });
      const record = JSON.parse(batch.writes[0]!.record!) as IFleetCutoverPreparedVolumeHandoffIntent;
      expect(record).toMatchObject({
        generation: 2,
        predecessor: { id: record.id, generation: 1, digest: before.digest },
        claimIntent: {
          generation: 2,
          predecessor: { id: record.claimIntent.id, generation: 1, digest: before.claimDigest },
        },
      });
      expect(batch.writes[0]!.newVolume).toBeNull();
      expect(fleetCutoverPreparedVolumeHandoffIntentRecord.check(record)).toEqual([]);
    }
  });

  it('is removed with its last reference; what is required no more leaves only the prepared count', () => {
    for (const required of [true, false]) {
      const before = prepared(1, { required });
      const batch = decide([], [removal(1)], [], [before]);
      expect(batch).toMatchObject({
        entries: [],
        preparedDelta: -1,
        matchedDelta: required ? -1 : 0,
        membershipChanged: true,
      });
      expect(batch.writes).toEqual([
        {
          nodeId: 'node-1',
          id: before.handoffId,
          generation: 1,
          digest: before.digest,
          claimDigest: before.claimDigest,
          requestDigest: before.requestDigest,
          record: null,
          newVolume: null,
        },
      ]);
    }
  });

  it('made again after a removal is a new generation, also with an equal request', () => {
    const batch = decide([upsert(1)], [], [prepared(1, { removed: true })]);
    expect(batch).toMatchObject({ preparedDelta: 1, matchedDelta: 1, membershipChanged: true });
    expect(batch.outcomes[0]).toMatchObject({ change: 'created', reference: { generation: 2 } });
    expect(batch.writes[0]!.newVolume).toBeNull();
  });
});

describe('entries that are refused', () => {
  it.each<[string, Partial<KeyFacts>, Partial<IHandoffUpsert['request']>, string]>([
    ['a key that was never required', { handoffId: null, required: false }, {}, 'entry-not-required'],
    ['a key that is required no more', { required: false }, {}, 'entry-not-required'],
    ['a blocked key', { blockers: ['overlap-keys', 'overlap-container'] }, {}, 'entry-blocked'],
    ['another mount path', {}, { mountPath: '/other' }, 'mount-path-mismatch'],
    ['a retired service', { serviceState: 'retired' }, {}, 'service-retired'],
    ['a retired service’s blocked key', { serviceState: 'retired', blockers: ['overlap-keys'] }, {}, 'service-retired'],
  ])('%s', (_name, more, request, code) => {
    for (const known of [facts(1, more), prepared(1, more)]) {
      const batch = decide([upsert(1, request)], [], [known]);
      expect(codes(batch)).toEqual([code]);
      expect(batch.writes).toEqual([]);
      expect(batch.outcomes).toEqual([]);
    }
  });

  it('says which blockers block', () => {
    const [entry] = decide([upsert(1)], [], [facts(1, { blockers: ['a', 'b'] })]).entries;
    expect(entry).toEqual({ list: 'upserts', index: 0, code: 'entry-blocked', detail: 'a, b' });
  });

  it('a removal of what is not there, or not any more', () => {
    expect(codes(decide([], [removal(1)], [], [facts(1)]))).toEqual(['entry-absent']);
    expect(codes(decide([], [removal(1)], [], [prepared(1, { removed: true })]))).toEqual(['entry-absent']);
  });

  it('removals are not kept from what is blocked or of a retired service', () => {
    expect(
      codes(decide([], [removal(1)], [], [prepared(1, { blockers: ['overlap-keys'], serviceState: 'retired' })])),
    ).toEqual([]);
  });

  it('a key twice, in one list or both; a key differs by node, service or mount', () => {
    expect(codes(decide([upsert(1), upsert(1, { requestedCapacityBytes: 1 })], [], [facts(1), facts(1)]))).toEqual([
      'entry-duplicate',
    ]);
    expect(decide([upsert(1)], [removal(1)], [facts(1)], [facts(1)]).entries).toEqual([
      { list: 'removals', index: 0, code: 'entry-duplicate' },
    ]);
    expect(codes(decide([], [removal(1), removal(1)], [], [prepared(1), prepared(1)]))).toEqual(['entry-duplicate']);
    const elsewhere = { ...upsert(1), nodeId: 'node-2' };
    expect(
      codes(decide([upsert(1), elsewhere, { ...upsert(1), serviceId: 'sv-2' }], [], [facts(1), facts(1), facts(1)])),
    ).toEqual([]);
  });

  it('a duplicate of a refused entry is a duplicate', () => {
    expect(
      codes(decide([upsert(1), upsert(1)], [], [facts(1, { required: false }), facts(1, { required: false })])),
    ).toEqual(['entry-not-required', 'entry-duplicate']);
  });

  it('are all named, in the order upserts, removals, by index', () => {
    const batch = decide(
      [upsert(1), upsert(2), upsert(3)],
      [removal(4), removal(5), removal(1)],
      [facts(1, { required: false }), facts(2), facts(3, { blockers: ['x'] })],
      [facts(4), prepared(5), prepared(1)],
    );
    expect(batch.entries.map(({ list, index, code }) => [list, index, code])).toEqual([
      ['upserts', 0, 'entry-not-required'],
      ['upserts', 2, 'entry-blocked'],
      ['removals', 0, 'entry-absent'],
      ['removals', 2, 'entry-duplicate'],
    ]);
  });

  it('a handoff of 7,169 bytes, not one of 7,168; bytes are counted, not characters', () => {
    const sizeOf = (mountPath: string) => {
      const batch = decide([upsert(1, { mountPath })], [], [facts(1, { mountPath })]);
      return {
        codes: codes(batch),
        bytes: batch.writes[0] === undefined ? null : Buffer.byteLength(batch.writes[0].record!),
      };
    };
    const room = 7168 - sizeOf('/x').bytes! + 2;
    const path = `/${'é'.repeat((room - 2) >> 1)}`.padEnd(room - ((room - 2) >> 1), 'x');
    expect(Buffer.byteLength(path)).toBe(room);
    expect(sizeOf(path)).toEqual({ codes: [], bytes: 7168 });
    expect(sizeOf(`${path}x`)).toEqual({ codes: ['entry-too-large'], bytes: null });
  });
});

describe('while the cluster switches', () => {
  it('what is not prepared may be, and what is stays as it is', () => {
    const batch = decide([upsert(1), upsert(2)], [], [facts(1), prepared(2)], [], true);
    expect(batch.entries).toEqual([]);
    expect(batch.outcomes.map((each) => each.change)).toEqual(['created', 'unchanged']);
  });

  it('nothing that is prepared is revised or removed', () => {
    const revised = upsert(1, { requestedCapacityBytes: 1 });
    const batch = decide(
      [revised, upsert(3)],
      [removal(2), removal(4)],
      [prepared(1), facts(3)],
      [prepared(2), facts(4)],
      true,
    );
    expect(batch.entries.map(({ list, index, code }) => [list, index, code])).toEqual([
      ['upserts', 0, 'strays-only'],
      ['removals', 0, 'strays-only'],
      ['removals', 1, 'entry-absent'],
    ]);
  });
});

it('the request of a ready-made mutation is retained, single-writer, and named after the handoff', () => {
  expect(defaultRequest('vh-abc', '/data')).toEqual({
    requestId: 'rq-abc',
    kind: 'filesystem',
    mountPath: '/data',
    accessMode: 'ReadWriteOnce',
    reclaimPolicy: 'Retain',
    requestedCapacityBytes: null,
  });
});
