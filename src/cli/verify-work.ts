/** What `verify` does. It needs the server's own parts, and is loaded only where it runs. */
import { access, constants } from 'node:fs/promises';
import { readConfig } from '../config.js';
import type { Refused } from '../contract/problems.js';
import { readLines } from '../features/evidence/file.js';
import { type FileReport, verifyFile } from '../features/evidence/verify-file.js';
import type { RememberedHead } from '../features/verify/remembered-head.js';
import { verify, type VerifyProgress, type VerifyReport } from '../features/verify/verify.js';
import { onHostDatabase } from '../host-access.js';
import { onTemporaryDatabase } from '../temporary-database.js';
import type { Environment } from './settings.js';
import { untilSignalled } from './until-signalled.js';

export { failureReason } from './failure-reason.js';

type Show = (progress: VerifyProgress) => void;

export function verifyDatabase(
  environment: Environment,
  input: Parameters<typeof verify>[1],
  show: Show,
): Promise<VerifyReport | Refused> {
  return onHostDatabase(readConfig(environment), (deps) => verify(deps, input, show));
}

export async function verifyEvidence(
  path: string,
  remembered: readonly RememberedHead[],
  show: Show,
): Promise<FileReport> {
  await access(path, constants.R_OK);
  return await untilSignalled((signal) =>
    onTemporaryDatabase(signal, (database) => verifyFile(() => readLines(path), database, remembered, show)),
  );
}
