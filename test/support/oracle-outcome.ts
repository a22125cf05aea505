/** What a client may be told of a request during which something broke, and what must be true when it asks again. */
import type pg from 'pg';
import type { ActRequest, Count } from './oracle-act.js';
import { canonicalText } from './oracle-digest.js';
import type { RawAnswer } from './oracle-http.js';

/** Counts rows past the service, with the owner's own connection. */
export async function countRows(database: pg.Pool | pg.Client, table: string, where: string): Promise<number> {
  const { rows } = await database.query<{ count: string }>(
    `select count(*) as count from control.${table} where ${where}`,
  );
  return Number(rows[0]?.count);
}

/** Whether the first answer may be given where nobody knows more; `refused-for-good` is never one of them. */
export function judgeFirstAnswer(answer: RawAnswer, mutation: boolean): string[] {
  if (answer.status === 200 || answer.status === 0) return [];
  const { code, retrySafe, mutationOutcome } = answer.body ?? {};
  if (answer.status !== 503 || retrySafe !== true) return [`was told ${answer.status} ${answer.text}`];
  if (code === 'outcome-unknown')
    return mutationOutcome === 'unknown' ? [] : [`outcome-unknown says ${mutationOutcome}`];
  if (code !== 'unavailable') return [`was told ${answer.text}`];
  // "Not applied" is a promise; a report says nothing.
  return !mutation || mutationOutcome === 'not-applied' ? [] : [`unavailable says ${mutationOutcome}`];
}

/**
 * Sends the request again after a fault: it has to be done now, exactly once, whatever the first answer was. Gives what is
 * wrong.
 */
export async function judgeRepetition(database: pg.Pool, request: ActRequest, first: RawAnswer): Promise<string[]> {
  const faults = judgeFirstAnswer(first, request.mutationId !== null);
  const before = await effects(database, request);
  faults.push(...before.faults.map((fault) => `before the repetition, ${fault}`));
  if (first.status === 200 && !before.applied) faults.push('a 200 was answered, and nothing is there');
  if (first.body?.mutationOutcome === 'not-applied' && before.applied)
    faults.push('"not-applied" was answered, and it is there');
  const again = await request.send();
  if (again.status !== 200) return [...faults, `the repetition was answered ${again.status} ${again.text}`];
  if (request.mutationId !== null) faults.push(...judgeReplay(again, before.applied));
  if (first.status === 200 && !sameAnswer(first, again)) faults.push(`two answers: ${first.text} and ${again.text}`);
  const after = await effects(database, request);
  faults.push(...after.faults);
  if (!after.applied) faults.push('a 200 was answered to the repetition, and nothing is there');
  return [...faults, ...((await request.judge?.(database, first, again)) ?? [])];
}

function judgeReplay({ body }: RawAnswer, applied: boolean): string[] {
  const faults: string[] = [];
  if (body.replayed !== applied) faults.push(`the repetition says replayed: ${body.replayed}, applied was ${applied}`);
  if (body.current !== true) faults.push(`the repetition says current: ${body.current}, and nothing has followed it`);
  if (applied && (body.secrets ?? []).length > 0) faults.push('a replay shows secrets');
  return faults;
}

interface Effects {
  readonly applied: boolean;
  /** What is there neither once nor not at all, or only a part of the whole. */
  readonly faults: readonly string[];
}

async function effects(database: pg.Pool, { mutationId, counts }: ActRequest): Promise<Effects> {
  const audit: Count[] = mutationId === null ? [] : [{ table: 'audit_rows', where: `mutation_id = '${mutationId}'` }];
  const all = [...audit, ...counts];
  // In one statement, so that all are of one moment.
  const { rows } = await database.query<Record<string, string>>(
    `select ${all.map(({ table, where }, index) => `(select count(*) from control.${table} where ${where}) as "${index}"`).join()}`,
  );
  const faults: string[] = [];
  const seen = new Set<boolean>();
  for (const [index, { table, where, before = 0, added = 1 }] of all.entries()) {
    const count = Number(rows[0]?.[index]);
    if (count !== before && count !== before + added)
      faults.push(`${table} where ${where}: ${count} rows, not ${before} or ${before + added}`);
    else if (added > 0) seen.add(count > before);
  }
  if (seen.size > 1) faults.push(`a part is there and a part is not: ${all.map(({ table }) => table).join(', ')}`);
  return { applied: seen.has(true), faults };
}

/** Equal but for what a repetition says of itself. */
function sameAnswer(first: RawAnswer, again: RawAnswer): boolean {
  const bare = ({ body }: RawAnswer): string => {
    const { replayed: _replayed, current: _current, secrets: _secrets, ...rest } = body;
    return canonicalText(rest);
  };
  return bare(first) === bare(again);
}
