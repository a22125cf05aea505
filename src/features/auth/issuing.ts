/** Issues, rotates and ends credentials within another operation's transaction. */
import type { TRole } from '../../contract/fleet.js';
import type { Tx } from '../../db/transaction.js';
import type { Random } from '../../random.js';
import type { Secret } from '../../secret.js';
import type { IssuedBearer } from '../audit/mutation.js';
import { administratorToken, newCredentialId, newSecret, type TCredentialKind } from './credential.js';
import { type CredentialRow, insertCredentials, rotateCredential } from './rows.js';

export { lockSubjectCredentials, revokeCredentials } from './rows.js';

export interface CredentialOrder {
  readonly organizationId: string;
  readonly clusterId: string | null;
  readonly kind: TCredentialKind;
  /** Principal, node, or the relay's swarm service. */
  readonly subjectId: string;
  readonly role: TRole | null;
}

export interface IssuedCredential {
  readonly row: CredentialRow;
  /** What its holder presents; shown once. */
  readonly secret: IssuedBearer;
}

/** Issues the first generation of each, in one statement; the result has the order of the orders. */
export async function issueCredentials(
  tx: Tx,
  random: Random,
  orders: readonly CredentialOrder[],
): Promise<IssuedCredential[]> {
  const issued = orders.map((order) => ({ order, id: newCredentialId(random, order.kind), fresh: newSecret(random) }));
  await insertCredentials(
    tx,
    issued.map(({ order, id, fresh }) => ({
      credential_id: id,
      organization_id: order.organizationId,
      cluster_id: order.clusterId,
      kind: order.kind,
      subject_id: order.subjectId,
      role: order.role,
      hash: fresh.hash,
    })),
  );
  return issued.map(({ order, id, fresh }) => {
    const row: CredentialRow = {
      credential_id: id,
      cluster_id: order.clusterId,
      kind: order.kind,
      subject_id: order.subjectId,
      role: order.role,
      newest_generation: 1,
      used_generation: null,
      revoked: false,
    };
    return { row, secret: presentable(row, fresh.secret) };
  });
}

/**
 * Issues the next generation of a credential that the caller has locked and seen alive. The last used one goes on being
 * accepted until the new one is used, unless `forgetUsed`.
 */
export async function rotate(
  tx: Tx,
  random: Random,
  credentialId: string,
  options: { readonly forgetUsed: boolean } = { forgetUsed: false },
): Promise<IssuedCredential> {
  const fresh = newSecret(random);
  const row = await rotateCredential(tx, credentialId, fresh.hash, options);
  return { row, secret: presentable(row, fresh.secret) };
}

function presentable(row: CredentialRow, secret: Secret): IssuedBearer {
  const { credential_id: credentialId, subject_id: subjectId, newest_generation: generation } = row;
  const bearer = row.kind === 'administrator' ? administratorToken(credentialId, secret) : secret;
  return { credentialId, kind: row.kind, subjectId, generation, secret: bearer };
}
