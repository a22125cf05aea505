import fc from 'fast-check';
import type { JsonValue } from '../../src/contract/strict-json.js';

/** Strings without lone surrogates, with much of what has to be escaped, sorted or encoded with care. */
export function wellFormedStrings(): fc.Arbitrary<string> {
  const careful = fc.constantFrom(
    '"',
    '\\',
    '/',
    '\0',
    '\n',
    '\u001f',
    '\u007f',
    '\u2028',
    'é',
    '\uffff',
    '😀',
    '\u{10000}',
  );
  const mixed = fc.array(fc.oneof(careful, fc.constantFrom('a', 'b', '1', '9', '_')), { maxLength: 8 });
  return fc.oneof(
    fc.string(),
    fc.string({ unit: 'binary' }),
    mixed.map((pieces) => pieces.join('')),
  );
}

/** Keys that an object of strict JSON may have, a few of them often, so that shapes repeat and prefixes collide. */
export function strictJsonKeys(): fc.Arbitrary<string> {
  const usual = fc.constantFrom(
    'id',
    'digest',
    'generation',
    'a',
    'ab',
    '',
    '10',
    '9',
    '-1',
    'constructor',
    'toString',
  );
  return fc.oneof(usual, wellFormedStrings()).filter((key) => key !== '__proto__');
}

/** Values of strict JSON: what `parseStrictJson` may return, in plain objects and arrays, at most about 6 levels deep. */
export function strictJsonValues(): fc.Arbitrary<JsonValue> {
  const integers = fc.maxSafeInteger().map((value) => value + 0); // -0 + 0 is 0
  return fc.letrec<{ value: JsonValue }>((tie) => ({
    value: fc.oneof(
      { maxDepth: 6, depthSize: 'small' },
      fc.constantFrom<JsonValue>(null, true, false, 0, 1, 2 ** 53 - 1, -(2 ** 53 - 1)),
      integers,
      wellFormedStrings(),
      fc.array(tie('value'), { maxLength: 6 }),
      fc.dictionary(strictJsonKeys(), tie('value'), { maxKeys: 6, noNullPrototype: true }),
    ),
  })).value;
}

/** Objects of strict JSON, as every request and record is one. */
export function strictJsonObjects(): fc.Arbitrary<Record<string, JsonValue>> {
  return fc.dictionary(strictJsonKeys(), strictJsonValues(), { maxKeys: 8, noNullPrototype: true });
}

/** One spelling of a value as a JSON document: white space, escapes and the order of members vary. */
export function spellings(value: JsonValue): fc.Arbitrary<string> {
  return fc.infiniteStream(fc.nat({ max: 11 })).map((choices) => {
    const choose = () => choices.next().value as number;
    return spell(value, choose);
  });
}

function spell(value: JsonValue, choose: () => number): string {
  const space = () => ['', '', '', '', '', '', '', ' ', '\n', '\t', '\r', ' \r\n\t'][choose()] ?? '';
  const list = (open: string, items: string[], close: string) =>
    space() +
    open +
    items.map((item) => space() + item + space()).join(',') +
    (items.length ? '' : space()) +
    close +
    space();
  if (typeof value === 'string') return spellString(value, choose);
  if (typeof value !== 'object' || value === null) return space() + String(value) + space();
  if (Array.isArray(value))
    return list(
      '[',
      (value as JsonValue[]).map((item) => spell(item, choose)),
      ']',
    );
  const members = Object.entries(value).map(
    ([key, member]) => `${spellString(key, choose)}${space()}:${spell(member, choose)}`,
  );
  return list('{', choose() < 6 ? members : members.reverse(), '}');
}

function spellString(text: string, choose: () => number): string {
  const unicode = (unit: string) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`;
  const escapeAll = (character: string) => character.split('').map(unicode).join('');
  return `"${Array.from(text, (character) => {
    if (choose() === 0) return escapeAll(character);
    if (character === '/' && choose() < 6) return '\\/';
    return JSON.stringify(character).slice(1, -1);
  }).join('')}"`;
}
