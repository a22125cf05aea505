/** Opening a sealed bearer by another way than the service's, and telling whether an answer shows it. */
import { createDecipheriv, createHash, randomBytes } from 'node:crypto';
import type pg from 'pg';
import { canonicalText } from './oracle-digest.js';
import type { AnswerBody, RawAnswer } from './oracle-http.js';

/** The key-encryption key of services under fault, as its file has it. */
export interface SealingKey {
  readonly keyId: string;
  /** 32 bytes as base64. */
  readonly key: string;
}

export function newSealingKey(): SealingKey {
  return { keyId: 'faults', key: randomBytes(32).toString('base64') };
}

interface SealedRow {
  readonly nonce: Buffer;
  readonly ciphertext: Buffer;
  readonly newest_hash: Buffer;
  readonly newest_generation: string;
}

/**
 * The designation's bearer and the hash that its holder is judged by were written together: what is sealed opens to what
 * is kept as a hash, under the designated generation. No answer shows either.
 */
export async function judgeSealedBearer(
  database: pg.Pool,
  key: SealingKey,
  designation: AnswerBody,
  answers: readonly RawAnswer[],
): Promise<string[]> {
  const { clusterId, serviceId, credential, secret } = designation;
  const { rows } = await database.query<SealedRow>(
    `select nonce, ciphertext, newest_hash, newest_generation from control.sealed_secrets
       join control.credentials using (credential_id)
      where sealed_secrets.cluster_id = $1 and secret_id = $2 and version = $3 and not revoked`,
    [clusterId, secret.secretId, secret.version],
  );
  const [row] = rows;
  if (rows.length !== 1 || row === undefined) return [`${rows.length} sealed secrets of the designation`];
  const faults: string[] = [];
  if (Number(row.newest_generation) !== credential.generation)
    faults.push(`designated is generation ${credential.generation}, the newest is ${row.newest_generation}`);
  const cipher = createDecipheriv('aes-256-gcm', Buffer.from(key.key, 'base64'), row.nonce, { authTagLength: 16 });
  cipher.setAAD(Buffer.from(canonicalText({ clusterId, serviceId, ...credential, keyId: key.keyId })));
  cipher.setAuthTag(row.ciphertext.subarray(-16));
  const bearer = Buffer.concat([cipher.update(row.ciphertext.subarray(0, -16)), cipher.final()]).toString();
  const hash = createHash('sha256').update(bearer).digest();
  if (!hash.equals(row.newest_hash)) faults.push('the sealed bearer is not the one that the verifier knows');
  const secrets = [bearer, Buffer.from(bearer).toString('base64'), hash.toString('hex'), hash.toString('base64')];
  for (const { text } of answers) {
    if (secrets.some((each) => text.includes(each))) faults.push('an answer shows the bearer or its hash');
  }
  return faults;
}
