/** Fits the snapshots of one observation into the bytes that it may have. */
import { maximumObservationCensusBytes } from '../../contract/limits.js';
import type {
  IFleetCutoverLocalNodeSnapshot,
  IFleetCutoverManagerSnapshot,
  IIncompleteSnapshot,
} from '../../contract/observation.js';

export interface ObservationSnapshots {
  readonly local: IFleetCutoverLocalNodeSnapshot;
  readonly manager?: IFleetCutoverManagerSnapshot;
}

/**
 * Bytes that the rest of the request may take beside the two snapshots: ids and a session of at most 128 characters, a
 * token of 43, numbers and member names come to less than 1 KiB.
 */
const reservedBytes = 4096;
export const maximumSnapshotPairBytes = maximumObservationCensusBytes - reservedBytes;

/**
 * The snapshots as they are where both together fit. Where they don't, the larger becomes `truncated` with its counts,
 * and the other as well if it alone is still too large: never a smaller list in place of a whole one.
 */
export function fitSnapshots(
  snapshots: ObservationSnapshots,
  maximumBytes = maximumSnapshotPairBytes,
): ObservationSnapshots {
  const localBytes = encodedBytes(snapshots.local);
  const managerBytes = snapshots.manager === undefined ? 0 : encodedBytes(snapshots.manager);
  if (localBytes + managerBytes <= maximumBytes) return snapshots;
  const { local, manager } = snapshots;
  const dropsLocal = localBytes >= managerBytes || localBytes > maximumBytes;
  const dropsManager = localBytes < managerBytes || managerBytes > maximumBytes;
  return {
    local: dropsLocal ? truncatedLocal(local) : local,
    ...(manager === undefined ? {} : { manager: dropsManager ? truncatedManager(manager) : manager }),
  };
}

function encodedBytes(snapshot: object): number {
  return Buffer.byteLength(JSON.stringify(snapshot));
}

function truncatedLocal(snapshot: IFleetCutoverLocalNodeSnapshot): IIncompleteSnapshot {
  if (!snapshot.complete) return snapshot;
  const counts = { containers: snapshot.containers.length, volumes: snapshot.volumes.length, services: 0, tasks: 0 };
  return { complete: false, runtime: snapshot.runtime, reason: 'truncated', counts };
}

function truncatedManager(snapshot: IFleetCutoverManagerSnapshot): IIncompleteSnapshot {
  if (!snapshot.complete) return snapshot;
  const counts = { containers: 0, volumes: 0, services: snapshot.services.length, tasks: snapshot.tasks.length };
  return { complete: false, runtime: snapshot.runtime, reason: 'truncated', counts };
}
