import { type AdministratorClient, createAdministratorClient } from '../client/administrator-client.js';
import type { CommandHost } from './command-host.js';
import { administratorToken, type ConnectionOptions, transportOptions } from './connection-options.js';

/** Runs `work` with a client of the options' service and token, and closes it. Throws UsageError. */
export async function withClient<T>(
  host: CommandHost,
  options: ConnectionOptions,
  work: (client: AdministratorClient) => Promise<T>,
): Promise<T> {
  const client = createAdministratorClient({
    ...(await transportOptions(options, host.environment)),
    token: await administratorToken(options, host.environment),
  });
  try {
    return await work(client);
  } finally {
    await client.close();
  }
}
