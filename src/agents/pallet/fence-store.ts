/**
 * Pallet's store of held fences, in one directory of the node.
 *
 *  1. `store.json` has the store's id, made once, and the highest generation that any fence of a handoff ever had. It is
 *     written before a fence of that generation is, so that no generation is given to two contents.
 *  2. `fences/<handoff id>.json` is one held fence. A revised handoff's fence takes the place of the old one in one rename:
 *     at no moment is there none.
 *  3. What `hold` gave is on disk, with its name: it is there after a kill and after a power failure.
 *  4. A fence's file that is torn, or of another store, is a lost hold: it is removed, and its handoff is held again at a
 *     higher generation. A torn `store.json` stops everything, for then nobody knows which generations were given.
 */
import { mkdir, open, readdir, readFile, rename, unlink } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { type Static, Type } from '@sinclair/typebox';
import { mapBounded } from '../../client/bounded-map.js';
import { canonicalizeStrictJson } from '../../contract/canonical-json.js';
import type {
  IFleetCutoverPreparedVolumeHandoffAggregate,
  IFleetCutoverPreparedVolumeHandoffIntent,
} from '../../contract/handoff.js';
import { fleetCutoverVolumeFenceRecord, type TFleetCutoverVolumeFence } from '../../contract/held-fence.js';
import { defineRecord } from '../../contract/record.js';
import { closed, compareText, Identifier, PositiveInteger, sameReference } from '../../contract/schema.js';
import { parseStrictJson } from '../../contract/strict-json.js';
import { newIdentifier, type Random } from '../../random.js';
import { readStateFile, writeStateFile } from '../spark/state-file.js';
import { heldFence } from './fence.js';

type Fence = TFleetCutoverVolumeFence;
type Handoff = IFleetCutoverPreparedVolumeHandoffIntent;

/** What the caller asks for contradicts what is held. */
export class FenceStoreError extends Error {
  override readonly name = 'FenceStoreError';
}

/** The node's own handoffs of one complete revision that the reader has proved whole. */
export interface ProvedShare {
  readonly aggregate: IFleetCutoverPreparedVolumeHandoffAggregate;
  readonly handoffs: readonly Handoff[];
}

export interface FenceStore {
  readonly fenceStoreId: string;
  /** Handoffs whose fences were found torn or of another store when the store was opened. */
  readonly lost: readonly string[];
  /** All held fences, in the order of their handoffs' ids. */
  held(): Fence[];
  /**
   * Holds every given handoff and gives their fences, in the given order. A handoff that is held already keeps its fence
   * as it is; a revised one gets the next generation of the same fence.
   *
   * @throws FenceStoreError for another node's handoff, and for one that is older or other than the held one
   */
  hold(handoffs: readonly Handoff[]): Promise<Fence[]>;
  /**
   * Lets go the fences of handoffs that the complete set no longer has; gives their handoffs' ids.
   *
   * @throws FenceStoreError for a set that is not complete
   */
  dropAbsent(share: ProvedShare): Promise<string[]>;
}

const StoreFile = closed({
  fenceStoreId: Identifier,
  nodeId: Identifier,
  /** By handoff id. */
  generations: Type.Array(closed({ handoffId: Identifier, generation: PositiveInteger })),
});
const storeRecord = defineRecord('IFenceStore', StoreFile);

const concurrentWrites = 8;

export interface FenceStoreOptions {
  /** Of this store alone; one store object and one process per directory. */
  readonly directory: string;
  readonly nodeId: string;
  readonly random: Random;
}

/** Opens the store, or begins it. Throws `StateFileError` for a `store.json` that can't be trusted. */
export async function openFenceStore({ directory, nodeId, random }: FenceStoreOptions): Promise<FenceStore> {
  const storePath = join(directory, 'store.json');
  const fenceDirectory = join(directory, 'fences');
  const created = await mkdir(fenceDirectory, { recursive: true, mode: 0o700 });
  if (created !== undefined) for (const path of [directory, dirname(directory)]) await syncDirectory(path);
  let store = await readStateFile(storePath, storeRecord);
  if (store === null) {
    store = { fenceStoreId: newIdentifier(random, 'fs'), nodeId, generations: [] };
    await writeStateFile(storePath, store);
  }
  if (store.nodeId !== nodeId) throw new FenceStoreError(`the fence store is that of node ${store.nodeId}`);
  const { fenceStoreId } = store;
  const generations = new Map(store.generations.map((each) => [each.handoffId, each.generation]));
  const { fences, lost } = await loadFences(fenceDirectory, store);
  for (const fence of fences.values()) raise(generations, fence);

  let last: Promise<unknown> = Promise.resolve();
  /** One change after the other. */
  const inTurn = <T>(work: () => Promise<T>): Promise<T> => {
    const done = last.then(work);
    last = done.catch(() => {}); // the next change doesn't fail for this one, whose caller is told
    return done;
  };

  const take = async (handoffs: readonly Handoff[]): Promise<void> => {
    const taken = handoffs.map((handoff) => heldFence(fenceStoreId, handoff, (generations.get(handoff.id) ?? 0) + 1));
    for (const fence of taken) raise(generations, fence);
    await writeStateFile(storePath, storeContent(fenceStoreId, nodeId, generations));
    await mapBounded(taken.length, concurrentWrites, async (index) => {
      const fence = taken[index]!;
      await writeUnsynced(fencePath(fenceDirectory, fence.handoff.id), fence);
    });
    await syncDirectory(fenceDirectory);
    for (const fence of taken) fences.set(fence.handoff.id, fence);
  };

  return Object.freeze({
    fenceStoreId,
    lost,

    held: () => [...fences.values()].sort((left, right) => compareText(left.handoff.id, right.handoff.id)),

    hold: (handoffs: readonly Handoff[]) =>
      inTurn(async () => {
        for (const handoff of handoffs) refuseContradiction(nodeId, fences.get(handoff.id), handoff);
        const distinct = new Map(handoffs.map((handoff) => [handoff.id, handoff]));
        const unheld = [...distinct.values()].filter(
          (handoff) => !sameReference(fences.get(handoff.id)?.handoff ?? null, handoff),
        );
        if (unheld.length > 0) await take(unheld);
        return handoffs.map((handoff) => fences.get(handoff.id)!);
      }),

    dropAbsent: ({ aggregate, handoffs }: ProvedShare) =>
      inTurn(async () => {
        if (aggregate.state !== 'complete') throw new FenceStoreError('only a complete set says what was removed');
        const present = new Set(handoffs.map((handoff) => handoff.id));
        const absent = [...fences.keys()].filter((id) => !present.has(id)).sort(compareText);
        for (const id of absent) await unlink(fencePath(fenceDirectory, id));
        if (absent.length > 0) await syncDirectory(fenceDirectory);
        for (const id of absent) fences.delete(id);
        return absent;
      }),
  });
}

function refuseContradiction(nodeId: string, held: Fence | undefined, handoff: Handoff): void {
  if (handoff.nodeId !== nodeId) throw new FenceStoreError(`the handoff ${handoff.id} is of another node`);
  if (held === undefined) return;
  const { generation, digest } = held.handoff;
  if (handoff.generation < generation || (handoff.generation === generation && handoff.digest !== digest)) {
    throw new FenceStoreError(`the handoff ${handoff.id} leads back behind generation ${generation}, which is held`);
  }
}

function raise(generations: Map<string, number>, { handoff, generation }: Fence): void {
  generations.set(handoff.id, Math.max(generations.get(handoff.id) ?? 0, generation));
}

function storeContent(
  fenceStoreId: string,
  nodeId: string,
  generations: ReadonlyMap<string, number>,
): Static<typeof StoreFile> {
  const sorted = [...generations].sort(([left], [right]) => compareText(left, right));
  return { fenceStoreId, nodeId, generations: sorted.map(([handoffId, generation]) => ({ handoffId, generation })) };
}

/** An identifier begins with a letter or digit and has no slash: it is a name in the directory. */
function fencePath(directory: string, handoffId: string): string {
  return join(directory, `${handoffId}${suffix}`);
}

const suffix = '.json';

async function loadFences(
  directory: string,
  store: Static<typeof StoreFile>,
): Promise<{ fences: Map<string, Fence>; lost: string[] }> {
  const fences = new Map<string, Fence>();
  const lost: string[] = [];
  const names = await readdir(directory);
  for (const name of names.sort(compareText)) {
    const path = join(directory, name);
    const fence = parseFence(await readFile(path), store);
    if (fence !== null && name === `${fence.handoff.id}${suffix}`) {
      fences.set(fence.handoff.id, fence);
      continue;
    }
    // A write that a kill interrupted was never acknowledged: what it was to replace is there under its own name.
    if (name.endsWith(suffix)) lost.push(name.slice(0, -suffix.length));
    await unlink(path);
  }
  if (fences.size < names.length) await syncDirectory(directory);
  return { fences, lost };
}

/** Null for bytes that are no whole fence of this store: the digest covers every field. */
function parseFence(bytes: Uint8Array, store: Static<typeof StoreFile>): Fence | null {
  let value: unknown;
  try {
    value = parseStrictJson(bytes);
  } catch {
    return null;
  }
  if (fleetCutoverVolumeFenceRecord.check(value).length > 0) return null;
  const fence = value as Fence;
  return fence.fenceStoreId === store.fenceStoreId && fence.nodeId === store.nodeId ? fence : null;
}

/** The content is on disk and in its place; the directory's own sync makes the place durable. */
async function writeUnsynced(path: string, fence: Fence): Promise<void> {
  const unfinished = `${path}.unfinished`;
  const file = await open(unfinished, 'w', 0o600);
  try {
    await file.writeFile(canonicalizeStrictJson(fence));
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(unfinished, path);
}

async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}
