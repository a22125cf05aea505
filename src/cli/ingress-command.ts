import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import type { AdministratorClient } from '../client/administrator-client.js';
import { ProblemError } from '../client/errors.js';
import type { ICredentialState } from '../contract/fleet.js';
import type { IFleetCutoverIngressDesignation } from '../contract/ingress.js';
import type { MethodRequest, MethodResponse } from '../contract/methods.js';
import { type Reference, referenceOf, sameReference } from '../contract/schema.js';
import { withClient } from './client-session.js';
import { type CommandHost, guarded } from './command-host.js';
import { caFileOption, plainHttpOption, tokenFileOption, urlOption } from './connection-options.js';
import { mutationIdOf, mutationIdOption } from './mutation-request.js';
import { jsonOutputOption, printResult, UsageError } from './output.js';

/**
 * `ingress prepare --cluster ID --service ID`, `ingress rotate|revoke|show --cluster ID`.
 *
 * What the requests compare against is read first.
 */
export function registerIngress(program: CommandUnknownOpts, host: CommandHost): void {
  const ingress = program.command('ingress').description('the designated ingress and its launcher’s credential');
  const command = (name: string, description: string) =>
    ingress
      .command(name)
      .description(description)
      .requiredOption('--cluster <id>', 'the cluster')
      .addOption(urlOption())
      .addOption(tokenFileOption())
      .addOption(caFileOption())
      .addOption(plainHttpOption())
      .addOption(jsonOutputOption());
  command('prepare', 'designate a service as the new ingress')
    .requiredOption('--service <id>', 'the service; its spec is held and publishes no ports')
    .option('--dry-run', 'answer the same, change nothing')
    .addOption(mutationIdOption())
    .action((options) =>
      guarded(host, options.json === true, async () => {
        const { cluster, service } = options;
        const answer = await withClient(host, options, (client) =>
          prepare(host, client, options, () => preparation(client, cluster, service, null)),
        );
        printResult(host, answer, options.json === true, () => preparedLines(answer));
      }),
    );
  command('rotate', 'issue the next generation of the launcher’s credential')
    .option('--dry-run', 'answer the same, change nothing')
    .addOption(mutationIdOption())
    .action((options) =>
      guarded(host, options.json === true, async () => {
        const answer = await withClient(host, options, (client) =>
          prepare(host, client, options, async () => {
            const { designation } = await currentDesignation(client, options.cluster);
            return preparation(client, options.cluster, designation.serviceId, referenceOf(designation));
          }),
        );
        printResult(host, answer, options.json === true, () => preparedLines(answer));
      }),
    );
  command('revoke', 'end all generations of the launcher’s credential at once')
    .addOption(mutationIdOption())
    .action((options) =>
      guarded(host, options.json === true, async () => {
        const answer = await withClient(host, options, async (client) => {
          const [{ designation }, { runtime }] = await Promise.all([
            currentDesignation(client, options.cluster),
            client.readFleetCutoverState({ clusterId: options.cluster }),
          ]);
          return client.revokeFleetCutoverIngressCredential({
            mutationId: mutationIdOf(host, options.mutationId),
            clusterId: options.cluster,
            runtime: referenceOf(runtime),
            expectedDesignation: referenceOf(designation),
          });
        });
        printResult(host, answer, options.json === true, () => [
          row('credential', credentialText(answer.credential)),
          'the launcher is refused from now on; `ingress rotate` issues another credential',
        ]);
      }),
    );
  command('show', 'the designation, its spec, and which generations of the credential are accepted').action((options) =>
    guarded(host, options.json === true, async () => {
      const shown = await withClient(host, options, (client) => show(client, options.cluster));
      printResult(host, shown, options.json === true, () => shownLines(shown));
    }),
  );
}

type Preparation = Omit<MethodRequest<'prepareFleetCutoverIngress'>, 'mutationId' | 'dryRun'>;

interface PrepareOptions {
  readonly cluster: string;
  readonly mutationId?: string | undefined;
  readonly dryRun?: true | undefined;
}

/**
 * Sends what `current` reads. An earlier mutation id first repeats the request that led to the current designation: if it is
 * that one, the answer is its replay; if it was not applied, this is refused as stale, and the attempt is made now.
 */
async function prepare(
  host: CommandHost,
  client: AdministratorClient,
  { cluster, mutationId, dryRun }: PrepareOptions,
  current: () => Promise<Preparation>,
): Promise<MethodResponse<'prepareFleetCutoverIngress'>> {
  const id = mutationIdOf(host, mutationId);
  const send = (request: Preparation) =>
    client.prepareFleetCutoverIngress({ ...request, mutationId: id, ...(dryRun === true ? { dryRun } : {}) });
  const earlier = mutationId === undefined ? null : await requestOfCurrent(client, cluster);
  if (earlier !== null) {
    try {
      return await send(earlier);
    } catch (error) {
      const another = error instanceof ProblemError && ['designation-stale', 'mutation-id-reused'].includes(error.code);
      if (!another) throw error;
    }
  }
  return send(await current());
}

/** The request that the current designation was the answer to; null where there is no designation. */
async function requestOfCurrent(client: AdministratorClient, clusterId: string): Promise<Preparation | null> {
  try {
    const { designation } = await currentDesignation(client, clusterId);
    const { serviceId, runtime, scope, targetSet, predecessor: expectedDesignation } = designation;
    const { generation } = designation.spec;
    const { spec } = await client.readServiceSpec({ clusterId, serviceId, generation });
    if (spec.predecessor === null) return null;
    return { clusterId, serviceId, runtime, scope, targetSet, heldSpec: spec.predecessor, expectedDesignation };
  } catch (error) {
    if (error instanceof ProblemError && error.code === 'record-unknown') return null;
    throw error;
  }
}

const currentDesignation = (client: AdministratorClient, clusterId: string) =>
  client.readFleetCutoverIngressDesignation({ clusterId, designation: null });

/** The request against what is current. Throws UsageError where there is nothing to compare against yet. */
async function preparation(
  client: AdministratorClient,
  clusterId: string,
  serviceId: string,
  expectedDesignation: Reference | null,
): Promise<Preparation> {
  const [{ runtime, scope, targetSet }, { spec }] = await Promise.all([
    client.readFleetCutoverState({ clusterId }),
    client.readServiceSpec({ clusterId, serviceId, generation: null }),
  ]);
  if (scope === null || targetSet === null) throw new UsageError('the cluster has no accepted scope and targets yet');
  const heldSpec = referenceOf(spec);
  return { clusterId, serviceId, runtime: referenceOf(runtime), scope, targetSet, heldSpec, expectedDesignation };
}

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
  for (let cursor: string | null = null; ;) {
    const page: MethodResponse<'listCredentials'> = await client.listCredentials({ clusterId, cursor, limit: 1000 });
    const found = page.credentials.find((credential) => credential.credentialId === credentialId);
    if (found !== undefined) return found;
    if (page.nextCursor === null) return null;
    cursor = page.nextCursor;
  }
}

const row = (name: string, text: string) => `${name.padEnd(12)}${text}`;
const referenceText = ({ id, generation, digest }: Reference) => `${id} generation ${generation} ${digest}`;

function designationLines(designation: IFleetCutoverIngressDesignation): string[] {
  const { serviceId, secret } = designation;
  return [
    row('designation', referenceText(designation)),
    row('service', serviceId),
    row('secret', `${secret.secretId} version ${secret.version}`),
  ];
}

function preparedLines({ designation, dryRun }: MethodResponse<'prepareFleetCutoverIngress'>): string[] {
  const { credentialId, generation } = designation.credential;
  return [
    ...(dryRun ? ['dry run: nothing was changed'] : []),
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

function credentialText({ credentialId, newestGeneration, usedGeneration, revoked }: ICredentialState): string {
  if (revoked) return `${credentialId}, revoked`;
  const newest = `${credentialId} generation ${newestGeneration}`;
  if (usedGeneration === newestGeneration) return `${newest}, in use`;
  const accepted = usedGeneration === null ? '' : `; generation ${usedGeneration} is accepted until it is`;
  return `${newest}, not used yet${accepted}`;
}
