import { readFileSync } from 'node:fs';
import type { ConnectionOptions } from 'node:tls';
import type pg from 'pg';
import type { Secret } from '../secret.js';

/** A database URL that can't be used as it is. The message never contains the URL, a login or a password. */
export class DatabaseUrlError extends Error {
  override readonly name = 'DatabaseUrlError';
}

/** What a database URL says, taken apart. `host` is a name, an address, or the directory of a Unix socket. */
export interface DatabaseAddress {
  readonly host: string;
  readonly port: number;
  readonly user: string;
  readonly password: string | undefined;
  readonly database: string;
  readonly tls: Tls;
  readonly options: string | undefined;
}

interface Tls {
  readonly mode: 'disable' | 'require' | 'verify-full';
  readonly rootCertificate: string | undefined;
  readonly certificate: string | undefined;
  readonly key: string | undefined;
}

/** One TCP or Unix socket port for all: the default of Postgres. */
const DEFAULT_PORT = 5432;

const KNOWN_PARAMETERS = new Set(['host', 'port', 'sslmode', 'sslrootcert', 'sslcert', 'sslkey', 'options']);

/**
 * Takes a `postgres://` or `postgresql://` URL apart. We do it ourselves because pg keeps a connection string readable in
 * `pool.options`, lets it override our session settings, and reads `sslmode=require` differently from libpq.
 * Throws {@link DatabaseUrlError}.
 */
export function parseDatabaseUrl(secret: Secret): DatabaseAddress {
  const url = parseUrl(secret.reveal());
  if (url.protocol !== 'postgres:' && url.protocol !== 'postgresql:') {
    throw new DatabaseUrlError('a database URL begins with postgresql://');
  }
  const unknown = [...url.searchParams.keys()].find((name) => !KNOWN_PARAMETERS.has(name));
  if (unknown !== undefined) throw new DatabaseUrlError(`the database URL has an unsupported parameter: ${unknown}`);
  const parameter = (name: string): string | undefined => url.searchParams.get(name) || undefined;
  const host = parameter('host') ?? decodeURIComponent(url.hostname.replace(/^\[(.+)\]$/, '$1'));
  if (host === '' || host === SOCKET_PLACEHOLDER) throw new DatabaseUrlError('the database URL names no host');
  const user = decodeURIComponent(url.username);
  if (user === '') throw new DatabaseUrlError('the database URL names no user');
  return {
    host,
    port: Number(parameter('port') ?? (url.port || DEFAULT_PORT)),
    user,
    password: decodeURIComponent(url.password) || undefined,
    database: decodeURIComponent(url.pathname.slice(1)) || user,
    tls: {
      mode: tlsMode(parameter('sslmode')),
      rootCertificate: parameter('sslrootcert'),
      certificate: parameter('sslcert'),
      key: parameter('sslkey'),
    },
    options: parameter('options'),
  };
}

/** The host of `postgres://user:password@/database?host=/directory`, which WHATWG URLs can't express. */
const SOCKET_PLACEHOLDER = 'socket.invalid';

function parseUrl(text: string): URL {
  try {
    return new URL(text.replace('@/', `@${SOCKET_PLACEHOLDER}/`));
  } catch {
    // The error of URL carries its input, which holds the password.
    throw new DatabaseUrlError('the database URL is not a URL');
  }
}

function tlsMode(text: string | undefined): Tls['mode'] {
  switch (text) {
    case undefined:
    case 'disable':
      return 'disable';
    case 'require':
    case 'verify-full':
      return text;
    default:
      throw new DatabaseUrlError(`sslmode=${text} is not supported: use verify-full, require or disable`);
  }
}

/** Whether the address can only lead to this machine. */
export function isLocalAddress(address: DatabaseAddress): boolean {
  return (
    address.host.startsWith('/') ||
    address.host === 'localhost' ||
    address.host === '::1' ||
    /^127(\.\d{1,3}){3}$/.test(address.host)
  );
}

/**
 * Everything pg needs to reach the address. `require` encrypts and verifies nothing, as in libpq. Certificates are read
 * here, once. The search path is pinned last, so that no option of the URL can change it.
 */
export function connectionConfig(address: DatabaseAddress): pg.ClientConfig {
  return {
    host: address.host,
    port: address.port,
    user: address.user,
    ...(address.password === undefined ? {} : { password: address.password }),
    database: address.database,
    ssl: tlsOptions(address.tls),
    options: [address.options, '-c search_path=control,pg_catalog', '-c timezone=UTC'].filter(Boolean).join(' '),
  };
}

function tlsOptions(tls: Tls): false | ConnectionOptions {
  if (tls.mode === 'disable') return false;
  return {
    rejectUnauthorized: tls.mode === 'verify-full',
    ...(tls.rootCertificate === undefined ? {} : { ca: readFileSync(tls.rootCertificate) }),
    ...(tls.certificate === undefined ? {} : { cert: readFileSync(tls.certificate) }),
    ...(tls.key === undefined ? {} : { key: readFileSync(tls.key) }),
  };
}
