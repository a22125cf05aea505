/**
 * Which act each phase of the cutover permits.
 *
 * 1. Phases only go forward: swarm, draining, switching, pallet.
 * 2. An act that a phase does not permit is refused, whatever else is true.
 */
import { refuse, type Refused } from '../../contract/problems.js';
import type { TFleetCutoverPhase } from '../../contract/runtime.js';

export const acts = [
  'classify-scope',
  'accept-target-set',
  'rederive',
  'write-off',
  'revoke-coreflow',
  'prepare-handoffs',
  'read-pages',
  'hold-fences',
  'prepare-ingress',
] as const;
export type TAct = (typeof acts)[number];

/** `strays`: only for mounts that came up after the switch began. */
type TPermission = 'yes' | 'strays' | 'no';

const table: Readonly<Record<TAct, Readonly<Record<TFleetCutoverPhase, TPermission>>>> = {
  'classify-scope': { swarm: 'yes', draining: 'yes', switching: 'strays', pallet: 'no' },
  'accept-target-set': { swarm: 'yes', draining: 'yes', switching: 'no', pallet: 'no' },
  rederive: { swarm: 'yes', draining: 'yes', switching: 'yes', pallet: 'no' },
  'write-off': { swarm: 'yes', draining: 'yes', switching: 'yes', pallet: 'yes' },
  'revoke-coreflow': { swarm: 'yes', draining: 'yes', switching: 'yes', pallet: 'no' },
  'prepare-handoffs': { swarm: 'yes', draining: 'yes', switching: 'strays', pallet: 'no' },
  'read-pages': { swarm: 'yes', draining: 'yes', switching: 'yes', pallet: 'yes' },
  // In `pallet` a lost hold may be taken again.
  'hold-fences': { swarm: 'no', draining: 'yes', switching: 'yes', pallet: 'yes' },
  'prepare-ingress': { swarm: 'no', draining: 'no', switching: 'no', pallet: 'yes' },
};

export function permission(phase: TFleetCutoverPhase, act: TAct): TPermission {
  return table[act][phase];
}

/** Null where the phase permits the act, be it for strays only: what a stray is the operation itself checks. */
export function refuseByPhase(phase: TFleetCutoverPhase, act: TAct): Refused | null {
  if (permission(phase, act) !== 'no') return null;
  return refuse('phase-refused', {
    detail: `${act} is not permitted in phase ${phase}`,
    mutationOutcome: 'not-applied',
    retrySafe: false,
  });
}
