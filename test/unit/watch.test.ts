import { describe, expect, it } from 'vitest';
import { compareMarks, decodeCursor, encodeCursor, type Marks } from '../../src/features/watch/watch.js';

const marks: Marks = { life: 'life-1', runtime: 2, aggregate: 5, derivation: 7, coverage: '12.3' };
const cursorOf = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url');

describe('a cursor', () => {
  it('is read as it was written', () => {
    expect(decodeCursor(encodeCursor(marks))).toEqual(marks);
    const longest = { ...marks, life: 'l'.repeat(128), coverage: `${'9'.repeat(19)}.${'9'.repeat(19)}` };
    const written = encodeCursor({
      ...longest,
      runtime: Number.MAX_SAFE_INTEGER,
      aggregate: Number.MAX_SAFE_INTEGER,
      derivation: Number.MAX_SAFE_INTEGER,
    });
    // As many characters as a request may have.
    expect(written.length).toBeLessThanOrEqual(512);
  });

  it.each([
    ['empty', ''],
    ['no base64', '%%%'],
    ['no JSON', Buffer.from('{').toString('base64url')],
    ['an object', cursorOf({ life: 'life-1' })],
    ['null', cursorOf(null)],
    ['too short', cursorOf(['life-1', 1, 2, 3])],
    ['too long', cursorOf(['life-1', 1, 2, 3, '1.1', 4])],
    ['a number as life', cursorOf([1, 1, 2, 3, '1.1'])],
    ['text as generation', cursorOf(['life-1', '1', 2, 3, '1.1'])],
    ['a fraction', cursorOf(['life-1', 1.5, 2, 3, '1.1'])],
    ['beyond 2^53', Buffer.from('["life-1",9007199254740993,2,3,"1.1"]').toString('base64url')],
    ['infinite', Buffer.from('["life-1",1e999,2,3,"1.1"]').toString('base64url')],
    ['a number as coverage', cursorOf(['life-1', 1, 2, 3, 4])],
    ['not UTF-8', Buffer.from([0xff, 0xfe, 0x00]).toString('base64url')],
  ])('that is %s is none of ours', (_name, text) => {
    expect(decodeCursor(text)).toBeNull();
    expect(compareMarks(decodeCursor(text), marks)).toEqual({ reset: true, changed: [] });
  });
});

describe('what changed', () => {
  it('is nothing where all marks are the same', () => {
    expect(compareMarks(marks, { ...marks })).toEqual({ reset: false, changed: [] });
  });

  it('names each kind alone, and all of them together', () => {
    const later = { runtime: 3, aggregate: 6, derivation: 8, coverage: '13.3' } as const;
    for (const kind of ['runtime', 'aggregate', 'derivation', 'coverage'] as const) {
      expect(compareMarks(marks, { ...marks, [kind]: later[kind] })).toEqual({ reset: false, changed: [kind] });
    }
    expect(compareMarks(marks, { ...marks, ...later }).changed).toEqual([
      'runtime',
      'aggregate',
      'derivation',
      'coverage',
    ]);
  });

  it('is everything after another life, or after a database that was led back', () => {
    expect(compareMarks({ ...marks, life: 'life-2' }, marks).reset).toBe(true);
    expect(compareMarks(null, marks).reset).toBe(true);
    for (const kind of ['runtime', 'aggregate', 'derivation'] as const) {
      expect(compareMarks({ ...marks, [kind]: marks[kind] + 1 }, marks)).toEqual({ reset: true, changed: [] });
    }
    // Coverage goes down, too, when a reporter begins again.
    expect(compareMarks({ ...marks, coverage: '99.9' }, marks)).toEqual({ reset: false, changed: ['coverage'] });
  });
});
