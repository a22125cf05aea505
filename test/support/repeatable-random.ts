import { createHash } from 'node:crypto';
import type { Random } from '../../src/random.js';

/** The same bytes in the same order for the same seed: two services that are asked the same make the same ids. */
export function repeatableRandom(seed: string): Random {
  let calls = 0;
  return {
    bytes: (length) => {
      calls += 1;
      const blocks = Array.from({ length: Math.ceil(length / 32) }, (_, block) =>
        createHash('sha256').update(`${seed}\0${calls}\0${block}`).digest(),
      );
      return Buffer.concat(blocks).subarray(0, length);
    },
  };
}
