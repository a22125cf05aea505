/** Commands for who may read the service's settings: they go straight to the database and need no token. */
import { join } from 'node:path';
import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import { systemClock } from '../clock.js';
import { readConfig } from '../config.js';
import { isIdentifier } from '../features/auth/credential.js';
import { type Refused, problemCatalogue } from '../contract/problems.js';
import { openForCommand } from '../database.js';
import { migrate, type MigrateResult } from '../db/migrate.js';
import type { Deps } from '../deps.js';
import { bootstrap, revokeOnHost } from '../features/auth/host-operations.js';
import { resealAll } from '../features/ingress/operations.js';
import { onHostDatabase } from '../host-access.js';
import { readKeyRing } from '../key-ring.js';
import { isRefused } from '../refusal.js';
import { exitCodes, UsageError } from './output.js';

const MIGRATIONS = join(import.meta.dirname, '..', '..', 'migrations');

export function registerHostCommands(program: CommandUnknownOpts): void {
  const host = program.command('host').description('on the machine of the service, straight to its database');
  host
    .command('bootstrap')
    .description('begin an organization and print the token of its first administrator, once')
    .requiredOption('--organization <id>', 'the organization’s id')
    .requiredOption('--principal <id>', 'who the administrator is')
    .option('--additional', 'although the organization has an administrator', false)
    .action(async ({ organization, principal, additional }) => {
      demandIdentifier('--organization', organization);
      demandIdentifier('--principal', principal);
      const input = { organizationId: organization, principalId: principal, additional };
      const issued = await onDatabase((deps) => bootstrap(deps, input));
      if (issued === undefined) return;
      process.stderr.write(`The token of ${principal} (credential ${issued.credentialId}); it is not shown again:\n`);
      process.stdout.write(`${issued.token}\n`);
    });
  host
    .command('revoke-credential')
    .description('end an administrator’s or operator’s token, also an organization’s last one')
    .argument('<id>', 'the credential’s id')
    .action(async (credentialId) => {
      demandIdentifier('the credential', credentialId);
      const revoked = await onDatabase((deps) => revokeOnHost(deps, credentialId));
      if (revoked !== undefined) process.stderr.write(`The credential ${revoked.credentialId} is revoked.\n`);
    });
  host
    .command('reseal')
    .description('seal all secrets under the first key-encryption key')
    .action(async () => {
      const config = readConfig(process.env);
      const ring = await readKeyRing(config.keys);
      if (ring.length === 0) throw new UsageError('KEY_ENCRYPTION_KEYS_FILE has to name the keys, the new one first');
      const count = await onHostDatabase(config, (deps) => resealAll(deps, ring));
      process.stderr.write(`${count} secrets are sealed under ${ring[0]?.keyId ?? ''} now.\n`);
    });
  host
    .command('migrate')
    .description('bring the database to this program’s schema')
    .action(async () => {
      const result = await migrateDatabase();
      const applied = result.applied.length === 0 ? 'nothing to apply' : `applied ${result.applied.join(', ')}`;
      process.stderr.write(`${applied}; separation: ${result.separation}\n`);
    });
}

function demandIdentifier(what: string, id: string): void {
  if (isIdentifier(id)) return;
  throw new UsageError(`${what} has to be 1 to 128 letters, digits and . _ : - with a letter or digit first`);
}

/** Does the work, or says why it was refused; undefined then. */
async function onDatabase<T>(work: (deps: Deps) => Promise<T | Refused>): Promise<T | undefined> {
  const outcome = await onHostDatabase(readConfig(process.env), work);
  if (!isRefused(outcome)) return outcome;
  const { code, detail } = outcome.problem;
  process.stderr.write(`Refused (${code}): ${detail ?? problemCatalogue[code].title}\n`);
  process.exitCode = exitCodes.refused;
  return undefined;
}

async function migrateDatabase(): Promise<MigrateResult> {
  const { ownerUrl, serviceUrl, release } = await openForCommand(readConfig(process.env));
  try {
    return await migrate({ ownerUrl, serviceUrl, directory: MIGRATIONS, clock: systemClock });
  } finally {
    await release();
  }
}
