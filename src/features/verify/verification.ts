/** What every part of a verification works with. */
import type { ReadTx } from '../../db/transaction.js';
import type { Findings } from './finding.js';

export interface Verification {
  /** One REPEATABLE READ transaction: the rows of one moment, beside a service that goes on. */
  readonly tx: ReadTx;
  readonly findings: Findings;
  /** What could not be compared because a row that it depends on is broken. */
  readonly skipped: string[];
  /** So many more rows were looked at. */
  advance(rows: number): void;
}

export interface VerifiedCluster {
  readonly clusterId: string;
  readonly organizationId: string;
  readonly clusterLife: string;
  readonly swarmId: string | null;
  readonly controllerId: string;
  readonly controllerEpoch: number;
  readonly runtimeNamespace: string;
}

/** Pages of rows, each read after the one before was worked off: memory holds one. `next` gets the last row of the page before. */
export async function* pagesOf<R>(next: (last: R | undefined) => Promise<R[]>): AsyncGenerator<R[], void, undefined> {
  let last: R | undefined;
  for (;;) {
    const rows = await next(last);
    if (rows.length === 0) return;
    yield rows;
    last = rows.at(-1);
  }
}
