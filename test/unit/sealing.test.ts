import { randomBytes } from 'node:crypto';
import { inspect } from 'node:util';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  type KeyRing,
  KeyRingError,
  open,
  parseKeyRing,
  seal,
  type SealBinding,
  SealBrokenError,
  type Sealed,
} from '../../src/features/ingress/sealing.js';
import { systemRandom } from '../../src/random.js';
import { Secret } from '../../src/secret.js';

const newKey = (keyId: string) => ({ keyId, key: new Secret(randomBytes(32).toString('base64')) });
const ring: KeyRing = [newKey('k2'), newKey('k1')];
const binding: SealBinding = { clusterId: 'c', serviceId: 'sv-1', credentialId: 'il-1', generation: 3 };
const bearer = 'b'.repeat(43);
const sealed = seal(ring, systemRandom, binding, new Secret(bearer));

describe('a sealed value', () => {
  it('opens for its binding, whatever it is', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        const value = seal(ring, systemRandom, binding, new Secret(text));
        expect(open(ring, binding, value).reveal()).toBe(text);
      }),
      { numRuns: 100 },
    );
  });

  it('is AES-256-GCM as another implementation has it', async () => {
    const raw = Buffer.from(ring[0]!.key.reveal(), 'base64');
    const key = await crypto.subtle.importKey('raw', raw, 'AES-GCM', false, ['decrypt']);
    const additionalData = Buffer.from(
      '{"clusterId":"c","credentialId":"il-1","generation":3,"keyId":"k2","serviceId":"sv-1"}',
    );
    const algorithm = { name: 'AES-GCM', iv: Buffer.from(sealed.nonce), additionalData, tagLength: 128 };
    const plain = await crypto.subtle.decrypt(algorithm, key, Buffer.from(sealed.ciphertext));
    expect(Buffer.from(plain).toString()).toBe(bearer);
  });

  it('has its own nonce of 96 bits, and a tag of 128', () => {
    const others = Array.from({ length: 100 }, () => seal(ring, systemRandom, binding, new Secret(bearer)));
    expect(new Set(others.map((each) => each.nonce.toString('hex'))).size).toBe(100);
    expect(sealed.nonce).toHaveLength(12);
    expect(sealed.ciphertext).toHaveLength(bearer.length + 16);
    expect(sealed.keyId).toBe('k2');
  });

  it.each<[string, Partial<SealBinding>]>([
    ['cluster', { clusterId: 'd' }],
    ['service', { serviceId: 'sv-2' }],
    ['credential', { credentialId: 'il-2' }],
    ['generation', { generation: 4 }],
  ])('does not open for another %s', (_what, other) => {
    expect(() => open(ring, { ...binding, ...other }, sealed)).toThrow(SealBrokenError);
  });

  it('does not open under another key, be it of the same id', () => {
    expect(() => open(ring, binding, { ...sealed, keyId: 'k1' })).toThrow(SealBrokenError);
    expect(() => open([newKey('k2')], binding, sealed)).toThrow(SealBrokenError);
    expect(() => open([ring[1]!], binding, sealed)).toThrow(KeyRingError);
    // The key's id is bound, too: the same key under another id opens nothing.
    const renamed: KeyRing = [{ keyId: 'k9', key: ring[0]!.key }];
    expect(() => open(renamed, binding, { ...sealed, keyId: 'k9' })).toThrow(SealBrokenError);
  });

  it('does not open where one bit is another, and never with a shorter tag', () => {
    const flip = (bytes: Buffer, bit: number) => {
      const copy = Buffer.from(bytes);
      copy[bit >> 3]! ^= 1 << (bit & 7);
      return copy;
    };
    const broken: Sealed[] = [];
    for (let bit = 0; bit < sealed.ciphertext.length * 8; bit += 1)
      broken.push({ ...sealed, ciphertext: flip(sealed.ciphertext, bit) });
    for (let bit = 0; bit < sealed.nonce.length * 8; bit += 1)
      broken.push({ ...sealed, nonce: flip(sealed.nonce, bit) });
    for (let length = 0; length < sealed.ciphertext.length; length += 1)
      broken.push({ ...sealed, ciphertext: sealed.ciphertext.subarray(0, length) });
    broken.push({ ...sealed, nonce: sealed.nonce.subarray(0, 11) }, { ...sealed, nonce: Buffer.alloc(0) });
    for (const each of broken) expect(() => open(ring, binding, each)).toThrow(SealBrokenError);
  });

  it('cannot be made without a key', () => {
    expect(() => seal([], systemRandom, binding, new Secret(bearer))).toThrow('no key-encryption key');
  });

  it('shows neither value nor key in an error', () => {
    const raw = ring[0]!.key.reveal();
    for (const attempt of [
      () => open(ring, { ...binding, generation: 9 }, sealed),
      () => open([], binding, sealed),
      () => seal([{ keyId: 'short', key: new Secret('c2hvcnQ=') }], systemRandom, binding, new Secret(bearer)),
    ]) {
      let thrown: unknown;
      try {
        attempt();
      } catch (error) {
        thrown = error;
      }
      const text = inspect(thrown, { depth: 9, showHidden: true });
      for (const hidden of [bearer, raw, 'c2hvcnQ=']) expect(text).not.toContain(hidden);
    }
  });
});

describe('parseKeyRing', () => {
  const key = (fill: number) => Buffer.alloc(32, fill).toString('base64');

  it('reads one key a line, the sealing one first', () => {
    const text = `# keys\n\n  new:${key(2)}  \r\nold.1_-:${key(1)}\n`;
    const parsed = parseKeyRing(new Secret(text));
    expect(parsed.map((each) => [each.keyId, each.key.reveal()])).toEqual([
      ['new', key(2)],
      ['old.1_-', key(1)],
    ]);
    expect(parseKeyRing(new Secret('# nothing\n'))).toEqual([]);
  });

  it.each([
    ['no id', `:${key(1)}`],
    ['no key', 'a:'],
    ['31 bytes', `a:${Buffer.alloc(31).toString('base64')}`],
    ['33 bytes', `a:${Buffer.alloc(33).toString('base64')}`],
    ['base64url', `a:${'_'.repeat(43)}=`],
    ['hexadecimal', `a:${'ab'.repeat(32)}`],
    ['no separator', key(1)],
    ['a space in the id', `a b:${key(1)}`],
    ['an id of 65 characters', `${'a'.repeat(65)}:${key(1)}`],
  ])('refuses %s with the line’s number, and shows nothing of it', (_what, line) => {
    const parse = () => parseKeyRing(new Secret(`good:${key(7)}\n${line}`));
    expect(parse).toThrow(KeyRingError);
    expect(parse).toThrow('line 2');
    try {
      parse();
    } catch (error) {
      expect(inspect(error)).not.toContain(line.slice(-20));
    }
  });

  it('refuses an id that is there twice', () => {
    expect(() => parseKeyRing(new Secret(`a:${key(1)}\na:${key(2)}`))).toThrow('a is there twice');
  });
});
