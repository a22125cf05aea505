/** Where in a file the rows stand that findings name. */
import type { Finding } from '../verify/finding.js';
import { readRow } from './format.js';
import { type EvidenceLine, readLine } from './load.js';

/** Reads the whole file once more. A row that is missing has no line. */
export async function findLines(
  lines: AsyncIterable<EvidenceLine>,
  findings: readonly Finding[],
): Promise<ReadonlyMap<Finding, number>> {
  const found = new Map<Finding, number>();
  // By table, then by which columns the key has: not every finding knows a row's whole key.
  const wanted = new Map<string, Map<string, Finding>>();
  for (const finding of findings) {
    const columns = Object.keys(finding.key).sort();
    const group = `${finding.table} ${columns.join()}`;
    const text = textOf(columns, finding.key);
    wanted.set(group, (wanted.get(group) ?? new Map<string, Finding>()).set(text, finding));
  }
  const groups = [...wanted].map(([group, byKey]) => {
    const [table, columns] = group.split(' ') as [string, string];
    return { table, columns: columns.split(','), byKey };
  });
  let line = 0;
  for await (const { bytes } of lines) {
    line += 1;
    const read = readRow(readLine(bytes));
    if (typeof read === 'string') continue;
    for (const { table, columns, byKey } of groups) {
      if (table !== read.table.name) continue;
      const finding = byKey.get(textOf(columns, read.row));
      if (finding !== undefined && !found.has(finding)) found.set(finding, line);
    }
  }
  return found;
}

function textOf(columns: readonly string[], key: Readonly<Record<string, string | number | null>>): string {
  return columns.map((column) => String(key[column] ?? '')).join('\0');
}
