import { describe, expect, it } from 'vitest';
import { bareDigest } from '../../src/contract/digest.js';
import {
  fleetCutoverHeldVolumeFenceEvidencePageRecord,
  type IFleetCutoverHeldVolumeFenceEvidencePage,
  maximumVolumeFenceBytes,
  snapshotFleetCutoverHeldVolumeFenceEvidencePage,
  snapshotFleetCutoverVolumeFence,
  type TFleetCutoverVolumeFence,
  validateFleetCutoverHeldVolumeFenceEvidencePage,
  validateFleetCutoverVolumeFence,
} from '../../src/contract/held-fence.js';
import { canonicalizeStrictJson } from '../../src/contract/canonical-json.js';
import { maximumHeldFenceEvidenceBytes } from '../../src/contract/limits.js';
import { sparkSwarmObservationRequestRecord } from '../../src/contract/observation.js';
import { referenceOf } from '../../src/contract/schema.js';
import { type EvidenceFacts, judgeEvidence, type KnownFence } from '../../src/features/held-fence/evidence.js';
import { fenceFor, sealFence } from '../support/cutover.js';
import { handoffSet, referenceNamed } from '../support/handoff-set.js';

const set = handoffSet({ nodes: { 'n-1': 3, 'n-2': 2 } });
const own = set.handoffs.filter((handoff) => handoff.nodeId === 'n-1');
const page = set.pages[0]!;

const evidence = (
  over: Partial<IFleetCutoverHeldVolumeFenceEvidencePage> = {},
): IFleetCutoverHeldVolumeFenceEvidencePage => ({
  aggregate: page.aggregate,
  pageIndex: 0,
  contentDigest: page.contentDigest,
  nodeId: 'n-1',
  fences: own.map((handoff) => fenceFor(handoff)),
  ...over,
});
const facts = (over: Partial<EvidenceFacts> = {}): EvidenceFacts => ({
  clusterId: 'cluster-1',
  phase: 'draining',
  aggregate: page.aggregate,
  targeted: true,
  fenceStoreId: 'fs-n-1',
  page: {
    contentDigest: page.contentDigest,
    expected: own.map((handoff) => ({
      handoff: referenceOf(handoff),
      volumeId: handoff.volumeId,
      mountIdentityDigest: handoff.observedMount.mountIdentityDigest,
    })),
  },
  known: [],
  ...over,
});
/** The fence with other content, sealed again. */
function altered(fence: TFleetCutoverVolumeFence, over: Partial<TFleetCutoverVolumeFence>): TFleetCutoverVolumeFence {
  const { digest: _digest, ...content } = { ...fence, ...over };
  return sealFence(content);
}
const [first, second, third] = evidence().fences as [
  TFleetCutoverVolumeFence,
  TFleetCutoverVolumeFence,
  TFleetCutoverVolumeFence,
];

describe('a fence', () => {
  it('is exact, in state held and sealed', async () => {
    expect(await validateFleetCutoverVolumeFence(first)).toEqual([]);
    expect(snapshotFleetCutoverVolumeFence(first)).toEqual(first);
    for (const bad of [
      { ...first, state: 'released' },
      { ...first, generation: 0 },
      { ...first, generation: 2 },
      { ...first, extra: 1 },
      { ...first, handoff: referenceNamed('vh-other') },
      { ...first, volumeId: '' },
      null,
      [],
      'fence',
    ]) {
      expect(await validateFleetCutoverVolumeFence(bad)).not.toEqual([]);
    }
    const { digest: _digest, ...unsealed } = first;
    expect(await validateFleetCutoverVolumeFence(unsealed)).not.toEqual([]);
  });

  it('cannot reach its byte bound with any content that the schema allows', () => {
    const long = 'a'.repeat(128);
    const largest = sealFence({
      id: long,
      generation: Number.MAX_SAFE_INTEGER,
      state: 'held',
      clusterId: long,
      nodeId: long,
      fenceStoreId: long,
      volumeId: long,
      mountIdentityDigest: bareDigest('m'),
      handoff: { id: long, generation: Number.MAX_SAFE_INTEGER, digest: bareDigest('h') },
    });
    const bytes = Buffer.byteLength(canonicalizeStrictJson(largest));
    expect(bytes).toBeLessThanOrEqual(maximumVolumeFenceBytes);
    // So that a page of the largest fences is within the evidence's own bound, too.
    expect(32 * (maximumVolumeFenceBytes + 1) + 1024).toBeLessThan(maximumHeldFenceEvidenceBytes);
  });
});

describe('an evidence page', () => {
  const validate = validateFleetCutoverHeldVolumeFenceEvidencePage;

  it('has the fences of one node in page order', async () => {
    expect(await validate(evidence())).toEqual([]);
    expect(await validate(evidence({ fences: [] }))).toEqual([]);
    expect(await validate(evidence({ fences: [second, first, third] }))).toEqual([
      'IFleetCutoverHeldVolumeFenceEvidencePage /fences/1 is out of page order',
    ]);
    expect(await validate(evidence({ fences: [first, first] }))).toEqual([
      'IFleetCutoverHeldVolumeFenceEvidencePage /fences/1 is out of page order',
    ]);
    const foreign = altered(second, { nodeId: 'n-2' });
    expect(await validate(evidence({ fences: [first, foreign, third] }))).toEqual([
      'IFleetCutoverHeldVolumeFenceEvidencePage /fences/1 is of another node',
    ]);
    const forged = { ...second, volumeId: 'vo-forged' };
    expect(await validate(evidence({ fences: [first, forged, third] }))).toEqual([
      expect.stringContaining('/fences/1 TFleetCutoverVolumeFence /digest is not the digest of its content'),
    ]);
  });

  it('has at most 32 fences, a page of the aggregate and nothing else', async () => {
    const many = handoffSet({ nodes: { 'n-1': 33 } }).handoffs.map((handoff) => fenceFor(handoff));
    expect(await validate(evidence({ fences: many.slice(0, 32) }))).toEqual([]);
    expect(await validate(evidence({ fences: many }))).not.toEqual([]);
    expect(await validate(evidence({ pageIndex: 4095 }))).toEqual([]);
    for (const bad of [
      { ...evidence(), pageIndex: 4096 },
      { ...evidence(), pageIndex: -1 },
      { ...evidence(), pageIndex: 0.5 },
      { ...evidence(), extra: null },
      { ...evidence(), nodeId: 'no spaces' },
      { ...evidence(), contentDigest: 'sha256:00' },
      { ...evidence(), aggregate: null },
      { ...evidence(), fences: {} },
      { ...evidence(), fences: [null] },
    ]) {
      expect(await validate(bad)).not.toEqual([]);
    }
  });

  it('runs no code of a hostile value, and gives a frozen copy of a good one', async () => {
    let ran = false;
    const getter = Object.defineProperty({ ...evidence() }, 'fences', {
      enumerable: true,
      get: () => {
        ran = true;
        return [];
      },
    });
    const hostile: unknown[] = [
      getter,
      new Proxy(evidence(), {
        ownKeys: () => {
          ran = true;
          return [];
        },
      }),
      Object.assign(Object.create({ inherited: 1 }) as object, evidence()),
      { ...evidence(), toJSON: () => evidence() },
      { ...evidence(), fences: Object.assign([], { length: 3 }) },
    ];
    for (const value of hostile) {
      expect(await validate(value)).not.toEqual([]);
      expect(() => snapshotFleetCutoverHeldVolumeFenceEvidencePage(value)).toThrow(TypeError);
    }
    expect(ran).toBe(false);
    const copy = snapshotFleetCutoverHeldVolumeFenceEvidencePage(evidence());
    expect(Object.isFrozen(copy) && Object.isFrozen(copy.fences) && Object.isFrozen(copy.fences[0])).toBe(true);
  });

  it('is of the reporter: another node’s refuses the whole request', () => {
    const request = (nodeId: string) => ({
      nodeId,
      nodeToken: 'A'.repeat(43),
      protocol: { major: 32, minor: 15 },
      observation: {
        reporterSessionId: 'rs-1',
        observationSequence: 1,
        observedAt: 0,
        state: 'unknown',
        reason: 'timeout',
        fleetCutoverHeldVolumeFences: evidence(),
      },
    });
    expect(sparkSwarmObservationRequestRecord.validate(request('n-1'))).toEqual([]);
    expect(sparkSwarmObservationRequestRecord.validate(request('n-2'))).toEqual([
      'ISparkSwarmObservationRequest /observation/fleetCutoverHeldVolumeFences names another node than the reporter',
    ]);
  });

  it('is in bound at its largest: 32 of the largest fences', () => {
    const fences = Array.from({ length: 32 }, (_, index) =>
      altered(first, {
        id: String(index).padStart(128, 'f'),
        handoff: { ...first.handoff, id: `h${String(index).padStart(127, '0')}` },
      }),
    );
    const full = evidence({ fences });
    expect(fleetCutoverHeldVolumeFenceEvidencePageRecord.validate(full)).toEqual([]);
    expect(Buffer.byteLength(canonicalizeStrictJson(full))).toBeLessThan(maximumHeldFenceEvidenceBytes);
  });
});

describe('whether evidence counts', () => {
  const known = (over: Partial<KnownFence> = {}): KnownFence => ({
    handoffId: first.handoff.id,
    fenceId: first.id,
    generation: first.generation,
    digest: first.digest,
    ...over,
  });

  it('is so where the fences are exactly the node’s entries on the current page', () => {
    expect(judgeEvidence(evidence(), facts())).toBeNull();
    expect(judgeEvidence(evidence({ fences: [] }), facts({ page: { ...facts().page!, expected: [] } }))).toBeNull();
    for (const phase of ['draining', 'switching', 'pallet'] as const) {
      expect(judgeEvidence(evidence(), facts({ phase }))).toBeNull();
    }
  });

  it.each<[string, IFleetCutoverHeldVolumeFenceEvidencePage, EvidenceFacts, string]>([
    ['in phase swarm', evidence(), facts({ phase: 'swarm' }), 'phase-refused'],
    ['of a node outside the targets', evidence(), facts({ targeted: false }), 'node-not-targeted'],
    ['without an aggregate', evidence(), facts({ aggregate: null, page: null }), 'pin-stale'],
    ['of an older aggregate', evidence(), facts({ aggregate: referenceNamed('ha-1', 2) }), 'pin-stale'],
    [
      'of the same generation with another digest',
      evidence(),
      facts({ aggregate: { ...page.aggregate, digest: bareDigest('x') } }),
      'pin-stale',
    ],
    ['of a page beyond the end', evidence(), facts({ page: null }), 'page-unknown'],
    ['of another page content', evidence({ contentDigest: bareDigest('x') }), facts(), 'pin-stale'],
    ['with a fence less', evidence({ fences: [first, second] }), facts(), 'membership-differs'],
    ['that is empty although there are entries', evidence({ fences: [] }), facts(), 'membership-differs'],
    [
      'with fences although there is no entry',
      evidence(),
      facts({ page: { ...facts().page!, expected: [] } }),
      'membership-differs',
    ],
    ['with another order', evidence({ fences: [second, first, third] }), facts(), 'membership-differs'],
    [
      'of another cluster',
      evidence({ fences: [altered(first, { clusterId: 'other' }), second, third] }),
      facts(),
      'membership-differs',
    ],
    [
      'of another volume',
      evidence({ fences: [altered(first, { volumeId: 'other' }), second, third] }),
      facts(),
      'membership-differs',
    ],
    [
      'of another mount',
      evidence({ fences: [first, altered(second, { mountIdentityDigest: bareDigest('x') }), third] }),
      facts(),
      'membership-differs',
    ],
    [
      'of another handoff generation',
      evidence({ fences: [first, second, altered(third, { handoff: { ...third.handoff, generation: 2 } })] }),
      facts(),
      'membership-differs',
    ],
    ['of a node that names no fence store', evidence(), facts({ fenceStoreId: null }), 'store-differs'],
    ['of another fence store', evidence(), facts({ fenceStoreId: 'fs-other' }), 'store-differs'],
    [
      'of two fence stores',
      evidence({ fences: [first, altered(second, { fenceStoreId: 'fs-other' }), third] }),
      facts(),
      'store-differs',
    ],
    ['at a lower generation', evidence(), facts({ known: [known({ generation: 2 })] }), 'fence-conflict'],
    [
      'at the same generation with another digest',
      evidence(),
      facts({ known: [known({ digest: bareDigest('x') })] }),
      'fence-conflict',
    ],
  ])('is not so %s', (_name, given, about, code) => {
    expect(judgeEvidence(given, about)).toBe(code);
  });

  it('is so for the same fence again, a later generation of it, and another fence', () => {
    expect(judgeEvidence(evidence(), facts({ known: [known()] }))).toBeNull();
    const again = altered(first, { generation: 2 });
    expect(judgeEvidence(evidence({ fences: [again, second, third] }), facts({ known: [known()] }))).toBeNull();
    expect(judgeEvidence(evidence(), facts({ known: [known({ fenceId: 'vf-other', generation: 9 })] }))).toBeNull();
    expect(judgeEvidence(evidence(), facts({ known: [known({ handoffId: 'vh-gone', generation: 9 })] }))).toBeNull();
  });
});
