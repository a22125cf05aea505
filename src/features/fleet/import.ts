/**
 * What one fleet document changes. Pure.
 *
 * 1. What is there and equal stays; what is there and differs is refused, named by its list and index. Nothing is
 *    overwritten, so the same document may be sent again and again.
 * 2. Within one list a node, a service name, and a spec's service occur once.
 * 3. A spec belongs to a live service of the document or of the organization, and is placed on nodes of either.
 */
import type { IClusterServiceSpec } from '../../contract/fleet.js';
import type { MethodRequest } from '../../contract/methods.js';
import type { IProblemEntry, Refused, TBatchEntryCode } from '../../contract/problems.js';
import { type Reference, referenceOf } from '../../contract/schema.js';
import type { Cluster, NodeFacts, ServiceFacts } from './facts.js';
import { refuseMutation } from './fleet.js';
import type { NewNode } from './rows.js';
import { duplicatesOf, nextSpec, sameContent, strangersOf } from './spec.js';

export type FleetDocument = Pick<MethodRequest<'importFleet'>, 'nodes' | 'services' | 'specs'>;

/** What exists of that which the document names. */
export interface ExistingFleet {
  /** By id, of any cluster. */
  readonly nodes: ReadonlyMap<string, NodeFacts>;
  /** By name. */
  readonly services: ReadonlyMap<string, ServiceFacts>;
  /** By service id. */
  readonly specs: ReadonlyMap<string, IClusterServiceSpec>;
}

/** In the document's order; `created` says what has to be written. */
export interface ImportPlan {
  readonly kind: 'plan';
  readonly nodes: readonly { readonly node: NewNode; readonly created: boolean }[];
  readonly services: readonly { readonly name: string; readonly serviceId: string; readonly created: boolean }[];
  readonly specs: readonly PlannedSpec[];
}

interface PlannedSpec {
  readonly serviceId: string;
  readonly reference: Reference;
  /** The first revision; null where an equal spec is there. */
  readonly created: IClusterServiceSpec | null;
}

/** Entries that one refusal names at most; the rest follows when these are mended. */
const MAXIMUM_ENTRIES = 256;

export function decideImport(
  cluster: Cluster,
  document: FleetDocument,
  existing: ExistingFleet,
  newServiceId: () => string,
): ImportPlan | Refused {
  const entries: IProblemEntry[] = [];
  const report = (list: string) => (index: number, code: TBatchEntryCode, detail?: string) =>
    entries.push({ list, index, code, ...(detail === undefined ? {} : { detail: detail.slice(0, 512) }) });
  const nodes = planNodes(cluster, document, existing, report('nodes'));
  const services = planServices(document, existing, newServiceId, report('services'));
  const specs = planSpecs(cluster, document, existing, services, report('specs'));
  if (entries.length > 0) return refuseMutation('fleet-refused', { entries: entries.slice(0, MAXIMUM_ENTRIES) });
  return { kind: 'plan', nodes, services, specs };
}

type Report = (index: number, code: TBatchEntryCode, detail?: string) => unknown;

function planNodes(
  cluster: Cluster,
  document: FleetDocument,
  existing: ExistingFleet,
  report: Report,
): ImportPlan['nodes'] {
  const seen = new Set<string>();
  return document.nodes.map((node, index) => {
    if (seen.size === seen.add(node.nodeId).size) report(index, 'entry-duplicate');
    const known = existing.nodes.get(node.nodeId);
    if (known !== undefined && !isSameNode(cluster, node, known)) report(index, 'node-differs');
    return { node, created: known === undefined };
  });
}

function isSameNode(cluster: Cluster, node: NewNode, known: NodeFacts): boolean {
  return (
    known.clusterId === cluster.clusterId &&
    known.state !== 'revoked' &&
    known.state !== 'written-off' &&
    known.corestorePublicKey === node.corestorePublicKey
  );
}

function planServices(
  document: FleetDocument,
  existing: ExistingFleet,
  newServiceId: () => string,
  report: Report,
): ImportPlan['services'] {
  const seen = new Set<string>();
  return document.services.map(({ name }, index) => {
    if (seen.size === seen.add(name).size) report(index, 'entry-duplicate');
    const known = existing.services.get(name);
    if (known?.state === 'retired') report(index, 'service-retired');
    return { name, serviceId: known?.serviceId ?? newServiceId(), created: known === undefined };
  });
}

function planSpecs(
  cluster: Cluster,
  document: FleetDocument,
  existing: ExistingFleet,
  services: ImportPlan['services'],
  report: Report,
): PlannedSpec[] {
  const planned = new Map(services.map((service) => [service.name, service.serviceId]));
  const clusterNodes = [...existing.nodes.values()].filter((node) => node.clusterId === cluster.clusterId);
  const nodeIds = new Set([...document.nodes, ...clusterNodes].map((node) => node.nodeId));
  const seen = new Set<string>();
  return document.specs.flatMap(({ serviceName, spec }, index) => {
    if (seen.size === seen.add(serviceName).size) report(index, 'entry-duplicate', serviceName);
    const known = existing.services.get(serviceName);
    if (known?.state === 'retired') report(index, 'service-retired');
    const serviceId = known?.serviceId ?? planned.get(serviceName);
    if (serviceId === undefined) {
      report(index, 'service-unknown');
      return [];
    }
    const [duplicate] = duplicatesOf(spec);
    if (duplicate !== undefined) report(index, 'entry-duplicate', duplicate);
    const [stranger] = strangersOf(spec, nodeIds);
    if (stranger !== undefined) report(index, 'node-unknown', stranger);
    return [planSpec(cluster, serviceId, spec, existing.specs.get(serviceId), () => report(index, 'spec-differs'))];
  });
}

function planSpec(
  cluster: Cluster,
  serviceId: string,
  content: FleetDocument['specs'][number]['spec'],
  current: IClusterServiceSpec | undefined,
  differs: () => void,
): PlannedSpec {
  if (current === undefined) {
    const created = nextSpec(cluster, serviceId, content, null);
    return { serviceId, reference: referenceOf(created), created };
  }
  if (!sameContent(current, content)) differs();
  return { serviceId, reference: referenceOf(current), created: null };
}

/** Every node id that the document says something about. */
export function nodeIdsOf(document: FleetDocument): string[] {
  const ids = new Set(document.nodes.map((node) => node.nodeId));
  for (const { spec } of document.specs) for (const nodeId of spec.placement) ids.add(nodeId);
  return [...ids];
}

/** Every service name that the document says something about. */
export function serviceNamesOf(document: FleetDocument): string[] {
  return [
    ...new Set([...document.services.map((each) => each.name), ...document.specs.map((each) => each.serviceName)]),
  ];
}
