/** `export`: on the machine of the service, straight to its database, beside a running service or without one. */
import { access } from 'node:fs/promises';
import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import { readConfig } from '../config.js';
import { problemCatalogue, type Refused } from '../contract/problems.js';
import { type ExportedEvidence, exportEvidence } from '../features/evidence/export.js';
import { writeWhole } from '../features/evidence/file.js';
import { onHostDatabase } from '../host-access.js';
import { isRefused } from '../refusal.js';
import { type CommandHost, processHost } from './command-host.js';
import { failureReason } from './failure-reason.js';
import { exitCodes, jsonOutputOption, printResult, UsageError } from './output.js';
import { ProgressBar } from './progress-bar.js';
import { untilSignalled } from './until-signalled.js';

export function registerExport(program: CommandUnknownOpts, host: CommandHost = processHost): void {
  program
    .command('export')
    .description('write the evidence of one cluster to a file that `verify FILE` judges without a database')
    .requiredOption('--cluster <id>', 'the cluster')
    .requiredOption('--out <file>', 'the new file; gzipped where it ends in .gz')
    .addOption(jsonOutputOption())
    .addHelpText(
      'after',
      '\nThe file holds no token, no hash of one and nothing sealed. Exit codes: 0 written, 1 refused, 2 usage, 3 not written.',
    )
    .action(async ({ cluster, out, json }) => {
      // Evidence is not overwritten.
      if (await exists(out)) throw new UsageError(`${out} exists`);
      const progress = new ProgressBar(host, json === true);
      try {
        const exported = await untilWritten(host, cluster, out, progress);
        progress.end();
        if (isRefused(exported)) {
          const { code, detail } = exported.problem;
          host.stderr(`Refused (${code}): ${detail ?? problemCatalogue[code].title}\n`);
          host.setExitCode(exitCodes.refused);
          return;
        }
        printResult(host, { file: out, ...exported }, json === true, () => resultLines(out, exported));
      } catch (error) {
        progress.end();
        host.stderr(`Could not export: ${failureReason(error)}\n`);
        host.setExitCode(exitCodes.unreachable);
      }
    });
}

function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}

function untilWritten(
  host: CommandHost,
  clusterId: string,
  path: string,
  progress: ProgressBar,
): Promise<ExportedEvidence | Refused> {
  return untilSignalled((signal) =>
    onHostDatabase(readConfig(host.environment), (deps) =>
      writeWhole(path, signal, async (file) => {
        const value = await exportEvidence(deps, clusterId, file.write, ({ rows, total, table }) =>
          progress.show(rows, total, table),
        );
        return { value, keep: !isRefused(value) };
      }),
    ),
  );
}

function resultLines(path: string, { clusterId, rows, digest, auditHead }: ExportedEvidence): string[] {
  const head = auditHead === null ? 'none' : `${auditHead.seq}:${auditHead.digest}`;
  return [
    `${path}: ${rows} rows of cluster ${clusterId}, with the digest ${digest}`,
    `audit head ${head}; write it down: verify ${path} --from ${head} proves that the file goes up to it`,
  ];
}
