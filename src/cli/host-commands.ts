/** Commands for who may read the service's settings: they go straight to the database and need no token. */
import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import type { Refused } from '../contract/problems.js';
import { isIdentifier } from '../features/auth/credential.js';
import { isRefused } from '../refusal.js';
import { type CommandHost, processHost } from './command-host.js';
import { exitCodes, printLine, refusalText, UsageError } from './output.js';

/** The server's parts take a second to load, which the help and the commands of the client need not wait for. */
const loadWork = () => import('./host-work.js');

export function registerHostCommands(program: CommandUnknownOpts, host: CommandHost = processHost): void {
  const group = program.command('host').description('on the machine of the service, straight to its database');
  group
    .command('bootstrap')
    .description('begin an organization and print the token of its first administrator, once')
    .requiredOption('--organization <id>', 'the organization’s id')
    .requiredOption('--principal <id>', 'who the administrator is')
    .option('--additional', 'although the organization has an administrator', false)
    .action(async ({ organization, principal, additional }) => {
      demandIdentifier('--organization', organization);
      demandIdentifier('--principal', principal);
      const input = { organizationId: organization, principalId: principal, additional };
      const issued = await (await loadWork()).bootstrapOnHost(host.environment, input);
      if (isRefused(issued)) return printRefusal(host, issued);
      printLine(host, `The token of ${principal} (credential ${issued.credentialId}); it is not shown again:`);
      host.stdout(`${issued.token}\n`);
    });
  group
    .command('revoke-credential')
    .description('end an administrator’s or operator’s token, also an organization’s last one')
    .argument('<id>', 'the credential’s id')
    .action(async (credentialId) => {
      demandIdentifier('the credential', credentialId);
      const revoked = await (await loadWork()).revokeCredentialOnHost(host.environment, credentialId);
      if (isRefused(revoked)) return printRefusal(host, revoked);
      printLine(host, `The credential ${revoked.credentialId} is revoked.`);
    });
  group
    .command('reseal')
    .description('seal all secrets under the first key-encryption key')
    .action(async () => {
      const { count, keyId } = await (await loadWork()).resealOnHost(host.environment);
      printLine(host, `${count} secrets are sealed under ${keyId} now.`);
    });
  group
    .command('migrate')
    .description('bring the database to this program’s schema')
    .action(async () => {
      const { applied, separation } = await (await loadWork()).migrateOnHost(host.environment);
      printLine(
        host,
        `${applied.length === 0 ? 'nothing to apply' : `applied ${applied.join(', ')}`}; separation: ${separation}`,
      );
    });
}

function demandIdentifier(what: string, id: string): void {
  if (isIdentifier(id)) return;
  throw new UsageError(`${what} has to be 1 to 128 letters, digits and . _ : - with a letter or digit first`);
}

function printRefusal(host: CommandHost, refused: Refused): void {
  printLine(host, refusalText('Refused', refused));
  host.setExitCode(exitCodes.refused);
}
