/** Designating the new ingress and rotating its launcher's bearer: one owning transaction. */
import type { MethodRequest, MethodResponse } from '../../contract/methods.js';
import { refuse, type Refused, refuseStale } from '../../contract/problems.js';
import { type Reference, referenceOf, sameReference } from '../../contract/schema.js';
import { present } from '../../db/present.js';
import { inTransaction, read, type Tx } from '../../db/transaction.js';
import type { Deps } from '../../deps.js';
import { isRefused } from '../../refusal.js';
import { Secret } from '../../secret.js';
import { mutate } from '../audit/mutation.js';
import type { AdministratorActor } from '../auth/actor.js';
import { issueCredentials, lockSubjectCredentials, rotate } from '../auth/issuing.js';
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
  sealingKeyIds,
  swapDesignation,
} from './rows.js';
import { type KeyRing, open, seal } from './sealing.js';

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
      const [[service], spec, current, ports] = await Promise.all([
        shareServices(tx, actor.organizationId, [serviceId]),
        currentSpec(tx, clusterId, serviceId),
        currentDesignation(tx, clusterId),
        portFacts(tx, clusterId, serviceId, locked.runtime.generation),
      ]);
      const refused = refuseDesignation(input, {
        service,
        spec: spec?.spec,
        specReleased: spec?.released ?? false,
        everReleased: spec?.everReleased ?? false,
        current,
        nodesWithoutPorts: ports.filter((each) => !each.current).map((each) => each.nodeId),
        nodesWithItsPorts: ports.filter((each) => each.holds).map((each) => each.nodeId),
      });
      if (refused !== null) return refused;
      if (ring.length === 0) return refuse('sealing-unavailable', notApplied);
      const credential = await nextLauncherCredential(tx, deps, ring, actor, cluster, serviceId);
      if (isRefused(credential)) return credential;
      const secretId = launcherSecretId(cluster.clusterLife, serviceId);
      const before = present(spec).spec;
      const advanced = await advanceSpec(
        tx,
        cluster,
        before,
        withLauncherSecret(before, secretId, credential.generation),
      );
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

/** A new generation of the launcher's bearer: its hash for the verifier, its value sealed for the launcher, nothing else. */
async function nextLauncherCredential(
  tx: Tx,
  deps: Deps,
  ring: KeyRing,
  actor: AdministratorActor,
  cluster: Cluster,
  serviceId: string,
): Promise<{ readonly credentialId: string; readonly generation: number } | Refused> {
  const { clusterId, organizationId } = cluster;
  const [known] = await lockSubjectCredentials(tx, clusterId, serviceId, ['ingress-launcher']);
  if (known?.revoked === true) return refuse('credential-refused', notApplied);
  const order = { kind: 'ingress-launcher', organizationId, clusterId, subjectId: serviceId, role: null } as const;
  const [issued] =
    known === undefined
      ? await issueCredentials(tx, deps.random, [order])
      : [await rotate(tx, deps.random, known.credential_id)];
  const { credentialId, generation, secret } = present(issued).secret;
  const binding = { clusterId, serviceId, credentialId, generation };
  const sealed = seal(ring, deps.random, binding, new Secret(secret));
  await insertSealedSecret(tx, {
    ...sealed,
    clusterId,
    serviceId,
    credentialId,
    secretId: launcherSecretId(cluster.clusterLife, serviceId),
    version: generation,
  });
  return { credentialId, generation };
}

export function readFleetCutoverIngressDesignation(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'readFleetCutoverIngressDesignation'>,
): Promise<MethodResponse<'readFleetCutoverIngressDesignation'> | Refused> {
  const { clusterId, designation: pin } = input;
  return readCluster(deps, 'readFleetCutoverIngressDesignation', actor, clusterId, async (tx) => {
    const current = await currentDesignation(tx, clusterId);
    if (pin === null) return current === undefined ? refuse('record-unknown') : { designation: current, current: true };
    const pinned = await designationAt(tx, clusterId, pin.generation);
    if (pinned === undefined || !sameReference(pin, referenceOf(pinned))) return refuse('pin-unknown');
    return {
      designation: pinned,
      current: sameReference(referenceOf(pinned), current === undefined ? null : referenceOf(current)),
    };
  });
}

/** Key ids that something is sealed under and that the ring does not have: the service must not start without them. */
export async function missingKeys(deps: Deps, ring: KeyRing): Promise<string[]> {
  const used = await read(deps, 'missingKeys', (tx) => sealingKeyIds(tx));
  return used.filter((keyId) => !ring.some((key) => key.keyId === keyId)).sort();
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
        const binding = {
          clusterId: row.clusterId,
          serviceId: row.serviceId,
          credentialId: row.credentialId,
          generation: row.version,
        };
        await resealSecret(tx, row, seal(ring, deps.random, binding, open(ring, binding, row)));
      }
      return rows.length;
    });
    if (count === 0) return resealed;
    resealed += count;
  }
}
