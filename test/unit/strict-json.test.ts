import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  isJsonObject,
  isWellFormed,
  jsonPointer,
  parseStrictJson,
  StrictJsonError,
  type StrictJsonErrorCode,
} from '../../src/contract/strict-json.js';
import { strictJsonValues } from '../support/strict-json-values.js';

const utf8 = (text: string) => new TextEncoder().encode(text);

function refusal(input: Uint8Array | string, options?: { maximumDepth?: number }): StrictJsonError {
  try {
    parseStrictJson(input, options);
  } catch (error) {
    if (error instanceof StrictJsonError) return error;
    throw error;
  }
  throw new Error('it was accepted');
}

describe('parseStrictJson', () => {
  it('reads what JSON.parse reads, from bytes and from strings, whatever the white space', () => {
    fc.assert(
      fc.property(strictJsonValues(), fc.constantFrom(undefined, 1, '\t', '\r\n '), (value, indent) => {
        const text = JSON.stringify(value, undefined, indent);
        // Not toStrictEqual, which takes a member called `constructor` for the class.
        expect(isDeepStrictEqual(parseStrictJson(text), JSON.parse(text))).toBe(true);
        expect(isDeepStrictEqual(parseStrictJson(utf8(text)), JSON.parse(text))).toBe(true);
      }),
    );
  });

  it('accepts nothing that JSON.parse refuses', () => {
    const fragments = fc.constantFrom(
      ...'{}[],:"\\u 0019-+.eE\n\ttrufalsn'.split(''),
      '"a":',
      '\\ud83d',
      '\\ude00',
      '-0',
    );
    fc.assert(
      fc.property(fc.array(fragments, { maxLength: 12 }), (pieces) => {
        const text = pieces.join('');
        let value: unknown;
        try {
          value = parseStrictJson(text);
        } catch (error) {
          expect(error).toBeInstanceOf(StrictJsonError);
          return;
        }
        expect(isDeepStrictEqual(value, JSON.parse(text))).toBe(true);
      }),
      { numRuns: 20_000 },
    );
  });

  const refused: [name: string, text: string, code: StrictJsonErrorCode, offset: number, path?: string][] = [
    ['nothing', '', 'syntax', 0],
    ['white space only', ' \n', 'syntax', 2],
    ['an open object', '{', 'syntax', 1],
    ['an open array', '[1', 'syntax', 2, '/0'],
    ['an open string', '"ab', 'syntax', 3],
    ['an open escape', '"ab\\', 'syntax', 4],
    ['a comma too many in an array', '[1,]', 'syntax', 3, '/1'],
    ['a comma too many in an object', '{"a":1,}', 'syntax', 7, '/a'],
    ['an element without a comma', '[1 2]', 'syntax', 3, '/0'],
    ['a key without quotes', '{a:1}', 'syntax', 1],
    ['single quotes', "['a']", 'syntax', 1, '/0'],
    ['a missing colon', '{"a" 1}', 'syntax', 5, '/a'],
    ['a missing value', '{"a":}', 'syntax', 5, '/a'],
    ['the wrong bracket', '{"a":[1}}', 'syntax', 7, '/a/0'],
    ['a comment', '[/*1*/]', 'syntax', 1, '/0'],
    ['a misspelt literal', '{"a":nul}', 'syntax', 5, '/a'],
    ['NaN', 'NaN', 'syntax', 0],
    ['a raw line feed in a string', '"a\nb"', 'syntax', 2],
    ['a raw line feed behind an escape', '"a\\tb\nc"', 'syntax', 5],
    ['a raw NUL in a string', '"\0"', 'syntax', 1],
    ['an unknown escape', '"\\x41"', 'syntax', 0],
    ['an escape of three digits', '"\\u041"', 'syntax', 0],
    ['a vertical tab as white space', '\v1', 'syntax', 0],
    ['a no-break space as white space', '\u00a01', 'syntax', 0],
    ['a byte order mark', '\ufeff{}', 'syntax', 0],
    ['a leading zero', '01', 'syntax', 1],
    ['a leading plus', '+1', 'syntax', 0],
    ['a minus alone', '-', 'syntax', 1],
    ['a point alone', '.5', 'syntax', 0],
    ['a hexadecimal number', '0x10', 'trailing', 1],
    ['a second value', '{} {}', 'trailing', 3],
    ['a bracket too many', '[]]', 'trailing', 2],
    ['a NUL behind the value', '1\0', 'trailing', 1],
    ['a fraction', '[1,2.5]', 'number', 3, '/1'],
    ['an integer spelt as a fraction', '1.0', 'number', 0],
    ['an integer spelt with an exponent', '1e3', 'number', 0],
    ['a capital exponent', '{"n":1E3}', 'number', 5, '/n'],
    ['a negative zero as a fraction', '-0.0', 'number', 0],
    ['2^53', '9007199254740992', 'number', 0],
    ['2^53 + 1, which a double rounds to 2^53', '9007199254740993', 'number', 0],
    ['-2^53', '-9007199254740992', 'number', 0],
    ['a number beyond every double', '9'.repeat(400), 'number', 0],
    ['minus zero', '{"a":[-0]}', 'negative-zero', 6, '/a/0'],
    ['a duplicate key', '{"a":1,"b":2,"a":1}', 'duplicate-key', 13, '/a'],
    ['a duplicate key with an escape', '{"a":1,"\\u0061":2}', 'duplicate-key', 7, '/a'],
    ['a duplicate empty key', '{"":1,"":2}', 'duplicate-key', 6, '/'],
    ['a duplicate key of Object.prototype', '{"toString":1,"toString":2}', 'duplicate-key', 14, '/toString'],
    ['a duplicate integer-like key', '{"7":1,"7":2}', 'duplicate-key', 7, '/7'],
    ['a duplicate key further down', '[{"a":{"b":1,"b":2}}]', 'duplicate-key', 13, '/0/a/b'],
    ['__proto__', '{"__proto__":{"a":1}}', 'forbidden-key', 1, '/__proto__'],
    ['__proto__ with escapes', '{"a":{"\\u005f_proto_\\u005F":1}}', 'forbidden-key', 6, '/a/__proto__'],
    ['an escaped high surrogate alone', '"\\ud83d"', 'lone-surrogate', 0],
    ['an escaped low surrogate alone', '"\\ude00"', 'lone-surrogate', 0],
    ['escaped surrogates in the wrong order', '"\\ude00\\ud83d"', 'lone-surrogate', 0],
    ['an escaped high surrogate before a raw character', '["\\ud83d😀"]', 'lone-surrogate', 1, '/0'],
    ['a lone surrogate in a key', '{"\\ud83d":1}', 'lone-surrogate', 1],
  ];
  it.each(refused)('refuses %s', (_name, text, code, offset, path) => {
    for (const input of [text, utf8(text)]) {
      const error = refusal(input);
      expect({ code: error.code, path: error.path }).toEqual({ code, path });
      expect(error.offset).toBe(offset);
    }
  });

  it('refuses raw lone surrogates in strings, also beside an escaped half', () => {
    expect(refusal('["a\ud83d"]')).toMatchObject({ code: 'lone-surrogate', offset: 3 });
    expect(refusal('"\ud83d\\ude00"')).toMatchObject({ code: 'lone-surrogate', offset: 1 });
    expect(refusal('"\\ud83d\ude00"')).toMatchObject({ code: 'lone-surrogate', offset: 7 });
  });

  const wrongUtf8: [name: string, bytes: number[], offset: number][] = [
    ['a continuation byte alone', [0x22, 0x80, 0x22], 1],
    ['a cut sequence', [0x22, 0xe2, 0x82, 0x22], 1],
    ['a sequence cut by the end', [0x22, 0xc3, 0xa9, 0xf0, 0x9f], 3],
    ['an overlong slash', [0x22, 0xc0, 0xaf, 0x22], 1],
    ['an overlong three-byte form', [0x22, 0xe0, 0x80, 0xaf, 0x22], 1],
    ['an overlong four-byte form', [0x22, 0xf0, 0x8f, 0xbf, 0xbf, 0x22], 1],
    ['a surrogate (CESU-8)', [0x22, 0xed, 0xa0, 0x80, 0x22], 1],
    ['beyond U+10FFFF', [0x22, 0xf4, 0x90, 0x80, 0x80, 0x22], 1],
    ['Latin-1', [0x22, 0x67, 0x72, 0xf6, 0xdf, 0x65, 0x22], 3],
    ['UTF-16', [0xff, 0xfe, 0x7b, 0x00, 0x7d, 0x00], 0],
  ];
  it.each(wrongUtf8)('refuses wrong UTF-8: %s', (_name, bytes, offset) => {
    expect(refusal(Uint8Array.from(bytes))).toMatchObject({ code: 'invalid-utf8', offset });
    expect(parseStrictJson(utf8('"é"'))).toBe('é'); // a refusal leaves nothing behind in the decoder
  });

  it('names the first wrong byte exactly where a decoder gives up', () => {
    const replaced = new TextDecoder('utf-8', { ignoreBOM: true });
    const strict = new TextDecoder('utf-8', { ignoreBOM: true, fatal: true });
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 12 }), (bytes) => {
        if (!replaced.decode(bytes).includes('\ufffd')) return;
        let error: StrictJsonError;
        try {
          error = refusal(bytes);
        } catch {
          return; // accepted: the bytes spell U+FFFD itself
        }
        if (error.code !== 'invalid-utf8') return;
        expect(() => strict.decode(bytes.subarray(0, error.offset))).not.toThrow();
        expect(() => strict.decode(bytes)).toThrow();
        expect(replaced.decode(bytes.subarray(error.offset))).toMatch(/^\ufffd/);
      }),
      { numRuns: 5_000 },
    );
  });

  it('counts offsets in bytes for bytes and in code units for strings', () => {
    const text = '["größe 😀 €",1.5]';
    expect(refusal(text).offset).toBe(text.indexOf('1.5'));
    expect(refusal(utf8(text)).offset).toBe(Buffer.from(text).indexOf('1.5'));
  });

  it('reads a view of a larger buffer', () => {
    const bytes = utf8('xx{"a":1}yy');
    expect(parseStrictJson(bytes.subarray(2, 9))).toEqual({ a: 1 });
    expect(parseStrictJson(Buffer.from(bytes).subarray(2, 9))).toEqual({ a: 1 });
  });

  it('accepts the ends of the number range and every escape', () => {
    expect(parseStrictJson('[9007199254740991,-9007199254740991,0,-1]')).toEqual([2 ** 53 - 1, -(2 ** 53 - 1), 0, -1]);
    const everyEscape = '"\\"\\\\\\/\\b\\f\\n\\r\\t\\u0000\\u00e9\\u00E9\\ud83d\\ude00"';
    expect(parseStrictJson(everyEscape)).toBe('"\\/\b\f\n\r\t\0éé😀');
  });

  it('bounds the nesting', () => {
    const nested = (levels: number) => '['.repeat(levels) + ']'.repeat(levels);
    expect(() => parseStrictJson(nested(32))).not.toThrow();
    expect(refusal(nested(33))).toMatchObject({ code: 'depth', offset: 32, path: '/0'.repeat(32) });
    expect(refusal(`${'{"a":'.repeat(33)}1`)).toMatchObject({ code: 'depth', path: '/a'.repeat(32) });
    expect(refusal('[['.repeat(1_000_000))).toMatchObject({ code: 'depth' });
    expect(refusal('[{}]', { maximumDepth: 1 }).code).toBe('depth');
    expect(() => parseStrictJson(nested(1000), { maximumDepth: 1000 })).not.toThrow();
    for (const maximumDepth of [0, 1001, 1.5, NaN]) {
      expect(() => parseStrictJson('1', { maximumDepth })).toThrow(RangeError);
    }
  });

  it('keeps siblings apart from depth', () => {
    const wide = `[${'[[]],'.repeat(1000)}[]]`;
    expect(parseStrictJson(wide, { maximumDepth: 3 })).toHaveLength(1001);
  });

  it('makes own properties only, whatever Object.prototype holds', () => {
    let ran = 0;
    Object.defineProperty(Object.prototype, 'polluted', { configurable: true, set: () => void ran++ });
    try {
      const value = parseStrictJson('{"polluted":1,"constructor":2,"hasOwnProperty":3}') as Record<string, unknown>;
      expect(Object.keys(value)).toEqual(['polluted', 'constructor', 'hasOwnProperty']);
      expect(Object.getOwnPropertyDescriptor(value, 'polluted')?.value).toBe(1);
      expect(Object.getPrototypeOf(value)).toBe(Object.prototype);
    } finally {
      delete (Object.prototype as { polluted?: unknown }).polluted;
    }
    expect(ran).toBe(0);
  });

  it('never shows what the sender wrote', () => {
    const secret = 'Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MGFiY2RlZmdoaWo';
    for (const text of [`{"${secret}":1.5}`, `{"a":"${secret}\\x"}`, `{"a":"${secret}`, `"${secret}" "${secret}"`]) {
      const error = refusal(text);
      expect(`${error.message} ${error.stack} ${error.path} ${JSON.stringify(error)}`).not.toContain(secret);
      expect(error.cause).toBeUndefined();
    }
  });

  it('stays linear for hostile documents', () => {
    const size = 500_000;
    const documents = [
      '\\n'.repeat(size / 2).replace(/^|$/g, '"'),
      `{${Array.from({ length: size / 10 }, (_, i) => `"k${i}":0`).join(',')}}`,
      `{${Array.from({ length: size / 10 }, (_, i) => `"${4294967294 - i}":0`).join(',')}}`,
      `[${'"\\u0000",'.repeat(size / 10)}0]`,
      '9'.repeat(size),
      ' '.repeat(size),
    ];
    for (const text of documents) {
      const started = performance.now();
      try {
        parseStrictJson(text);
      } catch (error) {
        expect(error).toBeInstanceOf(StrictJsonError);
      }
      expect(performance.now() - started).toBeLessThan(2_000);
    }
  });
});

describe('small parts', () => {
  it('isWellFormed tells lone surrogates', () => {
    for (const text of ['', 'a', 'é', '😀', '\ufffd', 'a😀b']) expect(isWellFormed(text)).toBe(true);
    for (const text of ['\ud83d', '\ude00', '\ude00\ud83d', 'a\ud83db', '😀\ud83d'])
      expect(isWellFormed(text)).toBe(false);
  });

  it('isJsonObject narrows', () => {
    expect([{}, [], null, 'a', 1, true, undefined].map(isJsonObject)).toEqual([true, ...Array<boolean>(6).fill(false)]);
  });

  it('jsonPointer shows contract names and indexes, and hides the rest', () => {
    expect(jsonPointer([])).toBe('');
    expect(jsonPointer(['observation', 'fleetCutoverHeldVolumeFences', 3, 'serve.zone/x', 'a'.repeat(41), 'a b'])).toBe(
      '/observation/fleetCutoverHeldVolumeFences/3/*/*/*',
    );
  });
});
