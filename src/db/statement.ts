import { createHash } from 'node:crypto';
import type { Compilable, CompiledQuery } from 'kysely';
import type pg from 'pg';

/** A query of Kysely's, compiled or still to be compiled. */
export type Statement<R> = CompiledQuery<R> | Compilable<R>;

/** A parameter that Postgres would read as something else than what the caller meant. */
export class ParameterError extends TypeError {
  override readonly name = 'ParameterError';
}

/** The protocol counts parameters in 16 bits, and pg does not check. */
const MAXIMUM_PARAMETERS = 65_535;

/** Prepared statements per connection at most. Each costs the server a few kilobytes to some tens of them. */
export const MAXIMUM_NAMED = 400;

/** Longer texts are rare, unlikely to be repeated, and would only fill the table. */
const MAXIMUM_NAMED_LENGTH = 32_768;

/** Texts that were seen once. Full, it is emptied: a text that is in use comes back at once. */
const MAXIMUM_CANDIDATES = 2_000;

const names = new Map<string, string>();
const candidates = new Set<string>();

/** What pg sends for a statement. Throws {@link ParameterError} before anything is sent. */
export function toQueryConfig<R>(statement: Statement<R>): pg.QueryConfig {
  const compiled = 'compile' in statement ? statement.compile() : statement;
  const name = statementName(compiled.sql);
  const values = encodeParameters(compiled.parameters);
  return name === undefined ? { text: compiled.sql, values } : { name, text: compiled.sql, values };
}

/**
 * The name under which each connection prepares this text, from its second use on; undefined where it is sent unnamed.
 * The set of names is bounded for the whole process, since pg never closes a prepared statement.
 */
export function statementName(sql: string): string | undefined {
  const known = names.get(sql);
  if (known !== undefined) return known;
  if (names.size >= MAXIMUM_NAMED || sql.length > MAXIMUM_NAMED_LENGTH) return undefined;
  if (!candidates.delete(sql)) {
    if (candidates.size >= MAXIMUM_CANDIDATES) candidates.clear();
    candidates.add(sql);
    return undefined;
  }
  const name = createHash('sha256').update(sql).digest('base64url');
  names.set(sql, name);
  return name;
}

/**
 * Checks and copies the parameters. pg turns `undefined` into NULL, an invalid date into text, and breaks the connection's
 * order of answers when a value can't be serialized, so those are refused and objects become JSON here.
 */
function encodeParameters(parameters: readonly unknown[]): unknown[] {
  if (parameters.length > MAXIMUM_PARAMETERS) {
    throw new ParameterError(
      `a statement has ${parameters.length} parameters; the protocol carries ${MAXIMUM_PARAMETERS}`,
    );
  }
  return parameters.map((value, index) => {
    try {
      return encodeParameter(value);
    } catch (cause) {
      throw new ParameterError(`parameter $${index + 1} can't be sent`, { cause });
    }
  });
}

function encodeParameter(value: unknown): unknown {
  switch (typeof value) {
    case 'string':
    case 'boolean':
      return value;
    case 'bigint':
      return String(value);
    case 'number':
      if (Number.isNaN(value)) throw new TypeError('NaN');
      return value;
    case 'object':
      return encodeObject(value);
    case 'undefined':
    case 'function':
    case 'symbol':
      throw new TypeError(typeof value);
  }
}

function encodeObject(value: object | null): unknown {
  if (value === null) return null;
  if (ArrayBuffer.isView(value)) return Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  if (value instanceof Date) return value.toISOString();
  if (Array.isArray(value)) return value.map(encodeParameter);
  // Anything with a class of its own would be stored as whatever its toJSON says, such as a redacted secret.
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) throw new TypeError('an instance of a class');
  return JSON.stringify(value);
}
