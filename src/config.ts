import { isIP } from 'node:net';
import { resolve } from 'node:path';
import { Type, type Static } from '@sinclair/typebox';
import { envSchema } from 'env-schema';
import { isLocalAddress, parseDatabaseUrl } from './db/connection.js';
import { Secret } from './secret.js';

/** What the process was started with. Built once, at the entry; everything else gets the parts it needs as arguments. */
export interface Config {
  readonly database: DatabaseConfig;
  readonly host: string;
  readonly port: number;
  readonly logLevel: Static<typeof LogLevel>;
  /** Connections of the service's pool. */
  readonly poolSize: number;
  readonly statementTimeoutMs: number;
  readonly lockTimeoutMs: number;
  /** Where the key-encryption keys are; null where there are none. */
  readonly keys: KeySource | null;
  /** Serve the API's description and a page that shows it. */
  readonly docs: boolean;
  /** Addresses and ranges of proxies whose `X-Forwarded-For` is believed; empty: nobody's. */
  readonly trustedProxies: readonly string[];
}

/** The environment is for development: it can be read from outside of the process. */
export type KeySource =
  { readonly kind: 'file'; readonly path: string } | { readonly kind: 'environment'; readonly keys: Secret };

/** `external`: a server of the operator's; both URLs are the same where one login does it all. */
export type DatabaseConfig =
  | { readonly kind: 'external'; readonly serviceUrl: Secret; readonly ownerUrl: Secret }
  | { readonly kind: 'embedded'; readonly dataDirectory: string };

/** A setting that the process can't start with. The message names the setting and never shows its value. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
}

const LogLevel = Type.Union(
  ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'].map((level) => Type.Literal(level)),
  { default: 'info' },
);

const Environment = Type.Object({
  DATABASE_URL: Type.Optional(Type.String()),
  MIGRATION_DATABASE_URL: Type.Optional(Type.String()),
  DATABASE_TLS: Type.Optional(Type.Union([Type.Literal('verify'), Type.Literal('insecure')])),
  EMBEDDED_DATA_DIR: Type.String({ default: '.data/postgres' }),
  HOST: Type.String({ default: '127.0.0.1' }),
  PORT: Type.Integer({ default: 8080, minimum: 0, maximum: 65_535 }),
  LOG_LEVEL: LogLevel,
  DOCS: Type.Union([Type.Literal('on'), Type.Literal('off')], { default: 'on' }),
  POOL_SIZE: Type.Integer({ default: 8, minimum: 1, maximum: 500 }),
  STATEMENT_TIMEOUT_MS: Type.Integer({ default: 15_000, minimum: 1, maximum: 3_600_000 }),
  KEY_ENCRYPTION_KEYS_FILE: Type.Optional(Type.String()),
  KEY_ENCRYPTION_KEYS: Type.Optional(Type.String()),
  LOCK_TIMEOUT_MS: Type.Integer({ default: 5_000, minimum: 1, maximum: 3_600_000 }),
  TRUSTED_PROXIES: Type.Optional(Type.String()),
});

/** Names of all settings. */
export const settingNames: readonly string[] = Object.keys(Environment.properties);

/**
 * Reads the settings from an environment such as `process.env`; an empty variable counts as absent. Throws
 * {@link ConfigError}, and `DatabaseUrlError` for a URL that can't be taken apart.
 *
 * A database that is not on this machine is refused unless its URL says `sslmode=verify-full`, or `DATABASE_TLS=insecure`
 * says that this is meant: bearers and hashes travel on that connection.
 */
export function readConfig(environment: Readonly<Record<string, string | undefined>>): Config {
  const settings = validate(environment);
  return {
    database: databaseConfig(settings),
    host: settings.HOST,
    port: settings.PORT,
    logLevel: settings.LOG_LEVEL,
    poolSize: settings.POOL_SIZE,
    statementTimeoutMs: settings.STATEMENT_TIMEOUT_MS,
    lockTimeoutMs: settings.LOCK_TIMEOUT_MS,
    keys: keySource(settings),
    docs: settings.DOCS === 'on',
    trustedProxies: trustedProxies(settings.TRUSTED_PROXIES),
  };
}

/** Ranges by the name that everybody knows them by: this machine, and private networks. */
const NAMED_RANGES: readonly string[] = ['loopback', 'uniquelocal'];

/** A range without a bit would believe everybody. */
function trustedProxies(text: string | undefined): string[] {
  const proxies = (text ?? '').split(',').map((each) => each.trim());
  if (proxies.length === 1 && proxies[0] === '') return [];
  for (const each of proxies) {
    const [address = '', bits, ...rest] = each.split('/');
    const maximum = isIP(address) === 4 ? 32 : isIP(address) === 6 ? 128 : 0;
    const fits = bits === undefined || (/^[1-9]\d{0,2}$/.test(bits) && Number(bits) <= maximum);
    if (NAMED_RANGES.includes(each) || (maximum > 0 && fits && rest.length === 0 && !address.includes('%'))) continue;
    throw new ConfigError(
      'TRUSTED_PROXIES has to be addresses or ranges such as 10.0.0.0/8 with commas between, ' +
        'loopback or uniquelocal (private networks)',
    );
  }
  return proxies;
}

function keySource(settings: Static<typeof Environment>): KeySource | null {
  const { KEY_ENCRYPTION_KEYS_FILE: path, KEY_ENCRYPTION_KEYS: keys } = settings;
  if (path !== undefined && keys !== undefined) {
    throw new ConfigError('KEY_ENCRYPTION_KEYS_FILE and KEY_ENCRYPTION_KEYS exclude each other');
  }
  if (path !== undefined) return { kind: 'file', path: resolve(path) };
  return keys === undefined ? null : { kind: 'environment', keys: new Secret(keys) };
}

function validate(environment: Readonly<Record<string, string | undefined>>): Static<typeof Environment> {
  const present = settingNames.flatMap((name) => (environment[name] ? [[name, environment[name]] as const] : []));
  try {
    return envSchema<Static<typeof Environment>>({
      schema: Environment,
      data: Object.fromEntries(present),
      env: false,
      dotenv: false,
    });
  } catch (error) {
    throw new ConfigError(error instanceof Error ? error.message : 'the environment is not valid');
  }
}

function databaseConfig(settings: Static<typeof Environment>): DatabaseConfig {
  if (settings.DATABASE_URL === undefined) {
    if (settings.MIGRATION_DATABASE_URL !== undefined) {
      throw new ConfigError('MIGRATION_DATABASE_URL needs DATABASE_URL beside it: one is the owner, one the service');
    }
    return { kind: 'embedded', dataDirectory: resolve(settings.EMBEDDED_DATA_DIR) };
  }
  const serviceUrl = new Secret(settings.DATABASE_URL);
  const ownerUrl = new Secret(settings.MIGRATION_DATABASE_URL ?? settings.DATABASE_URL);
  if (settings.DATABASE_TLS !== 'insecure') {
    demandVerifiedTls('DATABASE_URL', serviceUrl);
    demandVerifiedTls('MIGRATION_DATABASE_URL', ownerUrl);
  }
  return { kind: 'external', serviceUrl, ownerUrl };
}

function demandVerifiedTls(setting: string, url: Secret): void {
  const address = parseDatabaseUrl(url);
  if (isLocalAddress(address) || address.tls.mode === 'verify-full') return;
  throw new ConfigError(
    `${setting} leads to another machine without sslmode=verify-full. Add it to the URL (with sslrootcert for a private ` +
      'authority), or set DATABASE_TLS=insecure if the network in between is trusted',
  );
}
