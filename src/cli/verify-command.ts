/**
 * `verify`: on the machine of the service, straight to its database, beside a running service or without one; `verify FILE`: of
 * exported evidence, anywhere.
 */
import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import type { Finding } from '../features/verify/finding.js';
import type { LineFault } from '../features/evidence/load.js';
import type { FileFinding, FileReport } from '../features/evidence/verify-file.js';
import { parseRememberedHead, type RememberedHead } from '../features/verify/remembered-head.js';
import type { VerifyProgress, VerifyReport } from '../features/verify/verify.js';
import { isRefused } from '../refusal.js';
import { type CommandHost, processHost } from './command-host.js';
import { exitCodes, jsonOutputOption, printLine, printResult, refusalText, UsageError } from './output.js';
import { ProgressBar } from './progress-bar.js';

export function registerVerify(program: CommandUnknownOpts, host: CommandHost = processHost): void {
  program
    .command('verify')
    .description(
      'compute everything again from the rows of the database, or of a file that export has written, and name every row that is wrong',
    )
    .argument('[file]', 'exported evidence; needs no database and no service')
    .option('--cluster <id>', 'this cluster alone, not all of them and the organizations')
    .option(
      '--from <head>',
      'an audit head that you have written down, SEQ:DIGEST or CHAIN:SEQ:DIGEST: prove that the chain still contains it; may be repeated',
      (text, known: readonly RememberedHead[]) => [...known, rememberedHead(text)],
      [] as readonly RememberedHead[],
    )
    .addOption(jsonOutputOption())
    .addHelpText(
      'after',
      '\nExit codes: 0 everything is as it was written, 1 something is not, 2 usage, 3 it could not be verified.',
    )
    .action(async (file, { cluster, from, json }) => {
      if (file !== undefined && cluster !== undefined)
        throw new UsageError('a file has one cluster: --cluster is for the database');
      const progress = new ProgressBar(host, json === true);
      const show = ({ clusterId, rows, total }: VerifyProgress) =>
        progress.show(rows, total, clusterId ?? (file === undefined ? 'audit chains' : 'reading'));
      // The server's parts take a second to load, which no other command needs to wait for.
      const { failureReason, verifyDatabase, verifyEvidence } = await import('./verify-work.js');
      try {
        if (file === undefined) {
          const input = { clusterId: cluster ?? null, remembered: from };
          const report = await verifyDatabase(host.environment, input, show);
          progress.end();
          if (isRefused(report)) {
            printLine(host, refusalText('Could not verify', report));
            host.setExitCode(exitCodes.unreachable);
            return;
          }
          printReport(host, report, json === true, reportLines(report));
          return;
        }
        const report = await verifyEvidence(file, from, show);
        progress.end();
        printReport(host, report, json === true, fileReportLines(report));
      } catch (error) {
        progress.end();
        // Every failure means the same here: nothing is known about the rows.
        printLine(host, `Could not verify: ${failureReason(error)}`);
        host.setExitCode(exitCodes.unreachable);
      }
    });
}

function printReport(host: CommandHost, report: { readonly clean: boolean }, asJson: boolean, lines: string[]): void {
  printResult(host, report, asJson, () => lines);
  host.setExitCode(report.clean ? exitCodes.done : exitCodes.refused);
}

function rememberedHead(text: string): RememberedHead {
  const head = parseRememberedHead(text);
  if (head === undefined)
    throw new UsageError(
      '--from has to be SEQ:DIGEST or CHAIN:SEQ:DIGEST, with the digest as sha256: and 64 hex digits',
    );
  return head;
}

function reportLines(report: VerifyReport): string[] {
  const scope = `${report.rows} rows of ${report.clusters.length === 1 ? 'cluster' : 'clusters'} ${report.clusters.join(', ') || 'none'}`;
  if (report.clean) return [`clean: ${scope} are as they were written`];
  return [
    ...report.findings.map(findingLine),
    ...unlisted(report.findingCount - report.findings.length),
    ...report.skipped.map((what) => `not compared: ${what}`),
    `${report.findingCount} of ${scope} are wrong`,
  ];
}

function fileReportLines(report: FileReport): string[] {
  const scope = `the evidence of cluster ${report.clusters.join() || 'unknown'}`;
  if (report.clean) return [`clean: ${scope} is as it was written, with the digest ${report.digest}`];
  return [
    ...report.faults.map(faultLine),
    ...unlisted(report.faultCount - report.faults.length),
    ...report.findings.map(fileFindingLine),
    ...unlisted(report.findingCount - report.findings.length),
    ...report.skipped.map((what) => `not compared: ${what}`),
    `${report.faultCount} lines and ${report.findingCount} rows of ${scope} are wrong`,
  ];
}

function unlisted(count: number): string[] {
  return count > 0 ? [`… and ${count} more`] : [];
}

function faultLine({ line, what, how }: LineFault): string {
  return `line ${line}: ${what} (${how})`;
}

function fileFindingLine(finding: FileFinding): string {
  return `${finding.line === null ? '' : `line ${finding.line}: `}${findingLine(finding)}`;
}

function findingLine({ table, key, what, how }: Finding): string {
  const columns = Object.entries(key).map(([name, value]) => `${name}=${value ?? '?'}`);
  return `${table} ${columns.join(' ')}: ${what} (${how})`;
}
