import type { OwnerHandlers } from '../../http/owner-handlers.js';
import {
  prepareFleetCutoverIngress,
  readFleetCutoverIngressDesignation,
  revokeFleetCutoverIngressCredential,
} from './operations.js';
import type { KeyRing } from './sealing.js';

export function ingressHandlers(ring: KeyRing) {
  return {
    prepareFleetCutoverIngress: (deps, actor, input) => prepareFleetCutoverIngress(ring, deps, actor, input),
    revokeFleetCutoverIngressCredential,
    readFleetCutoverIngressDesignation,
  } satisfies Partial<OwnerHandlers>;
}
