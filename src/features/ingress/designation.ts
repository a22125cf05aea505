/**
 * Which designation follows: pure.
 *
 * 1. Null creates the first designation; the exact current one permits only a rotation for the same service.
 * 2. Null against an existing designation is refused with the current reference.
 * 3. Replacing the designated service is another flow and refused here.
 * 4. The new ingress has no ports before the switch of ports: none configured, none observed under Pallet on any target
 *    node. Unknown is not zero: a node without a current report refuses.
 * 5. A rotation does not ask for ports any more once a spec was released that a designation had named: from then on they
 *    may be its own, and a stolen bearer must be replaceable whatever the nodes report. A release from before the first
 *    designation is no reason: only a designated ingress gets the ports.
 * 6. The first designation wants a held spec; a rotation makes a new held revision of a released one, too.
 */
import { digestDomain, sealRecord } from '../../contract/digest.js';
import {
  ClusterServiceSpecContent,
  type IClusterServiceSpec,
  type IClusterServiceSpecContent,
} from '../../contract/fleet.js';
import { type IFleetCutoverIngressDesignation, launcherBearerInput } from '../../contract/ingress.js';
import { refuse, type Refused, refuseStale } from '../../contract/problems.js';
import { recordId } from '../../contract/record-id.js';
import { type Reference, referenceOf, sameReference } from '../../contract/schema.js';

export interface DesignationFacts {
  readonly service: { readonly state: 'live' | 'retired' } | undefined;
  readonly spec: IClusterServiceSpec | undefined;
  /** The current spec revision is released. */
  readonly specReleased: boolean;
  /** Generation of the spec's newest released revision; null where none was released. */
  readonly newestRelease: number | null;
  readonly current: IFleetCutoverIngressDesignation | undefined;
  /** Generation of the spec that the first designation named; null before it. */
  readonly firstDesignatedSpec: number | null;
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
  if (spec === undefined || !sameReference(request.heldSpec, specReference)) {
    return refuseStale('spec-stale', 'heldSpec', specReference);
  }
  if (facts.specReleased && current === undefined) return refuse('spec-not-held', notApplied);
  if (!hasRoomForSecret(spec)) {
    return refuse('spec-refused', { detail: 'the spec has no room for one more secret input', ...notApplied });
  }
  return wasReleasedAsIngress(facts) ? null : refusePorts(spec, facts);
}

function hasRoomForSecret(spec: IClusterServiceSpec): boolean {
  const { maxItems = 0 } = ClusterServiceSpecContent.properties.secretInputs;
  return othersSecrets(spec).length < maxItems;
}

function othersSecrets(spec: IClusterServiceSpec): IClusterServiceSpec['secretInputs'] {
  return spec.secretInputs.filter((input) => input.name !== launcherBearerInput);
}

function wasReleasedAsIngress({ newestRelease, firstDesignatedSpec }: DesignationFacts): boolean {
  return newestRelease !== null && firstDesignatedSpec !== null && newestRelease >= firstDesignatedSpec;
}

function refusePorts(spec: IClusterServiceSpec, facts: DesignationFacts): Refused | null {
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

/** Each credential has a secret of its own: a version is a generation, and a credential after a revoked one begins at 1. */
export function launcherSecretId(clusterLife: string, credentialId: string): string {
  return recordId('se', { clusterLife, secret: launcherBearerInput, credentialId });
}

/** The spec's content with the launcher's secret at this version. */
export function withLauncherSecret(
  spec: IClusterServiceSpec,
  secretId: string,
  version: number,
): IClusterServiceSpecContent {
  const { imageDigest, mounts, publishedPorts, placement } = spec;
  return {
    imageDigest,
    mounts,
    secretInputs: [...othersSecrets(spec), { name: launcherBearerInput, secretId, version }],
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
