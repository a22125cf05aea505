import { expect, it } from 'vitest';
import { keepersOf, withKeepers } from '../../src/demo/statement.js';
import { scopeStatement } from '../support/snapshots.js';

const anonymous = (index: number) => index.toString(16).padStart(64, '0');
const entry = (nodeId: string, volumeName: string | null) => ({ nodeId, volumeName });

it('keepers have each anonymous volume of a node once, at most 32 a container, and every mount is confirmed', () => {
  const entries = [
    ...Array.from({ length: 33 }, (_, index) => entry('n1', anonymous(32 - index))),
    entry('n1', anonymous(3)),
    entry('n1', 'named'),
    entry('n2', null),
    entry('n3', anonymous(3)),
  ];
  const keepers = keepersOf(entries);
  expect(keepers.map(({ node, name, volumes }) => [node, name, volumes.length])).toEqual([
    ['n1', 'keeper-n1-1', 32],
    ['n1', 'keeper-n1-2', 1],
    ['n3', 'keeper-n3-1', 1],
  ]);
  expect(new Set(keepers.flatMap(({ node, volumes }) => volumes.map((volume) => `${node} ${volume}`))).size).toBe(34);
  const known = {
    nodeId: 'n9',
    mounter: { kind: 'container' as const, name: 'backup' },
    target: '/backup',
    reason: 'known before',
  };
  const { overlapConfirmations, ...rest } = withKeepers(scopeStatement({ overlapConfirmations: [known] }), keepers);
  expect(overlapConfirmations[0]).toEqual(known);
  expect(overlapConfirmations).toHaveLength(35);
  expect(overlapConfirmations.at(-1)).toMatchObject({
    nodeId: 'n3',
    mounter: { kind: 'container', name: 'keeper-n3-1' },
    target: `/keep/${anonymous(3)}`,
  });
  expect({ ...rest, overlapConfirmations: [] }).toEqual(scopeStatement());
  expect(keepersOf([entry('n1', 'named')])).toEqual([]);
});
