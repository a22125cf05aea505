import type { OwnerHandlers } from '../../http/owner-handlers.js';
import { readFleetCutoverManagerSnapshot } from './queries.js';

export const inventoryHandlers = { readFleetCutoverManagerSnapshot } satisfies Partial<OwnerHandlers>;
