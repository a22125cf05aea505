/** Reads the key-encryption keys, and refuses to start without one that is needed. */
import { readFile } from 'node:fs/promises';
import type { KeySource } from './config.js';
import type { Deps } from './deps.js';
import { missingKeys } from './features/ingress/operations.js';
import { type KeyRing, KeyRingError, parseKeyRing } from './features/ingress/sealing.js';

/** Throws {@link KeyRingError}; never shows a key. */
export async function readKeyRing(source: KeySource | null): Promise<KeyRing> {
  if (source === null) return [];
  if (source.kind === 'environment') return parseKeyRing(source.keys.reveal());
  let text: string;
  try {
    text = await readFile(source.path, 'utf8');
  } catch (cause) {
    throw new KeyRingError(`the key-encryption keys in ${source.path} cannot be read`, { cause });
  }
  return parseKeyRing(text);
}

/** Throws {@link KeyRingError} where something is sealed under a key that is not there. */
export async function demandKeys(deps: Deps, ring: KeyRing): Promise<void> {
  const missing = await missingKeys(deps, ring);
  if (missing.length === 0) return;
  throw new KeyRingError(
    `secrets are sealed under ${missing.join(', ')}: add these keys to KEY_ENCRYPTION_KEYS_FILE; host reseal lets old ones go`,
  );
}
