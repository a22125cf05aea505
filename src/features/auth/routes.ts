import type { OwnerHandlers } from '../../http/owner-handlers.js';
import { issueAdministratorToken, revokeAdministratorToken, rotateAdministratorToken } from './operations.js';

export const authHandlers = {
  issueAdministratorToken,
  rotateAdministratorToken,
  revokeAdministratorToken,
} satisfies Partial<OwnerHandlers>;
