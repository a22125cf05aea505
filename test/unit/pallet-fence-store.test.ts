import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm, stat, truncate, unlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { fenceId } from '../../src/agents/pallet/fence.js';
import { FenceStoreError, openFenceStore } from '../../src/agents/pallet/fence-store.js';
import { createReferencePallet } from '../../src/agents/pallet/node-pallet.js';
import { StateFileError } from '../../src/agents/spark/state-file.js';
import { validateFleetCutoverVolumeFence } from '../../src/contract/held-fence.js';
import { referenceOf } from '../../src/contract/schema.js';
import { systemRandom } from '../../src/random.js';
import { handoffSet, sealHandoff } from '../support/handoff-set.js';
import { revisedHandoff } from '../support/revised-handoff.js';

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'fleet-cutover-fences-'));
});
afterEach(() => rm(directory, { recursive: true }));

const openStore = (nodeId = 'node-a') => openFenceStore({ directory, nodeId, random: systemRandom });
const set = handoffSet({ nodes: { 'node-a': 3 } });
const [first, second, third] = set.handoffs as [
  (typeof set.handoffs)[0],
  (typeof set.handoffs)[0],
  (typeof set.handoffs)[0],
];
const fileOf = (handoffId: string) => join(directory, 'fences', `${handoffId}.json`);

describe('a fence', () => {
  it('is a sealed record that binds one handoff of the node', async () => {
    const store = await openStore();
    const [fence] = await store.hold([first]);
    expect(await validateFleetCutoverVolumeFence(fence)).toEqual([]);
    expect(fence).toMatchObject({
      id: fenceId(store.fenceStoreId, first.id),
      generation: 1,
      state: 'held',
      clusterId: first.clusterId,
      nodeId: 'node-a',
      fenceStoreId: store.fenceStoreId,
      volumeId: first.volumeId,
      mountIdentityDigest: first.observedMount.mountIdentityDigest,
      handoff: referenceOf(first),
    });
  });

  it('stays the same for the same handoff, also after the process', async () => {
    const fences = await (await openStore()).hold(set.handoffs);
    const again = await openStore();
    expect(await again.hold(set.handoffs)).toEqual(fences);
    expect(again.held()).toEqual(fences);
    expect(again.lost).toEqual([]);
  });

  it('is given in the order that was asked for, for a handoff that is named twice too', async () => {
    const fences = await (await openStore()).hold([third, first, third]);
    expect(fences.map((fence) => fence.handoff.id)).toEqual([third.id, first.id, third.id]);
    expect(fences[2]).toEqual(fences[0]);
  });

  it('of a revised handoff is the next generation of the same fence', async () => {
    const store = await openStore();
    const [before] = await store.hold([first]);
    const [after] = await store.hold([revisedHandoff(first)]);
    expect(after).toMatchObject({ id: before?.id, generation: 2, handoff: { id: first.id, generation: 2 } });
    expect(store.held()).toEqual([after]);
  });

  it('of a handoff that leads back, or of another node, is refused and nothing changes', async () => {
    const store = await openStore();
    const held = await store.hold([revisedHandoff(first)]);
    await expect(store.hold([second, first])).rejects.toThrow(FenceStoreError);
    const { digest: _digest, ...content } = revisedHandoff(first);
    await expect(store.hold([sealHandoff({ ...content, volumeId: 'vo-other' })])).rejects.toThrow(FenceStoreError);
    const foreign = handoffSet({ nodes: { 'node-b': 1 } }).handoffs;
    await expect(store.hold(foreign)).rejects.toThrow('another node');
    expect(store.held()).toEqual(held);
    expect(await store.hold([second])).toHaveLength(1); // a refusal does not end the store
  });

  it('is its owner’s alone', async () => {
    await (await openStore()).hold([first]);
    expect((await stat(fileOf(first.id))).mode & 0o777).toBe(0o600);
    expect((await stat(join(directory, 'fences'))).mode & 0o777).toBe(0o700);
  });
});

describe('a removed handoff', () => {
  it('loses its fence only by a complete set without it, and is held again at a higher generation', async () => {
    const store = await openStore();
    await store.hold(set.handoffs);
    const share = { aggregate: set.aggregate, handoffs: [first, third] };
    const incomplete = { ...share, aggregate: { ...set.aggregate, state: 'incomplete' as const } };
    await expect(store.dropAbsent(incomplete)).rejects.toThrow(FenceStoreError);
    expect(store.held()).toHaveLength(3);
    expect(await store.dropAbsent(share)).toEqual([second.id]);
    expect(await store.dropAbsent(share)).toEqual([]);
    const reopened = await openStore();
    expect(reopened.held().map((fence) => fence.handoff.id)).toEqual([first.id, third.id].sort());
    const [again] = await reopened.hold([second]);
    expect(again).toMatchObject({ id: fenceId(store.fenceStoreId, second.id), generation: 2 });
  });

  it('is let go by Pallet when it holds the share without it', async () => {
    const store = await openStore();
    const pallet = createReferencePallet({ store, version: '1', isReady: () => false });
    await pallet.holdShare(set);
    const fences = await pallet.holdShare({ aggregate: set.aggregate, handoffs: [third, first] });
    expect(fences.map((fence) => fence.handoff.id)).toEqual([third.id, first.id]);
    expect(store.held()).toHaveLength(2);
    expect(await pallet.status()).toEqual({ version: '1', fenceStoreId: store.fenceStoreId, ready: false });
  });
});

describe('a lost hold', () => {
  it.each<[string, (path: string) => Promise<void>]>([
    ['torn', (path) => truncate(path, 40)],
    ['empty', (path) => truncate(path, 0)],
    ['zeroed', async (path) => writeFile(path, Buffer.alloc((await stat(path)).size))],
    ['changed', async (path) => writeFile(path, (await readFile(path, 'utf8')).replace('vo-', 'vx-'))],
    ['under another name', (path) => writeFile(path, '').then(() => unlink(path))],
  ])('%s is taken again at a higher generation; the others stay', async (what, damage) => {
    const store = await openStore();
    const fences = await store.hold(set.handoffs);
    await damage(fileOf(second.id));
    const again = await openStore();
    expect(again.fenceStoreId).toBe(store.fenceStoreId);
    expect(again.lost).toEqual(what === 'under another name' ? [] : [second.id]);
    expect(again.held()).toEqual(fences.filter((fence) => fence.handoff.id !== second.id));
    const [retaken] = await again.hold([second]);
    expect(retaken).toMatchObject({ id: fences[1]?.id, generation: 2, handoff: referenceOf(second) });
    expect((await openStore()).held()).toContainEqual(retaken);
  });

  it('with the counters begins another store, whose fences are others', async () => {
    const store = await openStore();
    const [before] = await store.hold([first]);
    await unlink(join(directory, 'store.json'));
    const again = await openStore();
    expect(again.fenceStoreId).not.toBe(store.fenceStoreId);
    expect(again.lost).toEqual([first.id]);
    const [after] = await again.hold([first]);
    expect(after?.id).not.toBe(before?.id);
  });

  it.each(['', '{', '{"fenceStoreId":"fs-1","nodeId":"node-a"}'])('with counters %j stops', async (text) => {
    await (await openStore()).hold([first]);
    await writeFile(join(directory, 'store.json'), text);
    await expect(openStore()).rejects.toThrow(StateFileError);
    expect(await readdir(join(directory, 'fences'))).toEqual([`${first.id}.json`]);
  });
});

describe('the store', () => {
  it('belongs to one node', async () => {
    await openStore();
    await expect(openStore('node-b')).rejects.toThrow('node node-a');
  });

  it('forgets a write that was not finished', async () => {
    const store = await openStore();
    const fences = await store.hold([first]);
    await writeFile(`${fileOf(first.id)}.unfinished`, '{"id":');
    const again = await openStore();
    expect(again.held()).toEqual(fences);
    expect(again.lost).toEqual([]);
    expect(await readdir(join(directory, 'fences'))).toEqual([`${first.id}.json`]);
  });

  it('never gives one generation to two contents, whichever file survives', async () => {
    const store = await openStore();
    await store.hold([first]);
    const before = await readFile(join(directory, 'store.json'));
    await store.hold([revisedHandoff(first)]);
    // The counters of yesterday beside a fence of today.
    await writeFile(join(directory, 'store.json'), before);
    const [fence] = await (await openStore()).hold([revisedHandoff(revisedHandoff(first))]);
    expect(fence?.generation).toBe(3);
  });

  it('makes one change after the other', async () => {
    const store = await openStore();
    const revised = revisedHandoff(first);
    const [[one], dropped, [two], [three]] = await Promise.all([
      store.hold([first]),
      store.dropAbsent({ aggregate: set.aggregate, handoffs: [] }),
      store.hold([first]),
      store.hold([revised]),
    ]);
    expect([one?.generation, dropped, two?.generation, three?.generation]).toEqual([1, [first.id], 2, 3]);
  });

  it('has after kill -9 at any moment whole fences of all handoffs, none older than acknowledged', async () => {
    let identity: string | undefined;
    let acknowledged = 0;
    for (const afterMs of [20, 45, 80, 130]) {
      const script = join(import.meta.dirname, '..', 'support', 'fence-process.ts');
      const child = spawn(process.execPath, ['--import', 'tsx', script, directory], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      let output = '';
      child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
      await once(child.stdout, 'data');
      await pause(afterMs);
      child.kill('SIGKILL');
      await once(child, 'close');
      // The last line may be cut off.
      acknowledged = Math.max(acknowledged, ...output.split('\n').slice(0, -1).map(Number));
      const store = await openStore();
      identity ??= store.fenceStoreId;
      expect(store.fenceStoreId).toBe(identity);
      expect(store.lost).toEqual([]);
      const held = store.held();
      expect(held).toHaveLength(5);
      for (const fence of held) {
        expect(await validateFleetCutoverVolumeFence(fence)).toEqual([]);
        expect([acknowledged, acknowledged + 1]).toContain(fence.handoff.generation);
      }
    }
    expect(acknowledged).toBeGreaterThan(4);
  }, 60_000);
});
