import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { bareDigest, digestDomain, recordDigest } from '../../src/contract/digest.js';
import { ContractError } from '../../src/contract/record.js';
import {
  bindRuntimeStorageClaimToIntent,
  type IRuntimeStorageClaim,
  type IRuntimeStorageClaimIntent,
  isMountPath,
  runtimeStorageClaimIntentRecord,
  runtimeStorageClaimRecord,
} from '../../src/contract/storage-claim.js';

interface Vector {
  readonly type: string;
  readonly record: object;
}
const vectors = JSON.parse(readFileSync(new URL('../vectors/records.json', import.meta.url), 'utf8')) as {
  records: Vector[];
};
const all = (type: string) => vectors.records.filter((each) => each.type === type).map((each) => each.record);
const [firstIntent, intent] = all('IRuntimeStorageClaimIntent') as [
  IRuntimeStorageClaimIntent,
  IRuntimeStorageClaimIntent,
];
const [claim] = all('IRuntimeStorageClaim') as [IRuntimeStorageClaim];

function reseal<T extends { digest: string }>(type: string, record: T, more: object): T {
  const { digest: _digest, ...content } = { ...record, ...more };
  return { ...content, digest: recordDigest(digestDomain(type), content) } as unknown as T;
}
const claimWith = (more: object) => reseal('IRuntimeStorageClaim', claim, more);
const bindingWith = (more: object) => claimWith({ binding: { ...claim.binding, ...more } });
const intentWith = (more: object) => reseal('IRuntimeStorageClaimIntent', intent, more);

function bindingErrors(someClaim: unknown, someIntent: unknown): readonly string[] {
  try {
    bindRuntimeStorageClaimToIntent(someClaim, someIntent);
    return [];
  } catch (error) {
    if (error instanceof ContractError) return error.errors;
    throw error;
  }
}

describe('binding a claim to its intent', () => {
  it('gives frozen copies of both where the claim preserves what was intended', () => {
    const bound = bindRuntimeStorageClaimToIntent(claim, intent);
    expect(bound).toEqual({ claim, intent });
    expect(Object.isFrozen(bound)).toBe(true);
    expect(Object.isFrozen(bound.claim.binding.request)).toBe(true);
    expect(bound.claim).not.toBe(claim);
  });

  it.each<[string, object]>([
    ['id', { id: 'cl-2', predecessor: { ...claim.predecessor!, id: 'cl-2' } }],
    ['generation', { generation: 3 }],
    ['controllerId', { controllerId: 'other' }],
    ['controllerEpoch', { controllerEpoch: 2 }],
    ['organizationId', { organizationId: 'other' }],
    ['clusterId', { clusterId: 'other' }],
    ['nodeId', { nodeId: 'node-2' }],
    ['runtimeNamespace', { runtimeNamespace: 'other' }],
    ['serviceId', { serviceId: 'sv-2', binding: { ...claim.binding, serviceId: 'sv-2' } }],
    ['predecessor', { predecessor: null }],
    ['predecessor', { predecessor: { ...claim.predecessor!, digest: claim.digest } }],
  ])('refuses another %s, also in a claim that is valid by itself', (fact, more) => {
    const other = claimWith(more);
    expect(runtimeStorageClaimRecord.validate(other)).toEqual([]);
    expect(bindingErrors(other, intent)).toContain(`the claim must preserve the intent’s ${fact}`);
  });

  it.each<[string, object]>([
    ['mount path', { mountPath: '/other' }],
    ['request id', { requestId: 'rq-2' }],
    ['capacity', { requestedCapacityBytes: 1 }],
  ])('refuses another requested %s', (_name, more) => {
    const request = { ...claim.binding.request, ...more };
    const other = bindingWith({ request, requestDigest: bareDigest(request) });
    expect(runtimeStorageClaimRecord.validate(other)).toEqual([]);
    expect(bindingErrors(other, intent)).toEqual(['the claim must preserve the requested filesystem']);
  });

  it('names every mismatch', () => {
    expect(bindingErrors(claimWith({ nodeId: 'node-2', controllerEpoch: 9 }), intent)).toHaveLength(2);
    expect(bindingErrors(claim, firstIntent).length).toBeGreaterThanOrEqual(3);
  });

  it('refuses a claim or intent that is not valid itself, before it compares', () => {
    expect(bindingErrors({ ...claim, nodeId: 'node-2' }, intent)[0]).toContain('/digest');
    expect(bindingErrors(claim, { ...intent, nodeId: 'node-2' })[0]).toContain('/digest');
    expect(bindingErrors(intent, intent)).not.toEqual([]);
    expect(bindingErrors(claim, claim)).not.toEqual([]);
    expect(bindingErrors(null, intent)).not.toEqual([]);
  });

  it('does not ask for a volume’s id in the resource reference, nor for any policy', () => {
    expect(
      bindingErrors(bindingWith({ resourceRef: 'anything', policy: 'other', providerBindingId: 'pb-9' }), intent),
    ).toEqual([]);
  });
});

describe('a claim', () => {
  it.each<[string, object]>([
    ['that is not ready', { status: 'pending' }],
    ['without a resource', { resourceRef: '' }],
    ['observed at another generation than the provider’s', { observedGeneration: 3 }],
    ['that is not persistent', { capabilities: { ...claim.binding.capabilities, persistence: 'ephemeral' } }],
    ['that is not of one node', { capabilities: { ...claim.binding.capabilities, topology: 'multi-node' } }],
    ['with another access mode', { capabilities: { ...claim.binding.capabilities, accessModes: ['ReadWriteMany'] } }],
    ['with no access mode', { capabilities: { ...claim.binding.capabilities, accessModes: [] } }],
    ['of another service than its binding’s', { serviceId: 'sv-2' }],
    ['with another request than digested', { request: { ...claim.binding.request, mountPath: '/other' } }],
  ])('%s is refused', (_name, more) => {
    expect(runtimeStorageClaimRecord.validate(bindingWith(more))).not.toEqual([]);
  });
});

describe('an intent', () => {
  it.each([
    'providerBindingId',
    'providerBindingGeneration',
    'policy',
    'observedGeneration',
    'status',
    'resourceRef',
    'capabilities',
  ] as const)('cannot state %s', (fact) => {
    const other = intentWith({ binding: { ...intent.binding, [fact]: claim.binding[fact] } });
    expect(runtimeStorageClaimIntentRecord.validate(other)).not.toEqual([]);
  });

  it.each<[string, object]>([
    ['a predecessor of its own or a later generation', { predecessor: { ...intent.predecessor!, generation: 2 } }],
    ['another service in the binding', { binding: { ...intent.binding, serviceId: 'sv-2' } }],
    ['another request than digested', { binding: { ...intent.binding, requestDigest: intent.digest } }],
  ])('with %s is refused', (_name, more) => {
    expect(runtimeStorageClaimIntentRecord.validate(intentWith(more))).not.toEqual([]);
  });
});

describe('a mount path', () => {
  it.each(['/a', '/a/b', '/données', '/.a', '/a..', '/...', '/a b', '/ '])('%j can be asked for', (path) => {
    expect(isMountPath(path)).toBe(true);
  });
  it.each([
    '',
    '/',
    'a',
    'a/b',
    '/a/',
    '//a',
    '/a//b',
    '/.',
    '/..',
    '/a/.',
    '/a/..',
    '/a/./b',
    '/a/../b',
    '/a\0',
    'C:\\a',
    `/${'a'.repeat(4096)}`,
  ])('%j cannot', (path) => {
    expect(isMountPath(path)).toBe(false);
  });
});
