/**
 * Prepared volume handoffs: the intent of one handoff, the aggregate's header, its immutable pages, and Spark's read.
 */
import { type Static, Type } from '@sinclair/typebox';
import { canonicalizeStrictJson } from './canonical-json.js';
import { bareDigest, type TSha256Digest } from './digest.js';
import {
  fleetCutoverContract,
  maximumPreparedVolumeHandoffBytes,
  maximumPreparedVolumeHandoffs,
  sparkSwarmNodeContracts,
} from './limits.js';
import { observedMountErrors, ObservedMount } from './mount.js';
import { BearerSecret } from './observation.js';
import { ProtocolOffer } from './protocol.js';
import { defineRecord } from './record.js';
import { RuntimeStorageClaimIntent, runtimeStorageClaimIntentRecord } from './storage-claim.js';
import {
  closed,
  compareText,
  Digest,
  FleetCutoverAcceptedEvidenceReference,
  Identifier,
  nullable,
  oneOf,
  PositiveInteger,
  sameReference,
} from './schema.js';

/** Cloudly's accepted pre-switch statement of one volume's handoff. It has no source lineage digest on purpose. */
export const FleetCutoverPreparedVolumeHandoffIntent = closed({
  id: Identifier,
  generation: PositiveInteger,
  digest: Digest,
  clusterId: Identifier,
  nodeId: Identifier,
  serviceId: Identifier,
  volumeId: Identifier,
  observedMount: ObservedMount,
  claimIntent: RuntimeStorageClaimIntent,
  /** The accepted records that this generation was derived from. */
  evidence: closed({
    runtime: FleetCutoverAcceptedEvidenceReference,
    scope: FleetCutoverAcceptedEvidenceReference,
    managerSnapshot: FleetCutoverAcceptedEvidenceReference,
    localSnapshot: FleetCutoverAcceptedEvidenceReference,
  }),
  predecessor: nullable(FleetCutoverAcceptedEvidenceReference),
});
export type IFleetCutoverPreparedVolumeHandoffIntent = Static<typeof FleetCutoverPreparedVolumeHandoffIntent>;

export const fleetCutoverPreparedVolumeHandoffIntentRecord = defineRecord(
  'IFleetCutoverPreparedVolumeHandoffIntent',
  FleetCutoverPreparedVolumeHandoffIntent,
  {
    sealed: true,
    rules: (handoff) => {
      const errors = [...observedMountErrors(handoff.observedMount)];
      const intent = handoff.claimIntent;
      errors.push(...runtimeStorageClaimIntentRecord.check(intent).map((error) => `/claimIntent ${error}`));
      for (const fact of ['clusterId', 'nodeId', 'serviceId'] as const) {
        if (intent[fact] !== handoff[fact]) errors.push(`/claimIntent/${fact} must be the handoff’s`);
      }
      if (encodedBytes(handoff) > maximumPreparedVolumeHandoffBytes) {
        errors.push(`exceeds ${maximumPreparedVolumeHandoffBytes} encoded bytes`);
      }
      return errors;
    },
  },
);
export const snapshotFleetCutoverPreparedVolumeHandoffIntent = fleetCutoverPreparedVolumeHandoffIntentRecord.snapshot;
export const validateFleetCutoverPreparedVolumeHandoffIntent = async (value: unknown): Promise<string[]> =>
  fleetCutoverPreparedVolumeHandoffIntentRecord.validate(value);

function encodedBytes(value: unknown): number {
  return new TextEncoder().encode(canonicalizeStrictJson(value)).byteLength;
}

/** Revisioned header of all handoffs of a cluster. It never inlines page references. */
export const FleetCutoverPreparedVolumeHandoffAggregate = closed({
  id: Identifier,
  generation: PositiveInteger,
  digest: Digest,
  clusterId: Identifier,
  requiredCount: Type.Integer({ minimum: 0, maximum: maximumPreparedVolumeHandoffs }),
  actualCount: Type.Integer({ minimum: 0, maximum: maximumPreparedVolumeHandoffs }),
  /** `complete`: the required and the prepared set are equal and nothing blocks. Only complete revisions have pages. */
  state: oneOf('incomplete', 'complete'),
  pageCount: Type.Integer({ minimum: 0, maximum: fleetCutoverContract.maximumPreparedVolumeHandoffPages }),
  /** Bare digest over the ordered content digests of the pages; null while incomplete. */
  setDigest: nullable(Digest),
  /** What it was derived from. */
  runtime: FleetCutoverAcceptedEvidenceReference,
  scope: FleetCutoverAcceptedEvidenceReference,
  targetSet: nullable(FleetCutoverAcceptedEvidenceReference),
  derivation: FleetCutoverAcceptedEvidenceReference,
  predecessor: nullable(FleetCutoverAcceptedEvidenceReference),
  /** Bare digest over the sorted changes from the predecessor, see {@link HandoffChange}. */
  changeDigest: Digest,
});
export type IFleetCutoverPreparedVolumeHandoffAggregate = Static<typeof FleetCutoverPreparedVolumeHandoffAggregate>;

/** One change of an aggregate revision; `handoff` null says that it was removed. Sorted by `(nodeId, id)`. */
export interface HandoffChange {
  readonly nodeId: string;
  readonly id: string;
  readonly handoff: { readonly generation: number; readonly digest: TSha256Digest } | null;
}

/** Bare digest over sorted changes. */
export function handoffChangeDigest(changes: readonly HandoffChange[]): TSha256Digest {
  const sorted = [...changes].sort(comparePageOrder);
  return bareDigest(sorted.map((change) => ({ nodeId: change.nodeId, id: change.id, handoff: change.handoff })));
}

/** Bare digest over the ordered page-content digests; of `[]` for an empty set. */
export function handoffSetDigest(contentDigests: readonly TSha256Digest[]): TSha256Digest {
  return bareDigest([...contentDigests]);
}

function pagesFor(count: number): number {
  return Math.ceil(count / fleetCutoverContract.maximumPreparedVolumeHandoffMutationEntries);
}

export const fleetCutoverPreparedVolumeHandoffAggregateRecord = defineRecord(
  'IFleetCutoverPreparedVolumeHandoffAggregate',
  FleetCutoverPreparedVolumeHandoffAggregate,
  {
    sealed: true,
    rules: (aggregate) => {
      const errors: string[] = [];
      if (aggregate.state === 'complete') {
        if (aggregate.requiredCount !== aggregate.actualCount)
          errors.push('/actualCount must equal requiredCount when complete');
        if (aggregate.pageCount !== pagesFor(aggregate.actualCount))
          errors.push('/pageCount must hold actualCount, 32 a page');
        if (aggregate.setDigest === null) errors.push('/setDigest is required when complete');
        if (aggregate.actualCount === 0 && aggregate.setDigest !== handoffSetDigest([]))
          errors.push('/setDigest must be that of no pages');
      } else if (aggregate.pageCount !== 0 || aggregate.setDigest !== null) {
        errors.push('has pages only when complete');
      }
      const { predecessor } = aggregate;
      if (
        predecessor === null
          ? aggregate.generation !== 1
          : predecessor.generation !== aggregate.generation - 1 || predecessor.id !== aggregate.id
      ) {
        errors.push('/predecessor must be the generation before');
      }
      return errors;
    },
  },
);
export const snapshotFleetCutoverPreparedVolumeHandoffAggregate =
  fleetCutoverPreparedVolumeHandoffAggregateRecord.snapshot;
export const validateFleetCutoverPreparedVolumeHandoffAggregate = async (value: unknown): Promise<string[]> =>
  fleetCutoverPreparedVolumeHandoffAggregateRecord.validate(value);

/** A handoff's reference with the node that owns it. */
export const FleetCutoverPreparedVolumeHandoffPageEntry = closed({
  nodeId: Identifier,
  id: Identifier,
  generation: PositiveInteger,
  digest: Digest,
});
export type IFleetCutoverPreparedVolumeHandoffPageEntry = Static<typeof FleetCutoverPreparedVolumeHandoffPageEntry>;

/** Immutable page of 1..32 references in ascending `(nodeId, id)` order. */
export const FleetCutoverPreparedVolumeHandoffPage = closed({
  aggregate: FleetCutoverAcceptedEvidenceReference,
  pageIndex: Type.Integer({ minimum: 0, maximum: fleetCutoverContract.maximumPreparedVolumeHandoffPages - 1 }),
  handoffs: Type.Array(FleetCutoverPreparedVolumeHandoffPageEntry, {
    minItems: 1,
    maxItems: fleetCutoverContract.maximumPreparedVolumeHandoffMutationEntries,
  }),
  /** Bare digest over `{ handoffs, pageIndex }`, not over the aggregate reference. */
  contentDigest: Digest,
});
export type IFleetCutoverPreparedVolumeHandoffPage = Static<typeof FleetCutoverPreparedVolumeHandoffPage>;

export function comparePageOrder(
  left: { readonly nodeId: string; readonly id: string },
  right: { readonly nodeId: string; readonly id: string },
): number {
  return compareText(left.nodeId, right.nodeId) || compareText(left.id, right.id);
}

export function pageContentDigest(
  pageIndex: number,
  handoffs: readonly IFleetCutoverPreparedVolumeHandoffPageEntry[],
): TSha256Digest {
  return bareDigest({ handoffs: handoffs as IFleetCutoverPreparedVolumeHandoffPageEntry[], pageIndex });
}

export const fleetCutoverPreparedVolumeHandoffPageRecord = defineRecord(
  'IFleetCutoverPreparedVolumeHandoffPage',
  FleetCutoverPreparedVolumeHandoffPage,
  {
    rules: (page) => {
      const errors: string[] = [];
      for (let index = 1; index < page.handoffs.length; index += 1) {
        if (comparePageOrder(page.handoffs[index - 1]!, page.handoffs[index]!) >= 0) {
          errors.push(`/handoffs/${index} is out of (nodeId, id) order`);
          break;
        }
      }
      if (pageContentDigest(page.pageIndex, page.handoffs) !== page.contentDigest) {
        errors.push('/contentDigest is not the digest of index and references');
      }
      return errors;
    },
  },
);
export const snapshotFleetCutoverPreparedVolumeHandoffPage = fleetCutoverPreparedVolumeHandoffPageRecord.snapshot;
export const validateFleetCutoverPreparedVolumeHandoffPage = async (value: unknown): Promise<string[]> =>
  fleetCutoverPreparedVolumeHandoffPageRecord.validate(value);

/** First read selects the current complete revision with `aggregate: null`; all following reads pin it exactly. */
export const SparkGetFleetCutoverPreparedVolumeHandoffsRequest = closed({
  nodeId: Identifier,
  nodeToken: BearerSecret,
  protocol: ProtocolOffer,
  aggregate: nullable(FleetCutoverAcceptedEvidenceReference),
  pageIndex: Type.Integer({ minimum: 0, maximum: fleetCutoverContract.maximumPreparedVolumeHandoffPages - 1 }),
});
export type ISparkGetFleetCutoverPreparedVolumeHandoffsRequest = Static<
  typeof SparkGetFleetCutoverPreparedVolumeHandoffsRequest
>;

export const sparkGetFleetCutoverPreparedVolumeHandoffsRequestRecord = defineRecord(
  'ISparkGetFleetCutoverPreparedVolumeHandoffsRequest',
  SparkGetFleetCutoverPreparedVolumeHandoffsRequest,
);
/** Errors of a request for one page; empty when it is well-formed. */
export const validateSparkGetFleetCutoverPreparedVolumeHandoffsRequest =
  sparkGetFleetCutoverPreparedVolumeHandoffsRequestRecord.validate;

/** All-null when there is no complete revision or it has no pages. */
export const SparkGetFleetCutoverPreparedVolumeHandoffsResponse = Type.Union([
  closed({
    aggregate: Type.Null(),
    page: Type.Null(),
    nodeId: Identifier,
    nodeHandoffs: Type.Tuple([]),
    protocol: ProtocolOffer,
  }),
  closed({
    aggregate: FleetCutoverPreparedVolumeHandoffAggregate,
    page: FleetCutoverPreparedVolumeHandoffPage,
    nodeId: Identifier,
    nodeHandoffs: Type.Array(FleetCutoverPreparedVolumeHandoffIntent, {
      maxItems: fleetCutoverContract.maximumPreparedVolumeHandoffMutationEntries,
    }),
    protocol: ProtocolOffer,
  }),
]);
export type TSparkGetFleetCutoverPreparedVolumeHandoffsResponse = Static<
  typeof SparkGetFleetCutoverPreparedVolumeHandoffsResponse
>;

const responseRecord = defineRecord(
  'TSparkGetFleetCutoverPreparedVolumeHandoffsResponse',
  SparkGetFleetCutoverPreparedVolumeHandoffsResponse,
);
/** Detached, frozen, schema-checked copy of a page response; relationships are checked by the validator below. */
export const snapshotSparkGetFleetCutoverPreparedVolumeHandoffsResponse = responseRecord.snapshot;

/**
 * Everything that one response can prove by itself: exact schema, byte bound, the authenticated node, the pin, the
 * page's place in the aggregate, and that the node's subset is complete, in page order and exactly what the page commits.
 */
export async function validateSparkGetFleetCutoverPreparedVolumeHandoffsResponse(
  response: unknown,
  request: ISparkGetFleetCutoverPreparedVolumeHandoffsRequest,
): Promise<string[]> {
  if (validateSparkGetFleetCutoverPreparedVolumeHandoffsRequest(request).length > 0) {
    return ['the request that is answered must be valid'];
  }
  const errors = responseRecord.validate(response);
  if (errors.length > 0) return errors;
  const answer = responseRecord.snapshot(response);
  if (encodedBytes(answer) > sparkSwarmNodeContracts.fleetCutoverPreparedVolumeHandoffs.maxResponseBytes) {
    errors.push('exceeds its encoded byte bound');
  }
  if (answer.nodeId !== request.nodeId) errors.push('names another node than the authenticated one');
  if (answer.aggregate === null) {
    if (request.aggregate !== null) errors.push('answers a pinned read with nothing');
    return errors;
  }
  const { aggregate, page, nodeHandoffs } = answer;
  errors.push(...fleetCutoverPreparedVolumeHandoffAggregateRecord.check(aggregate));
  errors.push(...fleetCutoverPreparedVolumeHandoffPageRecord.check(page));
  if (aggregate.state !== 'complete') errors.push('carries an aggregate that is not complete');
  if (
    request.aggregate !== null &&
    !sameReference(request.aggregate, { id: aggregate.id, generation: aggregate.generation, digest: aggregate.digest })
  ) {
    errors.push('carries another aggregate than the pinned one');
  }
  if (
    !sameReference(page.aggregate, { id: aggregate.id, generation: aggregate.generation, digest: aggregate.digest })
  ) {
    errors.push('carries a page of another aggregate');
  }
  if (page.pageIndex !== request.pageIndex || page.pageIndex >= aggregate.pageCount) {
    errors.push('carries another page than the requested one');
  }
  const committed = page.handoffs.filter((entry) => entry.nodeId === request.nodeId);
  if (committed.length !== nodeHandoffs.length) {
    errors.push('must carry the complete subset of the node');
    return errors;
  }
  for (const [index, handoff] of nodeHandoffs.entries()) {
    const entry = committed[index]!;
    if (handoff.nodeId !== request.nodeId || !sameReference(entry, handoff)) {
      errors.push(`/nodeHandoffs/${index} is not what the page commits there`);
      break;
    }
    const handoffErrors = fleetCutoverPreparedVolumeHandoffIntentRecord.check(handoff);
    if (handoffErrors.length > 0) {
      errors.push(...handoffErrors.map((error) => `/nodeHandoffs/${index} ${error}`));
      break;
    }
    if (handoff.clusterId !== aggregate.clusterId) errors.push(`/nodeHandoffs/${index} is of another cluster`);
  }
  return errors;
}
