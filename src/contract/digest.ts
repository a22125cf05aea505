/**
 * Digests of accepted records, requests and raw bytes (system rule 2): `sha256:` and 64 hex digits.
 *
 * - a *domain* digest is over UTF-8(domain), one NUL byte, and the canonical JSON: records of two types never share one;
 * - a *bare* digest is over the canonical JSON alone: request, content, set and change digests;
 * - a *bytes* digest is over bytes as they are: Docker's own source and destination strings.
 */
import { sha256 } from '@noble/hashes/sha2.js';
import { bytesToHex, utf8ToBytes } from '@noble/hashes/utils.js';
import { canonicalizeStrictJson, canonicalMembers, type KnownMembers } from './canonical-json.js';
import { isWellFormed } from './strict-json.js';

/** SHA-256 as the contract writes it: lower case, always 71 characters. */
export type TSha256Digest = `sha256:${string}`;

const sha256Digest = /^sha256:[0-9a-f]{64}$/;

export function isSha256Digest(value: unknown): value is TSha256Digest {
  return typeof value === 'string' && sha256Digest.test(value);
}

/**
 * SHA-256 in 64 lower-case hex digits, by the portable implementation that clients use.
 *
 * @param bytes bytes, or a string that is hashed as UTF-8
 * @throws TypeError for a string with a lone surrogate: UTF-8 can't tell it from U+FFFD
 */
export function sha256HexReference(bytes: Uint8Array | string): string {
  return bytesToHex(sha256(typeof bytes === 'string' ? utf8ToBytes(wellFormed(bytes)) : bytes));
}

/** The same as {@link sha256HexReference}, by Node's own implementation where there is one (15 times as fast). */
export function sha256Hex(bytes: Uint8Array | string): string {
  return nativeSha256Hex(typeof bytes === 'string' ? wellFormed(bytes) : bytes);
}

const nativeSha256Hex = findNativeSha256();

function findNativeSha256(): (bytes: Uint8Array | string) => string {
  const crypto = globalThis.process?.getBuiltinModule?.('node:crypto');
  if (crypto === undefined) return sha256HexReference;
  if (typeof crypto.hash === 'function') return (bytes) => crypto.hash('sha256', bytes, 'hex');
  return (bytes) => crypto.createHash('sha256').update(bytes).digest('hex');
}

function wellFormed(text: string): string {
  if (!isWellFormed(text)) throw new TypeError('a string with a lone surrogate has no UTF-8 bytes to hash');
  return text;
}

/** The digest of raw bytes, or of a string's UTF-8 bytes. */
export function bytesDigest(bytes: Uint8Array | string): TSha256Digest {
  return `sha256:${sha256Hex(bytes)}`;
}

/**
 * The bare digest of a strict JSON value.
 *
 * @throws TypeError for a value outside strict JSON
 */
export function bareDigest(value: unknown): TSha256Digest {
  return bareDigestOfCanonical(canonicalizeStrictJson(value));
}

/** The bare digest of what `canonicalizeStrictJson` returned. */
export function bareDigestOfCanonical(canonical: string): TSha256Digest {
  return bytesDigest(canonical);
}

/**
 * The digest of a strict JSON value in a domain.
 *
 * @param domain see {@link digestDomain}
 * @throws TypeError for a value outside strict JSON, and for a domain that is empty or contains NUL
 */
export function domainDigest(domain: string, value: unknown): TSha256Digest {
  return domainDigestOfCanonical(domain, canonicalizeStrictJson(value));
}

/** The digest in a domain of what `canonicalizeStrictJson` returned. */
export function domainDigestOfCanonical(domain: string, canonical: string): TSha256Digest {
  // NUL ends the domain, and canonical JSON escapes it, so no two pairs of domain and text make the same bytes.
  if (domain === '' || domain.includes('\0')) throw new TypeError('a digest domain is not empty and contains no NUL');
  return bytesDigest(`${domain}\0${canonical}`);
}

/**
 * The digest that a record of this domain carries: over the record without its own top-level `digest`, if it has one.
 *
 * @throws TypeError for a record outside strict JSON, also for an array
 */
export function recordDigest(domain: string, record: object): TSha256Digest {
  if (Array.isArray(record)) throw new TypeError('a record is an object');
  return domainDigestOfCanonical(domain, canonicalizeStrictJson(record, { omitMember: 'digest' }));
}

/**
 * A copy of the record with its digest. Only the top level is copied and nothing is frozen.
 *
 * @throws TypeError for a record outside strict JSON, and for one that has a `digest` already
 */
export function sealRecord<R extends object>(
  domain: string,
  recordWithoutDigest: R & { digest?: never },
): R & { digest: TSha256Digest } {
  return sealCanonical(domain, recordWithoutDigest).sealed;
}

/** {@link sealRecord}, with the sealed record's canonical JSON: its members are spelled once for the digest and the text. */
export function sealCanonical<R extends object>(
  domain: string,
  recordWithoutDigest: R & { digest?: never },
  knownMembers?: KnownMembers,
): { readonly sealed: R & { digest: TSha256Digest }; readonly canonical: string } {
  if (Object.hasOwn(recordWithoutDigest, 'digest')) throw new TypeError('the record is sealed already');
  const members = canonicalMembers(recordWithoutDigest, knownMembers);
  const before = members.filter(({ key }) => key < 'digest').map(({ text }) => text);
  const after = members.slice(before.length).map(({ text }) => text);
  const digest = domainDigestOfCanonical(domain, `{${[...before, ...after].join(',')}}`);
  const canonical = `{${[...before, `"digest":"${digest}"`, ...after].join(',')}}`;
  return { sealed: { ...(recordWithoutDigest as R), digest }, canonical };
}

/**
 * The domain of a contract type: `serve.zone/` and the type's name in kebab case without its leading `I` or `T`, e.g.
 * `IRuntimeStorageClaimIntent` → `serve.zone/runtime-storage-claim-intent`.
 *
 * @throws TypeError for what is no type name in upper camel case
 */
export function digestDomain(typeName: string): string {
  if (!/^[A-Z][A-Za-z0-9]*$/.test(typeName)) throw new TypeError('a type name is upper camel case');
  const name = typeName.replace(/^[IT](?=[A-Z])/, '');
  const words = name.replace(/([a-z0-9])([A-Z])/g, '$1-$2').replace(/([A-Z])([A-Z][a-z])/g, '$1-$2');
  return `serve.zone/${words.toLowerCase()}`;
}
