import { inspect } from 'node:util';
import { resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ConfigError, readConfig } from '../../src/config.js';
import { connectionConfig, DatabaseUrlError, parseDatabaseUrl } from '../../src/db/connection.js';
import { Secret } from '../../src/secret.js';

const REMOTE = 'postgresql://service:hunter2@db.example.net:6432/cutover';

describe('settings', () => {
  it('have defaults that need no environment', () => {
    expect(readConfig({ PATH: '/bin', PORT: '' })).toEqual({
      database: { kind: 'embedded', dataDirectory: resolve('.data/postgres') },
      host: '127.0.0.1',
      port: 8080,
      logLevel: 'info',
      poolSize: 8,
      statementTimeoutMs: 15_000,
      lockTimeoutMs: 5_000,
      keys: null,
      docs: true,
      trustedProxies: [],
    });
  });

  it('switch the description of the API off, and know no third way', () => {
    expect(readConfig({ DOCS: 'off' }).docs).toBe(false);
    expect(() => readConfig({ DOCS: 'no' })).toThrow(ConfigError);
  });

  it('are read from the environment', () => {
    const config = readConfig({ PORT: '0', HOST: '::', LOG_LEVEL: 'debug', POOL_SIZE: '3', LOCK_TIMEOUT_MS: '100' });
    expect(config).toMatchObject({ port: 0, host: '::', logLevel: 'debug', poolSize: 3, lockTimeoutMs: 100 });
  });

  it.each([
    { PORT: '65536' },
    { PORT: 'http' },
    { PORT: '80.5' },
    { POOL_SIZE: '0' },
    { LOG_LEVEL: 'loud' },
    { STATEMENT_TIMEOUT_MS: '15s' },
    { DATABASE_URL: 'postgresql://a@localhost/b', DATABASE_TLS: 'maybe' },
  ])('are refused: %o', (environment) => {
    expect(() => readConfig(environment)).toThrow(ConfigError);
    expect(() => readConfig(environment)).toThrow(Object.keys(environment).at(-1));
  });

  it('name the proxies that are believed', () => {
    const read = (text: string) => readConfig({ TRUSTED_PROXIES: text }).trustedProxies;
    expect(read('10.0.0.0/8, 192.0.2.7,2001:db8::/32,loopback')).toEqual([
      '10.0.0.0/8',
      '192.0.2.7',
      '2001:db8::/32',
      'loopback',
    ]);
    const wrong = [
      '0.0.0.0/0',
      '10.0.0.0/33',
      '10.0.0.0/08',
      '10.0.0.1/8/8',
      '10.0.0.1,',
      ',',
      'true',
      '*',
      '1',
      'proxy',
    ];
    for (const text of [...wrong, '::/129', 'fe80::1%eth0', '10.0.0.0/255.0.0.0']) {
      expect(() => read(text), text).toThrow(ConfigError);
    }
  });

  it('need the service’s URL beside the owner’s', () => {
    expect(() => readConfig({ MIGRATION_DATABASE_URL: 'postgresql://a@localhost/b' })).toThrow('needs DATABASE_URL');
  });
});

describe('a database on another machine', () => {
  it.each(['', '?sslmode=disable', '?sslmode=require'])('is refused with %s', (query) => {
    const refuse = (): unknown => readConfig({ DATABASE_URL: REMOTE + query });
    expect(refuse).toThrow('sslmode=verify-full');
    expect(refuse).not.toThrow('hunter2');
  });

  it('is refused as the owner’s, too', () => {
    const environment = { DATABASE_URL: `${REMOTE}?sslmode=verify-full`, MIGRATION_DATABASE_URL: REMOTE };
    expect(() => readConfig(environment)).toThrow('MIGRATION_DATABASE_URL leads to another machine');
  });

  it.each([
    [{ DATABASE_URL: `${REMOTE}?sslmode=verify-full` }],
    [{ DATABASE_URL: REMOTE, DATABASE_TLS: 'insecure' }],
    [{ DATABASE_URL: 'postgres://service:x@127.0.0.1/cutover' }],
    [{ DATABASE_URL: 'postgres://service:x@[::1]/cutover' }],
    [{ DATABASE_URL: 'postgres://service:x@%2Fvar%2Frun/cutover' }],
    [{ DATABASE_URL: 'postgres://service:x@/cutover?host=/var/run' }],
  ])('is accepted: %o', (environment) => {
    expect(readConfig(environment).database.kind).toBe('external');
  });

  it('is not mistaken for this one', () => {
    for (const host of ['127.0.0.1.example.net', 'localhost.example.net', '128.0.0.1']) {
      expect(() => readConfig({ DATABASE_URL: `postgres://a:b@${host}/c` })).toThrow('another machine');
    }
    expect(() => readConfig({ DATABASE_URL: 'postgres://a:b@localhost/c?host=db.example.net' })).toThrow(
      'another machine',
    );
  });
});

describe('a database URL', () => {
  it('is taken apart', () => {
    const address = parseDatabaseUrl(
      new Secret('postgres://us%40er:p%2Fw@%2Ftmp%2Fa/d%20b?port=6000&options=-c%20x.y%3D1'),
    );
    expect(address).toMatchObject({ host: '/tmp/a', port: 6000, user: 'us@er', password: 'p/w', database: 'd b' });
    expect(connectionConfig(address).options).toBe('-c x.y=1 -c search_path=control,pg_catalog -c timezone=UTC');
    expect(connectionConfig(address).ssl).toBe(false);
  });

  it('verifies certificates where it says so, and only there', () => {
    const tls = (mode: string): unknown =>
      connectionConfig(parseDatabaseUrl(new Secret(`${REMOTE}?sslmode=${mode}`))).ssl;
    expect(tls('verify-full')).toEqual({ rejectUnauthorized: true });
    expect(tls('require')).toEqual({ rejectUnauthorized: false });
  });

  it.each([
    ['hunter2 is not a URL', 'not a URL'],
    ['mysql://a:hunter2@localhost/b', 'begins with postgresql://'],
    ['postgres://a:hunter2@/b', 'no host'],
    ['postgres://localhost/hunter2', 'no user'],
    ['postgres://a:hunter2@localhost/b?sslmode=prefer', 'sslmode=prefer'],
    ['postgres://a:hunter2@localhost/b?statement_timeout=0', 'statement_timeout'],
  ])('is refused without being shown: %s', (url, message) => {
    const parse = (): unknown => parseDatabaseUrl(new Secret(url));
    expect(parse).toThrow(DatabaseUrlError);
    expect(parse).toThrow(message);
    expect(parse).not.toThrow('hunter2');
  });
});

describe('a secret', () => {
  it('shows itself to nobody but who asks for it', () => {
    const secret = new Secret('hunter2');
    const shown = [
      String(secret),
      `${secret}`,
      JSON.stringify({ secret }),
      inspect({ secret }, { showHidden: true, depth: 9 }),
    ];
    for (const text of shown) expect(text).not.toContain('hunter2');
    expect(Object.entries(secret)).toEqual([]);
    expect(secret.reveal()).toBe('hunter2');
  });
});
