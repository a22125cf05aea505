import type { OwnerHandlers } from '../../http/owner-handlers.js';
import { readFleetCutoverScope, readFleetCutoverTargetSet } from './queries.js';

export const scopeHandlers = { readFleetCutoverScope, readFleetCutoverTargetSet } satisfies Partial<OwnerHandlers>;
