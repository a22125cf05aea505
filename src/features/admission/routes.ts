import type { OwnerHandlers } from '../../http/owner-handlers.js';
import { acceptFleetCutoverTargetSet, classifyFleetCutoverScope } from './operations.js';
import { writeOffNode, writeOffVolume } from './write-off-operations.js';

export const admissionHandlers = {
  classifyFleetCutoverScope,
  acceptFleetCutoverTargetSet,
  writeOffNode,
  writeOffVolume,
} satisfies Partial<OwnerHandlers>;
