/** What a client may be told of a request during which something broke, and what must be true when it asks again. */
import type pg from 'pg';
import type { ActRequest } from './oracle-acts.js';
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
  if (first.status === 200 && !before.applied) faults.push('a 200 was answered, and nothing is there');
  if (first.body?.mutationOutcome === 'not-applied' && before.applied)
    faults.push('"not-applied" was answered, and it is there');
  const again = await request.send();
  if (again.status !== 200) return [...faults, `the repetition was answered ${again.status} ${again.text}`];
  if (request.mutationId !== null && again.body.replayed !== before.applied) {
    faults.push(`the repetition says replayed: ${again.body.replayed}, applied was ${before.applied}`);
  }
  if (first.status === 200 && !sameAnswer(first, again)) faults.push(`two answers: ${first.text} and ${again.text}`);
  const after = await effects(database, request);
  if (after.records !== (request.mutationId === null ? 0 : 1)) faults.push(`${after.records} audit rows`);
  if (after.counted !== null && after.counted !== 1) faults.push(`${after.counted} effects`);
  return faults;
}

interface Effects {
  readonly records: number;
  readonly counted: number | null;
  readonly applied: boolean;
}

async function effects(database: pg.Pool, { mutationId, count }: ActRequest): Promise<Effects> {
  const records = mutationId === null ? 0 : await countRows(database, 'audit_rows', `mutation_id = '${mutationId}'`);
  const counted = count === null ? null : await countRows(database, count.table, count.where);
  return { records, counted, applied: mutationId === null ? (counted ?? 0) > 0 : records > 0 };
}

/** Equal but for what a repetition says of itself. */
function sameAnswer(first: RawAnswer, again: RawAnswer): boolean {
  const bare = ({ body }: RawAnswer): string => {
    const { replayed: _replayed, current: _current, secrets: _secrets, ...rest } = body;
    return canonicalText(rest);
  };
  return bare(first) === bare(again);
}
