/** Exported evidence in memory, and what a careful forger makes of it. */
import { createHash } from 'node:crypto';
import { canonicalizeStrictJson } from '../../src/contract/canonical-json.js';
import { exportEvidence } from '../../src/features/evidence/export.js';
import type { EvidenceLine } from '../../src/features/evidence/load.js';
import { isRefused } from '../../src/refusal.js';
import type { TestService } from './service.js';

export async function exportedText(deps: TestService['deps'], clusterId: string): Promise<string> {
  let text = '';
  const exported = await exportEvidence(deps, clusterId, async (chunks) => {
    text = '';
    for await (const chunk of chunks) text += chunk;
  });
  if (isRefused(exported)) throw new Error(exported.problem.code);
  return text;
}

/** As the file's reader gives them. */
export async function* linesOf(text: string): AsyncGenerator<EvidenceLine, void, undefined> {
  await Promise.resolve();
  const lines = text.split('\n');
  const rest = lines.pop()!;
  for (const line of lines) yield { bytes: Buffer.from(line), ended: true };
  if (rest !== '') yield { bytes: Buffer.from(rest), ended: false };
}

export type ForgedRow = Record<string, string | null>;

/** Null takes the row out. Gives the new text with header and trailer made to fit, and the line of the first edited row. */
export function forge(
  text: string,
  table: string,
  which: (row: ForgedRow) => boolean,
  edit: (row: ForgedRow) => ForgedRow | null,
): { readonly text: string; readonly line: number; readonly row: ForgedRow } {
  const lines = text.split('\n').slice(0, -2);
  const at = lines.findIndex((line, index) => {
    if (index === 0) return false;
    const read = JSON.parse(line) as { table: string; row: ForgedRow };
    return read.table === table && which(read.row);
  });
  if (at === -1) throw new Error(`no such row of ${table}`);
  const { row } = JSON.parse(lines[at]!) as { row: ForgedRow };
  const edited = edit({ ...row });
  if (edited === null) lines.splice(at, 1);
  else lines[at] = canonicalizeStrictJson({ row: edited, table });
  return { text: sealed(lines), line: at + 1, row };
}

/** Lines without a trailer, with the counts of the header and the trailer made anew. */
export function sealed(lines: readonly string[]): string {
  const header = JSON.parse(lines[0]!) as { counts: Record<string, number> };
  const counts = Object.fromEntries(Object.keys(header.counts).map((table) => [table, 0]));
  for (const line of lines.slice(1)) counts[(JSON.parse(line) as { table: string }).table]! += 1;
  const body = [canonicalizeStrictJson({ ...header, counts }), ...lines.slice(1)].map((line) => `${line}\n`).join('');
  const digest = `sha256:${createHash('sha256').update(body).digest('hex')}`;
  return `${body}${canonicalizeStrictJson({ trailer: { counts, digest, lines: lines.length } })}\n`;
}
