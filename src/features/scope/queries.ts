/** Scope and target set as administrators and operators read them. */
import type { MethodRequest, MethodResponse } from '../../contract/methods.js';
import { refuse, type Refused } from '../../contract/problems.js';
import { referenceOf, sameReference } from '../../contract/schema.js';
import { present } from '../../db/present.js';
import type { Deps } from '../../deps.js';
import type { AdministratorActor } from '../auth/actor.js';
import { readCluster } from '../fleet/read-cluster.js';
import { readScopeHead, readTargetSetHead, scopeRevision, targetSetRevision } from './facts.js';

export function readFleetCutoverScope(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'readFleetCutoverScope'>,
): Promise<MethodResponse<'readFleetCutoverScope'> | Refused> {
  const { clusterId, scope: pin } = input;
  return readCluster(deps, 'readFleetCutoverScope', actor, clusterId, async (tx) => {
    const generation = pin?.generation ?? present(await readScopeHead(tx, clusterId)).generation;
    const scope = await scopeRevision(tx, clusterId, generation);
    if (scope === undefined) return refuse(pin === null ? 'record-unknown' : 'pin-unknown');
    return pin !== null && !sameReference(pin, referenceOf(scope)) ? refuse('pin-unknown') : { scope };
  });
}

export function readFleetCutoverTargetSet(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'readFleetCutoverTargetSet'>,
): Promise<MethodResponse<'readFleetCutoverTargetSet'> | Refused> {
  const { clusterId, targetSet: pin } = input;
  return readCluster(deps, 'readFleetCutoverTargetSet', actor, clusterId, async (tx) => {
    const generation = pin?.generation ?? present(await readTargetSetHead(tx, clusterId)).generation;
    const targetSet = await targetSetRevision(tx, clusterId, generation);
    if (targetSet === undefined) return refuse(pin === null ? 'record-unknown' : 'pin-unknown');
    return pin !== null && !sameReference(pin, referenceOf(targetSet)) ? refuse('pin-unknown') : { targetSet };
  });
}
