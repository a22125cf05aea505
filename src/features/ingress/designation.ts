/**
 * Which designation follows: pure.
 *
 * 1. Null creates the first designation; the exact current one permits only a rotation for the same service.
 * 2. Null against an existing designation is refused with the current reference.
 * 3. Replacing the designated service is another flow and refused here.
 * 4. The new ingress has no ports before the switch of ports: none configured, none observed under Pallet on any target
 *    node. Unknown is not zero: a node without a current report refuses. After a release the ports may be its own: then a
 *    rotation does not ask any more.
 */
import { digestDomain, sealRecord } from '../../contract/digest.js';
import type { IClusterServiceSpec, IClusterServiceSpecContent } from '../../contract/fleet.js';
import { type IFleetCutoverIngressDesignation, launcherBearerInput } from '../../contract/ingress.js';
import { refuse, type Refused, refuseStale } from '../../contract/problems.js';
import { recordId } from '../../contract/record-id.js';
import { type Reference, referenceOf, sameReference } from '../../contract/schema.js';

export interface DesignationFacts {
  readonly service: { readonly state: 'live' | 'retired' } | undefined;
  readonly spec: IClusterServiceSpec | undefined;
  /** The current spec revision is released. */
  readonly specReleased: boolean;
  /** Any revision of the spec was ever released. */
  readonly everReleased: boolean;
  readonly current: IFleetCutoverIngressDesignation | undefined;
  /** Target nodes without a whole port report under the current runtime. */
  readonly nodesWithoutPorts: readonly string[];
  /** Target nodes on which the service holds a port under Pallet. */
  readonly nodesWithItsPorts: readonly string[];
}

export interface DesignationRequest {
  readonly serviceId: string;
  readonly heldSpec: Reference;
  readonly expectedDesignation: Reference | null;
}

const notApplied = { mutationOutcome: 'not-applied', retrySafe: false } as const;

/** Null where the request may be carried out. */
export function refuseDesignation(request: DesignationRequest, facts: DesignationFacts): Refused | null {
  const { service, spec, current } = facts;
  if (service === undefined) return refuse('service-unknown', notApplied);
  if (service.state === 'retired') return refuse('service-retired', notApplied);
  const currentReference = current === undefined ? null : referenceOf(current);
  if (!sameReference(request.expectedDesignation, currentReference)) {
    return refuseStale('designation-stale', 'expectedDesignation', currentReference);
  }
  if (current !== undefined && current.serviceId !== request.serviceId) {
    return refuse('designation-other-service', { current: currentReference, ...notApplied });
  }
  const specReference = spec === undefined ? null : referenceOf(spec);
  if (spec === undefined || !sameReference(request.heldSpec, specReference))
    return refuseStale('spec-stale', 'heldSpec', specReference);
  if (facts.specReleased && current === undefined) return refuse('spec-not-held', notApplied);
  if (facts.everReleased) return null;
  if (spec.publishedPorts.length > 0) return refuse('ports-configured', notApplied);
  if (facts.nodesWithoutPorts.length > 0) {
    return refuse('ports-unknown', {
      detail: `no current port report of ${facts.nodesWithoutPorts.slice(0, 10).join(', ')}`,
      ...notApplied,
    });
  }
  if (facts.nodesWithItsPorts.length > 0) {
    return refuse('ports-observed', {
      detail: `the service holds ports on ${facts.nodesWithItsPorts.slice(0, 10).join(', ')}`,
      ...notApplied,
    });
  }
  return null;
}

export function launcherSecretId(clusterLife: string, serviceId: string): string {
  return recordId('se', { clusterLife, secret: launcherBearerInput, serviceId });
}

/** The spec's content with the launcher's secret at this version. */
export function withLauncherSecret(
  spec: IClusterServiceSpec,
  secretId: string,
  version: number,
): IClusterServiceSpecContent {
  const { imageDigest, mounts, secretInputs, publishedPorts, placement } = spec;
  const others = secretInputs.filter((input) => input.name !== launcherBearerInput);
  return {
    imageDigest,
    mounts,
    secretInputs: [...others, { name: launcherBearerInput, secretId, version }],
    publishedPorts,
    placement,
  };
}

interface NextDesignation {
  readonly clusterId: string;
  readonly clusterLife: string;
  readonly serviceId: string;
  readonly runtime: Reference;
  readonly scope: Reference;
  readonly targetSet: Reference;
  readonly spec: Reference;
  readonly credential: { readonly credentialId: string; readonly generation: number };
  readonly secretId: string;
}

export function nextDesignation(
  current: IFleetCutoverIngressDesignation | undefined,
  next: NextDesignation,
): IFleetCutoverIngressDesignation {
  const { clusterLife, secretId, credential, ...facts } = next;
  return sealRecord(digestDomain('IFleetCutoverIngressDesignation'), {
    id: recordId('id', { clusterLife, record: 'ingress-designation' }),
    generation: (current?.generation ?? 0) + 1,
    ...facts,
    credential,
    secret: { secretId, version: credential.generation },
    predecessor: current === undefined ? null : referenceOf(current),
  });
}
