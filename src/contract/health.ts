/** What `GET /health` and `GET /readiness` answer. */
import { type Static, Type } from '@sinclair/typebox';
import { closed, oneOf } from './schema.js';

/** The process is up. */
export const Health = closed({ status: Type.Literal('up') });

export const Readiness = closed({
  /** It can do its work; the answer's status is 503 where it can't. */
  ready: Type.Boolean(),
  stopping: Type.Boolean(),
  /** Whether the database answers. */
  reachable: Type.Boolean(),
  /** `exact`: the database has the program's migrations and no others. `unreadable`: this login may not look. */
  migrations: oneOf('exact', 'different', 'unreadable', 'unknown'),
  /** Whether the service's login can't change what is immutable (`full`), or only triggers refuse it. */
  separation: oneOf('full', 'reduced'),
  database: oneOf('embedded', 'external'),
});
export type IReadiness = Static<typeof Readiness>;
