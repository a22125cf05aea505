/**
 * `verify` without the service's database: the rows of a file are put into an empty database of this program's schema, and the
 * very same verification runs there.
 *
 * Why not over an abstract source of rows: what `verify` knows is half SQL (joins, lateral look-ups, digests by range), so that
 * a second source would be a second implementation, and two judges of one thing come to differ. A real Postgres comes with the
 * program and starts in a second; what it can't judge, because the file does not have it, are hashes of credentials and sealed
 * bytes.
 */
import type { Deps } from '../../deps.js';
import { isRefused } from '../../refusal.js';
import type { Finding } from '../verify/finding.js';
import type { RememberedHead } from '../verify/remembered-head.js';
import { verify, type VerifyProgress, type VerifyReport } from '../verify/verify.js';
import { findLines } from './find-lines.js';
import {
  DamagedFileError,
  type EvidenceLine,
  type LineFault,
  loadEvidence,
  NoEvidenceError,
  type RowSink,
  shown,
} from './load.js';

export interface FileFinding extends Finding {
  /** From 1; null where the row is not in the file. */
  readonly line: number | null;
}

export interface FileReport extends Omit<VerifyReport, 'findings'> {
  readonly findings: readonly FileFinding[];
  /** Over all lines before the trailer. */
  readonly digest: string;
  /** Lines that are no rows, are not whole, or stand where they should not. At most 1,000. */
  readonly faults: readonly LineFault[];
  readonly faultCount: number;
}

/** An empty database of this program's schema. */
export interface EmptyDatabase extends RowSink {
  readonly deps: Deps;
  /** All rows are there. */
  loaded(): Promise<void>;
}

/**
 * `open` begins to read the file; it is read a second time where there are findings. Throws `NoEvidenceError`, and what `open`
 * and the database throw.
 */
export async function verifyFile(
  open: () => AsyncIterable<EvidenceLine>,
  database: EmptyDatabase,
  remembered: readonly RememberedHead[],
  onProgress: (progress: VerifyProgress) => void = () => {},
): Promise<FileReport> {
  const evidence = await loadEvidence(open(), database, (rows, total) => onProgress({ clusterId: null, rows, total }));
  const { header, faults, faultCount, digest } = evidence;
  const unread = { rows: 0, findings: [], findingCount: 0, digest, faults, faultCount, clean: false };
  if (header === null) return { ...unread, clusters: [], skipped: ['all rows: the header is broken'] };
  const { clusterId } = header;
  const foreign = remembered.find(({ chainId }) => chainId !== null && chainId !== clusterId);
  if (foreign !== undefined)
    throw new NoEvidenceError(`it has the chain of cluster ${clusterId} alone, not ${foreign.chainId}`);
  const clusters = [clusterId];
  if (!evidence.whole) return { ...unread, clusters, skipped: ['all rows: the file is not whole'] };
  if (evidence.refusedCount > evidence.refused.length) {
    const skipped = [`all other rows: more than ${evidence.refused.length} are such as no table stores`];
    const findings = await withLines(open, evidence.refused);
    return { ...unread, clusters, findings, findingCount: evidence.refusedCount, skipped };
  }
  await database.loaded();
  const report = await verify(database.deps, { clusterId, remembered, known: evidence.refused }, onProgress);
  if (isRefused(report)) {
    const finding = { table: 'clusters', key: { cluster_id: clusterId } };
    const lost = { ...finding, what: 'the row is missing', how: 'the header names the cluster', line: null };
    return {
      ...unread,
      clusters,
      findings: [lost],
      findingCount: 1,
      skipped: ['all other rows: it is not known whose'],
    };
  }
  return {
    ...report,
    clean: report.clean && faultCount === 0,
    findings: await withLines(open, report.findings),
    digest,
    faults,
    faultCount,
  };
}

async function withLines(
  open: () => AsyncIterable<EvidenceLine>,
  findings: readonly Finding[],
): Promise<readonly FileFinding[]> {
  if (findings.length === 0) return [];
  const lines = await findLines(withoutDamage(open()), findings);
  return findings.map((finding) => ({ ...finding, how: shown(finding.how), line: lines.get(finding) ?? null }));
}

/** It was told already. */
async function* withoutDamage(lines: AsyncIterable<EvidenceLine>): AsyncGenerator<EvidenceLine, void, undefined> {
  try {
    yield* lines;
  } catch (error) {
    if (!(error instanceof DamagedFileError)) throw error;
  }
}
