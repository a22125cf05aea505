/**
 * That every required entry, closed ones too, is a mount of a container in some accepted snapshot of its node. An entry stays
 * when its container goes, so that no fresh derivation can tell what it was; snapshots are kept for ever.
 */
import { sql } from 'kysely';
import { isAnonymousVolumeName } from '../../contract/mount.js';
import type { IFleetCutoverCompleteLocalNodeSnapshot } from '../../contract/observation.js';
import { qb } from '../../db/query.js';
import type { StoredEntry } from './derived-rows.js';
import type { Verification } from './verification.js';

type Row = Pick<
  StoredEntry,
  'nodeId' | 'handoffId' | 'since' | 'swarmServiceId' | 'source' | 'mountPath' | 'volumeName' | 'anonymous'
>;

/** Holds one node's entries at a time, of those whose mount was not seen yet. Takes snapshots node by node. */
export class EntryOrigins {
  readonly #verification: Verification;
  readonly #clusterId: string;
  #nodeId: string | null = null;
  #unseen = new Map<string, Row[]>();

  constructor(verification: Verification, clusterId: string) {
    this.#verification = verification;
    this.#clusterId = clusterId;
  }

  async take(nodeId: string, { containers }: IFleetCutoverCompleteLocalNodeSnapshot): Promise<void> {
    if (nodeId !== this.#nodeId) {
      this.#compareNode();
      this.#nodeId = nodeId;
      this.#unseen = await this.#entriesOf(nodeId);
    }
    if (this.#unseen.size === 0) return;
    for (const { swarmServiceId, mounts } of containers) {
      for (const { source, destination, type, name } of swarmServiceId === null ? [] : mounts)
        this.#unseen.delete(identity(swarmServiceId!, source, destination, type === 'volume' ? name : null));
    }
  }

  /** After the last snapshot of the cluster. Nodes without any are left to the derivation. */
  end(): void {
    this.#compareNode();
  }

  #compareNode(): void {
    const { findings } = this.#verification;
    if (findings.hasAny('local_snapshots', { cluster_id: this.#clusterId, node_id: this.#nodeId })) return;
    for (const { nodeId, handoffId, since } of [...this.#unseen.values()].flat()) {
      const key = { cluster_id: this.#clusterId, node_id: nodeId, handoff_id: handoffId, since };
      const how = 'no container in an accepted snapshot of the node has such a mount';
      findings.add('required_entries', key, 'the row was changed', how);
    }
  }

  async #entriesOf(nodeId: string): Promise<Map<string, Row[]>> {
    const { tx, findings } = this.#verification;
    const rows = await tx.rows(
      sql<Row>`
        select node_id as "nodeId", handoff_id as "handoffId", since, swarm_service_id as "swarmServiceId", source,
          mount_path as "mountPath", volume_name as "volumeName", anonymous
        from control.required_entries where cluster_id = ${this.#clusterId} and node_id = ${nodeId}
        order by handoff_id, since`.compile(qb),
    );
    const unseen = new Map<string, Row[]>();
    for (const row of rows) {
      const { handoffId, since, swarmServiceId, source, mountPath, volumeName } = row;
      if (row.anonymous !== (volumeName !== null && isAnonymousVolumeName(volumeName))) {
        const key = { cluster_id: this.#clusterId, node_id: nodeId, handoff_id: handoffId, since };
        findings.add('required_entries', key, 'the row was changed', 'anonymous is not what the volume’s name says');
      }
      const mount = identity(swarmServiceId, source, mountPath, volumeName);
      const same = unseen.get(mount);
      if (same === undefined) unseen.set(mount, [row]);
      else same.push(row);
    }
    return unseen;
  }
}

function identity(swarmServiceId: string, source: string, mountPath: string, volumeName: string | null): string {
  return JSON.stringify([swarmServiceId, source, mountPath, volumeName]);
}
