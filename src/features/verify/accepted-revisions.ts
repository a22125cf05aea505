/** What the audit chain of a cluster says about its aggregate: one row per revision, with every handoff that changed. */
import type { IHandoffOutcome } from '../../contract/cutover-methods.js';
import {
  fleetCutoverPreparedVolumeHandoffAggregateRecord,
  handoffChangeDigest,
  type IFleetCutoverPreparedVolumeHandoffAggregate,
} from '../../contract/handoff.js';
import type { TMethodName } from '../../contract/methods.js';
import { auditRows, type StoredAuditRow } from './audit-chains.js';
import type { SetChange } from './handoff-set.js';
import { readCanonical } from './sealed-record.js';
import type { Verification } from './verification.js';

const methods: readonly TMethodName[] = ['prepareFleetCutoverVolumeHandoffs', 'rederiveFleetCutoverVolumeHandoffs'];

export interface AcceptedRevision {
  readonly seq: number;
  readonly aggregate: IFleetCutoverPreparedVolumeHandoffAggregate;
  /** Sorted by nothing; null where they do not have the aggregate's change digest. */
  readonly changes: readonly SetChange[] | null;
}

interface RecordedResult {
  readonly aggregate?: IFleetCutoverPreparedVolumeHandoffAggregate;
  readonly handoffs?: readonly IHandoffOutcome[];
}

/** Reads them in the order of their generations. Rows that were found to be changed are passed over. */
export class AcceptedRevisions {
  readonly #rows: AsyncGenerator<AcceptedRevision, void, undefined>;
  #next: IteratorResult<AcceptedRevision, void> | undefined;

  constructor(verification: Verification, chainId: string) {
    this.#rows = acceptedRevisions(verification, chainId);
  }

  /** Undefined where no sound row names the generation. */
  async of(generation: number): Promise<AcceptedRevision | undefined> {
    this.#next ??= await this.#rows.next();
    while (this.#next.done !== true && this.#next.value.aggregate.generation < generation)
      this.#next = await this.#rows.next();
    if (this.#next.done === true || this.#next.value.aggregate.generation !== generation) return undefined;
    return this.#next.value;
  }
}

async function* acceptedRevisions(
  verification: Verification,
  chainId: string,
): AsyncGenerator<AcceptedRevision, void, undefined> {
  for await (const rows of auditRows(verification, chainId, methods)) {
    for (const row of rows) {
      if (verification.findings.has('audit_rows', { chain_id: chainId, seq: row.seq })) continue;
      const accepted = readRevision(row);
      if (accepted !== undefined) yield accepted;
    }
  }
}

function readRevision(row: StoredAuditRow): AcceptedRevision | undefined {
  const { aggregate, handoffs = [] } = readCanonical(row.result) as RecordedResult;
  if (aggregate === undefined || fleetCutoverPreparedVolumeHandoffAggregateRecord.check(aggregate).length > 0)
    return undefined;
  const changes = handoffs.flatMap(({ nodeId, id, change, reference }): SetChange[] => {
    if (change === 'unchanged') return [];
    return [
      {
        nodeId,
        id,
        handoff: change === 'removed' ? null : { generation: reference.generation, digest: reference.digest },
      },
    ];
  });
  const sound = handoffChangeDigest([...changes]) === aggregate.changeDigest;
  return { seq: row.seq, aggregate, changes: sound ? changes : null };
}
