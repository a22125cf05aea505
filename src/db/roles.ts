import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';

/**
 * The group roles that the migrations grant to. `service` may do what the service does, which excludes changing what is
 * immutable; `operator` may read the views. Roles belong to the whole Postgres cluster, so other databases of it share them.
 */
export const SERVICE_ROLE = 'fleet_cutover_service';
export const OPERATOR_ROLE = 'fleet_cutover_operator';

/** Roles that another session changes in the same moment fail with "tuple concurrently updated". */
const MAXIMUM_TRIES = 20;

/**
 * Makes the group roles where they are missing, and the service's login a member of its one, as far as the owner may: one
 * who may not leaves everything as it is. Each statement stands alone, so that another database's migration, which may do
 * the same now, can't make ours fail.
 */
export async function prepareRoles(owner: pg.Client, serviceLogin: string | undefined): Promise<void> {
  for (const role of [SERVICE_ROLE, OPERATOR_ROLE]) {
    if (!(await roleExists(owner, role))) await attempt(owner, `create role ${role} nologin`);
  }
  if (serviceLogin === undefined || (await isMember(owner, serviceLogin))) return;
  await attempt(owner, `grant ${SERVICE_ROLE} to ${pg.escapeIdentifier(serviceLogin)}`);
}

/** Whether the login works with the service role's rights and can't take the owner's. */
export async function isSeparated(owner: pg.Client, serviceLogin: string): Promise<boolean> {
  if (!(await isMember(owner, serviceLogin))) return false;
  const { rows } = await owner.query<{ separated: boolean }>(
    `select not rolsuper and not pg_has_role(oid, current_user, 'member') as separated
       from pg_roles where rolname = $1`,
    [serviceLogin],
  );
  return rows[0]?.separated === true;
}

/** Whether the login can reach the schema at all. False, too, where there is no such login. */
export async function canUseSchema(owner: pg.Client, login: string): Promise<boolean> {
  const { rows } = await owner.query<{ usable: boolean }>(
    `select has_schema_privilege(oid, 'control', 'usage') as usable from pg_roles where rolname = $1`,
    [login],
  );
  return rows[0]?.usable === true;
}

async function roleExists(owner: pg.Client, role: string): Promise<boolean> {
  const { rowCount } = await owner.query('select from pg_roles where rolname = $1', [role]);
  return rowCount === 1;
}

/** With inherited rights: a member who would have to `set role` first does not count. */
async function isMember(owner: pg.Client, login: string): Promise<boolean> {
  const { rows } = await owner.query<{ member: boolean }>(
    `select pg_has_role(login.oid, granted.oid, 'usage') as member
       from pg_roles login, pg_roles granted where login.rolname = $1 and granted.rolname = $2`,
    [login, SERVICE_ROLE],
  );
  return rows[0]?.member === true;
}

async function attempt(owner: pg.Client, statement: string): Promise<void> {
  for (let tries = 1; ; tries += 1) {
    try {
      await owner.query(statement);
      return;
    } catch (error) {
      if (!(error instanceof pg.DatabaseError)) throw error;
      if (isDoneByAnother(error) || isNotPermitted(error)) return;
      if (error.code !== 'XX000' || tries === MAXIMUM_TRIES) throw error;
    }
    await sleep(10 * tries);
  }
}

/** duplicate_object, or the unique index that noticed it first. */
function isDoneByAnother(error: pg.DatabaseError): boolean {
  return error.code === '42710' || error.code === '23505';
}

/** insufficient_privilege; undefined_object: without the right to make roles the group may be missing; no such login. */
function isNotPermitted(error: pg.DatabaseError): boolean {
  return error.code === '42501' || error.code === '42704';
}
