import { sql } from 'kysely';
import { canonicalizeStrictJson } from '../../contract/canonical-json.js';
import { handoffId } from '../../contract/record-id.js';
import type { IFleetCutoverWriteOff } from '../../contract/write-off.js';
import { qb } from '../../db/query.js';
import type { Tx } from '../../db/transaction.js';

/** Its primary key refuses a second proposal or confirmation in the same moment: 0 says that another one was faster. */
export function insertWriteOff(tx: Tx, clusterLife: string, writeOff: IFleetCutoverWriteOff): Promise<number> {
  const { clusterId, id, generation, digest, state, subject } = writeOff;
  const volume = subject.kind === 'volume' ? handoffId(clusterLife, subject) : null;
  return tx.run(
    sql`
      insert into control.write_offs (cluster_id, write_off_id, generation, digest, state, node_id, handoff_id, record)
      values (${clusterId}, ${id}, ${generation}, ${digest}, ${state}, ${subject.nodeId}, ${volume},
        ${canonicalizeStrictJson(writeOff)})
      on conflict on constraint write_offs_key do nothing`.compile(qb),
  );
}
