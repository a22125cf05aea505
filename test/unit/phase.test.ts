import { describe, expect, it } from 'vitest';
import { fleetCutoverPhases } from '../../src/contract/runtime.js';
import { acts, permission, refuseByPhase, type TAct } from '../../src/features/phase/phase.js';

/** In the order swarm, draining, switching, pallet. */
const before: Partial<Record<TAct, readonly string[]>> = {
  'classify-scope': ['yes', 'yes', 'strays', 'no'],
  'accept-target-set': ['yes', 'yes', 'no', 'no'],
  rederive: ['yes', 'yes', 'yes', 'no'],
  'write-off': ['yes', 'yes', 'yes', 'yes'],
  'revoke-coreflow': ['yes', 'yes', 'yes', 'no'],
  'prepare-handoffs': ['yes', 'yes', 'strays', 'no'],
  'read-pages': ['yes', 'yes', 'yes', 'yes'],
  'hold-fences': ['no', 'yes', 'yes', 'yes'],
};
/** Sessions, ingress, grants, releases and close: whatever comes after the switch is permitted after it only. */
const afterwards = ['no', 'no', 'no', 'yes'];
const cells = acts.flatMap((act) =>
  fleetCutoverPhases.map((phase, index) => ({ act, phase, is: (before[act] ?? afterwards)[index]! })),
);

describe('which act each phase permits', () => {
  it('is said of every act once', () => {
    expect(new Set(acts).size).toBe(acts.length);
    expect(acts).toEqual(expect.arrayContaining(Object.keys(before)));
  });

  it.each(cells)('$act in $phase: $is', ({ act, phase, is }) => {
    expect(permission(phase, act)).toBe(is);
    const refused = refuseByPhase(phase, act);
    if (is !== 'no') {
      expect(refused).toBeNull();
      return;
    }
    expect(refused?.problem).toEqual({
      code: 'phase-refused',
      detail: `${act} is not permitted in phase ${phase}`,
      mutationOutcome: 'not-applied',
      retrySafe: false,
    });
  });
});
