/**
 * A look at the top level of a JSON object without parsing it: which node sends this, and how long is that member.
 *
 * Spark's requests are up to 4 MiB and carry their token inside. Authentication must come first and cost little, so the
 * scan passes over the bytes once, in constant memory, decoding nothing but what it was asked for (system section 3).
 * It checks no more of the document than it needs; whatever it lets pass is still refused by the parser. For every
 * document that `parseStrictJson` accepts it finds the same members with the same values.
 */
import { parseStrictJson, StrictJsonError } from './strict-json.js';

/** The bytes of one value, white space around it excluded: from `start`, before `end`. */
export interface ByteSpan {
  readonly start: number;
  readonly end: number;
}

/**
 * The string values of some top-level members.
 *
 * @param bytes a JSON object in UTF-8
 * @param names the members wanted; one that isn't there is missing in the result
 * @param options.maximumValueBytes bound of each value as it is sent, between its quotes and before escapes are decoded
 * @param options.untilFound stop once each name was found: what follows, a second one too, is left to the parser
 * @returns decoded values by name, which share no memory with `bytes`
 * @throws StrictJsonError `duplicate-key` when a wanted name occurs twice, `not-a-string` or `too-long` for its value,
 *   `not-an-object` for another document, and the parser's codes for what is malformed at the top level
 */
export function scanTopLevelStrings(
  bytes: Uint8Array,
  names: readonly string[],
  options: { maximumValueBytes: number; untilFound?: boolean },
): Map<string, string> {
  const found = new Map<string, string>();
  for (const [name, span] of wantedMembers(bytes, names, options.untilFound)) {
    if (bytes[span.start] !== QUOTE) throw new StrictJsonError('not-a-string', span.start, [name]);
    if (span.end - span.start - 2 > options.maximumValueBytes)
      throw new StrictJsonError('too-long', span.start, [name]);
    found.set(name, decodeString(bytes, span, [name]));
  }
  return found;
}

/**
 * Where the value of one top-level member is, for a byte budget of its own; null when there is no such member. For a
 * member of a member, look into the subarray of the outer one.
 *
 * @param bytes a JSON object in UTF-8
 * @throws StrictJsonError `duplicate-key` when the name occurs twice, `not-an-object` for another document, and the
 *   parser's codes for what is malformed at the top level
 */
export function topLevelMemberSpan(bytes: Uint8Array, name: string): ByteSpan | null {
  return wantedMembers(bytes, [name]).get(name) ?? null;
}

/** The spans of the wanted members' values. Unless `untilFound`, reads to the end, where a second one might be. */
function wantedMembers(bytes: Uint8Array, names: readonly string[], untilFound = false): Map<string, ByteSpan> {
  const spans = new Map<string, ByteSpan>();
  let at = skipSpace(bytes, 0);
  if (bytes[at] !== LEFT_BRACE) throw new StrictJsonError('not-an-object', at);
  at = skipSpace(bytes, at + 1);
  if (bytes[at] === RIGHT_BRACE) return endOfDocument(bytes, at + 1, spans);
  for (;;) {
    const keyStart = at;
    const keyEnd = skipString(bytes, keyStart);
    at = skipSpace(bytes, keyEnd);
    if (bytes[at] !== COLON) throw new StrictJsonError('syntax', at);
    const start = skipSpace(bytes, at + 1);
    const end = skipValue(bytes, start);
    const name = spelledName(bytes, keyStart, keyEnd, names);
    if (name !== undefined) {
      if (spans.has(name)) throw new StrictJsonError('duplicate-key', keyStart, [name]);
      spans.set(name, { start, end });
      if (untilFound && spans.size === names.length) return spans;
    }
    at = skipSpace(bytes, end);
    if (bytes[at] === RIGHT_BRACE) return endOfDocument(bytes, at + 1, spans);
    if (bytes[at] !== COMMA) throw new StrictJsonError('syntax', at);
    at = skipSpace(bytes, at + 1);
  }
}

function endOfDocument<R>(bytes: Uint8Array, end: number, result: R): R {
  const at = skipSpace(bytes, end);
  if (at !== bytes.length) throw new StrictJsonError('trailing', at);
  return result;
}

function spelledName(bytes: Uint8Array, start: number, end: number, names: readonly string[]): string | undefined {
  for (const name of names) {
    if (spells(bytes, start, end, name)) return name;
  }
  return undefined;
}

/**
 * Whether a key literal spells the name, with or without escapes. Stops at the first difference and allocates nothing
 * for an ASCII name: nobody is authenticated yet, and a sender may put hundreds of thousands of keys into 4 MiB.
 */
function spells(bytes: Uint8Array, start: number, end: number, name: string): boolean {
  const closingQuote = end - 1;
  let index = 0;
  for (let at = start + 1; at < closingQuote; index++) {
    const byte = bytes[at] ?? 0;
    const expected = name.charCodeAt(index);
    if (byte >= 0x80) return expected >= 0x80 && decodeString(bytes, { start, end }, []) === name;
    if ((byte === BACKSLASH ? escapedUnit(bytes, at) : byte) !== expected) return false;
    at += byte !== BACKSLASH ? 1 : bytes[at + 1] === LOWER_U ? 6 : 2;
  }
  return index === name.length;
}

/** The UTF-16 code unit that the escape at a backslash stands for; NaN, which equals none, if it is no escape. */
function escapedUnit(bytes: Uint8Array, backslash: number): number {
  const escape = bytes[backslash + 1] ?? 0;
  if (escape !== LOWER_U) return shortEscapes.get(escape) ?? NaN;
  let unit = 0;
  for (let at = backslash + 2; at < backslash + 6; at++) unit = unit * 16 + hexDigit(bytes[at] ?? 0);
  return unit;
}

function hexDigit(byte: number): number {
  if (byte >= DIGIT_0 && byte <= DIGIT_9) return byte - DIGIT_0;
  const lowerCase = byte | 0x20;
  return lowerCase >= LOWER_A && lowerCase <= LOWER_F ? lowerCase - LOWER_A + 10 : NaN;
}

/** The parser decodes what is not plainly itself, so that it can't be read in two ways; the offset is made the document's. */
function decodeString(bytes: Uint8Array, literal: ByteSpan, path: readonly string[]): string {
  const plain = plainString(bytes, literal);
  if (plain !== undefined) return plain;
  try {
    return parseStrictJson(bytes.subarray(literal.start, literal.end)) as string;
  } catch (error) {
    if (error instanceof StrictJsonError) throw new StrictJsonError(error.code, literal.start + error.offset, path);
    throw error;
  }
}

/** Longer ones are given to the parser: their characters would be too many arguments. */
const longestPlain = 256;

/** A short literal of printable ASCII without an escape; undefined for every other one. An unescaped quote ends the literal. */
function plainString(bytes: Uint8Array, literal: ByteSpan): string | undefined {
  const start = literal.start + 1;
  const end = literal.end - 1;
  if (end - start > longestPlain) return undefined;
  for (let at = start; at < end; at++) {
    const byte = bytes[at]!;
    if (byte < SPACE || byte > TILDE || byte === BACKSLASH) return undefined;
  }
  return String.fromCharCode.apply(null, bytes.subarray(start, end) as unknown as number[]);
}

const TAB = 0x09;
const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;
const SPACE = 0x20;
const QUOTE = 0x22;
const PLUS = 0x2b;
const COMMA = 0x2c;
const MINUS = 0x2d;
const POINT = 0x2e;
const DIGIT_0 = 0x30;
const DIGIT_9 = 0x39;
const COLON = 0x3a;
const UPPER_E = 0x45;
const LEFT_BRACKET = 0x5b;
const BACKSLASH = 0x5c;
const RIGHT_BRACKET = 0x5d;
const LOWER_A = 0x61;
const LOWER_F = 0x66;
const LOWER_U = 0x75;
const LOWER_Z = 0x7a;
const LEFT_BRACE = 0x7b;
const RIGHT_BRACE = 0x7d;
const TILDE = 0x7e;

/** RFC 8259 section 7: the letter behind the backslash, and what both stand for. */
const shortEscapes: ReadonlyMap<number, number> = new Map(
  Array.from('"\\/bfnrt', (letter, index) => [letter.charCodeAt(0), '"\\/\b\f\n\r\t'.charCodeAt(index)]),
);

function skipSpace(bytes: Uint8Array, start: number): number {
  let at = start;
  for (;;) {
    const byte = bytes[at];
    if (byte !== SPACE && byte !== LINE_FEED && byte !== CARRIAGE_RETURN && byte !== TAB) return at;
    at++;
  }
}

/** From an opening quote to behind the closing one. */
function skipString(bytes: Uint8Array, start: number): number {
  if (bytes[start] !== QUOTE) throw new StrictJsonError('syntax', start);
  return behindString(bytes, start);
}

function behindString(bytes: Uint8Array, start: number): number {
  const length = bytes.length;
  for (let at = start + 1; at < length; at++) {
    const byte = bytes[at];
    if (byte === QUOTE) return at + 1;
    if (byte === BACKSLASH) at++;
  }
  throw new StrictJsonError('syntax', length);
}

function skipValue(bytes: Uint8Array, start: number): number {
  const first = bytes[start];
  if (first === QUOTE) return behindString(bytes, start);
  if (first === LEFT_BRACE || first === LEFT_BRACKET) return skipContainer(bytes, start);
  return skipScalar(bytes, start);
}

/** Counts brackets of both kinds together: a document that closes one with the other is refused by the parser. */
function skipContainer(bytes: Uint8Array, start: number): number {
  const length = bytes.length;
  let depth = 0;
  let at = start;
  while (at < length) {
    const byte = bytes[at];
    if (byte === QUOTE) {
      at = behindString(bytes, at);
      continue;
    }
    at++;
    if (byte === LEFT_BRACE || byte === LEFT_BRACKET) depth++;
    else if ((byte === RIGHT_BRACE || byte === RIGHT_BRACKET) && --depth === 0) return at;
  }
  throw new StrictJsonError('syntax', length);
}

/** A number or a literal name: the longest run of bytes that occur in one. */
function skipScalar(bytes: Uint8Array, start: number): number {
  let at = start;
  while (isScalarByte(bytes[at])) at++;
  if (at === start) throw new StrictJsonError('syntax', start);
  return at;
}

function isScalarByte(byte: number | undefined): boolean {
  if (byte === undefined) return false;
  if ((byte >= LOWER_A && byte <= LOWER_Z) || (byte >= DIGIT_0 && byte <= DIGIT_9)) return true;
  return byte === MINUS || byte === PLUS || byte === POINT || byte === UPPER_E;
}
