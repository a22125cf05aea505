/** Accepted evidence as administrators and operators read it. */
import type { MethodRequest, MethodResponse } from '../../contract/methods.js';
import type { IFleetCutoverManagerSnapshot } from '../../contract/observation.js';
import { refuse, type Refused } from '../../contract/problems.js';
import { sameReference } from '../../contract/schema.js';
import type { Deps } from '../../deps.js';
import { demandSnapshot } from '../../stored-record.js';
import type { AdministratorActor } from '../auth/actor.js';
import { readCluster } from '../fleet/read-cluster.js';
import { managerSnapshot, managerSnapshotHead, managerSnapshotReference } from './facts.js';

export function readFleetCutoverManagerSnapshot(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'readFleetCutoverManagerSnapshot'>,
): Promise<MethodResponse<'readFleetCutoverManagerSnapshot'> | Refused> {
  const { clusterId, snapshot: pin } = input;
  return readCluster(deps, 'readFleetCutoverManagerSnapshot', actor, clusterId, async (tx, cluster) => {
    const generation = pin?.generation ?? (await managerSnapshotHead(tx, clusterId))?.generation;
    if (generation === undefined) return refuse('record-unknown');
    const accepted = await managerSnapshot(tx, clusterId, generation);
    if (accepted === undefined) return refuse('pin-unknown');
    const reference = managerSnapshotReference(cluster.clusterLife, { generation, digest: accepted.digest });
    if (pin !== null && !sameReference(pin, reference)) return refuse('pin-unknown');
    const { record, digest } = accepted;
    return {
      reference,
      snapshot: demandSnapshot<IFleetCutoverManagerSnapshot>('IFleetCutoverManagerSnapshot', record, digest),
    };
  });
}
