/**
 * Credentials and their generations (system section 4). Pure.
 *
 * 1. A secret is 256 random bits as 43 characters of base64url; only the SHA-256 of that text is kept.
 * 2. Accepted are exactly the newest generation and the last one that was used.
 * 3. Using the newest, where it is not the used one, retires the other.
 * 4. A rotation replaces the newest and leaves the used one: an answer that got lost locks nobody out.
 * 5. Revocation ends all generations; the hashes stay, so that the right bearer can be told apart from a wrong one.
 */
import { timingSafeEqual } from 'node:crypto';
import { sha256Hex } from '../../contract/digest.js';
import { AdministratorToken, type credentialKinds } from '../../contract/fleet.js';
import { BearerSecret } from '../../contract/observation.js';
import { Identifier } from '../../contract/schema.js';
import { newBearer, newIdentifier, type Random } from '../../random.js';
import { Secret } from '../../secret.js';

export type TCredentialKind = (typeof credentialKinds)[number];

/** The kind can be read off the id, because an issued secret is shown beside nothing else. */
const idPrefixes: Readonly<Record<TCredentialKind, string>> = {
  administrator: 'ad',
  'node-token': 'nt',
  'node-session': 'ns',
  'coreflow-relay': 'cr',
  'ingress-launcher': 'il',
};

export function newCredentialId(random: Random, kind: TCredentialKind): string {
  return newIdentifier(random, idPrefixes[kind]);
}

/** A generation's secret, to be shown once, and what is kept of it. */
export interface FreshSecret {
  readonly secret: Secret;
  readonly hash: Buffer;
}

export function newSecret(random: Random): FreshSecret {
  const secret = newBearer(random);
  return { secret, hash: hashSecret(secret) };
}

/** 32 bytes. */
export function hashSecret(secret: Secret): Buffer {
  return Buffer.from(sha256Hex(secret.reveal()), 'hex');
}

/** An administrator's token as it is written into the `Authorization` header. */
export function administratorToken(credentialId: string, secret: Secret): Secret {
  return new Secret(`fc.${credentialId}.${secret.reveal()}`);
}

const tokenPattern = new RegExp(AdministratorToken.pattern ?? '');
const secretPattern = new RegExp(BearerSecret.pattern ?? '');
const identifierPattern = new RegExp(Identifier.pattern ?? '');

export interface PresentedToken {
  readonly credentialId: string;
  readonly secret: Secret;
}

/** Takes `Bearer fc.<credential id>.<secret>` apart; undefined for everything else. */
export function parseAuthorization(header: string): PresentedToken | undefined {
  const token = /^Bearer +(\S+)$/i.exec(header.slice(0, 512))?.[1];
  if (token === undefined || !tokenPattern.test(token)) return undefined;
  const [, credentialId = '', secret = ''] = token.split('.');
  return { credentialId, secret: new Secret(secret) };
}

export function isBearerSecret(secret: Secret): boolean {
  return secretPattern.test(secret.reveal());
}

/** Postgres can't even be asked for some texts that are no identifiers. */
export function isIdentifier(text: string): boolean {
  return identifierPattern.test(text);
}

/** What the verifier looks at. */
export interface KeptHashes {
  readonly newest_generation: number;
  readonly newest_hash: Buffer;
  readonly used_generation: number | null;
  /** Null where there is none, and may be where it is the newest. */
  readonly used_hash: Buffer | null;
}

/** `first-use`: the newest generation, which has to be noted as used before it is accepted. */
export type TMatch = 'refused' | 'accepted' | 'first-use';

/** Compares in constant time with both hashes, whichever matches. */
export function matchSecret(kept: KeptHashes, hash: Buffer): TMatch {
  const newest = timingSafeEqual(kept.newest_hash, hash);
  const used = timingSafeEqual(kept.used_hash ?? kept.newest_hash, hash) && kept.used_hash !== null;
  if (newest) return kept.used_generation === kept.newest_generation ? 'accepted' : 'first-use';
  return used ? 'accepted' : 'refused';
}
