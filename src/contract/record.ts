/**
 * One way to say what a record is: a closed schema, further rules, and for accepted records the digest's domain.
 *
 * `validate…` returns a list of errors (empty = valid) and never throws. `snapshot…` returns a detached, deeply frozen
 * copy that passed the same checks, or throws {@link ContractError}. Neither runs code of the value that it looks at:
 * getters, proxies and foreign prototypes are refused.
 */
import { KindGuard, type Static, type TSchema } from '@sinclair/typebox';
import { type TypeCheck, TypeCompiler } from '@sinclair/typebox/compiler';
import { detach } from './detach.js';
import { digestDomain, recordDigest } from './digest.js';
import type { JsonObject } from './strict-json.js';

export class ContractError extends TypeError {
  readonly errors: readonly string[];
  constructor(name: string, errors: readonly string[]) {
    super(`${name}: ${errors[0] ?? 'invalid'}`);
    this.name = 'ContractError';
    this.errors = errors;
  }
}

export interface ContractRecord<T> {
  readonly name: string;
  /** It carries `digest` over its own content. */
  readonly sealed: boolean;
  /** Errors of schema and rules, and of the digest where the record has one. */
  validate(value: unknown): string[];
  /** Detached, frozen, checked copy. Throws {@link ContractError}. */
  snapshot(value: unknown): T;
  /** Errors of a value that is already detached plain JSON (parsed by us, from so many bytes). */
  check(value: unknown, bytes?: number): string[];
  /** Schema only, on plain JSON: a type guard. */
  is(value: unknown): value is T;
}

interface RecordOptions<T> {
  /** Rules beyond the schema; called only with a value of the right shape. */
  readonly rules?: (value: T) => string[];
  /** The record carries `digest` over its own content, in the domain of its type's name. */
  readonly sealed?: boolean;
}

const maximumErrors = 8;

/** `name` is the type's name in the contract, e.g. `IFleetCutoverPreparedVolumeHandoffPage`. */
export function defineRecord<S extends TSchema>(
  name: string,
  schema: S,
  options: RecordOptions<Static<S>> = {},
): ContractRecord<Static<S>> {
  type T = Static<S>;
  let compiled: TypeCheck<S> | undefined;
  const checker = () => (compiled ??= TypeCompiler.Compile(schema));
  const domain = digestDomain(name);

  const check = (value: unknown, bytes?: number): string[] => {
    const errors = schemaErrors(name, checker(), value, bytes);
    if (errors.length > 0) return errors;
    errors.push(...(options.rules?.(value as T) ?? []).map((error) => `${name} ${error}`));
    if (errors.length === 0 && options.sealed === true) {
      const record = value as JsonObject & { digest: string };
      if (recordDigest(domain, record) !== record.digest)
        errors.push(`${name} /digest is not the digest of its content`);
    }
    return errors;
  };
  const validate = (value: unknown): string[] => {
    let copy: unknown;
    try {
      copy = detach(value);
    } catch (error) {
      return [`${name} must be plain strict JSON: ${error instanceof Error ? error.message : 'refused'}`];
    }
    return check(copy);
  };
  const snapshot = (value: unknown): T => {
    let copy: unknown;
    try {
      copy = detach(value);
    } catch (error) {
      throw new ContractError(name, [
        `must be plain strict JSON: ${error instanceof Error ? error.message : 'refused'}`,
      ]);
    }
    const errors = check(copy);
    if (errors.length > 0) throw new ContractError(name, errors);
    return copy as T;
  };
  return Object.freeze({
    name,
    sealed: options.sealed === true,
    validate,
    snapshot,
    check,
    is: (value: unknown): value is T => checker().Check(value),
  });
}

/** Values from more bytes than this are large: of them only the first error is told. */
const largeValueBytes = 65_536;

/**
 * At most eight errors, each `<name> <json pointer> <what is wrong>`; of a value from many bytes the first one. TypeBox takes
 * some 20 µs for every valid item that it passes in search of an error: over a second for what fits into 4 MiB.
 */
export function schemaErrors<S extends TSchema>(
  name: string,
  checker: TypeCheck<S>,
  value: unknown,
  bytes = 0,
): string[] {
  if (checker.Check(value)) return [];
  const large = bytes > largeValueBytes;
  const found = large ? narrowed(checker.Schema(), value, '') : { checker, value, pointer: '' };
  const errors: string[] = [];
  for (const error of found.checker.Errors(found.value)) {
    const pointer = found.pointer + error.path;
    errors.push(`${name} ${pointer === '' ? '/' : pointer} ${error.message.toLowerCase()}`);
    if (errors.length === (large ? 1 : maximumErrors)) break;
  }
  return errors.length > 0 ? errors : [`${name} does not match its schema`];
}

interface Narrowed {
  readonly checker: TypeCheck<TSchema>;
  readonly value: unknown;
  readonly pointer: string;
}

/** Checkers of parts of schemas, made when a large value is refused for the first time. */
const partCheckers = new WeakMap<TSchema, TypeCheck<TSchema>>();

function checkerOf(schema: TSchema): TypeCheck<TSchema> {
  let checker = partCheckers.get(schema);
  if (checker === undefined) {
    checker = TypeCompiler.Compile(schema);
    partCheckers.set(schema, checker);
  }
  return checker;
}

/** The innermost item or member that is wrong by itself, found with compiled checks; what does not match `schema`, if none is. */
function narrowed(schema: TSchema, value: unknown, pointer: string): Narrowed {
  for (const [key, part, member] of partsOf(schema, value)) {
    if (!checkerOf(part).Check(member)) return narrowed(part, member, `${pointer}/${escapeKey(key)}`);
  }
  return { checker: checkerOf(schema), value, pointer };
}

/** Nothing where the value is wrong as a whole: too long, short of a member, or with one too many. */
function* partsOf(schema: TSchema, value: unknown): Generator<[string | number, TSchema, unknown]> {
  if (KindGuard.IsArray(schema) && Array.isArray(value)) {
    if (value.length > (schema.maxItems ?? Infinity) || value.length < (schema.minItems ?? 0)) return;
    for (const [index, item] of value.entries()) yield [index, schema.items, item];
  } else if (KindGuard.IsObject(schema) && typeof value === 'object' && value !== null) {
    const known = Object.entries(schema.properties);
    if ((schema.required ?? []).some((key) => !Object.hasOwn(value, key))) return;
    if (Object.keys(value).some((key) => !Object.hasOwn(schema.properties, key))) return;
    for (const [key, part] of known) {
      if (Object.hasOwn(value, key)) yield [key, part, (value as Record<string, unknown>)[key]];
    }
  }
}

function escapeKey(key: string | number): string {
  return String(key).replace(/~/g, '~0').replace(/\//g, '~1');
}
