/** Pallet on a node, as the node's Spark talks to it. */
import type { TFleetCutoverVolumeFence } from '../../contract/held-fence.js';
import type { IFleetCutoverCompleteLocalNodeSnapshot } from '../../contract/observation.js';
import type { FenceStore, ProvedShare } from './fence-store.js';

export interface NodePallet {
  /** What it says of itself; null while it isn't installed. */
  status(): Promise<IFleetCutoverCompleteLocalNodeSnapshot['pallet']>;
  /**
   * Holds the node's whole share of a proved set, and lets go what that set no longer has. Gives the fences in the order
   * of the share's handoffs; they are durable then.
   */
  holdShare(share: ProvedShare): Promise<readonly TFleetCutoverVolumeFence[]>;
}

export interface ReferencePalletOptions {
  readonly store: FenceStore;
  readonly version: string;
  /** Whether it could run the node's services now. */
  readonly isReady: () => boolean;
}

export function createReferencePallet({ store, version, isReady }: ReferencePalletOptions): NodePallet {
  return Object.freeze({
    status: () => Promise.resolve({ version, fenceStoreId: store.fenceStoreId, ready: isReady() }),

    async holdShare(share: ProvedShare) {
      const fences = await store.hold(share.handoffs);
      await store.dropAbsent(share);
      return fences;
    },
  });
}
