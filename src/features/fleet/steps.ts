/** Steps in another feature's transaction that holds the cluster's row. */
import { sql } from 'kysely';
import type { IClusterServiceSpec, IClusterServiceSpecContent } from '../../contract/fleet.js';
import { qb } from '../../db/query.js';
import type { ReadTx, Tx } from '../../db/transaction.js';
import { specOf } from './response.js';
import { findSpec, swapSpec } from './rows.js';
import { nextSpec, sameContent } from './spec.js';

export interface CurrentSpec {
  readonly spec: IClusterServiceSpec;
  /** This revision is released. */
  readonly released: boolean;
  /** Generation of the newest revision that was released; null where none was. */
  readonly newestRelease: number | null;
}

export async function currentSpec(tx: ReadTx, clusterId: string, serviceId: string): Promise<CurrentSpec | undefined> {
  const [row, { newestRelease }] = await Promise.all([
    findSpec(tx, clusterId, serviceId, null),
    tx.one(
      sql<{ newestRelease: number | null }>`
        select max(generation) as "newestRelease" from control.service_spec_releases
         where cluster_id = ${clusterId} and service_id = ${serviceId}`.compile(qb),
    ),
  ]);
  return row === undefined ? undefined : { spec: specOf(row), released: row.released, newestRelease };
}

/** The next held revision, where the content differs; else the current one. */
export async function advanceSpec(
  tx: Tx,
  cluster: { readonly clusterId: string; readonly clusterLife: string },
  current: IClusterServiceSpec,
  content: IClusterServiceSpecContent,
): Promise<IClusterServiceSpec> {
  if (sameContent(current, content)) return current;
  const spec = nextSpec(cluster, current.serviceId, content, {
    id: current.id,
    generation: current.generation,
    digest: current.digest,
  });
  const { serviceId, generation, digest } = current;
  if ((await swapSpec(tx, spec, { serviceId, generation, digest, record: '' })) === 0)
    throw new Error('the spec moved under the cluster’s lock');
  return spec;
}
