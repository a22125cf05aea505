import { sql } from 'kysely';
import { canonicalizeStrictJson } from '../../contract/canonical-json.js';
import { digestDomain, sealRecord } from '../../contract/digest.js';
import { runtimeId } from '../../contract/record-id.js';
import type { IFleetCutoverRuntime } from '../../contract/runtime.js';
import { qb } from '../../db/query.js';
import type { Tx } from '../../db/transaction.js';

/** The first runtime record of a new cluster, in phase `swarm`. */
export function firstRuntime(cluster: {
  readonly clusterId: string;
  readonly clusterLife: string;
}): IFleetCutoverRuntime {
  return sealRecord(digestDomain('IFleetCutoverRuntime'), {
    id: runtimeId(cluster.clusterLife),
    generation: 1,
    clusterId: cluster.clusterId,
    phase: 'swarm' as const,
    gate: null,
    predecessor: null,
  });
}

export async function insertRuntime(tx: Tx, runtime: IFleetCutoverRuntime): Promise<void> {
  const { clusterId, generation, digest, phase } = runtime;
  await Promise.all([
    tx.run(
      sql`insert into control.runtime_revisions (cluster_id, generation, digest, phase, record)
        values (${clusterId}, ${generation}, ${digest}, ${phase}, ${canonicalizeStrictJson(runtime)})`.compile(qb),
    ),
    tx.run(
      sql`insert into control.runtime_heads (cluster_id, generation, digest, phase)
        values (${clusterId}, ${generation}, ${digest}, ${phase})`.compile(qb),
    ),
  ]);
}
