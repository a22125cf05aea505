/** Text for a terminal. What the service, a file or Docker says is shown, and never obeyed. */

/**
 * Characters that a terminal acts on or that reorder what is read: C0, DEL and C1 controls, line and paragraph separators,
 * marks and embeddings of writing direction, and halves of surrogate pairs.
 */
const unprintable =
  // eslint-disable-next-line no-control-regex
  /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]|\p{Surrogate}/gu;

/** The text on one line, with what is unprintable as `\u001b`. */
export function printable(text: string): string {
  return text.replace(unprintable, escaped);
}

/** One line of JSON, equal to what it was made of, that a terminal can be shown: `JSON.stringify` escapes C0 alone. */
export function jsonText(value: unknown): string {
  return JSON.stringify(value).replace(unprintable, escaped);
}

function escaped(character: string): string {
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}

/** A title, and what an item shows under it; null shows as a dash. */
export type Column<T> = readonly [title: string, value: (item: T) => string | number | boolean | null | undefined];

/** Aligned columns under their titles, two spaces apart, one line per item; `nothing` where there is none. */
export function table<T>(items: readonly T[], columns: readonly Column<T>[], nothing = 'none'): string[] {
  if (items.length === 0) return [nothing];
  const cells = [
    columns.map(([title]) => title.toUpperCase()),
    ...items.map((item) => columns.map(([, value]) => printable(String(value(item) ?? '-')))),
  ];
  const widths = columns.map((_, at) => cells.reduce((widest, line) => Math.max(widest, width(line[at] ?? '')), 0));
  return cells.map((line) =>
    line
      .map((cell, at) => cell + ' '.repeat((widths[at] ?? 0) - width(cell)))
      .join('  ')
      .trimEnd(),
  );
}

/** `name  value` lines, the values below each other. */
export function fields(rows: readonly (readonly [name: string, value: string | number])[]): string[] {
  const widest = rows.reduce((most, [name]) => Math.max(most, width(name)), 0);
  return rows.map(([name, value]) => `${name}${' '.repeat(widest - width(name) + 2)}${printable(String(value))}`);
}

/** Columns that a text takes: code points without combining marks. Wide East Asian characters count one. */
function width(text: string): number {
  return [...text.replace(/\p{Mark}/gu, '')].length;
}
