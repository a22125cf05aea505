import { type AdministratorClient, createAdministratorClient } from '../client/administrator-client.js';
import type { CommandHost } from './command-host.js';
import { tokenOf, transportOf } from './connection-options.js';
import { type ConnectionOptions, readSettings, type Settings } from './settings.js';

/** Runs `work` with a client of the options' service and token, and closes it. Throws UsageError. */
export async function withClient<T>(
  host: CommandHost,
  options: ConnectionOptions,
  work: (client: AdministratorClient, settings: Settings) => Promise<T>,
): Promise<T> {
  const settings = await readSettings(options, host.environment);
  const client = createAdministratorClient({
    ...(await transportOf(settings)),
    token: await tokenOf(settings, host.environment),
  });
  try {
    return await work(client, settings);
  } finally {
    await client.close();
  }
}
