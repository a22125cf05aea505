import type { OwnerHandlers } from '../../http/owner-handlers.js';
import { prepareFleetCutoverIngress, readFleetCutoverIngressDesignation } from './operations.js';
import type { KeyRing } from './sealing.js';

export function ingressHandlers(ring: KeyRing) {
  return {
    prepareFleetCutoverIngress: (deps, actor, input) => prepareFleetCutoverIngress(ring, deps, actor, input),
    readFleetCutoverIngressDesignation,
  } satisfies Partial<OwnerHandlers>;
}
