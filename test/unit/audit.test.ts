import { describe, expect, it } from 'vitest';
import { bareDigest } from '../../src/contract/digest.js';
import {
  type AuditFacts,
  digestBytes,
  digestText,
  genesisDigest,
  isOrganizationChainId,
  organizationChainId,
  rowDigest,
} from '../../src/features/audit/chain.js';
import { judgeReplay, mutationContext } from '../../src/features/audit/context.js';
import type { AuditRow } from '../../src/features/audit/rows.js';

const clock = { now: () => new Date(1_700_000_000_000) };
const caller = { organizationId: 'acme', principalId: 'alice', credentialId: 'ad-1' };
const context = (input: object = {}) =>
  mutationContext(caller, 'registerNode', 'berlin', { mutationId: 'm-1', ...input }, clock);

describe('chains', () => {
  it('are named apart: an organization’s name is no cluster’s', () => {
    const id = organizationChainId('a'.repeat(128));
    expect(id).toMatch(/^org-[0-9a-f]{40}$/);
    expect(isOrganizationChainId(id)).toBe(true);
    expect(isOrganizationChainId('org-berlin')).toBe(false);
    expect(organizationChainId('a')).not.toBe(organizationChainId('b'));
  });

  it('begin differently', () => {
    expect(genesisDigest('a')).toHaveLength(32);
    expect(genesisDigest('a')).not.toEqual(genesisDigest('b'));
  });

  it('cover every fact of a row', () => {
    const facts: AuditFacts = {
      chainId: 'c',
      organizationId: 'o',
      clusterId: null,
      mutationId: 'm',
      credentialId: 'k',
      principalId: 'p',
      method: 'n',
      requestDigest: 'q',
      resultDigest: 'r',
      at: 1,
    };
    const changed = Object.keys(facts).map((key) =>
      rowDigest({ ...facts, [key]: key === 'at' ? 2 : 'other' }).toString('hex'),
    );
    expect(new Set([...changed, rowDigest(facts).toString('hex')]).size).toBe(changed.length + 1);
  });

  it('write digests as the wire does', () => {
    const digest = bareDigest({ a: 1 });
    expect(digestBytes(digest)).toHaveLength(32);
    expect(digestText(digestBytes(digest))).toBe(digest);
  });
});

describe('the request’s digest', () => {
  it('covers the payload, not the mutation id and not whether it is a dry run', () => {
    const digest = context({ nodeId: 'a' }).requestDigest;
    expect(digest).toBe(bareDigest({ nodeId: 'a' }));
    expect(context({ nodeId: 'a', dryRun: true }).requestDigest).toBe(digest);
    expect(context({ nodeId: 'b' }).requestDigest).not.toBe(digest);
  });

  it('stands in the organization’s chain where there is no cluster', () => {
    const made = mutationContext(caller, 'createService', null, { mutationId: 'm' }, clock);
    expect(made).toMatchObject({ chainId: organizationChainId('acme'), clusterId: null, at: 1_700_000_000_000 });
  });
});

describe('judgeReplay', () => {
  const recorded = (over: Partial<AuditRow> = {}): AuditRow => ({
    chain_id: 'berlin',
    seq: 7,
    chain_digest: Buffer.alloc(32, 1),
    principal_id: 'alice',
    method: 'registerNode',
    request_digest: context().requestDigest,
    result: '{"done":true}',
    ...over,
  });

  it('answers the recorded result with the head as it was', () => {
    expect(judgeReplay(recorded(), context())).toEqual({
      kind: 'replay',
      result: { done: true },
      audit: { chainId: 'berlin', seq: 7, digest: `sha256:${'01'.repeat(32)}` },
    });
  });

  it.each([
    ['principal', { principal_id: 'bob' }],
    ['method', { method: 'revokeNode' }],
    ['payload', { request_digest: bareDigest({ other: 1 }) }],
  ])('refuses another %s', (_what, over) => {
    expect(judgeReplay(recorded(over), context())).toMatchObject({ problem: { code: 'mutation-id-reused' } });
  });
});
