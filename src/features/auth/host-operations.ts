/** What is done on the host with direct access to the database, where no token is needed. Audited under the principal `host`. */
import { refuse, type Refused } from '../../contract/problems.js';
import { inTransaction, type Tx } from '../../db/transaction.js';
import type { Deps } from '../../deps.js';
import { newIdentifier } from '../../random.js';
import { organizationChainId } from '../audit/chain.js';
import { type AuditedCaller, mutationContext } from '../audit/context.js';
import { commitAudited, openChain } from '../audit/rows.js';
import { refuseIssue } from './administrators.js';
import { issueCredentials } from './issuing.js';
import { credentialState } from './response.js';
import {
  insertOrganization,
  liveAdministrators,
  lockOrganizationRow,
  organizationOfCredential,
  revokeCredentials,
} from './rows.js';

export interface BootstrapInput {
  readonly organizationId: string;
  readonly principalId: string;
  /** Issue a token although the organization has a living administrator. */
  readonly additional: boolean;
}

/**
 * Begins an organization where there is none, and issues an administrator's token for it. Refused: `principal-exists`
 * where the organization has an administrator (unless `additional`) or the principal has a token. The answer shows the token
 * once, as the wire's answers do.
 */
export function bootstrap(
  deps: Deps,
  input: BootstrapInput,
): Promise<{ token: string; credentialId: string } | Refused> {
  return inTransaction(deps, 'hostBootstrap', async (tx) => {
    const { organizationId, principalId } = input;
    // In this order: the row that a concurrent bootstrap inserts is waited for, then locked.
    void insertOrganization(tx, organizationId);
    void openChain(tx, organizationChainId(organizationId));
    void lockOrganizationRow(tx, organizationId);
    const living = await liveAdministrators(tx, organizationId);
    const refused = refuseBootstrap(living, input);
    if (refused) return refused;
    const order = { kind: 'administrator', clusterId: null, role: 'administrator', subjectId: principalId } as const;
    const [issued] = await issueCredentials(tx, deps.random, [{ ...order, organizationId }]);
    if (issued === undefined) throw new Error('no credential was issued');
    const result = { credential: credentialState(issued.row) };
    await commitAsHost(deps, tx, organizationId, 'hostBootstrap', { ...input }, result);
    return { token: issued.secret.secret.reveal(), credentialId: issued.row.credential_id };
  });
}

function refuseBootstrap(living: Parameters<typeof refuseIssue>[0], input: BootstrapInput): Refused | null {
  if (!input.additional && living.some((row) => row.role === 'administrator')) {
    return refuse('principal-exists', {
      detail: 'The organization has an administrator, who can issue tokens; --additional issues one more from here',
    });
  }
  return refuseIssue(living, input.principalId);
}

/**
 * Ends all generations of an administrator's or operator's credential, also of an organization's last one. Refused:
 * `credential-unknown`. Nodes are revoked by `revokeNode`, which ends their sessions, too.
 */
export function revokeOnHost(deps: Deps, credentialId: string): Promise<{ credentialId: string } | Refused> {
  return inTransaction(deps, 'hostRevokeCredential', async (tx) => {
    const found = await organizationOfCredential(tx, credentialId);
    if (found === undefined || found.kind !== 'administrator') return refuse('credential-unknown');
    await lockOrganizationRow(tx, found.organization_id);
    const [row] = await revokeCredentials(tx, [credentialId]);
    if (row === undefined) return refuse('credential-unknown');
    const result = { credential: credentialState(row) };
    await commitAsHost(deps, tx, found.organization_id, 'hostRevokeCredential', { credentialId }, result);
    return { credentialId };
  });
}

async function commitAsHost(
  deps: Deps,
  tx: Tx,
  organizationId: string,
  method: string,
  payload: object,
  result: unknown,
): Promise<void> {
  const host: AuditedCaller = { organizationId, principalId: 'host', credentialId: 'host' };
  const input = { ...payload, mutationId: newIdentifier(deps.random, 'host') };
  await commitAudited(tx, mutationContext(host, method, null, input, deps.clock), result);
}
