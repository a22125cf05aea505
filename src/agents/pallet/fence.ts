/** One held fence of a handoff: pure. It grants nothing; it says that Pallet keeps the volume for exactly this handoff. */
import { digestDomain, sealRecord } from '../../contract/digest.js';
import type { IFleetCutoverPreparedVolumeHandoffIntent } from '../../contract/handoff.js';
import type { TFleetCutoverVolumeFence } from '../../contract/held-fence.js';
import { recordId } from '../../contract/record-id.js';
import { referenceOf } from '../../contract/schema.js';

/** One fence per store and handoff, so that a store that was lost with its counters begins other fences, not these again. */
export function fenceId(fenceStoreId: string, handoffId: string): string {
  return recordId('vf', { fenceStoreId, handoffId });
}

export function heldFence(
  fenceStoreId: string,
  handoff: IFleetCutoverPreparedVolumeHandoffIntent,
  generation: number,
): TFleetCutoverVolumeFence {
  return sealRecord(digestDomain('TFleetCutoverVolumeFence'), {
    id: fenceId(fenceStoreId, handoff.id),
    generation,
    state: 'held' as const,
    clusterId: handoff.clusterId,
    nodeId: handoff.nodeId,
    fenceStoreId,
    volumeId: handoff.volumeId,
    mountIdentityDigest: handoff.observedMount.mountIdentityDigest,
    handoff: referenceOf(handoff),
  });
}
