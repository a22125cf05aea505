/** `export`: on the machine of the service, straight to its database, beside a running service or without one. */
import { access } from 'node:fs/promises';
import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import type { ExportedEvidence } from '../features/evidence/export.js';
import { isRefused } from '../refusal.js';
import { type CommandHost, processHost } from './command-host.js';
import { exitCodes, jsonOutputOption, printLine, printResult, refusalText, UsageError } from './output.js';
import { ProgressBar } from './progress-bar.js';

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
      // The server's parts take a second to load, which no other command needs to wait for.
      const { exportOnHost, failureReason } = await import('./export-work.js');
      try {
        const exported = await exportOnHost(host.environment, cluster, out, ({ rows, total, table }) =>
          progress.show(rows, total, table),
        );
        progress.end();
        if (isRefused(exported)) {
          printLine(host, refusalText('Refused', exported));
          host.setExitCode(exitCodes.refused);
          return;
        }
        printResult(host, { file: out, ...exported }, json === true, () => resultLines(out, exported));
      } catch (error) {
        progress.end();
        printLine(host, `Could not export: ${failureReason(error)}`);
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

function resultLines(path: string, { clusterId, rows, digest, auditHead }: ExportedEvidence): string[] {
  const head = auditHead === null ? 'none' : `${auditHead.seq}:${auditHead.digest}`;
  return [
    `${path}: ${rows} rows of cluster ${clusterId}, with the digest ${digest}`,
    `audit head ${head}; write it down: verify ${path} --from ${head} proves that the file goes up to it`,
  ];
}
