/** Sets of prepared volume handoffs as the service would publish them, made with the contract's own functions. */
import { bareDigest, digestDomain, sealRecord, type TSha256Digest } from '../../src/contract/digest.js';
import {
  comparePageOrder,
  handoffChangeDigest,
  handoffSetDigest,
  type IFleetCutoverPreparedVolumeHandoffAggregate,
  type IFleetCutoverPreparedVolumeHandoffIntent,
  type IFleetCutoverPreparedVolumeHandoffPage,
  pageContentDigest,
} from '../../src/contract/handoff.js';
import { observedMountOf } from '../../src/contract/mount.js';
import { handoffId } from '../../src/contract/record-id.js';
import { type Reference, referenceOf } from '../../src/contract/schema.js';
import type { IRuntimeStorageFilesystemRequest } from '../../src/contract/storage-claim.js';

export interface HandoffSet {
  readonly aggregate: IFleetCutoverPreparedVolumeHandoffAggregate;
  readonly pages: readonly IFleetCutoverPreparedVolumeHandoffPage[];
  /** Of all nodes, in page order. */
  readonly handoffs: readonly IFleetCutoverPreparedVolumeHandoffIntent[];
}

export interface HandoffSetOptions {
  /** How many handoffs each node has. */
  readonly nodes: Readonly<Record<string, number>>;
  readonly clusterId?: string;
  readonly aggregateId?: string;
  readonly generation?: number;
}

export function referenceNamed(id: string, generation = 1): Reference {
  return { id, generation, digest: bareDigest({ id, generation }) };
}

export function handoffSet(options: HandoffSetOptions): HandoffSet {
  const { clusterId = 'cluster-1', aggregateId = 'ha-1', generation = 1 } = options;
  const handoffs = Object.entries(options.nodes)
    .flatMap(([nodeId, count]) => Array.from({ length: count }, (_, ordinal) => handoff(clusterId, nodeId, ordinal)))
    .sort(comparePageOrder);
  const chunks = Array.from({ length: Math.ceil(handoffs.length / 32) }, (_, index) =>
    handoffs.slice(index * 32, index * 32 + 32),
  );
  const contents = chunks.map((chunk) => chunk.map((entry) => ({ nodeId: entry.nodeId, ...referenceOf(entry) })));
  const contentDigests = contents.map((entries, index) => pageContentDigest(index, entries));
  const aggregate = sealAggregate({
    id: aggregateId,
    generation,
    clusterId,
    requiredCount: handoffs.length,
    actualCount: handoffs.length,
    state: 'complete',
    pageCount: chunks.length,
    setDigest: handoffSetDigest(contentDigests),
    runtime: referenceNamed('rt-1'),
    scope: referenceNamed('sc-1'),
    targetSet: referenceNamed('ts-1'),
    derivation: referenceNamed('dv-1'),
    predecessor: generation === 1 ? null : referenceNamed(aggregateId, generation - 1),
    changeDigest: handoffChangeDigest([]),
  });
  const pages = contents.map((entries, pageIndex) => ({
    aggregate: referenceOf(aggregate),
    pageIndex,
    handoffs: entries,
    contentDigest: contentDigests[pageIndex] as TSha256Digest,
  }));
  return { aggregate, pages, handoffs };
}

export function sealAggregate(
  content: Omit<IFleetCutoverPreparedVolumeHandoffAggregate, 'digest'>,
): IFleetCutoverPreparedVolumeHandoffAggregate {
  return sealRecord(digestDomain('IFleetCutoverPreparedVolumeHandoffAggregate'), content);
}

export function sealHandoff(
  content: Omit<IFleetCutoverPreparedVolumeHandoffIntent, 'digest'>,
): IFleetCutoverPreparedVolumeHandoffIntent {
  return sealRecord(digestDomain('IFleetCutoverPreparedVolumeHandoffIntent'), content);
}

function handoff(clusterId: string, nodeId: string, ordinal: number): IFleetCutoverPreparedVolumeHandoffIntent {
  const serviceId = `sv-${ordinal}`;
  const observedMount = observedMountOf(`/var/lib/docker/volumes/v${ordinal}/_data`, `/data/${ordinal}`);
  const id = handoffId('cl-1', { nodeId, serviceId, mountIdentityDigest: observedMount.mountIdentityDigest });
  const request: IRuntimeStorageFilesystemRequest = {
    requestId: `rq-${id}`,
    kind: 'filesystem',
    mountPath: `/data/${ordinal}`,
    accessMode: 'ReadWriteOnce',
    reclaimPolicy: 'Retain',
    requestedCapacityBytes: null,
  };
  const claimIntent = sealRecord(digestDomain('IRuntimeStorageClaimIntent'), {
    id: `ci-${id}`,
    generation: 1,
    controllerId: 'controller-1',
    controllerEpoch: 1,
    organizationId: 'org-1',
    clusterId,
    nodeId,
    runtimeNamespace: 'ns-1',
    serviceId,
    predecessor: null,
    binding: { serviceId, request, requestDigest: bareDigest(request) },
  });
  return sealHandoff({
    id,
    generation: 1,
    clusterId,
    nodeId,
    serviceId,
    volumeId: `vo-${id}`,
    observedMount,
    claimIntent,
    evidence: {
      runtime: referenceNamed('rt-1'),
      scope: referenceNamed('sc-1'),
      managerSnapshot: referenceNamed('ms-1'),
      localSnapshot: referenceNamed('ls-1'),
    },
    predecessor: null,
  });
}

/**
 * The set with other references on its pages, with every digest of page, set and header made right again: what a service
 * could say that lies consistently.
 */
export function repackedSet(
  set: HandoffSet,
  chunks: readonly (readonly IFleetCutoverPreparedVolumeHandoffPage['handoffs'][number][])[],
  header: Partial<IFleetCutoverPreparedVolumeHandoffAggregate> = {},
): HandoffSet {
  const contentDigests = chunks.map((entries, index) => pageContentDigest(index, entries));
  const { digest: _digest, ...content } = set.aggregate;
  const aggregate = sealAggregate({ ...content, setDigest: handoffSetDigest(contentDigests), ...header });
  const pages = chunks.map((entries, pageIndex) => ({
    aggregate: referenceOf(aggregate),
    pageIndex,
    handoffs: [...entries],
    contentDigest: contentDigests[pageIndex] as TSha256Digest,
  }));
  return { aggregate, pages, handoffs: set.handoffs };
}
