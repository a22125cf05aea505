import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import type { MethodRequest } from '../contract/methods.js';
import { withClient } from './client-session.js';
import { type CommandHost, guarded } from './command-host.js';
import { urlOption, tokenFileOption, caFileOption, plainHttpOption, readInput } from './connection-options.js';
import { issuing, warnOfReplay } from './issuing-method.js';
import { parseObject } from './json-input.js';
import { mutationIdOption, mutationIdOf } from './mutation-request.js';
import { jsonOutputOption, printResult } from './output.js';

/** `fleet import FILE --cluster ID --secrets-file FILE` */
export function registerFleetImport(program: CommandUnknownOpts, host: CommandHost): void {
  const fleet = program.command('fleet').description('clusters, nodes, services and credentials');
  fleet
    .command('import')
    .description('make the nodes, services and specs of a JSON document exist')
    .argument('<file>', 'JSON object with nodes, services and specs')
    .requiredOption('--cluster <id>', 'the cluster')
    .requiredOption('--secrets-file <file>', 'new file (mode 0600) for the tokens of created nodes')
    .option('--dry-run', 'answer the same, change nothing')
    .addOption(mutationIdOption())
    .addOption(urlOption())
    .addOption(tokenFileOption())
    .addOption(caFileOption())
    .addOption(plainHttpOption())
    .addOption(jsonOutputOption())
    .action((file, options) =>
      guarded(host, options.json === true, async () => {
        const document = parseObject(await readInput(file), file);
        const request = {
          ...document,
          clusterId: options.cluster,
          mutationId: mutationIdOf(host, options.mutationId),
          ...(options.dryRun === true ? { dryRun: true } : {}),
        };
        const result = await withClient(host, options, (client) =>
          issuing(client, 'importFleet', request as unknown as MethodRequest<'importFleet'>, options.secretsFile),
        );
        printResult(host, result, options.json === true, () => importLines(result, options.secretsFile));
        warnOfReplay(host, result);
      }),
    );
}

type ImportResult = Awaited<ReturnType<typeof issuing<'importFleet'>>>;

function importLines({ nodes, services, specs, secrets, dryRun }: ImportResult, secretsFile: string): string[] {
  const count = (name: string, list: readonly { created: boolean }[]) =>
    `${name}: ${list.filter((item) => item.created).length} created, ${list.filter((item) => !item.created).length} there already`;
  return [
    ...(dryRun ? ['dry run: nothing was changed'] : []),
    count('nodes', nodes),
    count('services', services),
    count('specs', specs),
    ...(secrets.length > 0 ? [`${secrets.length} tokens are in ${secretsFile} and nowhere else`] : []),
  ];
}
