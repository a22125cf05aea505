/** Recording what an act passes, and striking it at one of the points. */
import type pg from 'pg';
import { isBackgroundPoint, type PointHook } from './kill-points.js';
import type { Act } from './oracle-act.js';
import { judgeRepetition } from './oracle-outcome.js';

/** From the first statement to the confirmation of COMMIT. */
export async function recordPoints(act: Act, hook: PointHook): Promise<string[]> {
  const request = await act.next();
  const passed = await hook.record(async () => {
    const answer = await request.send();
    if (answer.status !== 200) throw new Error(`${act.name}: ${answer.status} ${answer.text}`);
  });
  return passed.filter((point) => !isBackgroundPoint(point));
}

export interface Strike {
  readonly hook: PointHook;
  /** The tables' owner. */
  readonly database: pg.Pool;
  /** Done at the point. */
  readonly fault: () => void;
  /** Done before the request is repeated. */
  readonly mend?: () => Promise<void>;
}

/** Does the act with the fault at the point, then again; gives what is wrong, also where the point was not passed. */
export async function strike(act: Act, point: string, { hook, database, fault, mend }: Strike): Promise<string[]> {
  const request = await act.next();
  hook.arm(point, fault);
  const first = await request.send();
  const hit = hook.disarm();
  await mend?.();
  const faults = hit ? await judgeRepetition(database, request, first) : ['was not hit'];
  return faults.map((each) => `${act.name}, ${point}: ${each}`);
}
