import type { ICredentialState } from '../../contract/fleet.js';
import type { CredentialRow } from './rows.js';

export function credentialState(row: CredentialRow): ICredentialState {
  return {
    credentialId: row.credential_id,
    kind: row.kind,
    subjectId: row.subject_id,
    role: row.role,
    newestGeneration: row.newest_generation,
    usedGeneration: row.used_generation,
    revoked: row.revoked,
  };
}
