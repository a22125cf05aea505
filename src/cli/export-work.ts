/** What `export` does. It needs the server's own parts, and is loaded only where it runs. */
import { readConfig } from '../config.js';
import type { Refused } from '../contract/problems.js';
import { type ExportedEvidence, exportEvidence } from '../features/evidence/export.js';
import { writeWhole } from '../features/evidence/file.js';
import { onHostDatabase } from '../host-access.js';
import { isRefused } from '../refusal.js';
import type { Environment } from './settings.js';
import { untilSignalled } from './until-signalled.js';

export { failureReason } from './failure-reason.js';

/** A signal, a refusal and a failure leave no file. */
export function exportOnHost(
  environment: Environment,
  clusterId: string,
  path: string,
  show: Parameters<typeof exportEvidence>[3],
): Promise<ExportedEvidence | Refused> {
  return untilSignalled((signal) =>
    onHostDatabase(readConfig(environment), (deps) =>
      writeWhole(path, signal, async (file) => {
        const value = await exportEvidence(deps, clusterId, file.write, show);
        return { value, keep: !isRefused(value) };
      }),
    ),
  );
}
