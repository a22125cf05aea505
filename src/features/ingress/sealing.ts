/**
 * Sealing of secrets that must be delivered later: AES-256-GCM under a key-encryption key that Postgres never sees.
 *
 * 1. Associated data bind a sealed value to its cluster, service, credential, generation and key: it opens nowhere else.
 * 2. The first key of the ring seals; the others only open what they sealed.
 * 3. Every nonce is 96 random bits, every tag 128: a shorter tag would be easier to forge and does not open.
 */
import { createCipheriv, createDecipheriv } from 'node:crypto';
import { canonicalizeStrictJson } from '../../contract/canonical-json.js';
import type { Random } from '../../random.js';
import { Secret } from '../../secret.js';

export interface KeyEncryptionKey {
  readonly keyId: string;
  /** 32 bytes as base64. */
  readonly key: Secret;
}

/** Keys in the order of preference; empty where none is configured. */
export type KeyRing = readonly KeyEncryptionKey[];

export interface SealBinding {
  readonly clusterId: string;
  readonly serviceId: string;
  readonly credentialId: string;
  readonly generation: number;
}

export interface Sealed {
  readonly keyId: string;
  readonly nonce: Buffer;
  /** Ciphertext and the 16 bytes of the tag. */
  readonly ciphertext: Buffer;
}

const algorithm = 'aes-256-gcm';
const nonceBytes = 12;
const tagBytes = 16;
const gcm = { authTagLength: tagBytes } as const;

function associatedData(binding: SealBinding, keyId: string): Buffer {
  return Buffer.from(canonicalizeStrictJson({ ...binding, keyId }));
}

export function seal(ring: KeyRing, random: Random, binding: SealBinding, secret: Secret): Sealed {
  const [active] = ring;
  if (active === undefined) throw new Error('no key-encryption key is configured');
  const nonce = random.bytes(nonceBytes);
  const cipher = createCipheriv(algorithm, keyBytes(active), nonce, gcm);
  cipher.setAAD(associatedData(binding, active.keyId));
  const ciphertext = Buffer.concat([cipher.update(secret.reveal(), 'utf8'), cipher.final(), cipher.getAuthTag()]);
  return { keyId: active.keyId, nonce, ciphertext };
}

/** A sealed value that its key does not open: changed, of another binding, or sealed under another key of the same id. */
export class SealBrokenError extends Error {
  override readonly name = 'SealBrokenError';
}

/** Throws {@link KeyRingError} where the key is missing, {@link SealBrokenError} where it does not open the value. */
export function open(ring: KeyRing, binding: SealBinding, sealed: Sealed): Secret {
  const key = ring.find((each) => each.keyId === sealed.keyId);
  if (key === undefined) throw new KeyRingError(`the key-encryption key ${sealed.keyId} is not configured`);
  const bodyLength = sealed.ciphertext.length - tagBytes;
  if (bodyLength < 0 || sealed.nonce.length !== nonceBytes) throw new SealBrokenError('a sealed value is too short');
  const decipher = createDecipheriv(algorithm, keyBytes(key), sealed.nonce, gcm);
  decipher.setAAD(associatedData(binding, sealed.keyId));
  decipher.setAuthTag(sealed.ciphertext.subarray(bodyLength));
  const body = sealed.ciphertext.subarray(0, bodyLength);
  try {
    return new Secret(Buffer.concat([decipher.update(body), decipher.final()]).toString('utf8'));
  } catch (cause) {
    throw new SealBrokenError(`the key ${sealed.keyId} does not open a value that is sealed under its id`, { cause });
  }
}

function keyBytes({ keyId, key }: KeyEncryptionKey): Buffer {
  const bytes = Buffer.from(key.reveal(), 'base64');
  if (bytes.length !== 32) throw new KeyRingError(`the key-encryption key ${keyId} has not 32 bytes`);
  return bytes;
}

/** Key-encryption keys that cannot be used as they are, or that something needs and that are not there. */
export class KeyRingError extends Error {
  override readonly name = 'KeyRingError';
}

const linePattern = /^([A-Za-z0-9][A-Za-z0-9._-]{0,63}):([A-Za-z0-9+/]{43}=)$/;

/** One key a line, `<key id>:<32 bytes as base64>`, the sealing one first; `#` begins a comment. Never shows a key. */
export function parseKeyRing(text: Secret): KeyRing {
  const ring: KeyEncryptionKey[] = [];
  for (const [index, raw] of text.reveal().split('\n').entries()) {
    const line = raw.trim();
    if (line === '' || line.startsWith('#')) continue;
    const match = linePattern.exec(line);
    if (match === null)
      throw new KeyRingError(`line ${index + 1} of the key-encryption keys is not <key id>:<32 bytes as base64>`);
    const [, keyId = '', key = ''] = match;
    if (ring.some((each) => each.keyId === keyId))
      throw new KeyRingError(`the key-encryption key ${keyId} is there twice`);
    ring.push({ keyId, key: new Secret(key) });
  }
  return ring;
}
