/** What parses untrusted bytes: it says yes, or no in its own words; nothing else comes out. */
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { canonicalizeStrictJson } from '../../src/contract/canonical-json.js';
import { methodNames } from '../../src/contract/methods.js';
import { parseStrictJson, StrictJsonError } from '../../src/contract/strict-json.js';
import { scanTopLevelStrings } from '../../src/contract/top-level-scan.js';
import { parseAuthorization } from '../../src/features/auth/credential.js';
import { readOwnerRequest } from '../../src/http/owner-body.js';
import { canonicalText } from '../support/oracle-digest.js';

const runs = { numRuns: 500 };

/** Bytes that look like JSON more often than chance would have it. */
const jsonish = fc.oneof(
  fc.uint8Array({ maxLength: 64 }),
  fc.json().map((text) => new TextEncoder().encode(text)),
  fc.tuple(fc.json(), fc.nat(), fc.uint8Array({ maxLength: 3 })).map(([text, at, noise]) => {
    const bytes = Buffer.from(text);
    const place = at % (bytes.length + 1);
    return Uint8Array.from(Buffer.concat([bytes.subarray(0, place), noise, bytes.subarray(place)]));
  }),
  fc
    .string({ unit: fc.constantFrom(...'{}[]":,\\u0123456789eE+-.tfn \n'), maxLength: 40 })
    .map((text) => new TextEncoder().encode(text)),
);

function attempt<T>(work: () => T): { value: T } | { error: unknown } {
  try {
    return { value: work() };
  } catch (error) {
    return { error };
  }
}

describe('strict JSON', () => {
  it('takes nothing that JSON.parse refuses, reads the same, and refuses in its own words', () => {
    fc.assert(
      fc.property(jsonish, (bytes) => {
        const strict = attempt(() => parseStrictJson(bytes));
        if ('error' in strict) return strict.error instanceof StrictJsonError;
        const lenient: unknown = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
        return canonicalizeStrictJson(strict.value) === canonicalText(lenient);
      }),
      runs,
    );
  });

  it('the scan for credentials finds what the whole parse finds', () => {
    fc.assert(
      fc.property(jsonish, fc.string({ maxLength: 8 }), (noise, id) => {
        const bytes = Buffer.concat([Buffer.from(`{"nodeId":${JSON.stringify(id)},"rest":`), noise, Buffer.from('}')]);
        const found = attempt(() => scanTopLevelStrings(bytes, ['nodeId', 'nodeToken'], { maximumValueBytes: 256 }));
        const whole = attempt(() => parseStrictJson(bytes));
        if ('error' in found) return found.error instanceof StrictJsonError && 'error' in whole;
        return 'error' in whole || found.value.get('nodeId') === (whole.value as { nodeId?: unknown }).nodeId;
      }),
      runs,
    );
  });
});

describe('the door', () => {
  it('refuses bodies of every method with a code, whatever the bytes', () => {
    fc.assert(
      fc.property(fc.constantFrom(...methodNames), jsonish, (name, bytes) => {
        const read = readOwnerRequest(name, Buffer.from(bytes));
        return read.kind === 'request' || ['body-invalid-json', 'body-schema'].includes(read.problem.code);
      }),
      runs,
    );
  });

  it('takes Authorization headers apart, or not', () => {
    fc.assert(
      fc.property(
        fc.oneof(
          fc.string(),
          fc.string().map((text) => `Bearer fc.${text}`),
          fc.string({ minLength: 600 }),
        ),
        (header) => {
          const token = parseAuthorization(header);
          return token === undefined || (/^[\w-]{43}$/.test(token.secret.reveal()) && token.credentialId.length <= 128);
        },
      ),
      runs,
    );
    const token = parseAuthorization(`Bearer fc.ad-1.${'A'.repeat(43)}`);
    expect([token?.credentialId, token?.secret.reveal()]).toEqual(['ad-1', 'A'.repeat(43)]);
  });
});
