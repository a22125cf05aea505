import canonicalize from 'canonicalize';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { canonicalizeStrictJson } from '../../src/contract/canonical-json.js';
import { detach, HostileValueError, type HostileValueReason } from '../../src/contract/detach.js';
import { type JsonValue, parseStrictJson } from '../../src/contract/strict-json.js';
import { spellings, strictJsonObjects, strictJsonValues } from '../support/strict-json-values.js';

function shuffledMembers(value: JsonValue): JsonValue {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return (value as JsonValue[]).map(shuffledMembers);
  const members = Object.entries(value).map(([key, member]) => [key, shuffledMembers(member)] as const);
  return Object.fromEntries(members.reverse());
}

describe('canonicalizeStrictJson', () => {
  it('agrees with the canonicalize package', () => {
    fc.assert(
      fc.property(strictJsonValues(), (value) => {
        expect(canonicalizeStrictJson(value)).toBe(canonicalize(value));
      }),
      { numRuns: 2_000 },
    );
  });

  it('is one spelling: every spelling of a document has it, and it is its own', () => {
    const documents = strictJsonValues().chain((value) => fc.tuple(fc.constant(value), spellings(value)));
    fc.assert(
      fc.property(documents, ([value, spelling]) => {
        const canonical = canonicalizeStrictJson(value);
        expect(canonicalizeStrictJson(parseStrictJson(spelling))).toBe(canonical);
        expect(canonicalizeStrictJson(parseStrictJson(canonical))).toBe(canonical);
        expect(canonicalizeStrictJson(shuffledMembers(value))).toBe(canonical);
        expect(canonicalizeStrictJson(detach(value))).toBe(canonical);
      }),
    );
  });

  it('orders members by UTF-16 code units, not by code points and not as numbers', () => {
    expect(canonicalizeStrictJson({ '\uffff': 1, '\u{10000}': 2, b: 3, a: 4 })).toBe(
      '{"a":4,"b":3,"\u{10000}":2,"\uffff":1}',
    );
    expect(canonicalizeStrictJson({ 10: 1, 9: 2, '-1': 3 })).toBe('{"-1":3,"10":1,"9":2}');
  });

  it('takes the same shape in any order, cached or not', () => {
    for (let round = 0; round < 3; round++) {
      expect(canonicalizeStrictJson({ b: 1, a: 2 })).toBe('{"a":2,"b":1}');
      expect(canonicalizeStrictJson({ a: 2, b: 1 })).toBe('{"a":2,"b":1}');
      expect(canonicalizeStrictJson({ a: 2 })).toBe('{"a":2}');
      expect(canonicalizeStrictJson({ b: 1, a: 2, c: 3 })).toBe('{"a":2,"b":1,"c":3}');
    }
  });

  it('stays right when more shapes come than it remembers', () => {
    const shapes = Array.from({ length: 6_000 }, (_, i) => ({ z: 1, [`k${i}`]: i, [`a${i % 7}`]: 0 }));
    for (const shape of [...shapes, ...shapes]) expect(canonicalizeStrictJson(shape)).toBe(canonicalize(shape));
    const wide = Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`k${99 - i}`, i]));
    expect(canonicalizeStrictJson(wide)).toBe(canonicalize(wide));
    const longKey = { b: 1, ['x'.repeat(200)]: 2, a: 3 };
    expect(canonicalizeStrictJson(longKey)).toBe(canonicalize(longKey));
  });

  it('joins long texts as it does short ones', () => {
    const long = { rows: Array.from({ length: 300 }, (_, i) => ({ text: 'x'.repeat(i), index: i })), end: true };
    expect(canonicalizeStrictJson(long)).toBe(canonicalize(long));
  });

  it('leaves out one top-level member, wherever it stands, and keeps deeper ones of that name', () => {
    fc.assert(
      fc.property(strictJsonObjects(), fc.constantFrom('digest', 'id', 'a'), (value, omitMember) => {
        const { [omitMember]: _omitted, ...rest } = value;
        expect(canonicalizeStrictJson(value, { omitMember })).toBe(canonicalizeStrictJson(rest));
      }),
    );
    expect(canonicalizeStrictJson([{ digest: 1 }], { omitMember: 'digest' })).toBe('[{"digest":1}]');
    expect(canonicalizeStrictJson({ digest: 1 }, { omitMember: 'digest' })).toBe('{}');
  });

  it('takes top-level members that it has spelled before, and no deeper ones of that name', () => {
    fc.assert(
      fc.property(strictJsonObjects(), fc.nat(), (value, choice) => {
        const keys = Object.keys(value);
        const known = keys.filter((_, index) => (choice >> index) % 2 === 1);
        const knownMembers = new Map(known.map((key) => [key, canonicalizeStrictJson(value[key])]));
        expect(canonicalizeStrictJson(value, { knownMembers })).toBe(canonicalizeStrictJson(value));
      }),
    );
    const knownMembers = new Map([['a', '"known"']]);
    expect(canonicalizeStrictJson({ b: { a: 1 }, a: 1 }, { knownMembers })).toBe('{"a":"known","b":{"a":1}}');
    expect(canonicalizeStrictJson({ b: 1 }, { knownMembers })).toBe('{"b":1}');
  });

  it('accepts objects without a prototype', () => {
    expect(canonicalizeStrictJson(Object.assign(Object.create(null), { b: 1, a: 2 }))).toBe('{"a":2,"b":1}');
  });

  class Money {
    amount = 1;
  }
  const cyclic: Record<string, unknown> = {};
  cyclic.self = cyclic;
  let ran = 0;
  const counted = () => void ran++;
  const proxy = new Proxy({}, { ownKeys: () => (counted(), []), getPrototypeOf: () => (counted(), null) });
  const refused: [name: string, value: unknown, reason: HostileValueReason, path?: string][] = [
    ['undefined', undefined, 'type'],
    ['an undefined member', { a: { b: undefined } }, 'type', '/a/b'],
    ['an undefined element', [1, undefined], 'type', '/1'],
    ['a function', { toJSON: () => 1 }, 'type', '/toJSON'],
    ['a symbol', [Symbol('s')], 'type', '/0'],
    ['a bigint', { n: 1n }, 'type', '/n'],
    ['NaN', [NaN], 'number', '/0'],
    ['infinity', -Infinity, 'number'],
    ['a fraction', { a: 0.5 }, 'number', '/a'],
    ['an integer beyond 2^53-1', 2 ** 53, 'number'],
    ['minus zero', { a: [-0] }, 'negative-zero', '/a/0'],
    ['a lone surrogate', ['\ud83d'], 'lone-surrogate', '/0'],
    ['a lone surrogate in a key', { '\ude00': 1 }, 'lone-surrogate', '/*'],
    // eslint-disable-next-line no-sparse-arrays
    ['a hole', [1, , 3], 'array-shape'],
    ['a property of an array', Object.assign([1], { extra: 1 }), 'array-shape'],
    // eslint-disable-next-line no-sparse-arrays
    ['a hole made up for by a property', Object.assign([1, , 3], { extra: 1 }), 'array-shape', '/1'],
    ['a class instance', new Money(), 'prototype'],
    ['a date', { at: new Date(0) }, 'prototype', '/at'],
    ['a map', new Map(), 'prototype'],
    ['a boxed string', Object('a'), 'prototype'],
    ['an array of another class', new (class extends Array<number> {})(), 'prototype'],
    ['bytes', new Uint8Array(1), 'prototype'],
    ['a symbol key', { [Symbol('s')]: 1 }, 'symbol-key'],
    ['a symbol key of an array', Object.assign([], { [Symbol('s')]: 1 }), 'symbol-key'],
    ['a getter', { get a() { return counted(); } }, 'accessor', '/a'], // prettier-ignore
    ['a setter', { set a(_value: number) { counted(); } }, 'accessor', '/a'], // prettier-ignore
    ['a getter in an array', Object.defineProperty([1], 0, { get: counted, enumerable: true }), 'accessor', '/0'],
    ['a hidden property', Object.defineProperty({}, 'a', { value: 1 }), 'non-enumerable', '/a'],
    ['an own __proto__', JSON.parse('{"a":{"__proto__":1}}'), 'forbidden-key', '/a/__proto__'],
    ['a cycle', cyclic, 'depth', '/self'.repeat(1000)],
    ['a proxy', { a: proxy }, 'proxy', '/a'],
  ];
  it.each(refused)('refuses %s with a TypeError', (_name, value, reason, path) => {
    for (const attempt of [1, 2]) {
      let error: unknown;
      try {
        canonicalizeStrictJson(value);
      } catch (thrown) {
        error = thrown;
      }
      expect(error, `attempt ${attempt}`).toBeInstanceOf(HostileValueError);
      expect(error).toBeInstanceOf(TypeError);
      expect(error).toMatchObject(path === undefined ? { reason } : { reason, path });
    }
    expect(ran).toBe(0);
  });
});
