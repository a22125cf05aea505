/**
 * Who administers an organization. Pure.
 *
 * 1. A principal has at most one living credential: a lost token is rotated, not issued again beside the old one.
 * 2. An organization keeps at least one living credential with the role of an administrator, unless the command on the host
 *    ends it.
 */
import { refuse, type Refused } from '../../contract/problems.js';
import type { CredentialRow } from './rows.js';

const notApplied = { mutationOutcome: 'not-applied', retrySafe: false } as const;

/** Null: a token may be issued. `living` are the organization's living credentials of administrators and operators. */
export function refuseIssue(living: readonly CredentialRow[], principalId: string): Refused | null {
  if (principalId === 'host') {
    return refuse('principal-exists', { ...notApplied, detail: 'host is who the commands on the host are audited as' });
  }
  if (!living.some((row) => row.subject_id === principalId)) return null;
  return refuse('principal-exists', { ...notApplied, detail: 'The principal has a token; rotate or revoke it' });
}

/** Null: the credential may be revoked. A revoked one may be, too: nothing is left to do. */
export function refuseRevocation(living: readonly CredentialRow[], credentialId: string): Refused | null {
  const administrators = living.filter((row) => row.role === 'administrator');
  const isLast = administrators.length === 1 && administrators[0]?.credential_id === credentialId;
  return isLast ? refuse('last-administrator', notApplied) : null;
}

/** Null: the credential exists and may be rotated. */
export function refuseRotation(row: CredentialRow | undefined): Refused | null {
  if (row === undefined) return refuse('credential-unknown', notApplied);
  if (row.revoked) return refuse('credential-unknown', { ...notApplied, detail: 'The credential is revoked' });
  return null;
}
