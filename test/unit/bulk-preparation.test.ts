import { describe, expect, it } from 'vitest';
import { type CutoverState, nextStep, type Pass, phaseStop } from '../../src/cli/bulk/preparation.js';
import { progressBar, progressText } from '../../src/cli/bulk/progress-line.js';
import { referenceNamed } from '../support/handoff-set.js';

describe('the next step of a bulk preparation', () => {
  const state = (over: object): CutoverState =>
    ({
      scope: referenceNamed('sc-1'),
      aggregate: { state: 'incomplete' },
      behind: false,
      missingCount: 0,
      surplusCount: 0,
      blockers: [],
      ...over,
    }) as unknown as CutoverState;
  const pass = (over: Partial<Pass>): Pass => ({ ready: 1, blocked: 0, created: 1, foreign: 0, ...over });
  const complete = { aggregate: { state: 'complete' } };

  it.each<[string, object, Pass | null, number, string]>([
    ['a complete set', complete, null, 0, 'end'],
    ['a complete set that is behind', { ...complete, behind: true }, null, 0, 'rederive'],
    ['nothing required, no aggregate', { aggregate: null }, null, 0, 'rederive'],
    ['no scope', { aggregate: null, scope: null, blockers: [{ code: 'scope-missing', count: 1 }] }, null, 0, 'end'],
    ['something missing', { missingCount: 3 }, null, 0, 'pass'],
    ['more came while it was prepared', { missingCount: 3 }, pass({}), 0, 'pass'],
    ['only blocked ones are left', { missingCount: 3 }, pass({ ready: 0, blocked: 3, created: 0 }), 0, 'end'],
    ['one pass in vain', { missingCount: 3 }, pass({ created: 0 }), 1, 'pass'],
    ['two passes in vain', { missingCount: 3 }, pass({ created: 0 }), 2, 'end'],
    ['behind, and blocked', { ...complete, behind: true, blockers: [{ code: 'x', count: 1 }] }, null, 0, 'end'],
    ['behind, and surplus', { ...complete, behind: true, surplusCount: 1 }, null, 0, 'end'],
  ])('%s', (_case, over, last, fruitless, expected) => {
    expect(nextStep(state(over), { last, fruitless })).toBe(expected);
  });

  it.each([
    ['swarm', false, null],
    ['draining', false, 'confirmation-needed'],
    ['draining', true, null],
    ['switching', false, 'confirmation-needed'],
    ['pallet', true, 'phase-refused'],
  ] as const)('in %s, confirmed %s', (phase, confirmed, expected) => {
    expect(phaseStop(phase, confirmed)).toBe(expected);
  });
});

it.each([
  [{ done: 0, total: 10, ms: 5 }, '0/10 0 %'],
  [{ done: 0, total: 0, ms: 5 }, '0/0 100 %'],
  [{ done: 1_024, total: 4_096, ms: 1_000 }, '1,024/4,096 25 %, 1,024/s, 3 s left'],
  [{ done: 32, total: 131_072, ms: 1_000 }, '32/131,072 0 %, 32/s, 69 min left'],
  [{ done: 10, total: 10, ms: 100 }, '10/10 100 %, 100/s'],
])('progress of %j', (progress, expected) => {
  expect(progressText(progress)).toBe(expected);
  expect(progressBar(progress)).toHaveLength(32);
});
