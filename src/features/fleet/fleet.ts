/**
 * What administrators may do to owner rows. Pure: null means permitted.
 *
 * 1. A cluster's id never has the form that names an organization's audit chain.
 * 2. A revoked node stays revoked; nothing is issued for it.
 * 3. Only a quarantined node is released, and only the swarm node id that a node reported is confirmed.
 * 4. A retired service stays retired; its name stays taken, because records go on naming it.
 * 5. A cluster has one Coreflow relay; naming the same one again issues the next generation of its credential.
 */
import { type Problem, refuse, type Refused, refuseStale, type TProblemCode } from '../../contract/problems.js';
import { type Reference, sameReference } from '../../contract/schema.js';
import { isOrganizationChainId } from '../audit/chain.js';
import type { NodeFacts, ServiceFacts } from './facts.js';
import type { IFleetNode } from '../../contract/fleet.js';

/** A refusal of a mutation: nothing was applied, and the same request would be refused again. */
export function refuseMutation(code: TProblemCode, more: Omit<Problem, 'code'> = {}): Refused {
  return refuse(code, { mutationOutcome: 'not-applied', retrySafe: false, ...more });
}

export function refuseClusterId(clusterId: string): Refused | null {
  if (!isOrganizationChainId(clusterId)) return null;
  return refuseMutation('fleet-refused', { detail: 'Ids of this form name the audit chains of organizations' });
}

/** The node may get credentials and facts. */
export function refuseNodeChange(node: NodeFacts | undefined): Refused | null {
  if (node === undefined) return refuseMutation('node-unknown');
  if (node.state === 'written-off') return refuseMutation('node-written-off');
  return node.state === 'revoked' ? refuseMutation('node-revoked') : null;
}

export function refuseRelease(node: NodeFacts | undefined): Refused | null {
  const refused = refuseNodeChange(node);
  if (refused) return refused;
  return node?.state === 'quarantined' ? null : refuseMutation('quarantine-absent');
}

/** `holder`: another node that the swarm node id is bound to. */
export function refuseRejoin(
  node: NodeFacts | undefined,
  swarmNodeId: string,
  holder: { readonly nodeId: string } | undefined,
): Refused | null {
  const refused = refuseNodeChange(node);
  if (refused) return refused;
  if (node?.reportedSwarmNodeId !== swarmNodeId) return refuseMutation('rejoin-absent');
  if (holder === undefined) return null;
  return refuseMutation('swarm-node-taken', { detail: `It is bound to the node ${holder.nodeId}` });
}

/** `existing`: services of the name. */
export function refuseServiceName(existing: ServiceFacts | undefined): Refused | null {
  if (existing === undefined) return null;
  const detail = `The ${existing.state} service ${existing.serviceId} has this name`;
  return refuseMutation('fleet-refused', { detail });
}

export function refuseSpecOwner(service: ServiceFacts | undefined): Refused | null {
  if (service === undefined) return refuseMutation('service-unknown');
  if (service.state === 'live') return null;
  return refuseMutation('spec-refused', { detail: 'The service is retired' });
}

export function refuseOtherSpec(current: Reference | null, expected: Reference | null): Refused | null {
  return sameReference(current, expected) ? null : refuseStale('spec-stale', 'expectedSpec', current);
}

/** `relays`: all that the cluster ever had. */
export function refuseRelay(
  relays: readonly { readonly subject_id: string; readonly revoked: boolean }[],
  swarmServiceId: string,
): Refused | null {
  if (relays.some((relay) => relay.revoked)) {
    return refuseMutation('fleet-refused', { detail: 'The cluster’s relay credential is revoked for good' });
  }
  const other = relays.find((relay) => relay.subject_id !== swarmServiceId);
  if (other === undefined) return null;
  return refuseMutation('fleet-refused', { detail: `The cluster’s relay is the swarm service ${other.subject_id}` });
}

/** Whether what administrators decide about a node is as it was recorded. Reports of the node change none of it. */
export function sameOwnerFacts(recorded: IFleetNode, now: IFleetNode): boolean {
  return (
    recorded.state === now.state &&
    recorded.tokenGeneration === now.tokenGeneration &&
    recorded.sessionCredentialGeneration === now.sessionCredentialGeneration &&
    recorded.corestorePublicKeyGeneration === now.corestorePublicKeyGeneration
  );
}
