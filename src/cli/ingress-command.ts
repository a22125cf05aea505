import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import type { AdministratorClient } from '../client/administrator-client.js';
import type { ICredentialState } from '../contract/fleet.js';
import type { IFleetCutoverIngressDesignation } from '../contract/ingress.js';
import type { MethodResponse } from '../contract/methods.js';
import { referenceOf, sameReference } from '../contract/schema.js';
import type { CommandHost } from './command-host.js';
import { credentialState } from './credential-commands.js';
import { everyPage } from './every-page.js';
import { commandGroup, mutation, report } from './method-command.js';
import { referenceText } from './reference-text.js';

/** `ingress prepare --service ID`, `ingress rotate|revoke|show` */
export function registerIngress(program: CommandUnknownOpts, host: CommandHost): void {
  const ingress = commandGroup(program, 'ingress', 'the designated ingress and its launcher’s credential');
  mutation(
    host,
    ingress
      .command('prepare')
      .description('designate a service as the new ingress')
      .requiredOption('--service <id>', 'the service; its spec is held and publishes no ports'),
    'prepareFleetCutoverIngress',
    {
      request: ({ options: { service: serviceId } }) => ({ serviceId, expectedDesignation: null }),
      lines: preparedLines,
    },
  );
  mutation(
    host,
    ingress.command('rotate').description('issue the next generation of the launcher’s credential'),
    'prepareFleetCutoverIngress',
    {
      request: async ({ client, clusterId }) => ({
        serviceId: (await currentDesignation(client, clusterId)).designation.serviceId,
      }),
      lines: preparedLines,
    },
  );
  mutation(
    host,
    ingress.command('revoke').description('end all generations of the launcher’s credential at once'),
    'revokeFleetCutoverIngressCredential',
    {
      request: () => ({}),
      lines: (answer) => [
        row('credential', credentialText(answer.credential)),
        'the launcher is refused from now on; `ingress rotate` issues another credential',
      ],
    },
  );
  report(
    host,
    ingress
      .command('show')
      .description('the designation, its spec, and which generations of the credential are accepted'),
    'readFleetCutoverIngressDesignation',
    { read: ({ client, clusterId }) => show(client, clusterId), lines: shownLines },
  );
}

const currentDesignation = (client: AdministratorClient, clusterId: string) =>
  client.readFleetCutoverIngressDesignation({ clusterId, designation: null });

interface Shown {
  readonly designation: IFleetCutoverIngressDesignation;
  readonly spec: { readonly state: 'held' | 'released'; readonly current: boolean };
  readonly credential: ICredentialState | null;
}

async function show(client: AdministratorClient, clusterId: string): Promise<Shown> {
  const { designation } = await currentDesignation(client, clusterId);
  const { serviceId } = designation;
  const [named, newest, credential] = await Promise.all([
    client.readServiceSpec({ clusterId, serviceId, generation: designation.spec.generation }),
    client.readServiceSpec({ clusterId, serviceId, generation: null }),
    findCredential(client, clusterId, designation.credential.credentialId),
  ]);
  const current = sameReference(designation.spec, referenceOf(newest.spec));
  return { designation, spec: { state: named.state, current }, credential };
}

async function findCredential(
  client: AdministratorClient,
  clusterId: string,
  credentialId: string,
): Promise<ICredentialState | null> {
  const { credentials } = await everyPage<MethodResponse<'listCredentials'>, 'credentials'>({
    items: 'credentials',
    pageSize: 1000,
    limit: null,
    read: (cursor, limit) => client.listCredentials({ clusterId, cursor, limit }),
  });
  return credentials.find((credential) => credential.credentialId === credentialId) ?? null;
}

const row = (name: string, text: string) => `${name.padEnd(12)}${text}`;
const credentialText = (credential: ICredentialState) => {
  const { credentialId, revoked } = credential;
  return `${credentialId}${revoked ? ',' : ''} ${credentialState(credential)}`;
};

function designationLines(designation: IFleetCutoverIngressDesignation): string[] {
  const { serviceId, secret } = designation;
  return [
    row('designation', referenceText(designation)),
    row('service', serviceId),
    row('secret', `${secret.secretId} version ${secret.version}`),
  ];
}

function preparedLines({ designation }: MethodResponse<'prepareFleetCutoverIngress'>): string[] {
  const { credentialId, generation } = designation.credential;
  return [
    ...designationLines(designation),
    row('credential', `${credentialId} generation ${generation}`),
    row('spec', referenceText(designation.spec)),
  ];
}

function shownLines({ designation, spec, credential }: Shown): string[] {
  const currency = spec.current ? '' : ', not the service’s current spec any more';
  return [
    ...designationLines(designation),
    row('credential', credential === null ? 'not found' : credentialText(credential)),
    row('spec', `${referenceText(designation.spec)}, ${spec.state}${currency}`),
  ];
}
