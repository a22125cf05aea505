/** Prints the API's description, the same text that the service serves at `/openapi.json`. */
import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import { openApiText } from '../contract/openapi.js';
import { type CommandHost, processHost } from './command-host.js';

export function registerOpenApi(program: CommandUnknownOpts, host: CommandHost = processHost): void {
  program
    .command('openapi')
    .description('print the description of the API (OpenAPI 3.1); needs no service')
    .action(() => {
      host.stdout(openApiText());
    });
}
