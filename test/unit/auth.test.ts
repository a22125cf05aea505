import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { refuseIssue, refuseRevocation, refuseRotation } from '../../src/features/auth/administrators.js';
import { CoalescingLoader } from '../../src/features/auth/coalescing-loader.js';
import {
  administratorToken,
  hashSecret,
  isIdentifier,
  matchSecret,
  newSecret,
  parseAuthorization,
} from '../../src/features/auth/credential.js';
import type { CredentialRow } from '../../src/features/auth/rows.js';
import { systemRandom } from '../../src/random.js';
import { Secret } from '../../src/secret.js';

const secret = new Secret('A'.repeat(43));

describe('tokens', () => {
  it('are taken apart only as a whole', () => {
    const token = administratorToken('ad-1', secret).reveal();
    const parsed = parseAuthorization(`Bearer ${token}`);
    expect([parsed?.credentialId, parsed?.secret.reveal()]).toEqual(['ad-1', secret.reveal()]);
    for (const header of [
      token,
      `Bearer${token}`,
      `Bearer ${token} x`,
      `Bearer ${token}\n`,
      'Bearer ',
      `Basic ${token}`,
    ]) {
      expect(parseAuthorization(header)).toBeUndefined();
    }
    expect(parseAuthorization(`Bearer ${'x'.repeat(100_000)}`)).toBeUndefined();
  });

  it('have 256 bits, and are kept as their hash', () => {
    const fresh = newSecret(systemRandom);
    expect(fresh.secret.reveal()).toMatch(/^[A-Za-z0-9_-]{43}$/);
    expect(fresh.hash).toEqual(hashSecret(fresh.secret));
    expect(newSecret(systemRandom).secret.reveal()).not.toBe(fresh.secret.reveal());
  });

  it('identify only what an identifier is', () => {
    expect(['a', 'a.b:c-d_e', '0'].map(isIdentifier)).toEqual([true, true, true]);
    expect(['', '.a', 'a b', 'a\n', 'a'.repeat(129), 'é'].map(isIdentifier)).toEqual(Array(6).fill(false));
  });
});

describe('matchSecret', () => {
  const [one, two, three] = ['1', '2', '3'].map((digit) => hashSecret(new Secret(digit.repeat(43)))) as [
    Buffer,
    Buffer,
    Buffer,
  ];
  const kept = { newest_generation: 3, newest_hash: three, used_generation: 1, used_hash: one };

  it('accepts the newest and the last used generation, and no other', () => {
    expect(matchSecret(kept, three)).toBe('first-use');
    expect(matchSecret(kept, one)).toBe('accepted');
    expect(matchSecret(kept, two)).toBe('refused');
  });

  it('accepts only the newest once that was used, or where none ever was', () => {
    expect(matchSecret({ ...kept, used_generation: 3, used_hash: three }, three)).toBe('accepted');
    expect(matchSecret({ ...kept, used_generation: 3, used_hash: three }, one)).toBe('refused');
    expect(matchSecret({ ...kept, used_generation: null, used_hash: null }, three)).toBe('first-use');
    expect(matchSecret({ ...kept, used_generation: null, used_hash: null }, one)).toBe('refused');
  });
});

describe('administrators', () => {
  const row = (over: Partial<CredentialRow>): CredentialRow => ({
    credential_id: 'ad-1',
    cluster_id: null,
    kind: 'administrator',
    subject_id: 'alice',
    role: 'administrator',
    newest_generation: 1,
    used_generation: null,
    revoked: false,
    ...over,
  });
  const bob = row({ credential_id: 'ad-2', subject_id: 'bob' });
  const olga = row({ credential_id: 'ad-3', subject_id: 'olga', role: 'operator' });

  it('have one living token per principal', () => {
    expect(refuseIssue([row({})], 'bob')).toBeNull();
    expect(refuseIssue([row({})], 'alice')?.problem.code).toBe('principal-exists');
  });

  it('are at least one', () => {
    expect(refuseRevocation([row({}), bob], 'ad-1')).toBeNull();
    expect(refuseRevocation([row({}), olga], 'ad-1')?.problem.code).toBe('last-administrator');
    expect(refuseRevocation([row({}), olga], 'ad-3')).toBeNull();
    expect(refuseRevocation([row({})], 'ad-9')).toBeNull();
  });

  it('rotate what lives', () => {
    expect(refuseRotation(row({}))).toBeNull();
    expect(refuseRotation(undefined)?.problem.code).toBe('credential-unknown');
    expect(refuseRotation(row({ revoked: true }))?.problem.code).toBe('credential-unknown');
  });
});

describe('CoalescingLoader', () => {
  it('answers each from a query that started after it asked', async () => {
    const queries: string[][] = [];
    let value = 0;
    const loader = new CoalescingLoader<number>(async (keys) => {
      queries.push(keys);
      const seen = value;
      await sleep(20);
      return new Map(keys.map((key) => [key, seen]));
    });
    const first = [loader.load('a'), loader.load('a'), loader.load('b')];
    await sleep(5);
    value = 1;
    const second = [loader.load('a'), loader.load('c')];
    expect(await Promise.all(first)).toEqual([0, 0, 0]);
    expect(await Promise.all(second)).toEqual([1, 1]);
    expect(queries).toEqual([
      ['a', 'b'],
      ['a', 'c'],
    ]);
  });

  it('keeps nothing, tells absence, and survives a failing query', async () => {
    let fail = true;
    let queries = 0;
    const loader = new CoalescingLoader<string>(async () => {
      queries += 1;
      if (fail) throw new Error('away');
      return new Map([['a', 'x']]);
    });
    await expect(Promise.all([loader.load('a'), loader.load('b')])).rejects.toThrow('away');
    fail = false;
    expect(await loader.load('a')).toBe('x');
    expect(await loader.load('b')).toBeUndefined();
    expect(await loader.load('a')).toBe('x');
    expect(queries).toBe(4);
  });

  it('lets a few keys wait for the query under way, but not for one that does not come back', async () => {
    const answers: (() => void)[] = [];
    const loader = new CoalescingLoader<string>(async (keys) => {
      await new Promise<void>((resolve) => answers.push(resolve));
      return new Map(keys.map((key) => [key, key]));
    });
    const lost = loader.load('lost');
    await expect.poll(() => answers.length).toBe(1);
    const next = loader.load('next');
    await new Promise((resolve) => setImmediate(resolve));
    expect(answers).toHaveLength(1);
    await expect.poll(() => answers.length).toBe(2);
    answers[1]!();
    expect(await next).toBe('next');
    answers[0]!();
    expect(await lost).toBe('lost');
  });

  it('bounds the keys of one query', async () => {
    const sizes: number[] = [];
    const loader = new CoalescingLoader<string>(async (keys) => {
      sizes.push(keys.length);
      return new Map(keys.map((key) => [key, key]));
    });
    const keys = Array.from({ length: 1200 }, (_, index) => String(index));
    expect(await Promise.all(keys.map((key) => loader.load(key)))).toEqual(keys);
    expect(sizes).toEqual([512, 512, 176]);
  });
});
