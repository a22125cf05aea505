import { randomBytes } from 'node:crypto';
import { inspect } from 'node:util';
import { describe, expect, it } from 'vitest';
import { SecretCanary } from '../../src/demo/secret-canary.js';
import { Secret } from '../../src/secret.js';

const bytes = randomBytes(32);
const text = bytes.toString('base64url');

function canaryOf(secret: string): SecretCanary {
  const canary = new SecretCanary();
  canary.learn('it', new Secret(secret));
  return canary;
}

describe('a secret that is shown', () => {
  it('is found however it is written, and named without being told', () => {
    const ascii = Buffer.from(text);
    const written = [
      text,
      bytes.toString('hex'),
      `\\x${bytes.toString('hex')}`,
      bytes.toString('base64'),
      `\\x${ascii.toString('hex').toUpperCase()}`,
      ascii.toString('base64'),
      JSON.stringify({ deep: [{ token: text }] }),
      inspect(new Map([['token', text]])),
    ];
    for (const each of written) expect(canaryOf(text).findIn('log', `before ${each} after`)).toEqual(['log: it']);
  });

  it('is found as a part of an administrator’s token, and the token by its secret', () => {
    expect(canaryOf(`fc.ad-1.${text}`).findIn('log', text)).toEqual(['log: it']);
    expect(canaryOf(text).findIn('log', `Bearer fc.ad-1.${text}`)).toEqual(['log: it']);
  });

  it('is found as a key in base64 with its padding', () => {
    const key = bytes.toString('base64');
    for (const each of [key, bytes.toString('hex'), text]) expect(canaryOf(key).findIn('x', each)).toEqual(['x: it']);
  });

  it('is not found in its hash, or in another secret', () => {
    const other = randomBytes(32).toString('base64url');
    expect(canaryOf(text).findIn('log', other)).toEqual([]);
  });
});

describe('an answer', () => {
  const issued = { kind: 'administrator', credentialId: 'ad-1', subjectId: 'ada', generation: 2, secret: text };

  it('teaches what it tells once, where it may', () => {
    const canary = new SecretCanary();
    canary.showAnswer('answer', { replayed: false, secrets: [issued], credential: { credentialId: 'ad-1' } });
    expect([canary.secretCount, canary.findInShown()]).toEqual([1, []]);
    canary.show('log', `x ${text}`);
    expect(canary.findInShown()).toEqual(['log: administrator ad-1 generation 2']);
  });

  it('is a finding where it tells it beside the field, or in a replay', () => {
    const canary = canaryOf(text);
    canary.showAnswer('first', { replayed: false, secrets: [issued], note: text });
    canary.showAnswer('replay', { replayed: true, secrets: [issued] });
    canary.showAnswer('read', { designation: { bearer: text } });
    expect(canary.findInShown().filter((each) => each.endsWith(': it'))).toEqual([
      'first: it',
      'replay: it',
      'read: it',
    ]);
  });
});
