import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { canonicalizeStrictJson } from '../../src/contract/canonical-json.js';
import type * as Digest from '../../src/contract/digest.js';
import {
  bareDigest,
  bareDigestOfCanonical,
  bytesDigest,
  digestDomain,
  domainDigest,
  domainDigestOfCanonical,
  isSha256Digest,
  recordDigest,
  sealCanonical,
  sealRecord,
  sha256Hex,
  sha256HexReference,
} from '../../src/contract/digest.js';
import { type JsonObject, type JsonValue, parseStrictJson } from '../../src/contract/strict-json.js';
import { strictJsonObjects, strictJsonValues, wellFormedStrings } from '../support/strict-json-values.js';

interface Vectors {
  readonly values: readonly {
    readonly name: string;
    readonly value: JsonValue;
    readonly canonical: string;
    readonly bare: string;
    readonly domains: Readonly<Record<string, string>>;
  }[];
  readonly bytes: readonly { readonly name: string; readonly hex: string; readonly digest: string }[];
  readonly records: readonly {
    readonly name: string;
    readonly domain: string;
    readonly record: JsonObject;
    readonly digest: string;
  }[];
  readonly domains: Readonly<Record<string, string>>;
}

const vectors = parseStrictJson(
  readFileSync(new URL('../vectors/digests.json', import.meta.url)),
) as unknown as Vectors;

const implementations = { sha256Hex, sha256HexReference };
const aggregateDomain = 'serve.zone/fleet-cutover-prepared-volume-handoff-aggregate';

describe('golden vectors', () => {
  it.each(vectors.values)('value: $name', ({ value, canonical, bare, domains }) => {
    expect(canonicalizeStrictJson(value)).toBe(canonical);
    expect(bareDigest(value)).toBe(bare);
    expect(bareDigestOfCanonical(canonical)).toBe(bare);
    expect(Object.keys(domains).length).toBeGreaterThan(1);
    for (const [domain, digest] of Object.entries(domains)) {
      expect(domainDigest(domain, value)).toBe(digest);
      expect(domainDigestOfCanonical(domain, canonical)).toBe(digest);
      for (const hash of Object.values(implementations)) {
        expect(`sha256:${hash(canonical)}`).toBe(bare);
        expect(`sha256:${hash(`${domain}\0${canonical}`)}`).toBe(digest);
      }
    }
  });

  it.each(vectors.bytes)('bytes: $name', ({ hex, digest }) => {
    const bytes = Uint8Array.from(Buffer.from(hex, 'hex'));
    expect(bytesDigest(bytes)).toBe(digest);
    for (const hash of Object.values(implementations)) {
      expect(`sha256:${hash(bytes)}`).toBe(digest);
      expect(`sha256:${hash(Buffer.from(hex, 'hex'))}`).toBe(digest);
    }
  });

  it.each(vectors.records)('record: $name', ({ domain, record, digest }) => {
    expect(recordDigest(domain, record)).toBe(digest);
    expect(recordDigest(domain, { ...record, digest })).toBe(digest);
    expect(sealRecord(domain, record as object)).toEqual({ ...record, digest });
  });

  it.each(Object.entries(vectors.domains))('domain of %s', (typeName, domain) => {
    expect(digestDomain(typeName)).toBe(domain);
  });
});

describe('the two implementations', () => {
  it('agree on bytes and on strings', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 300 }), wellFormedStrings(), (bytes, text) => {
        expect(sha256Hex(bytes)).toBe(sha256HexReference(bytes));
        expect(sha256Hex(bytes.subarray(1))).toBe(sha256HexReference(bytes.slice(1)));
        expect(sha256Hex(text)).toBe(sha256HexReference(text));
        expect(sha256Hex(text)).toBe(sha256HexReference(new TextEncoder().encode(text)));
      }),
    );
  });

  it('refuse lone surrogates, which UTF-8 would fold into one character', () => {
    for (const hash of Object.values(implementations)) {
      expect(() => hash('\ud83d')).toThrow(TypeError);
      expect(() => hash('a\ude00b')).toThrow(TypeError);
    }
  });

  const builtins: [name: string, getBuiltinModule: unknown][] = [
    ['without Node', undefined],
    ['on a Node without crypto.hash', (id: string) => withoutHash(original(id))],
  ];
  const original = process.getBuiltinModule.bind(process) as (id: string) => object | undefined;
  function withoutHash(module: object | undefined): object | undefined {
    return module !== undefined && 'createHash' in module ? { ...module, hash: undefined } : module;
  }
  it.each(builtins)('agree %s', async (_name, getBuiltinModule) => {
    vi.resetModules();
    const before = process.getBuiltinModule;
    Object.defineProperty(process, 'getBuiltinModule', { value: getBuiltinModule, configurable: true, writable: true });
    let loaded: typeof Digest;
    try {
      loaded = await import('../../src/contract/digest.js');
    } finally {
      process.getBuiltinModule = before;
    }
    for (const { value, bare } of vectors.values) expect(loaded.bareDigest(value)).toBe(bare);
    for (const { hex, digest } of vectors.bytes) expect(loaded.bytesDigest(Buffer.from(hex, 'hex'))).toBe(digest);
  });
});

describe('isSha256Digest', () => {
  it('accepts its one spelling only', () => {
    const digest = bareDigest(null);
    expect(isSha256Digest(digest)).toBe(true);
    const others = [
      digest.slice(7),
      digest.toUpperCase(),
      `${digest}\n`,
      ` ${digest}`,
      digest.slice(0, -1),
      `${digest}0`,
    ];
    for (const other of [...others, `sha256:${'g'.repeat(64)}`, null, undefined, 1, {}, [digest], Object(digest)]) {
      expect(isSha256Digest(other)).toBe(false);
    }
  });
});

describe('domains', () => {
  it('keep equal values of different types apart', () => {
    fc.assert(
      fc.property(strictJsonValues(), (value) => {
        const digests = [bareDigest(value), domainDigest('a', value), domainDigest('ab', value)];
        expect(new Set(digests).size).toBe(3);
        expect(digests.every(isSha256Digest)).toBe(true);
      }),
    );
  });

  it('are not empty and contain no NUL', () => {
    expect(() => domainDigest('', 1)).toThrow(TypeError);
    expect(() => domainDigest('a\0', 1)).toThrow(TypeError);
  });

  it('come from type names in upper camel case', () => {
    for (const name of ['', 'fleetCutover', 'I-Thing', 'I Thing', 'IÜber', '1I']) {
      expect(() => digestDomain(name)).toThrow(TypeError);
    }
    expect(digestDomain('I')).toBe('serve.zone/i');
  });
});

describe('records', () => {
  it('are sealed over everything but their own digest', () => {
    fc.assert(
      fc.property(strictJsonObjects(), (record) => {
        const { digest: _digest, ...rest } = record;
        const sealed = sealRecord(aggregateDomain, rest as object);
        expect(sealed.digest).toBe(domainDigest(aggregateDomain, rest));
        expect(recordDigest(aggregateDomain, sealed)).toBe(sealed.digest);
        expect(recordDigest(aggregateDomain, record)).toBe(sealed.digest);
      }),
    );
  });

  it('are sealed together with their canonical JSON', () => {
    fc.assert(
      fc.property(strictJsonObjects(), (record) => {
        const { digest: _digest, ...rest } = record;
        const { sealed, canonical } = sealCanonical(aggregateDomain, rest as object);
        expect(canonical).toBe(canonicalizeStrictJson({ ...rest, digest: domainDigest(aggregateDomain, rest) }));
        expect(canonicalizeStrictJson(sealed)).toBe(canonical);
      }),
    );
    for (const keys of [[], ['a'], ['z'], ['digest1'], ['diges'], ['a', 'digesu']]) {
      const record = Object.fromEntries(keys.map((key) => [key, 1]));
      const { sealed, canonical } = sealCanonical(aggregateDomain, record);
      expect(canonical).toBe(canonicalizeStrictJson(sealed));
    }
  });

  it('change their digest with any member, also with a digest further down', () => {
    const record = { id: 'a', generation: 1, inner: { digest: 'x' } };
    const digests = [record, { ...record, generation: 2 }, { ...record, inner: { digest: 'y' } }, { id: 'a' }].map(
      (variant) => recordDigest(aggregateDomain, variant),
    );
    expect(new Set(digests).size).toBe(4);
  });

  it('are sealed once, and the original is left alone', () => {
    const record = { id: 'a' };
    const sealed = sealRecord(aggregateDomain, record);
    expect(record).toEqual({ id: 'a' });
    // @ts-expect-error a record with a digest is no record to seal
    expect(() => sealRecord(aggregateDomain, sealed)).toThrow(TypeError);
  });

  it('are objects of strict JSON', () => {
    let ran = 0;
    const live = Object.defineProperty({ id: 'a' }, 'digest', { enumerable: true, get: () => ran++ });
    expect(() => recordDigest(aggregateDomain, [])).toThrow(TypeError);
    expect(() => recordDigest(aggregateDomain, { a: undefined })).toThrow(TypeError);
    expect(() => sealRecord(aggregateDomain, [])).toThrow(TypeError);
    expect(() => sealRecord(aggregateDomain, { a: 0.5 })).toThrow(TypeError);
    expect(() => sealRecord(aggregateDomain, live)).toThrow(TypeError);
    expect(ran).toBe(0);
  });
});
