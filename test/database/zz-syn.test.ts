import { expect, it } from 'vitest';
import { startService } from '../support/service.js';
import { prepareKeys, syntheticFleet } from '../support/synthetic-fleet.js';
it('small', async () => {
  const service = await startService({ logLevel: 'error' });
  let t = performance.now();
  const fleet = await syntheticFleet(service, { nodes: 3, volumesPerNode: [40, 0, 25] });
  console.log('small', performance.now() - t);
  const state = await service.done('readFleetCutoverState', { clusterId: fleet.clusterId });
  console.log(JSON.stringify(state.blockers), state.derivation.requiredCount, state.verdicts);
  const list = await service.done('listFleetCutoverRequiredVolumeHandoffs', { clusterId: fleet.clusterId, cursor: null, limit: 1000 });
  expect(list.entries.map((e) => e.id)).toEqual(fleet.keys().map((k) => k.id));
  await prepareKeys(service, fleet, null, fleet.keys());
  const s2 = await service.done('readFleetCutoverState', { clusterId: fleet.clusterId });
  console.log(s2.aggregate);
  if (process.env.BIG) {
    t = performance.now();
    const big = await syntheticFleet(service, { nodes: 64, volumesPerNode: 2048 });
    console.log('big', performance.now() - t);
    const state = await service.done('readFleetCutoverState', { clusterId: big.clusterId });
    console.log(JSON.stringify(state.blockers), state.derivation.requiredCount, state.verdicts);
    t = performance.now();
    console.log(big.keys().length, performance.now() - t);
  }
  await service.close();
}, 300_000);
