import { ConfigError } from './config.js';
import { DatabaseUrlError } from './db/connection.js';
import { EmbeddedError } from './db/embedded.js';
import { MigrationError } from './db/migrate.js';
import { KeyRingError } from './features/ingress/sealing.js';

const SYSTEM_MESSAGES: Readonly<Record<string, string>> = {
  EADDRINUSE: 'The address is in use: another service listens there. Set PORT (and HOST) to another one, or stop it',
  EACCES: 'The address may not be used by this user: choose a PORT above 1023',
  EADDRNOTAVAIL: 'HOST is no address of this machine',
  ECONNREFUSED: 'The database does not answer at the address of DATABASE_URL',
  ENOTFOUND: 'The host of DATABASE_URL is not known',
  ETIMEDOUT: 'The database does not answer at the address of DATABASE_URL',
  '28P01': 'The database refuses the login of DATABASE_URL (or MIGRATION_DATABASE_URL)',
  '28000': 'The database refuses the login of DATABASE_URL (or MIGRATION_DATABASE_URL)',
  '3D000': 'There is no database of the name in DATABASE_URL',
  '42P01': 'The database has no tables yet: start the service once, or run fleet-cutover host migrate',
  '3F000': 'The database has no tables yet: start the service once, or run fleet-cutover host migrate',
};

/**
 * What is wrong, in a sentence for whoever started the program, where the reason is a known one: settings, the embedded
 * server, migrations, an address in use. Undefined for everything else, which is a fault to be looked at.
 */
export function explainStartupError(error: unknown): string | undefined {
  if (error instanceof ConfigError || error instanceof DatabaseUrlError || error instanceof KeyRingError)
    return error.message;
  if (error instanceof EmbeddedError || error instanceof MigrationError) return `${error.message} (${error.code})`;
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    const code = 'code' in cause && typeof cause.code === 'string' ? cause.code : '';
    const message = SYSTEM_MESSAGES[code];
    if (message !== undefined) return `${message} (${code})`;
  }
  return undefined;
}
