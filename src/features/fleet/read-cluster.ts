/** One consistent read of a cluster of the caller's organization. */
import type { Refused } from '../../contract/problems.js';
import { read, type ReadTx } from '../../db/transaction.js';
import type { Deps } from '../../deps.js';
import { isRefused } from '../../refusal.js';
import { type Cluster, clusterOf } from './facts.js';

/** Refused with `cluster-unknown` where the cluster is not the organization's. `name` is the transaction's. */
export function readCluster<T>(
  deps: Deps,
  name: string,
  actor: { readonly organizationId: string },
  clusterId: string,
  work: (tx: ReadTx, cluster: Cluster) => Promise<T | Refused>,
): Promise<T | Refused> {
  return read(deps, name, async (tx) => {
    const cluster = await clusterOf(tx, actor.organizationId, clusterId);
    return isRefused(cluster) ? cluster : work(tx, cluster);
  });
}
