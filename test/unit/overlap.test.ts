import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { volumeNameMatcher } from '../../src/features/volume-handoff/derive-node.js';
import { forEachOverlap, normalizePath } from '../../src/features/volume-handoff/overlap.js';

describe('normalizePath', () => {
  it.each([
    ['/', '/'],
    ['//', '/'],
    ['', '/'],
    ['.', '/'],
    ['..', '/'],
    ['/..', '/'],
    ['/../../a', '/a'],
    ['/a', '/a'],
    ['/a/', '/a'],
    ['//a///b//', '/a/b'],
    ['/a/./b/.', '/a/b'],
    ['/a/b/..', '/a'],
    ['/a/b/../../..', '/'],
    ['/a/../b/../c', '/c'],
    ['/a/...', '/a/...'],
    ['/a/..b', '/a/..b'],
    ['/a b/ c', '/a b/ c'],
    ['/ä/日本/😀', '/ä/日本/😀'],
    ['a/b', '/a/b'],
    ['/a\\b', '/a\\b'],
  ])('%j is %j', (path, expected) => {
    expect(normalizePath(path)).toBe(expected);
  });

  it('is settled after once, and spelled from the root without idle segments', () => {
    const segment = fc.constantFrom('', '.', '..', 'a', 'b', '...', 'ä');
    fc.assert(
      fc.property(fc.array(segment, { maxLength: 8 }), (segments) => {
        const normal = normalizePath(segments.join('/'));
        expect(normalizePath(normal)).toBe(normal);
        expect(normal).toMatch(/^\/$|^(\/[^/]+)+$/);
        expect(normal.split('/').filter((each) => each === '.' || each === '..')).toEqual([]);
      }),
    );
  });
});

describe('forEachOverlap', () => {
  const pairs = (...paths: string[]) => {
    const found: string[] = [];
    forEachOverlap(
      paths.map((path, index) => ({ item: `${index}:${path}`, path })),
      (outer, inner) => found.push(`${outer} ⊇ ${inner}`),
    );
    return found.sort();
  };

  it('compares whole segments', () => {
    expect(pairs('/data', '/database', '/data-1', '/data.d', '/dat')).toEqual([]);
    expect(pairs('/data', '/data/a', '/database')).toEqual(['0:/data ⊇ 1:/data/a']);
  });

  it('finds a nested path though siblings with smaller characters sort between', () => {
    expect(pairs('/a', '/a-b', '/a.b', '/a/b', '/a!')).toEqual(['0:/a ⊇ 3:/a/b']);
  });

  it('reports equal paths once', () => {
    expect(pairs('/a', '/a')).toEqual(['0:/a ⊇ 1:/a']);
    expect(pairs('/a', '/a', '/a')).toHaveLength(3);
  });

  it('goes through all depths and knows the root', () => {
    expect(pairs('/a/b/c', '/', '/a', '/a/b')).toEqual([
      '1:/ ⊇ 0:/a/b/c',
      '1:/ ⊇ 2:/a',
      '1:/ ⊇ 3:/a/b',
      '2:/a ⊇ 0:/a/b/c',
      '2:/a ⊇ 3:/a/b',
      '3:/a/b ⊇ 0:/a/b/c',
    ]);
    expect(pairs('/', '/')).toEqual(['0:/ ⊇ 1:/']);
  });

  it('finds what two loops find', () => {
    const path = fc
      .array(fc.constantFrom('a', 'b', 'a-', 'a!', '0', 'é', '😀', '\uffff'), { maxLength: 4 })
      .map((segments) => `/${segments.join('/')}`);
    fc.assert(
      fc.property(fc.array(path, { maxLength: 12 }), (paths) => {
        const expected: string[] = [];
        paths.forEach((outer, i) =>
          paths.forEach((inner, j) => {
            const a = outer === '/' ? [] : outer.slice(1).split('/');
            const b = inner === '/' ? [] : inner.slice(1).split('/');
            const nested = a.length < b.length && a.every((segment, index) => segment === b[index]);
            if (nested || (i < j && outer === inner)) expected.push(`${i}:${outer} ⊇ ${j}:${inner}`);
          }),
        );
        const unordered = (found: string[]) =>
          found.map((each) => {
            const [left = '', right = ''] = each.split(' ⊇ ');
            return left.slice(left.indexOf(':')) === right.slice(right.indexOf(':'))
              ? [left, right].sort().join(' ⊇ ')
              : each;
          });
        expect(unordered(pairs(...paths)).sort()).toEqual(unordered(expected).sort());
      }),
    );
  });
});

describe('volumeNameMatcher', () => {
  it('takes a name without a template as it is', () => {
    const matches = volumeNameMatcher('a.b+c');
    expect(['a.b+c', 'aXb+c', 'a.b+cd', ''].map(matches)).toEqual([true, false, false, false]);
  });

  it('stands any text, but some, for each template', () => {
    const matches = volumeNameMatcher('redis-data-{{.Task.Slot}}');
    expect(['redis-data-1', 'redis-data-12', 'redis-data-', 'redis-data', 'x-redis-data-1'].map(matches)).toEqual([
      true,
      true,
      false,
      false,
      false,
    ]);
    const several = volumeNameMatcher('{{.Service.Name}}-{{.Node.Hostname}}-{{.Task.Slot}}');
    expect(['broker-manager1-2', 'broker-a-b-c', 'broker-2', '--'].map(several)).toEqual([true, true, false, false]);
  });

  it('takes no character of the rest for a pattern', () => {
    const matches = volumeNameMatcher('(a|b)[c]*.{{ index .Service.Labels "x" }}$^');
    expect(['(a|b)[c]*.1$^', 'a.1', 'b[c].1', '(a|b)[c]*x1$^'].map(matches)).toEqual([true, false, false, false]);
  });

  it('takes an unclosed template as text, and two in a row as one or more characters each', () => {
    expect(['a{{b', 'ab'].map(volumeNameMatcher('a{{b'))).toEqual([true, false]);
    expect(['x', 'xy'].map(volumeNameMatcher('{{a}}{{b}}'))).toEqual([false, true]);
  });
});
