/** Credentials of people, nodes and the relay. Issued tokens go into `--secrets-file` and nowhere else. */
import { type CommandUnknownOpts, Option } from '@commander-js/extra-typings';
import { type ICredentialState, roles } from '../contract/fleet.js';
import type { MethodResponse } from '../contract/methods.js';
import type { CommandHost } from './command-host.js';
import { commandGroup, list, mutation } from './method-command.js';
import { fields } from './terminal-text.js';

/** What people see of a credential that was changed. */
export function credentialLines(credential: ICredentialState): string[] {
  return fields([
    ['credential', credential.credentialId],
    ['kind', credential.kind],
    ['of', credential.subjectId],
    ['state', credentialState(credential)],
  ]);
}

export function credentialState({ newestGeneration, usedGeneration, revoked }: ICredentialState): string {
  if (revoked) return 'revoked';
  const newest = `generation ${newestGeneration}`;
  if (usedGeneration === newestGeneration) return `${newest}, in use`;
  const accepted = usedGeneration === null ? '' : `; generation ${usedGeneration} is accepted until it is`;
  return `${newest}, not used yet${accepted}`;
}

/** Where issued tokens are; nothing for a dry run and a replay, which issue none. */
export function issuedLines(secrets: readonly unknown[], secretsFile: string | undefined): string[] {
  if (secrets.length === 0) return [];
  return [
    `${secrets.length === 1 ? 'its token is' : `${secrets.length} tokens are`} in ${secretsFile ?? ''} and nowhere else`,
  ];
}

/** Of every answer that issues one credential. */
export function issuedCredentialLines(
  answer: Pick<MethodResponse<'issueAdministratorToken'>, 'credential' | 'secrets'>,
  { secretsFile }: { readonly secretsFile?: string },
): string[] {
  return [...credentialLines(answer.credential), ...issuedLines(answer.secrets, secretsFile)];
}

/** `credential list`, `token issue|rotate|revoke` */
export function registerCredentials(program: CommandUnknownOpts, host: CommandHost): void {
  const credential = commandGroup(program, 'credential', 'credentials of people, nodes, relay and ingress');
  list(
    host,
    credential
      .command('list')
      .description('states of all credentials of the organization, or of one cluster')
      .option('--cluster <id>', 'credentials of this cluster only (the configured cluster is not meant)'),
    'listCredentials',
    {
      cluster: false,
      items: 'credentials',
      request: ({ options }) => ({ clusterId: options.cluster ?? null }),
      columns: [
        ['credential', (each) => each.credentialId],
        ['kind', (each) => each.kind],
        ['of', (each) => each.subjectId],
        ['role', (each) => each.role],
        ['state', credentialState],
      ],
    },
  );
  const token = commandGroup(program, 'token', 'tokens of administrators and operators');
  mutation(
    host,
    token
      .command('issue')
      .description('issue a token')
      .argument('<principal>', 'whose it is')
      .addOption(new Option('--role <role>', 'what it permits').choices(roles).makeOptionMandatory(true)),
    'issueAdministratorToken',
    {
      request: ({ args: [principalId], options: { role } }) => ({ principalId, role }),
      lines: issuedCredentialLines,
    },
  );
  mutation(
    host,
    token
      .command('rotate')
      .description('issue the next generation; the last used one works until the new one is used')
      .argument('<credential>', 'the credential'),
    'rotateAdministratorToken',
    {
      request: ({ args: [credentialId] }) => ({ credentialId }),
      lines: issuedCredentialLines,
    },
  );
  mutation(
    host,
    token
      .command('revoke')
      .description('end all generations at once; refused for the last administrator’s')
      .argument('<credential>', 'the credential'),
    'revokeAdministratorToken',
    {
      request: ({ args: [credentialId] }) => ({ credentialId }),
      lines: (answer) => credentialLines(answer.credential),
    },
  );
}

/** `relay register|revoke` */
export function registerRelay(program: CommandUnknownOpts, host: CommandHost): void {
  const relay = commandGroup(program, 'relay', 'the legacy Coreflow relay');
  mutation(
    host,
    relay
      .command('register')
      .description('name the swarm service of the relay, and issue its credential')
      .argument('<swarm-service>', 'id of the swarm service'),
    'registerCoreflowRelay',
    {
      request: ({ args: [swarmServiceId] }) => ({ swarmServiceId }),
      lines: issuedCredentialLines,
    },
  );
  mutation(
    host,
    relay.command('revoke').description('revoke the relay’s credential for good'),
    'revokeFleetCutoverCoreflowCredential',
    {
      request: () => ({}),
      lines: ({ credentialId, generation }) => [
        `credential ${credentialId} generation ${generation} is revoked for good`,
      ],
    },
  );
}
