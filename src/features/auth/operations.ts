/** Tokens of administrators and operators. Each operation holds the organization's row, so that they can't pass each other. */
import type { MethodRequest, MethodResponse } from '../../contract/methods.js';
import { refuse, type Refused } from '../../contract/problems.js';
import type { ReadTx } from '../../db/transaction.js';
import type { Deps } from '../../deps.js';
import { mutate } from '../audit/mutation.js';
import type { AdministratorActor } from './actor.js';
import { refuseIssue, refuseRevocation, refuseRotation } from './administrators.js';
import { issueCredentials, rotate } from './issuing.js';
import { credentialState } from './response.js';
import {
  findCredential,
  liveAdministrators,
  lockAdministratorCredential,
  lockOrganizationRow,
  revokeCredentials,
} from './rows.js';

export function issueAdministratorToken(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'issueAdministratorToken'>,
): Promise<MethodResponse<'issueAdministratorToken'> | Refused> {
  return mutate(deps, actor, input, {
    method: 'issueAdministratorToken',
    clusterId: null,
    lock: (tx) => lockOrganizationRow(tx, actor.organizationId),
    apply: async (tx) => {
      const refused = refuseIssue(await liveAdministrators(tx, actor.organizationId), input.principalId);
      if (refused) return refused;
      const order = { kind: 'administrator', clusterId: null, subjectId: input.principalId, role: input.role } as const;
      const [issued] = await issueCredentials(tx, deps.random, [{ ...order, organizationId: actor.organizationId }]);
      if (issued === undefined) throw new Error('no credential was issued');
      return { result: { credential: credentialState(issued.row) }, secrets: [issued.secret] };
    },
    isCurrent: (tx, recorded) => isNewestAndAlive(tx, actor.organizationId, recorded.credential),
  });
}

export function rotateAdministratorToken(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'rotateAdministratorToken'>,
): Promise<MethodResponse<'rotateAdministratorToken'> | Refused> {
  return mutate(deps, actor, input, {
    method: 'rotateAdministratorToken',
    clusterId: null,
    lock: (tx) => lockOrganizationRow(tx, actor.organizationId),
    apply: async (tx) => {
      const refused = refuseRotation(await lockAdministratorCredential(tx, actor.organizationId, input.credentialId));
      if (refused) return refused;
      const issued = await rotate(tx, deps.random, input.credentialId);
      return { result: { credential: credentialState(issued.row) }, secrets: [issued.secret] };
    },
    isCurrent: (tx, recorded) => isNewestAndAlive(tx, actor.organizationId, recorded.credential),
  });
}

export function revokeAdministratorToken(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'revokeAdministratorToken'>,
): Promise<MethodResponse<'revokeAdministratorToken'> | Refused> {
  return mutate(deps, actor, input, {
    method: 'revokeAdministratorToken',
    clusterId: null,
    lock: (tx) => lockOrganizationRow(tx, actor.organizationId),
    apply: async (tx) => {
      const row = await lockAdministratorCredential(tx, actor.organizationId, input.credentialId);
      if (row === undefined) return refuse('credential-unknown', { mutationOutcome: 'not-applied', retrySafe: false });
      const refused = refuseRevocation(await liveAdministrators(tx, actor.organizationId), input.credentialId);
      if (refused) return refused;
      const [revoked] = await revokeCredentials(tx, [input.credentialId]);
      return { result: { credential: credentialState(revoked ?? row) } };
    },
    // For good.
    isCurrent: () => Promise.resolve(true),
  });
}

/** Whether a generation that was issued is still the newest of a living credential. */
export async function isNewestAndAlive(
  tx: ReadTx,
  organizationId: string,
  issued: { readonly credentialId: string; readonly newestGeneration: number },
): Promise<boolean> {
  const row = await findCredential(tx, organizationId, issued.credentialId);
  return row !== undefined && !row.revoked && row.newest_generation === issued.newestGeneration;
}
