/** Volumes: one server-made id per cluster, node, service and mount identity, which stays for the cluster's life. */
import { type RawBuilder, sql } from 'kysely';
import { recordId, type HandoffKey } from '../../contract/record-id.js';

/** Known before the row is there, so that a handoff can be put together without asking. */
export function volumeId(clusterLife: string, key: HandoffKey): string {
  const { nodeId, serviceId, mountIdentityDigest } = key;
  return recordId('vo', { clusterLife, record: 'volume', nodeId, serviceId, mountIdentityDigest });
}

export interface NewVolume extends HandoffKey {
  readonly volumeId: string;
}

/**
 * The statement that makes rows of volumes exist, to be part of a larger one. The nodes are the cluster's, the services its
 * organization's. `guard` is appended to the source of the rows, e.g. `, swap`.
 */
export function insertVolumes(
  clusterId: string,
  volumes: readonly NewVolume[],
  guard: RawBuilder<unknown>,
): RawBuilder<unknown> {
  const column = (read: (volume: NewVolume) => string): string[] => volumes.map(read);
  return sql`
    insert into control.volumes (cluster_id, node_id, service_id, mount_identity_digest, volume_id)
    select ${clusterId}::text, volume.*
      from unnest(${column(({ nodeId }) => nodeId)}::text[], ${column(({ serviceId }) => serviceId)}::text[],
                  ${column(({ mountIdentityDigest }) => mountIdentityDigest)}::text[],
                  ${column(({ volumeId }) => volumeId)}::text[])
             as volume (node_id, service_id, mount_identity_digest, volume_id)${guard}
     order by 2, 3, 4
    on conflict on constraint volumes_key do nothing`;
}
