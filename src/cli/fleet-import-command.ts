import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import type { MethodRequest, MethodResponse } from '../contract/methods.js';
import type { CommandHost } from './command-host.js';
import { readInput } from './connection-options.js';
import { issuedLines } from './credential-commands.js';
import { parseObject } from './json-input.js';
import { commandGroup, mutation } from './method-command.js';
import { UsageError } from './output.js';

/** `fleet import FILE --secrets-file FILE` */
export function registerFleetImport(program: CommandUnknownOpts, host: CommandHost): void {
  const fleet = commandGroup(program, 'fleet', 'a cluster’s nodes, services and specs together');
  mutation(
    host,
    fleet
      .command('import')
      .description('make the nodes, services and specs of a JSON document exist')
      .argument('<file>', 'JSON object with nodes, services and specs'),
    'importFleet',
    {
      request: ({ args: [file] }) => fleetDocument(file),
      lines: (answer, { secretsFile }) => [...importLines(answer), ...issuedLines(answer.secrets, secretsFile)],
    },
  );
}

/** Its shape is checked against the contract before anything is sent. What the command says has no place in it. */
async function fleetDocument(file: string): Promise<MethodRequest<'importFleet'>> {
  const document = parseObject(await readInput(file), file);
  const foreign = ['clusterId', 'mutationId', 'dryRun'].find((key) => Object.hasOwn(document, key));
  if (foreign !== undefined) throw new UsageError(`${file} has the member ${foreign}, which the command line says`);
  return document as unknown as MethodRequest<'importFleet'>;
}

function importLines({ nodes, services, specs }: MethodResponse<'importFleet'>): string[] {
  const count = (name: string, list: readonly { created: boolean }[]) =>
    `${name}: ${list.filter((item) => item.created).length} created, ${list.filter((item) => !item.created).length} there already`;
  return [count('nodes', nodes), count('services', services), count('specs', specs)];
}
