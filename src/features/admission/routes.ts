import type { OwnerHandlers } from '../../http/owner-handlers.js';
import { acceptFleetCutoverTargetSet, classifyFleetCutoverScope } from './operations.js';

export const admissionHandlers = { classifyFleetCutoverScope, acceptFleetCutoverTargetSet } satisfies Partial<OwnerHandlers>;
