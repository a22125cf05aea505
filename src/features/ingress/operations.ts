/** Designating the new ingress and rotating its launcher's bearer: one owning transaction. */
import { fleetCutoverIngressDesignationRecord, type IFleetCutoverIngressDesignation } from '../../contract/ingress.js';
import type { MethodRequest, MethodResponse } from '../../contract/methods.js';
import { refuse, type Refused, refuseStale } from '../../contract/problems.js';
import { type Reference, referenceOf, sameReference } from '../../contract/schema.js';
import { present } from '../../db/present.js';
import { inTransaction, read, type Tx } from '../../db/transaction.js';
import type { Deps } from '../../deps.js';
import { isRefused } from '../../refusal.js';
import { mutate } from '../audit/mutation.js';
import type { AdministratorActor } from '../auth/actor.js';
import { issueCredentials, lockSubjectCredentials, revokeCredentials, rotate } from '../auth/issuing.js';
import { credentialState } from '../auth/response.js';
import { type Cluster, lockClusterOf, shareServices } from '../fleet/facts.js';
import { readCluster } from '../fleet/read-cluster.js';
import { advanceSpec, currentSpec } from '../fleet/steps.js';
import { refuseByPhase } from '../phase/phase.js';
import { refuseOtherRuntime, type RuntimeHead, shareRuntime } from '../phase/facts.js';
import {
  refuseOtherScope,
  type RevisionHead,
  shareScopeHead,
  shareTargetSetHead,
  targetSetReference,
} from '../scope/facts.js';
import { launcherSecretId, nextDesignation, refuseDesignation, withLauncherSecret } from './designation.js';
import {
  currentDesignation,
  designationAt,
  insertSealedSecret,
  lockSealedUnderOtherKeys,
  portFacts,
  resealSecret,
  type SealedRow,
  sealedByEachKey,
  swapDesignation,
} from './rows.js';
import { type KeyRing, open, type SealBinding, SealBrokenError, seal } from './sealing.js';

type Prepare = MethodRequest<'prepareFleetCutoverIngress'>;

interface Locked {
  readonly cluster: Cluster;
  readonly runtime: RuntimeHead;
  readonly scope: RevisionHead;
  readonly targetSet: RevisionHead;
}

/** The cluster's row is locked against every other writer of specs and designations. */
async function lockOwners(tx: Tx, actor: AdministratorActor, clusterId: string): Promise<Locked | Refused> {
  const [cluster, runtime, scope, targetSet] = await Promise.all([
    lockClusterOf(tx, actor.organizationId, clusterId),
    shareRuntime(tx, clusterId),
    shareScopeHead(tx, clusterId),
    shareTargetSetHead(tx, clusterId),
  ]);
  if (isRefused(cluster)) return cluster;
  return { cluster, runtime: present(runtime), scope: present(scope), targetSet: present(targetSet) };
}

const notApplied = { mutationOutcome: 'not-applied', retrySafe: false } as const;

export function prepareFleetCutoverIngress(
  ring: KeyRing,
  deps: Deps,
  actor: AdministratorActor,
  input: Prepare,
): Promise<MethodResponse<'prepareFleetCutoverIngress'> | Refused> {
  const { clusterId, serviceId } = input;
  return mutate(deps, actor, input, {
    method: 'prepareFleetCutoverIngress',
    clusterId,
    lock: (tx) => lockOwners(tx, actor, clusterId),
    apply: async (tx, locked) => {
      const stale = refuseStaleReferences(locked, input);
      if (stale !== null) return stale;
      const { cluster } = locked;
      const [[service], spec, current, first, ports] = await Promise.all([
        shareServices(tx, actor.organizationId, [serviceId]),
        currentSpec(tx, clusterId, serviceId),
        currentDesignation(tx, clusterId),
        designationAt(tx, clusterId, 1),
        portFacts(tx, clusterId, serviceId, locked.runtime.generation),
      ]);
      const refused = refuseDesignation(input, {
        service,
        spec: spec?.spec,
        specReleased: spec?.released ?? false,
        newestRelease: spec?.newestRelease ?? null,
        current,
        firstDesignatedSpec: first?.spec.generation ?? null,
        nodesWithoutPorts: ports.filter((each) => !each.current).map((each) => each.nodeId),
        nodesWithItsPorts: ports.filter((each) => each.holds).map((each) => each.nodeId),
      });
      if (refused !== null) return refused;
      if (ring.length === 0) return refuse('sealing-unavailable', notApplied);
      const credential = await nextLauncherCredential(tx, deps, ring, cluster, serviceId);
      const secretId = launcherSecretId(cluster.clusterLife, credential.credentialId);
      const before = present(spec).spec;
      const content = withLauncherSecret(before, secretId, credential.generation);
      const advanced = await advanceSpec(tx, cluster, before, content);
      const designation = nextDesignation(current, {
        clusterId,
        clusterLife: cluster.clusterLife,
        serviceId,
        runtime: input.runtime,
        scope: input.scope,
        targetSet: input.targetSet,
        spec: referenceOf(advanced),
        credential,
        secretId,
      });
      if ((await swapDesignation(tx, designation)) === 'stale')
        throw new Error('the designation moved although the cluster is locked');
      return { result: { designation, spec: referenceOf(advanced) } };
    },
    isCurrent: async (tx, recorded) => {
      const current = await currentDesignation(tx, clusterId);
      return current !== undefined && sameReference(referenceOf(recorded.designation), referenceOf(current));
    },
  });
}

function refuseStaleReferences({ cluster, runtime, scope, targetSet }: Locked, input: Prepare): Refused | null {
  const targets: Reference | null = targetSetReference(cluster.clusterLife, targetSet);
  return (
    refuseOtherRuntime(cluster.clusterLife, runtime, input.runtime) ??
    refuseByPhase(runtime.phase, 'prepare-ingress') ??
    refuseOtherScope(cluster.clusterLife, scope, input.scope) ??
    (sameReference(input.targetSet, targets) ? null : refuseStale('target-set-stale', 'targetSet', targets))
  );
}

/**
 * A new generation of the launcher's bearer: its hash for the verifier, its value sealed for the launcher, nothing else. A
 * revoked credential stays as it is; another one follows it.
 */
async function nextLauncherCredential(
  tx: Tx,
  deps: Deps,
  ring: KeyRing,
  cluster: Cluster,
  serviceId: string,
): Promise<{ readonly credentialId: string; readonly generation: number }> {
  const { clusterId, organizationId } = cluster;
  const known = (await lockSubjectCredentials(tx, clusterId, serviceId, ['ingress-launcher'])).find(
    (credential) => !credential.revoked,
  );
  const order = { kind: 'ingress-launcher', organizationId, clusterId, subjectId: serviceId, role: null } as const;
  const [issued] =
    known === undefined
      ? await issueCredentials(tx, deps.random, [order])
      : [await rotate(tx, deps.random, known.credential_id)];
  const { credentialId, generation, secret } = present(issued).secret;
  const binding = { clusterId, serviceId, credentialId, generation };
  const sealed = seal(ring, deps.random, binding, secret);
  await insertSealedSecret(tx, {
    ...sealed,
    clusterId,
    serviceId,
    credentialId,
    secretId: launcherSecretId(cluster.clusterLife, credentialId),
    version: generation,
  });
  return { credentialId, generation };
}

/**
 * Ends all generations of the designated launcher's bearer at once, whatever the nodes report and however its service is. The
 * designation stays; its next rotation issues another credential. May be done again.
 */
export function revokeFleetCutoverIngressCredential(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'revokeFleetCutoverIngressCredential'>,
): Promise<MethodResponse<'revokeFleetCutoverIngressCredential'> | Refused> {
  const { clusterId } = input;
  return mutate(deps, actor, input, {
    method: 'revokeFleetCutoverIngressCredential',
    clusterId,
    lock: async (tx) => {
      const [cluster, runtime] = await Promise.all([
        lockClusterOf(tx, actor.organizationId, clusterId),
        shareRuntime(tx, clusterId),
      ]);
      return isRefused(cluster) ? cluster : { cluster, runtime: present(runtime) };
    },
    apply: async (tx, { cluster, runtime }) => {
      const stale = refuseOtherRuntime(cluster.clusterLife, runtime, input.runtime);
      if (stale !== null) return stale;
      const current = await currentDesignation(tx, clusterId);
      const reference = current === undefined ? null : referenceOf(current);
      if (current === undefined || !sameReference(input.expectedDesignation, reference)) {
        return refuseStale('designation-stale', 'expectedDesignation', reference);
      }
      const [revoked] = await revokeCredentials(tx, [current.credential.credentialId]);
      return { result: { credential: credentialState(present(revoked)) } };
    },
    // For good.
    isCurrent: () => Promise.resolve(true),
  });
}

export function readFleetCutoverIngressDesignation(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'readFleetCutoverIngressDesignation'>,
): Promise<MethodResponse<'readFleetCutoverIngressDesignation'> | Refused> {
  const { clusterId, designation: pin } = input;
  return readCluster(deps, 'readFleetCutoverIngressDesignation', actor, clusterId, async (tx) => {
    const current = await currentDesignation(tx, clusterId);
    if (pin === null) return current === undefined ? refuse('record-unknown') : answerIntact(current, true);
    const pinned = await designationAt(tx, clusterId, pin.generation);
    if (pinned === undefined || !sameReference(pin, referenceOf(pinned))) return refuse('pin-unknown');
    return answerIntact(pinned, sameReference(pin, current === undefined ? null : referenceOf(current)));
  });
}

/** `current`: no other designation followed it. Whether its credential was revoked since, the credential's state says. */
function answerIntact(
  designation: IFleetCutoverIngressDesignation,
  current: boolean,
): MethodResponse<'readFleetCutoverIngressDesignation'> | Refused {
  const errors = fleetCutoverIngressDesignationRecord.check(designation);
  return errors.length === 0 ? { designation, current } : refuse('record-corrupt');
}

export interface KeyState {
  readonly keyId: string;
  /** `wrong`: the ring's key of this id is not the one that sealed. */
  readonly state: 'opens' | 'missing' | 'wrong';
}

/** The keys that something is sealed under, in the order of their ids: without them the service must not start. */
export async function keyStates(deps: Deps, ring: KeyRing): Promise<KeyState[]> {
  const rows = await read(deps, 'keyStates', (tx) => sealedByEachKey(tx));
  return rows.map((row) => ({ keyId: row.keyId, state: keyState(ring, row) }));
}

function keyState(ring: KeyRing, row: SealedRow): KeyState['state'] {
  if (!ring.some((key) => key.keyId === row.keyId)) return 'missing';
  try {
    open(ring, bindingOf(row), row);
    return 'opens';
  } catch (error) {
    if (error instanceof SealBrokenError) return 'wrong';
    throw error;
  }
}

function bindingOf({ clusterId, serviceId, credentialId, version: generation }: SealedRow): SealBinding {
  return { clusterId, serviceId, credentialId, generation };
}

/** Seals everything under the ring's first key, some at a time; gives how many were. */
export async function resealAll(deps: Deps, ring: KeyRing): Promise<number> {
  const [active] = ring;
  if (active === undefined) throw new Error('no key-encryption key is configured');
  let resealed = 0;
  for (;;) {
    const count = await inTransaction(deps, 'reseal', async (tx) => {
      const rows = await lockSealedUnderOtherKeys(tx, active.keyId, 100);
      for (const row of rows) {
        const binding = bindingOf(row);
        await resealSecret(tx, row, seal(ring, deps.random, binding, open(ring, binding, row)));
      }
      return rows.length;
    });
    if (count === 0) return resealed;
    resealed += count;
  }
}
