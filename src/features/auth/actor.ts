/** Who a request turned out to come from, as the query that authenticated it read it. Never kept for a later request. */
import type { TRole } from '../../contract/fleet.js';

export interface AdministratorActor {
  readonly kind: 'administrator';
  readonly credentialId: string;
  readonly principalId: string;
  readonly organizationId: string;
  readonly role: TRole;
}

export interface NodeActor {
  readonly kind: 'node';
  readonly clusterId: string;
  readonly organizationId: string;
  readonly nodeId: string;
  readonly state: 'active' | 'quarantined';
  /** The head of the cluster's handoff aggregate in the same moment, so that a page read needs no query for it. */
  readonly aggregate: AggregateHead;
}

export interface LauncherActor {
  readonly kind: 'launcher';
  readonly clusterId: string;
  readonly organizationId: string;
  readonly serviceId: string;
  readonly credentialId: string;
  /** The one that was presented. */
  readonly generation: number;
}

export interface AggregateHead {
  /** 0 before the first revision. */
  readonly generation: number;
  readonly digest: string | null;
  readonly state: 'absent' | 'incomplete' | 'complete';
  /** Latest complete revision; 0 for none. */
  readonly completeGeneration: number;
}
