import type { TSchema } from '@sinclair/typebox';
import { type TypeCheck, TypeCompiler } from '@sinclair/typebox/compiler';
import { methodNames, methods, type MethodRequest, type TMethodName } from '../contract/methods.js';
import { refuse, type Refused } from '../contract/problems.js';
import { schemaErrors } from '../contract/record.js';
import { type JsonValue, parseStrictJson, StrictJsonError } from '../contract/strict-json.js';

type Checkers = Readonly<Record<TMethodName, TypeCheck<TSchema>>>;

const requestCheckers = compileAll('request');
const responseCheckers = compileAll('response');

function compileAll(side: 'request' | 'response'): Checkers {
  const compiled = methodNames.map((name) => [name, TypeCompiler.Compile<TSchema>(methods[name][side])] as const);
  return Object.fromEntries(compiled) as Checkers;
}

/** Of one error in an answer; an unknown key of the request is part of it. */
const MAXIMUM_ERROR_LENGTH = 256;

/** How JSON writes U+0000. */
const ESCAPED_NUL = Buffer.from('\\u0000');

export interface OwnerRequest<N extends TMethodName> {
  readonly kind: 'request';
  readonly request: MethodRequest<N>;
}

/**
 * The request of a method: strict JSON that matches the closed schema as it is. Nothing is converted, filled in or left
 * out. Refused: `body-invalid-json`, `body-schema`.
 */
export function readOwnerRequest<N extends TMethodName>(name: N, bytes: Buffer | undefined): OwnerRequest<N> | Refused {
  if (bytes === undefined || bytes.length === 0) return refuse('body-invalid-json', { detail: 'The body is empty' });
  let value: JsonValue;
  try {
    value = parseStrictJson(bytes);
  } catch (error) {
    // Its message says what and where, and quotes nothing.
    if (error instanceof StrictJsonError) return refuse('body-invalid-json', { detail: error.message });
    throw error;
  }
  return checkOwnerRequest(name, bytes, value);
}

/** The same of a value that was parsed already; `bytes` hold it. */
export function checkOwnerRequest<N extends TMethodName>(
  name: N,
  bytes: Uint8Array,
  value: JsonValue,
): OwnerRequest<N> | Refused {
  const errors = requestErrors(name, bytes, value);
  return errors.length > 0
    ? refuse('body-schema', { errors })
    : { kind: 'request', request: value as MethodRequest<N> };
}

function requestErrors(name: TMethodName, bytes: Uint8Array, value: JsonValue): string[] {
  const found = schemaErrors(name, requestCheckers[name], value, bytes.byteLength);
  const errors = found.map((error) => error.slice(0, MAXIMUM_ERROR_LENGTH));
  if (
    errors.length === 0 &&
    Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).includes(ESCAPED_NUL) &&
    containsNul(value)
  ) {
    return [`${name} holds a string with U+0000, which can’t be stored`];
  }
  return errors;
}

function containsNul(value: JsonValue): boolean {
  if (typeof value === 'string') return value.includes('\0');
  if (typeof value !== 'object' || value === null) return false;
  return Object.entries(value).some(([key, member]) => key.includes('\0') || containsNul(member as JsonValue));
}

/** An answer that the method's schema does not allow: sending it could tell what nobody may know. */
export class ResponseSchemaError extends Error {
  override readonly name = 'ResponseSchemaError';
}

/** The answer's bytes, if it matches the closed schema. Throws {@link ResponseSchemaError}; nothing is left out silently. */
export function writeOwnerResponse(name: TMethodName, response: unknown): string {
  const errors = schemaErrors(name, responseCheckers[name], response);
  if (errors.length > 0) throw new ResponseSchemaError(errors.join('; '));
  return JSON.stringify(response);
}
