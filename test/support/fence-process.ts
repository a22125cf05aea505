/**
 * A process of its own that holds one revision of its handoffs after the other, as fast as it can, and writes a line with
 * the generation after each one that was acknowledged. It ends when it is killed. Argument: the store's directory.
 */
import { openFenceStore } from '../../src/agents/pallet/fence-store.js';
import { systemRandom } from '../../src/random.js';
import { handoffSet } from './handoff-set.js';
import { revisedHandoff } from './revised-handoff.js';

const directory = process.argv[2];
if (directory === undefined) throw new Error('no directory');
let handoffs = handoffSet({ nodes: { 'node-a': 5 } }).handoffs;
const store = await openFenceStore({ directory, nodeId: 'node-a', random: systemRandom });
const held = Math.max(0, ...store.held().map((fence) => fence.handoff.generation));
while ((handoffs[0]?.generation ?? 0) < held) handoffs = handoffs.map(revisedHandoff);
for (;;) {
  handoffs = handoffs.map(revisedHandoff);
  await store.hold(handoffs);
  process.stdout.write(`${handoffs[0]?.generation}\n`);
}
