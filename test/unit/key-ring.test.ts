import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readConfig } from '../../src/config.js';
import { KeyRingError } from '../../src/features/ingress/sealing.js';
import { readKeyRing } from '../../src/key-ring.js';
import { Secret } from '../../src/secret.js';
import { explainStartupError } from '../../src/startup-error.js';

const key = Buffer.alloc(32, 5).toString('base64');
let directory: string;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'fleet-cutover-keys-'));
});
afterAll(() => rm(directory, { recursive: true }));

const file = async (text: string) => {
  const path = join(directory, 'keys');
  await writeFile(path, text);
  return { kind: 'file', path } as const;
};

describe('readKeyRing', () => {
  it('reads the file, or the environment, or nothing', async () => {
    expect(await readKeyRing(null)).toEqual([]);
    const [fromFile] = await readKeyRing(await file(`f:${key}\n`));
    expect([fromFile?.keyId, fromFile?.key.reveal()]).toEqual(['f', key]);
    const [fromEnvironment] = await readKeyRing({ kind: 'environment', keys: new Secret(`e:${key}`) });
    expect([fromEnvironment?.keyId, fromEnvironment?.key.reveal()]).toEqual(['e', key]);
  });

  it('refuses a source that is there and holds no key, or cannot be read', async () => {
    for (const source of [
      await file('# none yet\n'),
      { kind: 'environment', keys: new Secret('#') } as const,
      { kind: 'file', path: join(directory, 'absent') } as const,
    ]) {
      const error: unknown = await readKeyRing(source).catch((caught: unknown) => caught);
      expect(error).toBeInstanceOf(KeyRingError);
      expect(explainStartupError(error)).toMatch(/keys|key-encryption key/);
    }
  });

  it('shows no key, neither in the ring nor in the configuration nor in an error', async () => {
    const environment = readConfig({ KEY_ENCRYPTION_KEYS: `e:${key}` });
    const ring = await readKeyRing(environment.keys);
    const broken: unknown = await readKeyRing(await file(`f:${key}\nf:${key}`)).catch((caught: unknown) => caught);
    for (const shown of [environment, ring, broken]) {
      expect(inspect(shown, { depth: 9, showHidden: true })).not.toContain(key);
      expect(JSON.stringify(shown)).not.toContain(key);
    }
  });
});

describe('the configuration', () => {
  it('takes keys from a file or from the environment, not from both', () => {
    expect(readConfig({}).keys).toBeNull();
    expect(readConfig({ KEY_ENCRYPTION_KEYS_FILE: '/keys' }).keys).toEqual({ kind: 'file', path: '/keys' });
    const both = () => readConfig({ KEY_ENCRYPTION_KEYS_FILE: '/keys', KEY_ENCRYPTION_KEYS: `e:${key}` });
    expect(both).toThrow('exclude each other');
    expect(both).not.toThrow(key);
  });
});
