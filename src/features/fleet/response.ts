/** Rows to wire documents. */
import type { IClusterServiceSpec, IFleetCluster, IFleetNode, IFleetService } from '../../contract/fleet.js';
import type { TSha256Digest } from '../../contract/digest.js';
import { localSnapshotId } from '../../contract/record-id.js';
import type { Reference } from '../../contract/schema.js';
import type { Cluster, ServiceFacts } from './facts.js';
import type { NodeRow, ServiceWithSpec, SpecRow } from './rows.js';

export function fleetCluster(cluster: Cluster): IFleetCluster {
  return {
    clusterId: cluster.clusterId,
    organizationId: cluster.organizationId,
    controllerId: cluster.controllerId,
    controllerEpoch: cluster.controllerEpoch,
    runtimeNamespace: cluster.runtimeNamespace,
    swarmId: cluster.swarmId,
    clusterLife: cluster.clusterLife,
  };
}

export function fleetNode(clusterLife: string, row: NodeRow): IFleetNode {
  return {
    nodeId: row.node_id,
    swarmNodeId: row.swarm_node_id,
    reportedSwarmNodeId: row.reported_swarm_node_id,
    tokenGeneration: row.token_generation,
    sessionCredentialGeneration: row.session_generation,
    corestorePublicKey: row.corestore_public_key,
    corestorePublicKeyGeneration: row.corestore_public_key_generation,
    state: row.state,
    quarantineReason: row.quarantine_reason,
    lastReport: lastReport(row),
    localSnapshot: localSnapshot(clusterLife, row),
    localSnapshotIncomplete: row.local_incomplete,
  };
}

/** Null before the first report, and after a quarantine was released. */
function lastReport(row: NodeRow): IFleetNode['lastReport'] {
  const { reporter_session_id, observation_sequence, reported_state, received_at } = row;
  if (reporter_session_id === null || observation_sequence === null) return null;
  if (reported_state === null || received_at === null) return null;
  return {
    reporterSessionId: reporter_session_id,
    observationSequence: observation_sequence,
    state: reported_state,
    receivedAt: received_at,
  };
}

function localSnapshot(clusterLife: string, row: NodeRow): Reference | null {
  if (row.local_digest === null) return null;
  return {
    id: localSnapshotId(clusterLife, row.node_id),
    generation: row.local_generation,
    digest: row.local_digest as TSha256Digest,
  };
}

export function fleetService(service: ServiceFacts, spec: Reference | null = null): IFleetService {
  return { serviceId: service.serviceId, name: service.name, state: service.state, spec };
}

export function fleetServiceWithSpec(row: ServiceWithSpec): IFleetService {
  const { specId, specGeneration, specDigest } = row;
  if (specId === null || specGeneration === null || specDigest === null) return fleetService(row);
  return fleetService(row, { id: specId, generation: specGeneration, digest: specDigest as TSha256Digest });
}

export function specOf(row: SpecRow): IClusterServiceSpec {
  return JSON.parse(row.record) as IClusterServiceSpec;
}
