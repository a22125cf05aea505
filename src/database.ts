/** Reaches the database that the configuration names: the service's own, or the embedded server. */
import type { Config } from './config.js';
import { attachEmbedded, type EmbeddedError, type EmbeddedServer, startEmbedded } from './db/embedded.js';
import type { Secret } from './secret.js';

export interface DatabaseAccess {
  readonly ownerUrl: Secret;
  readonly serviceUrl: Secret;
  /** Ends the use; stops an embedded server that nobody else needs. Close the pools before. */
  release(): Promise<void>;
}

/** For the service: takes the embedded server for itself. `onLost`: it went away, or somebody took it. */
export async function openForService(config: Config, onLost: (error: EmbeddedError) => void): Promise<DatabaseAccess> {
  const { database } = config;
  if (database.kind === 'external') return external(database);
  return embedded(await startEmbedded({ dataDirectory: database.dataDirectory, onLost }));
}

/** For a command on the host, beside a running service or without one. */
export async function openForCommand(config: Config): Promise<DatabaseAccess> {
  const { database } = config;
  if (database.kind === 'external') return external(database);
  return embedded(await attachEmbedded({ dataDirectory: database.dataDirectory }));
}

function external(database: Extract<Config['database'], { kind: 'external' }>): DatabaseAccess {
  const { ownerUrl, serviceUrl } = database;
  return { ownerUrl, serviceUrl, release: () => Promise.resolve() };
}

function embedded(server: EmbeddedServer): DatabaseAccess {
  const { ownerUrl, serviceUrl } = server;
  return { ownerUrl, serviceUrl, release: () => server.stop() };
}
