/**
 * Specs of services in one cluster. Pure.
 *
 * 1. Mounts, secret inputs, ports and placement are sets: they are kept sorted, so that the order in which they were
 *    written makes no new revision.
 * 2. A mount path, a secret input's name, a published port and a node occur once.
 * 3. Placement names nodes of the cluster.
 * 4. A new revision keeps the id, raises the generation by one and names its predecessor; equal content makes none.
 */
import { canonicalizeStrictJson } from '../../contract/canonical-json.js';
import { digestDomain, sealRecord } from '../../contract/digest.js';
import type { IClusterServiceSpec, IClusterServiceSpecContent } from '../../contract/fleet.js';
import { recordId } from '../../contract/record-id.js';
import { compareText, type Reference, referenceOf } from '../../contract/schema.js';

const domain = digestDomain('IClusterServiceSpec');

const portKey = (port: IClusterServiceSpecContent['publishedPorts'][number]): string =>
  `${port.protocol}/${String(port.port).padStart(5, '0')}`;

/** The content with its sets sorted (1). */
export function normalizeSpec(content: IClusterServiceSpecContent): IClusterServiceSpecContent {
  return {
    imageDigest: content.imageDigest,
    mounts: sortedBy(content.mounts, (mount) => mount.mountPath),
    secretInputs: sortedBy(content.secretInputs, (input) => input.name),
    publishedPorts: sortedBy(content.publishedPorts, portKey),
    placement: sortedBy(content.placement, (nodeId) => nodeId),
  };
}

function sortedBy<T>(items: readonly T[], key: (item: T) => string): T[] {
  return [...items].sort((left, right) => compareText(key(left), key(right)));
}

/** What is wrong with a content (2); empty: nothing. */
export function duplicatesOf(content: IClusterServiceSpecContent): string[] {
  return [
    ...duplicates(
      'mount path',
      content.mounts.map((mount) => mount.mountPath),
    ),
    ...duplicates(
      'secret input',
      content.secretInputs.map((input) => input.name),
    ),
    ...duplicates('published port', content.publishedPorts.map(portKey)),
    ...duplicates('node', content.placement),
  ];
}

function duplicates(what: string, values: readonly string[]): string[] {
  const seen = new Set<string>();
  const twice = new Set<string>();
  for (const value of values) (seen.has(value) ? twice : seen).add(value);
  return [...twice].map((value) => `the ${what} ${value} occurs twice`);
}

/** Nodes of the placement that are not the cluster's (3). */
export function strangersOf(content: IClusterServiceSpecContent, nodeIds: ReadonlySet<string>): string[] {
  return content.placement.filter((nodeId) => !nodeIds.has(nodeId));
}

export function sameContent(spec: IClusterServiceSpec, content: IClusterServiceSpecContent): boolean {
  const { imageDigest, mounts, secretInputs, publishedPorts, placement } = spec;
  const current = { imageDigest, mounts, secretInputs, publishedPorts, placement };
  return canonicalizeStrictJson(current) === canonicalizeStrictJson(normalizeSpec(content));
}

/** The first revision, or the one after `predecessor` (4). */
export function nextSpec(
  cluster: { readonly clusterId: string; readonly clusterLife: string },
  serviceId: string,
  content: IClusterServiceSpecContent,
  predecessor: Reference | null,
): IClusterServiceSpec {
  return sealRecord(domain, {
    id: recordId('ss', { clusterLife: cluster.clusterLife, record: 'service-spec', serviceId }),
    generation: (predecessor?.generation ?? 0) + 1,
    clusterId: cluster.clusterId,
    serviceId,
    ...normalizeSpec(content),
    predecessor: predecessor === null ? null : referenceOf(predecessor),
  });
}
