import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type * as Detach from '../../src/contract/detach.js';
import { detach, HostileValueError, type HostileValueReason, isProxy } from '../../src/contract/detach.js';
import { strictJsonValues } from '../support/strict-json-values.js';

function refusal(value: unknown): HostileValueError {
  try {
    detach(value);
  } catch (error) {
    if (error instanceof HostileValueError) return error;
    throw error;
  }
  throw new Error('it was accepted');
}

function isDeeplyFrozen(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return true;
  return Object.isFrozen(value) && Object.values(value).every(isDeeplyFrozen);
}

/** Every container of the value, itself included. */
function containers(value: unknown): object[] {
  if (typeof value !== 'object' || value === null) return [];
  return [value, ...Object.values(value).flatMap(containers)];
}

/** How often code of a hostile value ran in the test at hand. */
let ran = 0;
function counted<R>(result: R): () => R {
  return () => {
    ran++;
    return result;
  };
}
beforeEach(() => void (ran = 0));
afterEach(() => expect(ran).toBe(0));

/** A proxy that counts every trap there is. */
function trap(target: object): object {
  const handler = Object.fromEntries(
    Object.getOwnPropertyNames(Reflect).map((name) => [
      name,
      (...args: unknown[]) => {
        ran++;
        return (Reflect as unknown as Record<string, (...args: unknown[]) => unknown>)[name]?.(...args);
      },
    ]),
  );
  return new Proxy(target, handler);
}

describe('detach', () => {
  it('copies every strict JSON value, deeply frozen, sharing nothing', () => {
    fc.assert(
      fc.property(strictJsonValues(), (value) => {
        const before = JSON.stringify(value);
        const copy = detach(value);
        expect(isDeepStrictEqual(copy, value)).toBe(true);
        expect(JSON.stringify(copy)).toBe(before);
        expect(isDeeplyFrozen(copy)).toBe(true);
        const shared = new Set(containers(value));
        expect(containers(copy).some((container) => shared.has(container))).toBe(false);
        expect(containers(value).some(Object.isFrozen)).toBe(false);
      }),
    );
  });

  it('does not change when the original does', () => {
    const original = { list: [{ a: 1 }] };
    const copy = detach(original);
    original.list[0] = { a: 2 };
    original.list.push({ a: 3 });
    expect(copy).toEqual({ list: [{ a: 1 }] });
  });

  it('turns an object without a prototype into a plain one', () => {
    const copy = detach(Object.assign(Object.create(null), { a: Object.create(null) }));
    expect(Object.getPrototypeOf(copy)).toBe(Object.prototype);
    expect(copy).toEqual({ a: {} });
  });

  it('copies what is frozen, sealed or referred to twice', () => {
    const shared = Object.freeze({ a: 1 });
    const copy = detach(Object.freeze([shared, shared, Object.seal({ b: shared })])) as unknown[];
    expect(copy).toEqual([{ a: 1 }, { a: 1 }, { b: { a: 1 } }]);
    expect(copy[0]).not.toBe(copy[1]);
  });

  it('keeps keys of Object.prototype as own members', () => {
    const copy = detach({ constructor: 1, toString: 2, valueOf: 3 }) as Record<string, unknown>;
    expect(Object.entries(copy)).toEqual([
      ['constructor', 1],
      ['toString', 2],
      ['valueOf', 3],
    ]);
  });

  class Money {
    amount = 1;
  }
  class Amounts extends Array<number> {}
  const revoked = Proxy.revocable({}, {});
  revoked.revoke();
  const cyclicObject: Record<string, unknown> = { a: {} };
  (cyclicObject.a as Record<string, unknown>).b = cyclicObject;
  const cyclicArray: unknown[] = [1];
  cyclicArray.push([cyclicArray]);
  const nested = (levels: number) => {
    let value: unknown = 1;
    for (let level = 0; level < levels; level++) value = level % 2 === 0 ? [value] : { a: value };
    return value;
  };
  const getter = { get: counted(1), enumerable: true, configurable: true };

  const refused: [name: string, make: () => unknown, reason: HostileValueReason, path?: string][] = [
    ['a proxy of an object', () => trap({ a: 1 }), 'proxy'],
    ['a proxy of an array', () => ({ list: trap([1]) }), 'proxy', '/list'],
    ['a proxy of a function', () => trap(() => 1), 'type'],
    ['a proxy of a proxy', () => [trap(trap({}))], 'proxy', '/0'],
    ['a revoked proxy', () => [revoked.proxy], 'proxy', '/0'],
    ['an object whose prototype is a proxy', () => Object.create(trap({})), 'prototype'],
    ['an array whose prototype is a proxy', () => Object.setPrototypeOf([1], trap([])), 'prototype'],
    ['a getter', () => Object.defineProperty({}, 'a', getter), 'accessor', '/a'],
    ['a setter', () => Object.defineProperty({}, 'a', { set: counted(undefined), enumerable: true }), 'accessor', '/a'],
    ['a hidden getter', () => Object.defineProperty({}, 'a', { get: counted(1) }), 'accessor', '/a'],
    ['a getter of an array', () => Object.defineProperty([1, 2], 1, getter), 'accessor', '/1'],
    ['a getter called __proto__', () => Object.defineProperty({}, '__proto__', getter), 'forbidden-key', '/__proto__'],
    ['a class instance', () => ({ price: new Money() }), 'prototype', '/price'],
    ['an inherited member', () => Object.create({ a: 1 }), 'prototype'],
    ['an array of another class', () => new Amounts(), 'prototype'],
    ['an array without a prototype', () => Object.setPrototypeOf([1], null), 'prototype'],
    ['an object posing as an array', () => Object.create(Array.prototype), 'prototype'],
    ['a date', () => new Date(0), 'prototype'],
    ['a map', () => new Map([['a', 1]]), 'prototype'],
    ['a set', () => new Set([1]), 'prototype'],
    ['bytes', () => new Uint8Array([1]), 'prototype'],
    ['a regular expression', () => /a/, 'prototype'],
    ['an error', () => new Error('a'), 'prototype'],
    ['a boxed number', () => Object(1), 'prototype'],
    ['a promise', () => Promise.resolve(1), 'prototype'],
    ['a symbol key', () => ({ [Symbol('s')]: 1 }), 'symbol-key'],
    ['a symbol key with a getter', () => Object.defineProperty({}, Symbol.toPrimitive, getter), 'symbol-key'],
    [
      'an iterator of its own',
      () => Object.assign([1], { [Symbol.iterator]: counted([][Symbol.iterator]()) }),
      'symbol-key',
    ],
    ['a hidden property', () => Object.defineProperty({}, 'a', { value: 1 }), 'non-enumerable', '/a'],
    ['a hidden element', () => Object.defineProperty([1], 0, { value: 1, enumerable: false }), 'non-enumerable', '/0'],
    // eslint-disable-next-line no-sparse-arrays
    ['a hole', () => [1, , 3], 'array-shape'],
    ['a very long sparse array', () => new Array(2 ** 32 - 1), 'array-shape'],
    ['an array with a property', () => Object.assign([1], { extra: 1 }), 'array-shape'],
    // eslint-disable-next-line no-sparse-arrays
    ['a hole made up for by a property', () => Object.assign([1, , 3], { extra: 1 }), 'array-shape', '/1'],
    ['an array with a getter beside', () => Object.defineProperty([1], 'extra', getter), 'array-shape'],
    ['an own __proto__', () => JSON.parse('{"a":{"__proto__":{}}}'), 'forbidden-key', '/a/__proto__'],
    ['toJSON', () => ({ a: 1, toJSON: counted(1) }), 'type', '/toJSON'],
    ['toJSON behind a getter', () => Object.defineProperty({}, 'toJSON', getter), 'accessor', '/toJSON'],
    ['valueOf and toString', () => ({ valueOf: counted(1), toString: counted('1') }), 'type', '/valueOf'],
    ['a function', () => counted(1), 'type'],
    ['a bigint', () => [1n], 'type', '/0'],
    ['a symbol', () => [Symbol('s')], 'type', '/0'],
    ['undefined', () => undefined, 'type'],
    ['an undefined member', () => ({ a: undefined }), 'type', '/a'],
    ['NaN', () => [NaN], 'number', '/0'],
    ['infinity', () => Infinity, 'number'],
    ['a fraction', () => ({ a: 1.5 }), 'number', '/a'],
    ['an integer beyond 2^53-1', () => -(2 ** 53), 'number'],
    ['minus zero', () => [[-0]], 'negative-zero', '/0/0'],
    ['a lone surrogate', () => ['a\ud83d'], 'lone-surrogate', '/0'],
    ['a lone surrogate in a key', () => ({ '\ude00': 1 }), 'lone-surrogate', '/*'],
    ['a cycle of objects', () => cyclicObject, 'cycle', '/a/b'],
    ['a cycle of arrays', () => cyclicArray, 'cycle', '/1/0'],
    ['33 levels', () => nested(33), 'depth', '/0/a'.repeat(16)],
  ];
  it.each(refused)('refuses %s and runs nothing of it', (_name, make, reason, path) => {
    const error = refusal(make());
    expect(error).toBeInstanceOf(TypeError);
    expect({ reason: error.reason, path: error.path }).toEqual({ reason, path });
  });

  it('accepts 32 levels', () => {
    expect(detach(nested(32))).toEqual(nested(32));
  });

  it('refuses what a few references blow up into, in bounded time', () => {
    let value: unknown = 'lol';
    for (let level = 0; level < 30; level++) value = [value, value];
    expect(refusal(value).reason).toBe('size');
  });

  it('runs no setter that somebody has put on Object.prototype', () => {
    Object.defineProperty(Object.prototype, 'polluted', { configurable: true, set: counted(undefined) });
    try {
      const value = Object.defineProperty({}, 'polluted', { value: 1, enumerable: true });
      expect(Object.getOwnPropertyDescriptor(detach(value), 'polluted')?.value).toBe(1);
    } finally {
      delete (Object.prototype as { polluted?: unknown }).polluted;
    }
  });

  it('takes no inherited value for that of an accessor', () => {
    const live = Object.defineProperty({}, 'a', getter);
    Object.defineProperty(Object.prototype, 'value', { configurable: true, value: 'inherited' });
    let reason: HostileValueReason;
    try {
      reason = refusal(live).reason;
    } finally {
      delete (Object.prototype as { value?: unknown }).value;
    }
    expect(reason).toBe('accessor');
  });

  it('never shows the value', () => {
    const secret = 'Zm9vYmFyYmF6cXV4MTIzNDU2Nzg5MGFiY2RlZmdoaWo';
    for (const value of [{ [secret]: 1.5 }, { a: `${secret}\ud83d` }, { [secret]: { [secret]: undefined } }]) {
      const error = refusal(value);
      expect(`${error.message} ${error.stack} ${JSON.stringify(error)}`).not.toContain(secret);
    }
  });
});

describe('isProxy', () => {
  it('tells proxies without running a trap', () => {
    expect([trap({}), trap([]), trap(() => 1), revoked()].map(isProxy)).toEqual([true, true, true, true]);
    expect([{}, [], () => 1, null, 'a', undefined].some(isProxy)).toBe(false);
  });

  function revoked(): object {
    const { proxy, revoke } = Proxy.revocable({}, {});
    revoke();
    return proxy;
  }
});

describe('where there is no Node', () => {
  it('still detaches, and what a proxy shows is copied and checked as anything else', async () => {
    vi.resetModules();
    const original = process.getBuiltinModule;
    Object.defineProperty(process, 'getBuiltinModule', { value: undefined, configurable: true, writable: true });
    let portable: typeof Detach;
    try {
      portable = await import('../../src/contract/detach.js');
    } finally {
      process.getBuiltinModule = original;
    }
    expect(portable.isProxy(trap({}))).toBe(false);
    const target = { a: [1, { b: 'é' }] };
    const copy = portable.detach(new Proxy(target, { get: counted(undefined) }));
    expect(copy).toEqual(target);
    expect(isDeeplyFrozen(copy)).toBe(true);
    const lying = new Proxy({ a: 1 }, { getPrototypeOf: () => Money.prototype });
    expect(() => portable.detach(lying)).toThrow(TypeError);
  });

  class Money {
    amount = 1;
  }
});
