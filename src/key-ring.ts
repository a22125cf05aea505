/** Reads the key-encryption keys, and refuses to start without one that is needed. */
import { readFile } from 'node:fs/promises';
import type { KeySource } from './config.js';
import type { Deps } from './deps.js';
import { keyStates } from './features/ingress/operations.js';
import { type KeyRing, KeyRingError, parseKeyRing } from './features/ingress/sealing.js';
import { Secret } from './secret.js';

/** Empty where no keys are configured. Throws {@link KeyRingError}, also for a source without a key; never shows a key. */
export async function readKeyRing(source: KeySource | null): Promise<KeyRing> {
  if (source === null) return [];
  const ring = parseKeyRing(await readKeys(source));
  if (ring.length === 0) throw new KeyRingError(`${nameOf(source)} holds no key-encryption key`);
  return ring;
}

async function readKeys(source: KeySource): Promise<Secret> {
  if (source.kind === 'environment') return source.keys;
  try {
    return new Secret(await readFile(source.path, 'utf8'));
  } catch (cause) {
    throw new KeyRingError(`the key-encryption keys in ${source.path} cannot be read`, { cause });
  }
}

function nameOf(source: KeySource): string {
  return source.kind === 'file' ? source.path : 'KEY_ENCRYPTION_KEYS';
}

/**
 * Throws {@link KeyRingError} where something is sealed under a key that is not there, or whose id stands before another key
 * than the one that sealed.
 */
export async function demandKeys(deps: Deps, ring: KeyRing): Promise<void> {
  const states = await keyStates(deps, ring);
  const idsOf = (wanted: 'missing' | 'wrong') =>
    states
      .filter(({ state }) => state === wanted)
      .map(({ keyId }) => keyId)
      .join(', ');
  if (idsOf('missing') !== '') {
    throw new KeyRingError(
      `secrets are sealed under ${idsOf('missing')}: add these keys to KEY_ENCRYPTION_KEYS_FILE; host reseal lets old ones go`,
    );
  }
  if (idsOf('wrong') !== '') {
    throw new KeyRingError(`${idsOf('wrong')} does not open what was sealed under this id: the key is another one`);
  }
}
