import { type CommandUnknownOpts, Option } from '@commander-js/extra-typings';
import type { AdministratorClient } from '../client/administrator-client.js';
import { methodNames, methods, type TMethodName } from '../contract/methods.js';
import type { JsonObject } from '../contract/strict-json.js';
import { withClient } from './client-session.js';
import { type CommandHost, guarded } from './command-host.js';
import { addConnectionOptions, readInput } from './connection-options.js';
import { secretsFileOption, issuing, isIssuing } from './issuing-method.js';
import { parseObject } from './json-input.js';
import { mutationIdOption, mutationIdOf } from './mutation-request.js';
import { printResult, UsageError } from './output.js';

/** `call METHOD [--json OBJECT | --file FILE]` */
export function registerCall(program: CommandUnknownOpts, host: CommandHost): void {
  const command = program
    .command('call')
    .description('call a method of the owner API; prints its JSON answer')
    .argument('<method>', 'name of the method, e.g. listClusters')
    .addOption(new Option('--json <object>', 'the request').conflicts('file'))
    .option('--file <file>', 'file with the request')
    .addOption(mutationIdOption())
    .addOption(secretsFileOption());
  addConnectionOptions(command).action((name, options) =>
    guarded(host, true, async () => {
      const method = methodNamed(name);
      const given = await requestObject(options);
      const request = methods[method].mutation ? withMutationId(host, given, options.mutationId) : given;
      const result = await withClient(host, options, (client) => callAny(client, method, request, options.secretsFile));
      printResult(host, result, true, () => []);
    }),
  );
}

function methodNamed(name: string): TMethodName {
  const method = methodNames.find((known) => known === name);
  if (method === undefined) throw new UsageError(`there is no method ${name}; there are: ${methodNames.join(', ')}`);
  return method;
}

async function requestObject(options: { json?: string | undefined; file?: string | undefined }): Promise<JsonObject> {
  if (options.file !== undefined) return parseObject(await readInput(options.file), options.file);
  return parseObject(options.json ?? '{}', '--json');
}

function withMutationId(host: CommandHost, request: JsonObject, given: string | undefined): JsonObject {
  if (request['mutationId'] === undefined) return { ...request, mutationId: mutationIdOf(host, given) };
  if (given !== undefined) throw new UsageError('the request has a mutationId: leave out --mutation-id');
  return request;
}

/** The request is checked against the method's schema by the client. */
async function callAny(
  client: AdministratorClient,
  method: TMethodName,
  request: JsonObject,
  secretsFile: string | undefined,
): Promise<unknown> {
  if (!isIssuing(method)) return await client.call(method, request as never);
  if (secretsFile === undefined) throw new UsageError(`${method} issues tokens: give --secrets-file`);
  return await issuing(client, method, request as never, secretsFile);
}
