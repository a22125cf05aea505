/**
 * Strict JSON: the one reader of every document that crosses the wire (system rules 2 and 13).
 *
 * It accepts a subset of RFC 8259 in which every document has exactly one meaning:
 *  1. UTF-8 without a byte order mark, no lone surrogate, raw or escaped.
 *  2. Numbers are integers within ±(2^53-1), written without fraction and exponent; `-0` does not exist.
 *  3. No key occurs twice in one object, compared after its escapes are decoded, and none is `__proto__`.
 *  4. Nesting is bounded, so that the parser and every later walk may recurse.
 */

/** A value of strict JSON. Numbers are integers within ±(2^53-1), never `-0`; strings are well-formed. */
export type JsonValue = null | boolean | number | string | readonly JsonValue[] | JsonObject;

export interface JsonObject {
  readonly [key: string]: JsonValue;
}

/** Whether a JSON value is an object; narrows where `Array.isArray` can't (it doesn't exclude readonly arrays). */
export function isJsonObject(value: JsonValue | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/**
 * Why bytes were refused. The last three come from the top-level scan only (top-level-scan.ts).
 *
 * `invalid-utf8` and `lone-surrogate` are about characters, `number` is a fraction, an exponent or an integer beyond
 * 2^53-1, `trailing` is anything but white space after the value, `syntax` is the rest of the grammar.
 */
export type StrictJsonErrorCode =
  | 'invalid-utf8'
  | 'syntax'
  | 'duplicate-key'
  | 'forbidden-key'
  | 'depth'
  | 'lone-surrogate'
  | 'number'
  | 'negative-zero'
  | 'trailing'
  | 'not-an-object'
  | 'not-a-string'
  | 'too-long';

/** Where in a document something is, as keys and array indexes from the outside in. */
export type JsonPath = readonly (string | number)[];

/**
 * A refused document. The message never quotes the document: node tokens travel in bodies.
 *
 * `offset` counts bytes when bytes were read and UTF-16 code units when a string was read.
 * `path` is a JSON pointer (RFC 6901) to the member or element that was being read, absent at the top level.
 */
export class StrictJsonError extends Error {
  override readonly name = 'StrictJsonError';
  readonly code: StrictJsonErrorCode;
  readonly offset: number;
  readonly path?: string;

  constructor(code: StrictJsonErrorCode, offset: number, path: JsonPath = []) {
    const pointer = jsonPointer(path);
    super(`strict JSON refused: ${code} at offset ${offset}${pointer === '' ? '' : ` in ${pointer}`}`);
    this.code = code;
    this.offset = offset;
    if (pointer !== '') this.path = pointer;
  }
}

/** Longer than every member name of the contract, shorter than every token (43 characters of base64url). */
const longestShownKey = 40;

/**
 * The JSON pointer (RFC 6901) of a path, safe to log and to send: a key which no contract member could have, by length
 * or by characters, is shown as `*`, because the sender chose it and may have put a secret there.
 */
export function jsonPointer(path: JsonPath): string {
  let pointer = '';
  for (const step of path) {
    const shown = typeof step === 'number' || (step.length <= longestShownKey && /^[\w.:-]*$/.test(step));
    pointer += `/${shown ? step : '*'}`;
  }
  return pointer;
}

/** With the `u` flag a paired surrogate is one code point, so only a lone one has this general category. */
const loneSurrogate = /\p{Surrogate}/u;

/** Whether a string holds no lone surrogate, that is, whether it can be written as UTF-8. */
export const isWellFormed: (text: string) => boolean =
  'isWellFormed' in String.prototype
    ? (text) => (text as string & { isWellFormed(): boolean }).isWellFormed()
    : (text) => !loneSurrogate.test(text);

/**
 * Adds a member to a new plain object. A key that `Object.prototype` knows is defined, not assigned: whatever somebody
 * has put there, no setter runs and no inherited read-only property is in the way. Assigning the others is twice as fast.
 */
export function setOwnMember(object: Record<string, JsonValue>, key: string, value: JsonValue): void {
  if (key in Object.prototype) {
    Object.defineProperty(object, key, { value, enumerable: true, writable: true, configurable: true });
  } else {
    object[key] = value;
  }
}

/** How deep documents nest unless the caller says otherwise: deeper than every contract type, harmless for any stack. */
export const defaultMaximumDepth = 32;

/** The deepest nesting that a caller may ask for; each level is one or two stack frames of the parser. */
export const deepestMaximumDepth = 1000;

/**
 * Reads one strict JSON document.
 *
 * Strings of the result may share the memory of the whole document: whoever keeps one beyond the request copies it.
 *
 * @param input UTF-8 bytes, or a string
 * @param options.maximumDepth how many arrays and objects may be nested, 1..1000 (default 32); a top-level array counts 1
 * @returns plain objects and arrays, made for this call and not frozen
 * @throws StrictJsonError for every refused document, whatever is wrong with it
 * @throws RangeError when `maximumDepth` is out of range
 */
export function parseStrictJson(input: Uint8Array | string, options?: { maximumDepth?: number }): JsonValue {
  const maximumDepth = options?.maximumDepth ?? defaultMaximumDepth;
  if (!Number.isInteger(maximumDepth) || maximumDepth < 1 || maximumDepth > deepestMaximumDepth) {
    throw new RangeError(`maximumDepth is 1..${deepestMaximumDepth}`);
  }
  if (typeof input !== 'string') return new Parser(decodeUtf8(input), maximumDepth, true).document();
  if (!isWellFormed(input)) throw new StrictJsonError('lone-surrogate', input.search(loneSurrogate));
  return new Parser(input, maximumDepth, false).document();
}

/** Keeps a byte order mark, so that the grammar refuses it. */
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

function decodeUtf8(bytes: Uint8Array): string {
  try {
    return utf8.decode(bytes);
  } catch (error) {
    const offset = firstInvalidUtf8(bytes);
    if (offset === -1) throw error; // not about the bytes: no input at all, or more than one string can hold
    throw new StrictJsonError('invalid-utf8', offset);
  }
}

/** The offset of the first byte that begins no UTF-8 sequence of RFC 3629 section 4, or -1. Only for error reports. */
function firstInvalidUtf8(bytes: Uint8Array): number {
  let at = 0;
  while (at < bytes.length) {
    const length = utf8SequenceLength(bytes, at);
    if (length === 0) return at;
    at += length;
  }
  return -1;
}

/** 1..4, or 0 when no valid sequence begins here (overlong, surrogate, beyond U+10FFFF, cut, stray). */
function utf8SequenceLength(bytes: Uint8Array, at: number): number {
  const lead = bytes[at] ?? 0;
  if (lead < 0x80) return 1;
  const length = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
  const second = bytes[at + 1] ?? 0;
  const lowest = lead === 0xe0 ? 0xa0 : lead === 0xf0 ? 0x90 : 0x80;
  const highest = lead === 0xed ? 0x9f : lead === 0xf4 ? 0x8f : 0xbf;
  if (length === 0 || second < lowest || second > highest) return 0;
  for (let next = at + 2; next < at + length; next++) {
    if (((bytes[next] ?? 0) & 0xc0) !== 0x80) return 0;
  }
  return length;
}

/** The UTF-8 length of the first `end` code units of a well-formed text, in bytes. Only for error reports. */
function utf8Length(text: string, end: number): number {
  let bytes = 0;
  for (let at = 0; at < end; at++) {
    const unit = text.charCodeAt(at);
    const surrogate = unit >= 0xd800 && unit <= 0xdfff; // each half of a pair is half of 4 bytes
    bytes += unit < 0x80 ? 1 : unit < 0x800 || surrogate ? 2 : 3;
  }
  return bytes;
}

const TAB = 0x09;
const LINE_FEED = 0x0a;
const CARRIAGE_RETURN = 0x0d;
const SPACE = 0x20;
const QUOTE = 0x22;
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
const LOWER_E = 0x65;
const LOWER_F = 0x66;
const LOWER_N = 0x6e;
const LOWER_T = 0x74;
const LEFT_BRACE = 0x7b;
const RIGHT_BRACE = 0x7d;

/**
 * Recursive descent over UTF-16 code units. Beyond the end `charCodeAt` answers NaN, which equals no unit and fails
 * every range check, so the end needs no test of its own. Methods that read a value take its first unit.
 */
class Parser {
  readonly #text: string;
  readonly #maximumDepth: number;
  readonly #fromBytes: boolean;
  /**
   * Per open array or object the element or member being read, undefined before the first. Entries at `#depth` and
   * beyond are left over.
   */
  readonly #path: (string | number | undefined)[] = [];
  #depth = 0;
  #at = 0;

  constructor(text: string, maximumDepth: number, fromBytes: boolean) {
    this.#text = text;
    this.#maximumDepth = maximumDepth;
    this.#fromBytes = fromBytes;
  }

  document(): JsonValue {
    const value = this.#value(this.#skipSpace());
    this.#skipSpace();
    if (this.#at !== this.#text.length) this.#refuse('trailing', this.#at);
    return value;
  }

  #value(first: number): JsonValue {
    switch (first) {
      case QUOTE:
        return this.#string();
      case LEFT_BRACE:
        return this.#object();
      case LEFT_BRACKET:
        return this.#array();
      case LOWER_T:
        return this.#literal('true', true);
      case LOWER_F:
        return this.#literal('false', false);
      case LOWER_N:
        return this.#literal('null', null);
      default:
        return this.#integer(first);
    }
  }

  #object(): JsonObject {
    const level = this.#open();
    const object: Record<string, JsonValue> = {};
    let unit = this.#skipSpace();
    if (unit === RIGHT_BRACE) return this.#close(object);
    for (;;) {
      const keyAt = this.#at;
      if (unit !== QUOTE) this.#refuse('syntax', keyAt);
      const key = this.#string();
      this.#path[level] = key;
      if (key === '__proto__') this.#refuse('forbidden-key', keyAt);
      if (Object.hasOwn(object, key)) this.#refuse('duplicate-key', keyAt);
      if (this.#skipSpace() !== COLON) this.#refuse('syntax', this.#at);
      this.#at++;
      setOwnMember(object, key, this.#value(this.#skipSpace()));
      unit = this.#skipSpace();
      if (unit === RIGHT_BRACE) return this.#close(object);
      if (unit !== COMMA) this.#refuse('syntax', this.#at);
      this.#at++;
      unit = this.#skipSpace();
    }
  }

  #array(): JsonValue[] {
    const level = this.#open();
    const array: JsonValue[] = [];
    let unit = this.#skipSpace();
    if (unit === RIGHT_BRACKET) return this.#close(array);
    for (;;) {
      this.#path[level] = array.length;
      array.push(this.#value(unit));
      unit = this.#skipSpace();
      if (unit === RIGHT_BRACKET) return this.#close(array);
      if (unit !== COMMA) this.#refuse('syntax', this.#at);
      this.#at++;
      unit = this.#skipSpace();
    }
  }

  #open(): number {
    if (this.#depth >= this.#maximumDepth) this.#refuse('depth', this.#at);
    const level = this.#depth++;
    this.#path[level] = undefined;
    this.#at++;
    return level;
  }

  #close<C>(container: C): C {
    this.#depth--;
    this.#at++;
    return container;
  }

  #string(): string {
    const text = this.#text;
    const start = this.#at + 1;
    for (let at = start; ; at++) {
      const unit = text.charCodeAt(at);
      if (unit === QUOTE) {
        this.#at = at + 1;
        return text.slice(start, at);
      }
      if (unit === BACKSLASH) return this.#escapedString(at);
      if (!(unit >= SPACE)) this.#refuse('syntax', at);
    }
  }

  /** Finds the closing quote and leaves the escapes to the engine, whose grammar of string literals is RFC 8259's. */
  #escapedString(firstBackslash: number): string {
    const text = this.#text;
    const start = this.#at;
    let at = firstBackslash;
    for (let unit = BACKSLASH; unit !== QUOTE; unit = text.charCodeAt(at)) {
      if (!(unit >= SPACE)) this.#refuse('syntax', at);
      at += unit === BACKSLASH ? 2 : 1;
    }
    const decoded = decodeLiteral(text.slice(start, at + 1));
    if (decoded === undefined) this.#refuse('syntax', start);
    if (!isWellFormed(decoded)) this.#refuse('lone-surrogate', start);
    this.#at = at + 1;
    return decoded;
  }

  #integer(first: number): number {
    const text = this.#text;
    const start = this.#at;
    let at = start;
    let unit = first;
    if (unit === MINUS) unit = text.charCodeAt(++at);
    if (!isDigit(unit)) this.#refuse('syntax', at);
    const leadingZero = unit === DIGIT_0;
    let value = 0;
    do {
      value = value * 10 + (unit - DIGIT_0);
      unit = text.charCodeAt(++at);
      if (leadingZero && isDigit(unit)) this.#refuse('syntax', at);
    } while (isDigit(unit));
    if (unit === POINT || unit === LOWER_E || unit === UPPER_E) this.#refuse('number', start);
    // Rounding is monotone, so what is beyond 2^53-1 never comes out within it.
    if (value > Number.MAX_SAFE_INTEGER) this.#refuse('number', start);
    if (first === MINUS && value === 0) this.#refuse('negative-zero', start);
    this.#at = at;
    return first === MINUS ? -value : value;
  }

  #literal<V>(word: string, value: V): V {
    if (!this.#text.startsWith(word, this.#at)) this.#refuse('syntax', this.#at);
    this.#at += word.length;
    return value;
  }

  /** Moves to the next unit that is not white space and returns it. */
  #skipSpace(): number {
    const text = this.#text;
    let at = this.#at;
    let unit = text.charCodeAt(at);
    while (unit === SPACE || unit === LINE_FEED || unit === CARRIAGE_RETURN || unit === TAB)
      unit = text.charCodeAt(++at);
    this.#at = at;
    return unit;
  }

  #refuse(code: StrictJsonErrorCode, unit: number): never {
    const at = Math.min(unit, this.#text.length); // a backslash at the very end points beyond it
    const offset = this.#fromBytes ? utf8Length(this.#text, at) : at;
    const path = this.#path.slice(0, this.#depth).filter((step) => step !== undefined);
    throw new StrictJsonError(code, offset, path);
  }
}

function isDigit(unit: number): boolean {
  return unit >= DIGIT_0 && unit <= DIGIT_9;
}

/** The string of a literal with its quotes, or undefined: the engine's own message would quote the document. */
function decodeLiteral(literal: string): string | undefined {
  try {
    return JSON.parse(literal) as string;
  } catch {
    return undefined;
  }
}
