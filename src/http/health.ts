import { sql } from 'kysely';
import type { FastifyInstance } from 'fastify';
import type { IReadiness } from '../contract/health.js';
import type { MigrationFile } from '../db/migration-files.js';
import { qb } from '../db/query.js';
import { query } from '../db/transaction.js';
import type { Deps } from '../deps.js';

/** What is known of this process beside its database. */
export interface ProcessState {
  /** Whether the service's login can't change what is immutable (`full`), or only triggers refuse it. */
  readonly separation: IReadiness['separation'];
  readonly database: IReadiness['database'];
  /** The program's migrations. */
  readonly migrations: readonly Pick<MigrationFile, 'number' | 'sha256'>[];
  /** True once the shutdown began: no new work should be sent here. */
  readonly stopping: () => boolean;
}

/** `GET /health`: the process is up. `GET /readiness`: it can do its work; 503 where it can't. */
export function bindHealth(app: FastifyInstance, deps: Deps, state: ProcessState): void {
  const config = { caller: 'public' } as const;
  let looking: Promise<IReadiness> | undefined;
  app.get('/health', { config }, (_request, reply) => reply.type('application/json').send('{"status":"up"}'));
  app.get('/readiness', { config }, async (request, reply) => {
    // Anybody may ask, so those who ask at once share one look.
    looking ??= look(deps, state, (error) => request.log.warn({ err: error }, 'not ready')).finally(() => {
      looking = undefined;
    });
    const readiness = await looking;
    return reply
      .code(readiness.ready ? 200 : 503)
      .header('cache-control', 'no-store')
      .type('application/json')
      .send(JSON.stringify(readiness));
  });
}

async function look(deps: Deps, state: ProcessState, report: (error: unknown) => void): Promise<IReadiness> {
  const migrations = await compareMigrations(deps, state).catch((error: unknown) => {
    report(error);
    return 'unknown' as const;
  });
  const stopping = state.stopping();
  return {
    ready: !stopping && (migrations === 'exact' || migrations === 'unreadable'),
    stopping,
    reachable: migrations !== 'unknown',
    migrations,
    separation: state.separation,
    database: state.database,
  };
}

const mayRead = sql<{ readable: boolean }>`
  select has_table_privilege('control.migrations', 'select') as readable`.compile(qb);

const appliedMigrations = sql<{ number: number; sha256: string }>`
  select number, sha256 from control.migrations order by number`.compile(qb);

async function compareMigrations(deps: Deps, state: ProcessState): Promise<IReadiness['migrations']> {
  const [permission] = await query(deps.db, mayRead);
  // They were compared by the owner's login when the process started.
  if (permission?.readable !== true) return 'unreadable';
  const applied = await query(deps.db, appliedMigrations);
  const same =
    applied.length === state.migrations.length &&
    applied.every((row, index) => row.sha256 === state.migrations[index]?.sha256);
  return same ? 'exact' : 'different';
}
