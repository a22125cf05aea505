/**
 * Values that come from other code in this process, not from bytes: a caller of the client, an agent, a test double.
 *
 * They may be live: a getter that answers differently each time, a proxy, a class with `toJSON`, an array that is still
 * being written to. A detached copy is looked at once, by property descriptor, and can't change afterwards.
 */
import {
  defaultMaximumDepth,
  isWellFormed,
  jsonPointer,
  type JsonPath,
  type JsonValue,
  setOwnMember,
} from './strict-json.js';

/** What about a value is outside strict JSON, or can't be read without running its code. */
export type HostileValueReason =
  | 'proxy'
  | 'accessor'
  | 'prototype'
  | 'symbol-key'
  | 'forbidden-key'
  | 'non-enumerable'
  | 'array-shape'
  | 'type'
  | 'number'
  | 'negative-zero'
  | 'lone-surrogate'
  | 'cycle'
  | 'depth'
  | 'size';

/** A refused value. The message never quotes the value; `path` is a JSON pointer, absent for the value itself. */
export class HostileValueError extends TypeError {
  override readonly name = 'HostileValueError';
  readonly reason: HostileValueReason;
  readonly path?: string;

  constructor(reason: HostileValueReason, path: JsonPath = []) {
    const pointer = jsonPointer(path);
    super(`not plain strict JSON: ${reason}${pointer === '' ? '' : ` at ${pointer}`}`);
    this.reason = reason;
    if (pointer !== '') this.path = pointer;
  }
}

/**
 * Whether a value is a proxy, told without running one of its traps. Only Node can tell; elsewhere the answer is always
 * no, and a proxy's traps for keys and descriptors run, once each, while what is read is still copied and checked.
 */
export const isProxy: (value: unknown) => boolean =
  globalThis.process?.getBuiltinModule?.('node:util')?.types.isProxy ?? (() => false);

/**
 * How many values one copy may hold. A value and its separator take two bytes, so no request holds more: the largest is
 * 4,325,376 bytes (`sparkSwarmNodeContracts.swarmObservation.maxRequestBytes`). Without a bound, an object that is
 * referred to twice on each of 32 levels would be copied 2^32 times.
 */
const maximumValues = 4_325_376 / 2;

/**
 * A detached, deeply frozen copy in plain objects and arrays. No code of the value runs: no getter, `toJSON`, iterator
 * or (in Node) proxy trap. Something referred to twice is copied twice.
 *
 * @throws HostileValueError (a TypeError) for anything but null, booleans, integers within ±(2^53-1) that aren't `-0`,
 *   well-formed strings, dense arrays and objects whose prototype is `Object.prototype` or null, all own properties
 *   enumerable data under string keys other than `__proto__`, nested at most 32 levels, without cycles
 */
export function detach(value: unknown): JsonValue {
  return new Detacher().copy(value);
}

class Detacher {
  readonly #path: (string | number)[] = [];
  readonly #ancestors: object[] = [];
  #values = 0;

  copy(value: unknown): JsonValue {
    if (++this.#values > maximumValues) return this.#refuse('size');
    if (typeof value === 'object' && value !== null) return this.#container(value);
    const reason = scalarFault(value);
    if (reason !== undefined) return this.#refuse(reason);
    return value as JsonValue;
  }

  #container(value: object): JsonValue {
    if (isProxy(value)) return this.#refuse('proxy');
    if (this.#ancestors.includes(value)) return this.#refuse('cycle');
    if (this.#ancestors.length >= defaultMaximumDepth) return this.#refuse('depth');
    this.#ancestors.push(value);
    const copy = Array.isArray(value) ? this.#array(value) : this.#object(value);
    this.#ancestors.pop();
    return Object.freeze(copy);
  }

  #array(value: readonly unknown[]): JsonValue[] {
    const fault = arrayFault(value);
    if (fault !== undefined) return this.#refuse(fault);
    const copy: JsonValue[] = [];
    for (let index = 0; index < value.length; index++) copy.push(this.#member(value, index));
    return copy;
  }

  #object(value: object): JsonValue {
    const fault = objectFault(value);
    if (fault !== undefined) return this.#refuse(fault);
    const copy: Record<string, JsonValue> = {};
    for (const key of Object.getOwnPropertyNames(value)) {
      setOwnMember(copy, key, this.#member(value, key));
    }
    return copy;
  }

  #member(container: object, key: string | number): JsonValue {
    this.#path.push(key);
    const fault = typeof key === 'string' ? keyFault(key) : undefined;
    if (fault !== undefined) return this.#refuse(fault);
    const property = Object.getOwnPropertyDescriptor(container, key);
    const reason = propertyFault(property);
    if (reason !== undefined) return this.#refuse(reason);
    const copy = this.copy(property?.value);
    this.#path.pop();
    return copy;
  }

  #refuse(reason: HostileValueReason): never {
    throw new HostileValueError(reason, this.#path);
  }
}

/** What is wrong with an array as a container, its elements aside. Runs no code of it, if it is no proxy. */
export function arrayFault(value: readonly unknown[]): HostileValueReason | undefined {
  if (Object.getPrototypeOf(value) !== Array.prototype) return 'prototype';
  if (Object.getOwnPropertySymbols(value).length > 0) return 'symbol-key';
  // As many names as elements and `length`: with each index found to be there, nothing else is.
  if (Object.getOwnPropertyNames(value).length !== value.length + 1) return 'array-shape';
  return undefined;
}

/** What is wrong with an object as a container, its members aside. Runs no code of it, if it is no proxy. */
export function objectFault(value: object): HostileValueReason | undefined {
  const prototype: unknown = Object.getPrototypeOf(value);
  if (prototype !== Object.prototype && prototype !== null) return 'prototype';
  if (Object.getOwnPropertySymbols(value).length > 0) return 'symbol-key';
  return undefined;
}

/** What is wrong with a key of an object. */
export function keyFault(key: string): HostileValueReason | undefined {
  if (key === '__proto__') return 'forbidden-key';
  return isWellFormed(key) ? undefined : 'lone-surrogate';
}

/** What is wrong with an own property or, where there is none, with an array that has a hole. */
export function propertyFault(property: PropertyDescriptor | undefined): HostileValueReason | undefined {
  if (property === undefined) return 'array-shape';
  if (!Object.hasOwn(property, 'value')) return 'accessor';
  return property.enumerable === true ? undefined : 'non-enumerable';
}

/** What is wrong with a value that is neither an array nor an object. */
export function scalarFault(value: unknown): HostileValueReason | undefined {
  if (typeof value === 'string') return isWellFormed(value) ? undefined : 'lone-surrogate';
  if (typeof value === 'boolean' || value === null) return undefined;
  if (typeof value !== 'number') return 'type';
  if (Object.is(value, -0)) return 'negative-zero';
  return Number.isSafeInteger(value) ? undefined : 'number';
}
