/** One consistent read of a cluster of the caller's organization. */
import { refuse, type Refused } from '../../contract/problems.js';
import { read, type ReadTx } from '../../db/transaction.js';
import type { Deps } from '../../deps.js';
import { isRefused } from '../../refusal.js';
import { CorruptRecordError } from '../../stored-record.js';
import { type Cluster, clusterOf } from './facts.js';

/**
 * Refused with `cluster-unknown` where the cluster is not the organization's, and with `record-corrupt` where `work` throws
 * `CorruptRecordError`. `name` is the transaction's.
 */
export async function readCluster<T>(
  deps: Deps,
  name: string,
  actor: { readonly organizationId: string },
  clusterId: string,
  work: (tx: ReadTx, cluster: Cluster) => Promise<T | Refused>,
): Promise<T | Refused> {
  try {
    return await read(deps, name, async (tx) => {
      const cluster = await clusterOf(tx, actor.organizationId, clusterId);
      return isRefused(cluster) ? cluster : work(tx, cluster);
    });
  } catch (error) {
    if (error instanceof CorruptRecordError) return refuse('record-corrupt');
    throw error;
  }
}
