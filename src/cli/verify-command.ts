/** `verify`: on the machine of the service, straight to its database, beside a running service or without one. */
import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import { readConfig } from '../config.js';
import { problemCatalogue } from '../contract/problems.js';
import type { Finding } from '../features/verify/finding.js';
import { parseRememberedHead, type RememberedHead } from '../features/verify/remembered-head.js';
import { verify, type VerifyProgress, type VerifyReport } from '../features/verify/verify.js';
import { onHostDatabase } from '../host-access.js';
import { isRefused } from '../refusal.js';
import { explainStartupError } from '../startup-error.js';
import { type CommandHost, processHost } from './command-host.js';
import { exitCodes, jsonOutputOption, printResult, UsageError } from './output.js';

export function registerVerify(program: CommandUnknownOpts, host: CommandHost = processHost): void {
  program
    .command('verify')
    .description('compute everything again from the rows of the database, and name every row that is wrong')
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
    .action(async ({ cluster, from, json }) => {
      const progress = new ProgressBar(host, process.stderr.isTTY === true && json !== true);
      try {
        const input = { clusterId: cluster ?? null, remembered: from };
        const report = await onHostDatabase(readConfig(host.environment), (deps) =>
          verify(deps, input, (step) => progress.show(step)),
        );
        progress.end();
        if (isRefused(report)) {
          const { code, detail } = report.problem;
          host.stderr(`Could not verify (${code}): ${detail ?? problemCatalogue[code].title}\n`);
          host.setExitCode(exitCodes.unreachable);
          return;
        }
        printResult(host, report, json === true, () => reportLines(report));
        host.setExitCode(report.clean ? exitCodes.done : exitCodes.refused);
      } catch (error) {
        progress.end();
        // Every failure means the same here: nothing is known about the rows.
        host.stderr(
          `Could not verify: ${explainStartupError(error) ?? (error instanceof Error ? error.message : 'failed')}\n`,
        );
        host.setExitCode(exitCodes.unreachable);
      }
    });
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
  const unlisted = report.findingCount - report.findings.length;
  return [
    ...report.findings.map(findingLine),
    ...(unlisted > 0 ? [`… and ${unlisted} more`] : []),
    ...report.skipped.map((what) => `not compared: ${what}`),
    `${report.findingCount} of ${scope} are wrong`,
  ];
}

function findingLine({ table, key, what, how }: Finding): string {
  const columns = Object.entries(key).map(([name, value]) => `${name}=${value ?? '?'}`);
  return `${table} ${columns.join(' ')}: ${what} (${how})`;
}

const width = 30;
/** Milliseconds between two drawings. */
const interval = 100;

class ProgressBar {
  readonly #host: CommandHost;
  readonly #visible: boolean;
  #drawn = 0;

  constructor(host: CommandHost, visible: boolean) {
    this.#host = host;
    this.#visible = visible;
  }

  show({ clusterId, rows, total }: VerifyProgress): void {
    const now = performance.now();
    if (!this.#visible || now - this.#drawn < interval) return;
    this.#drawn = now;
    const share = Math.min(1, rows / Math.max(1, total));
    const bar = '#'.repeat(Math.round(share * width)).padEnd(width, '.');
    this.#host.stderr(`\r\u001b[K[${bar}] ${Math.floor(share * 100)} % ${clusterId ?? 'audit chains'}`);
  }

  end(): void {
    if (this.#drawn > 0) this.#host.stderr('\r\u001b[K');
  }
}
