/** A node's Pallet that is installed while the demonstration runs, and gets ready later. */
import { type FenceStore, FenceStoreError, openFenceStore, type ProvedShare } from '../agents/pallet/fence-store.js';
import { createReferencePallet, type NodePallet } from '../agents/pallet/node-pallet.js';
import { systemRandom } from '../random.js';

export class DemoPallet implements NodePallet {
  readonly #directory: string;
  readonly #nodeId: string;
  #pallet: NodePallet | null = null;
  #store: FenceStore | null = null;
  #ready = false;

  constructor(directory: string, nodeId: string) {
    this.#directory = directory;
    this.#nodeId = nodeId;
  }

  get installed(): boolean {
    return this.#pallet !== null;
  }

  get heldCount(): number {
    return this.#store?.held().length ?? 0;
  }

  /** Opens the fence store; on one that is open already it is what a restart of the node's Pallet does. */
  async install(): Promise<void> {
    this.#store = await openFenceStore({ directory: this.#directory, nodeId: this.#nodeId, random: systemRandom });
    this.#pallet = createReferencePallet({ store: this.#store, version: 'demo', isReady: () => this.#ready });
  }

  makeReady(): void {
    this.#ready = true;
  }

  async status() {
    return this.#pallet === null ? null : await this.#pallet.status();
  }

  async holdShare(share: ProvedShare) {
    if (this.#pallet === null) throw new FenceStoreError('Pallet is not installed');
    return await this.#pallet.holdShare(share);
  }
}
