import { describe, expect, it } from 'vitest';
import { mapBounded } from '../../src/client/bounded-map.js';

const turn = () => new Promise((resolve) => setTimeout(resolve, 2));

describe('a bounded map', () => {
  it('gives results in order, whatever order they came in', async () => {
    const results = await mapBounded(7, 3, async (index) => {
      await new Promise((resolve) => setTimeout(resolve, 10 - index));
      return index * 2;
    });
    expect(results).toEqual([0, 2, 4, 6, 8, 10, 12]);
  });

  it('has at most so many under way, and begins them in order', async () => {
    let running = 0;
    let most = 0;
    const begun: number[] = [];
    await mapBounded(20, 4, async (index) => {
      begun.push(index);
      most = Math.max(most, ++running);
      await turn();
      running -= 1;
    });
    expect(most).toBe(4);
    expect(begun).toEqual([...Array(20).keys()]);
    expect(await mapBounded(0, 4, turn)).toEqual([]);
  });

  it('throws the first failure, having ended the others and begun no more', async () => {
    const begun: number[] = [];
    const ended: number[] = [];
    const work = mapBounded(20, 3, (index, signal) => {
      begun.push(index);
      if (index === 1) return turn().then(() => Promise.reject(new Error('first')));
      return new Promise<void>((_resolve, reject) => {
        signal.addEventListener('abort', () => {
          ended.push(index);
          reject(new Error('ended'));
        });
      });
    });
    await expect(work).rejects.toThrow('first');
    expect(begun).toEqual([0, 1, 2]);
    expect(ended).toEqual([0, 2]);
  });

  it('passes the caller’s signal on', async () => {
    const ending = new AbortController();
    const work = mapBounded(
      2,
      2,
      (_index, signal) =>
        new Promise<void>((_resolve, reject) => signal.addEventListener('abort', () => reject(new Error('ended')))),
      ending.signal,
    );
    ending.abort();
    await expect(work).rejects.toThrow('ended');
  });
});
