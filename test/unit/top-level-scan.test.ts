import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  type JsonObject,
  type JsonValue,
  parseStrictJson,
  StrictJsonError,
  type StrictJsonErrorCode,
} from '../../src/contract/strict-json.js';
import { scanTopLevelStrings, topLevelMemberSpan } from '../../src/contract/top-level-scan.js';
import { spellings, strictJsonKeys, strictJsonObjects, strictJsonValues } from '../support/strict-json-values.js';

const utf8 = (text: string) => new TextEncoder().encode(text);
const bound = { maximumValueBytes: 64 };

function scan(text: string, names: readonly string[] = ['nodeId', 'nodeToken'], maximumValueBytes = 64) {
  return Object.fromEntries(scanTopLevelStrings(utf8(text), names, { maximumValueBytes }));
}

function refusal(work: () => unknown): StrictJsonError {
  try {
    work();
  } catch (error) {
    if (error instanceof StrictJsonError) return error;
    throw error;
  }
  throw new Error('it was accepted');
}

/** What the scan must say about one name, by the parser. */
function expected(document: JsonObject, name: string): { code: StrictJsonErrorCode } | { value: string | undefined } {
  const value = Object.hasOwn(document, name) ? document[name] : undefined;
  if (value === undefined || typeof value === 'string') return { value };
  return { code: 'not-a-string' };
}

describe('agreement with the parser', () => {
  const documents = strictJsonObjects().chain((value) => fc.tuple(fc.constant(value), spellings(value)));

  it('finds the same strings in every spelling of every document', () => {
    fc.assert(
      fc.property(documents, fc.array(strictJsonKeys(), { maxLength: 3 }), ([document, text], others) => {
        const parsed = parseStrictJson(text) as JsonObject;
        for (const name of [...Object.keys(document), ...others, 'nodeId']) {
          const want = expected(parsed, name);
          const find = () => scanTopLevelStrings(utf8(text), [name], { maximumValueBytes: 100_000 });
          if ('code' in want) expect(refusal(find).code).toBe(want.code);
          else expect(find().get(name)).toBe(want.value);
        }
      }),
      { numRuns: 500 },
    );
  });

  it('finds several at once', () => {
    fc.assert(
      fc.property(documents, ([document, text]) => {
        const names = Object.keys(document).filter((name) => typeof document[name] === 'string');
        const found = scanTopLevelStrings(utf8(text), names, { maximumValueBytes: 100_000 });
        expect(found.size).toBe(names.length);
        for (const name of names) expect(found.get(name)).toBe(document[name]);
      }),
      { numRuns: 500 },
    );
  });

  it('stops where each was found, with the same values', () => {
    fc.assert(
      fc.property(documents, ([document, text]) => {
        const names = Object.keys(document).filter((name) => typeof document[name] === 'string');
        const options = { maximumValueBytes: 100_000, untilFound: true };
        expect(scanTopLevelStrings(utf8(text), names, options)).toEqual(
          scanTopLevelStrings(utf8(text), names, { maximumValueBytes: 100_000 }),
        );
      }),
    );
    const early = (text: string) =>
      Object.fromEntries(scanTopLevelStrings(utf8(text), ['a', 'b'], { ...bound, untilFound: true }));
    expect(early('{"a":"1","x":[],"b":"2","a":"3", and anything')).toEqual({ a: '1', b: '2' });
    expect(refusal(() => early('{"a":"1","a":"2","b":"3"}')).code).toBe('duplicate-key');
    expect(refusal(() => early('{"a":"1"} {}')).code).toBe('trailing');
  });

  it('spans exactly the value', () => {
    fc.assert(
      fc.property(documents, ([document, text]) => {
        const bytes = utf8(text);
        for (const [name, value] of Object.entries(document)) {
          const span = topLevelMemberSpan(bytes, name);
          if (span === null) throw new Error(`missing ${name}`);
          const slice = bytes.subarray(span.start, span.end);
          expect(isDeepStrictEqual(parseStrictJson(slice), value)).toBe(true);
          expect(new TextDecoder().decode(slice)).toMatch(/^\S[^]*$/);
          expect(new TextDecoder().decode(slice)).toMatch(/\S$/);
        }
        expect(topLevelMemberSpan(bytes, 'no such member')).toBeNull();
      }),
      { numRuns: 500 },
    );
  });

  it('refuses everything that is no object', () => {
    fc.assert(
      fc.property(strictJsonValues(), (value) => {
        if (typeof value === 'object' && value !== null && !Array.isArray(value)) return;
        const bytes = utf8(JSON.stringify(value));
        expect(refusal(() => scanTopLevelStrings(bytes, ['a'], bound)).code).toBe('not-an-object');
        expect(refusal(() => topLevelMemberSpan(bytes, 'a')).code).toBe('not-an-object');
      }),
    );
  });

  it('says nothing else of a document with a byte changed, as long as the parser accepts it', () => {
    const text = '{"nodeId":"n-1","x":{"nodeId":"no","y":["}",{"nodeToken":"no"}]},"nodeToken":"t\\u00e9"}';
    fc.assert(
      fc.property(fc.nat(utf8(text).length - 1), fc.constantFrom(...'{}[]",:\\nu 01'), (at, character) => {
        const bytes = utf8(text);
        bytes[at] = character.charCodeAt(0);
        let parsed: JsonValue;
        try {
          parsed = parseStrictJson(bytes);
        } catch {
          try {
            scanTopLevelStrings(bytes, ['nodeId', 'nodeToken'], bound);
          } catch (error) {
            expect(error).toBeInstanceOf(StrictJsonError);
          }
          return;
        }
        for (const name of ['nodeId', 'nodeToken']) {
          const want = expected(parsed as JsonObject, name);
          const find = () => scanTopLevelStrings(bytes, [name], bound);
          if ('code' in want) expect(refusal(find).code).toBe(want.code);
          else expect(find().get(name)).toBe(want.value);
        }
      }),
      { numRuns: 3_000 },
    );
  });
});

describe('scanTopLevelStrings', () => {
  it('leaves out what is not there, and looks at the top level only', () => {
    expect(scan('{}')).toEqual({});
    expect(scan(' \n{ "a" : { "nodeId" : "inner" } , "b":["nodeId","x"], "c":"nodeId" }\r\n')).toEqual({});
    expect(scan('{"a":"\\"nodeId\\":\\"x\\"","nodeToken":"t"}')).toEqual({ nodeToken: 't' });
    expect(scan('{"nodeId":"n"}', [])).toEqual({});
  });

  it('decodes names and values', () => {
    expect(scan('{"n\\u006fdeId":"\\u006E\\ud83d\\ude00\\n","nodeToken":"größe"}')).toEqual({
      nodeId: 'n😀\n',
      nodeToken: 'größe',
    });
    expect(scan('{"\\u006EodeId":"a","\\u006eodeTo\\u006Ben":"b"}')).toEqual({ nodeId: 'a', nodeToken: 'b' });
    expect(scan('{"\\"\\\\\\/\\b\\f\\n\\r\\t":"x"}', ['"\\/\b\f\n\r\t'])).toEqual({ '"\\/\b\f\n\r\t': 'x' });
    expect(scan('{"gr\\u00f6ße":"a","😀":"b"}', ['größe', '😀'])).toEqual({ größe: 'a', '😀': 'b' });
  });

  it('tells names apart that begin alike', () => {
    expect(scan('{"nodeI":"a","nodeIdd":"b","nodeId\\u0000":"c","nodeIé":"d","\\u006eodeI":"e"}')).toEqual({});
  });

  it('bounds values in bytes as they are sent', () => {
    expect(scan('{"nodeId":"12345678"}', ['nodeId'], 8)).toEqual({ nodeId: '12345678' });
    expect(scan('{"nodeId":"éé"}', ['nodeId'], 4)).toEqual({ nodeId: 'éé' });
    for (const text of ['{"nodeId":"123456789"}', '{"nodeId":"ééééé"}', '{"nodeId":"\\u0061\\u0061"}']) {
      expect(refusal(() => scan(text, ['nodeId'], 8))).toMatchObject({ code: 'too-long', offset: 10, path: '/nodeId' });
    }
  });

  const refused: [name: string, text: string, code: StrictJsonErrorCode, offset: number, path?: string][] = [
    ['nothing', '', 'not-an-object', 0],
    ['an array', ' ["nodeId"]', 'not-an-object', 1],
    ['a byte order mark', '\ufeff{}', 'not-an-object', 0],
    ['an open object', '{"nodeId":"a"', 'syntax', 13],
    ['an open key', '{"nodeId', 'syntax', 8],
    ['an open value', '{"nodeId":"a', 'syntax', 12],
    ['an escape cut by the end', '{"nodeId":"a\\', 'syntax', 13],
    ['an open inner object', '{"a":{"b":[1}', 'syntax', 13],
    ['no colon', '{"nodeId" "a"}', 'syntax', 10],
    ['no value', '{"nodeId":}', 'syntax', 10],
    ['no comma', '{"nodeId":"a" "b":1}', 'syntax', 14],
    ['a comma too many', '{"nodeId":"a",}', 'syntax', 14],
    ['a key without quotes', '{nodeId:"a"}', 'syntax', 1],
    ['something behind', '{"nodeId":"a"}{}', 'trailing', 14],
    ['a NUL behind', '{}\0', 'trailing', 2],
    ['a duplicate name', '{"nodeId":"a","nodeId":"a"}', 'duplicate-key', 14, '/nodeId'],
    ['a duplicate name with an escape', '{"nodeId":"a","node\\u0049d":"b"}', 'duplicate-key', 14, '/nodeId'],
    ['a duplicate with an escape first', '{"\\u006eodeId":"a","x":1,"nodeId":1}', 'duplicate-key', 25, '/nodeId'],
    ['a number for a value', '{"nodeId":1}', 'not-a-string', 10, '/nodeId'],
    ['null for a value', '{"a":1,"nodeId": null}', 'not-a-string', 17, '/nodeId'],
    ['an object for a value', '{"nodeId":{"nodeId":"a"}}', 'not-a-string', 10, '/nodeId'],
    ['a raw line feed in a value', '{"nodeId":"a\nb"}', 'syntax', 12, '/nodeId'],
    ['an unknown escape in a value', '{"nodeId":"\\x"}', 'syntax', 10, '/nodeId'],
    ['a lone surrogate in a value', '{"nodeId":"\\ud83d"}', 'lone-surrogate', 10, '/nodeId'],
  ];
  it.each(refused)('refuses %s', (_name, text, code, offset, path) => {
    const error = refusal(() => scan(text));
    expect({ code: error.code, offset: error.offset, path: error.path }).toEqual({ code, offset, path });
  });

  it('refuses wrong UTF-8 in a wanted value', () => {
    const bytes = Uint8Array.from([...utf8('{"nodeId":"a'), 0xff, ...utf8('"}')]);
    expect(refusal(() => scanTopLevelStrings(bytes, ['nodeId'], bound))).toMatchObject({
      code: 'invalid-utf8',
      offset: 12,
    });
  });

  it('never shows what was sent', () => {
    const token = 'Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MGFiY2RlZmdoaWo';
    const texts = [
      `{"nodeToken":"${token}`,
      `{"nodeToken":"${token}\\x"}`,
      `{"nodeToken":["${token}"]}`,
      `{"${token}"}`,
    ];
    for (const text of texts) {
      const error = refusal(() => scan(text));
      expect(`${error.message} ${error.stack} ${JSON.stringify(error)}`).not.toContain(token);
    }
    expect(refusal(() => scan(`{"nodeToken":"${token}"}`, ['nodeToken'], 8)).message).not.toContain(token);
  });

  it('returns strings of their own memory, from any view', () => {
    const buffer = Buffer.from(`xx{"nodeId":"${'n'.repeat(40)}"}yy`);
    const found = scanTopLevelStrings(buffer.subarray(2, -2), ['nodeId'], bound);
    buffer.fill(0);
    expect(found.get('nodeId')).toBe('n'.repeat(40));
  });

  it('stays linear for hostile documents', () => {
    const size = 4_000_000;
    const repeated = (piece: string) => piece.repeat(Math.floor(size / piece.length));
    const documents = [
      `{"a":${repeated('[')}`,
      `{"a":"${repeated('\\"')}`,
      `{"a":"${repeated('\\')}`,
      `{${repeated('"\\u006eodeIx":1,')}"z":1}`,
      `{${repeated('"nodeI\\u0064é":1,')}"z":1}`,
      `{${repeated('"":0,')}"z":1}`,
      `{${' '.repeat(size)}}`,
      `{"a":${repeated('1')}}`,
    ];
    for (const text of documents) {
      const bytes = utf8(text);
      const started = performance.now();
      try {
        scanTopLevelStrings(bytes, ['nodeId', 'nodeToken'], bound);
      } catch (error) {
        expect(error).toBeInstanceOf(StrictJsonError);
      }
      expect(performance.now() - started).toBeLessThan(1_000);
    }
  });
});

describe('topLevelMemberSpan', () => {
  it('measures members, also of members', () => {
    const bytes = utf8('{"nodeId":"é","observation": {"state":"member","fences": [1, 2] }\n}');
    const outer = topLevelMemberSpan(bytes, 'observation');
    if (outer === null) throw new Error('missing');
    expect(new TextDecoder().decode(bytes.subarray(outer.start, outer.end))).toBe(
      '{"state":"member","fences": [1, 2] }',
    );
    const inner = topLevelMemberSpan(bytes.subarray(outer.start, outer.end), 'fences');
    expect(inner).toEqual({ start: 28, end: 34 });
    expect(topLevelMemberSpan(bytes, 'fences')).toBeNull();
  });

  it('refuses a second member of the name, however it is spelt', () => {
    expect(refusal(() => topLevelMemberSpan(utf8('{"a":{},"\\u0061":{}}'), 'a')).code).toBe('duplicate-key');
    expect(topLevelMemberSpan(utf8('{"a":{},"b":1,"b":2}'), 'a')).toEqual({ start: 5, end: 7 });
  });
});
