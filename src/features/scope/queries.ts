/** Scope and target set as administrators and operators read them. */
import type { MethodRequest, MethodResponse } from '../../contract/methods.js';
import { refuse, type Refused } from '../../contract/problems.js';
import type { IFleetCutoverScope, IFleetCutoverTargetSet } from '../../contract/scope.js';
import { referenceOf, sameReference } from '../../contract/schema.js';
import { present } from '../../db/present.js';
import type { Deps } from '../../deps.js';
import { demandStored } from '../../stored-record.js';
import type { AdministratorActor } from '../auth/actor.js';
import { readCluster } from '../fleet/read-cluster.js';
import { readScopeHead, readTargetSetHead, storedRevision } from './facts.js';

export function readFleetCutoverScope(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'readFleetCutoverScope'>,
): Promise<MethodResponse<'readFleetCutoverScope'> | Refused> {
  const { clusterId, scope: pin } = input;
  return readCluster(deps, 'readFleetCutoverScope', actor, clusterId, async (tx) => {
    const generation = pin?.generation ?? present(await readScopeHead(tx, clusterId)).generation;
    const stored = await storedRevision(tx, 'scope_revisions', clusterId, generation);
    if (stored === undefined) return refuse(pin === null ? 'record-unknown' : 'pin-unknown');
    const scope = demandStored<IFleetCutoverScope>('IFleetCutoverScope', stored.record, stored);
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
    const stored = await storedRevision(tx, 'target_set_revisions', clusterId, generation);
    if (stored === undefined) return refuse(pin === null ? 'record-unknown' : 'pin-unknown');
    const targetSet = demandStored<IFleetCutoverTargetSet>('IFleetCutoverTargetSet', stored.record, stored);
    return pin !== null && !sameReference(pin, referenceOf(targetSet)) ? refuse('pin-unknown') : { targetSet };
  });
}
