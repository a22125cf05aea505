import { describe, expect, it } from 'vitest';
import { fields, jsonText, printable, table } from '../../src/cli/terminal-text.js';

const hostile = 'a\u001b[2Jb\u009b31mc\rd\ne\u0007\u202ef\u2066\u007f';
// eslint-disable-next-line no-control-regex
const controls = /[\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/;

describe('text for a terminal', () => {
  it('shows controls and turns of writing direction, and obeys none', () => {
    expect(printable(hostile)).toBe('a\\u001b[2Jb\\u009b31mc\\u000dd\\u000ae\\u0007\\u202ef\\u2066\\u007f');
    expect(printable('Grüße, 世界 🚢 e\u0301')).toBe('Grüße, 世界 🚢 e\u0301');
    expect(printable('half \ud800 of a pair')).toBe('half \\ud800 of a pair');
  });

  it('as JSON is the same value, without controls', () => {
    const value = { name: hostile, [hostile]: ['Grüße', null, 1, true] };
    const text = jsonText(value);
    expect(text).not.toMatch(controls);
    expect(JSON.parse(text)).toEqual(value);
  });

  it('in a table stays in its cell, below its title', () => {
    const items = [
      { name: 'a', count: 10 as number | null },
      { name: `x\n${hostile}`, count: null },
      { name: 'e\u0301\u0301', count: 0 },
    ];
    const lines = table(items, [
      ['name', (item) => item.name],
      ['count', (item) => item.count],
      ['more', () => ''],
    ]);
    expect(lines).toHaveLength(4);
    expect(lines.join('')).not.toMatch(controls);
    const at = lines[0]!.indexOf('COUNT');
    expect(lines[1]!.slice(at)).toBe('10');
    expect(lines[2]!.slice(at)).toBe('-');
    expect([...lines[3]!].slice(at + 2).join('')).toBe('0');
    expect(lines.every((line) => line === line.trimEnd())).toBe(true);
  });

  it('says what there is none of', () => {
    expect(table([], [['name', () => 'x']], 'no nodes')).toEqual(['no nodes']);
  });

  it('in fields has its values below each other', () => {
    expect(
      fields([
        ['a', 'x\u001b'],
        ['long', 3],
      ]),
    ).toEqual(['a     x\\u001b', 'long  3']);
  });
});
