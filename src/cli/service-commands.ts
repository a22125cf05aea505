import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import type { IClusterServiceSpec, IClusterServiceSpecContent, IFleetService } from '../contract/fleet.js';
import type { CommandHost } from './command-host.js';
import { readInput } from './connection-options.js';
import { parseObject } from './json-input.js';
import { commandGroup, list, mutation, query } from './method-command.js';
import { parseGeneration } from './number-argument.js';
import { referenceText } from './reference-text.js';
import { fields } from './terminal-text.js';

const serviceLines = ({ serviceId, name, state }: IFleetService) =>
  fields([
    ['service', serviceId],
    ['name', name],
    ['state', state],
  ]);

/** `service list|create|retire` */
export function registerService(program: CommandUnknownOpts, host: CommandHost): void {
  const service = commandGroup(program, 'service', 'the organization’s services');
  list(host, service.command('list').description('services, with their spec in the cluster'), 'listServices', {
    items: 'services',
    columns: [
      ['service', (each) => each.serviceId],
      ['name', (each) => each.name],
      ['state', (each) => each.state],
      ['spec', (each) => each.spec && `generation ${each.spec.generation}`],
    ],
  });
  mutation(
    host,
    service.command('create').description('create a live service').argument('<name>', 'its name'),
    'createService',
    { request: ({ args: [name] }) => ({ name }), lines: (answer) => serviceLines(answer.service) },
  );
  mutation(
    host,
    service.command('retire').description('retire a service for good').argument('<service>', 'its id'),
    'retireService',
    { request: ({ args: [serviceId] }) => ({ serviceId }), lines: (answer) => serviceLines(answer.service) },
  );
}

function specLines(spec: IClusterServiceSpec, state: string): string[] {
  return fields([
    ['spec', `${referenceText(spec)}, ${state}`],
    ['service', spec.serviceId],
    ['image', spec.imageDigest],
    ...spec.mounts.map(
      ({ mountPath, readOnly }) => ['mount', `${mountPath}${readOnly ? ' (read-only)' : ''}`] as const,
    ),
    ...spec.secretInputs.map(
      ({ name, secretId, version }) => ['secret input', `${name} = ${secretId} version ${version}`] as const,
    ),
    ...spec.publishedPorts.map(
      ({ protocol, port, targetPort }) => ['port', `${port}/${protocol} to ${targetPort}`] as const,
    ),
    ['placement', spec.placement.length === 0 ? 'any target node' : spec.placement.join(' ')],
  ]);
}

/** `spec show|put` */
export function registerSpec(program: CommandUnknownOpts, host: CommandHost): void {
  const spec = commandGroup(program, 'spec', 'what a service runs in a cluster');
  const about = (name: string, description: string) =>
    spec.command(name).description(description).argument('<service>', 'the service');
  query(
    host,
    about('show', 'the spec, current or of one generation').option(
      '--generation <n>',
      'not the current one',
      parseGeneration,
    ),
    'readServiceSpec',
    {
      request: ({ args: [serviceId], options }) => ({ serviceId, generation: options.generation ?? null }),
      lines: (answer) => specLines(answer.spec, answer.state),
    },
  );
  mutation(
    host,
    about('put', 'write the next revision, which is held').argument(
      '<file>',
      'JSON object with imageDigest, mounts, secretInputs, publishedPorts and placement',
    ),
    'putServiceSpec',
    {
      request: async ({ args: [serviceId, file] }) => ({
        serviceId,
        // Its shape is checked against the contract before anything is sent.
        spec: parseObject(await readInput(file), file) as unknown as IClusterServiceSpecContent,
      }),
      lines: (answer) => specLines(answer.spec, 'held'),
    },
  );
}
