/** Ids of records that belong to one life of a cluster, so that no id survives a restore from backup. */
import { bareDigest } from './digest.js';

/** `<prefix>-` + 40 hex of the bare digest of `facts`, which must contain the cluster's life. */
export function recordId(prefix: string, facts: Record<string, string>): string {
  return `${prefix}-${bareDigest(facts).slice('sha256:'.length, 'sha256:'.length + 40)}`;
}

export const runtimeId = (clusterLife: string) => recordId('rt', { clusterLife, record: 'runtime' });
export const scopeId = (clusterLife: string) => recordId('sc', { clusterLife, record: 'scope' });
export const targetSetId = (clusterLife: string) => recordId('ts', { clusterLife, record: 'target-set' });
export const derivationId = (clusterLife: string) => recordId('dv', { clusterLife, record: 'derivation' });
export const aggregateId = (clusterLife: string) => recordId('ha', { clusterLife, record: 'aggregate' });
export const managerSnapshotId = (clusterLife: string) => recordId('ms', { clusterLife, record: 'manager-snapshot' });
export const localSnapshotId = (clusterLife: string, nodeId: string) =>
  recordId('ls', { clusterLife, record: 'local-snapshot', nodeId });

export interface HandoffKey {
  readonly nodeId: string;
  readonly serviceId: string;
  readonly mountIdentityDigest: string;
}

/** Known before anything is prepared, so that page order is too. */
export function handoffId(clusterLife: string, key: HandoffKey): string {
  return recordId('vh', {
    clusterLife,
    nodeId: key.nodeId,
    serviceId: key.serviceId,
    mountIdentityDigest: key.mountIdentityDigest,
  });
}
