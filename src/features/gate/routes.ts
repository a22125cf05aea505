import type { OwnerHandlers } from '../../http/owner-handlers.js';
import { explainFleetCutover } from './explain.js';
import { advanceFleetCutoverPhase, revokeFleetCutoverCoreflowCredential } from './operations.js';

export const gateHandlers = {
  advanceFleetCutoverPhase,
  revokeFleetCutoverCoreflowCredential,
  explainFleetCutover,
} satisfies Partial<OwnerHandlers>;
