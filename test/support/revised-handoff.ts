import type { IFleetCutoverPreparedVolumeHandoffIntent } from '../../src/contract/handoff.js';
import { referenceOf } from '../../src/contract/schema.js';
import { sealHandoff } from './handoff-set.js';

/** The handoff's next generation, with nothing else different. */
export function revisedHandoff(
  handoff: IFleetCutoverPreparedVolumeHandoffIntent,
): IFleetCutoverPreparedVolumeHandoffIntent {
  const { digest: _digest, ...content } = handoff;
  return sealHandoff({ ...content, generation: handoff.generation + 1, predecessor: referenceOf(handoff) });
}
