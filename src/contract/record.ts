/**
 * One way to say what a record is: a closed schema, further rules, and for accepted records the digest's domain.
 *
 * `validate…` returns a list of errors (empty = valid) and never throws. `snapshot…` returns a detached, deeply frozen
 * copy that passed the same checks, or throws {@link ContractError}. Neither runs code of the value that it looks at:
 * getters, proxies and foreign prototypes are refused.
 */
import type { Static, TSchema } from '@sinclair/typebox';
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
  /** Errors of a value that is already detached plain JSON (parsed by us). */
  check(value: unknown): string[];
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

  const check = (value: unknown): string[] => {
    const errors = schemaErrors(name, checker(), value);
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

/** At most eight errors, each `<name> <json pointer> <what is wrong>`. */
export function schemaErrors<S extends TSchema>(name: string, checker: TypeCheck<S>, value: unknown): string[] {
  if (checker.Check(value)) return [];
  const errors: string[] = [];
  for (const error of checker.Errors(value)) {
    errors.push(`${name} ${error.path === '' ? '/' : error.path} ${error.message.toLowerCase()}`);
    if (errors.length === maximumErrors) break;
  }
  return errors.length > 0 ? errors : [`${name} does not match its schema`];
}
