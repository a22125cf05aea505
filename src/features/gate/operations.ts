/** Moving the phase, and revoking the relay's credential. */
import { canonicalizeStrictJson } from '../../contract/canonical-json.js';
import { digestDomain, sealRecord } from '../../contract/digest.js';
import type { IFleetCutoverCoreflowRetirementEvidence } from '../../contract/coreflow.js';
import type { MethodRequest, MethodResponse } from '../../contract/methods.js';
import { refuse, type Refused } from '../../contract/problems.js';
import { recordId, runtimeId } from '../../contract/record-id.js';
import type { IFleetCutoverGateEvidence, IFleetCutoverRuntime, TFleetCutoverPhase } from '../../contract/runtime.js';
import { type Reference, referenceOf } from '../../contract/schema.js';
import { present } from '../../db/present.js';
import type { Tx } from '../../db/transaction.js';
import type { Deps } from '../../deps.js';
import { isRefused } from '../../refusal.js';
import { mutate } from '../audit/mutation.js';
import type { AdministratorActor } from '../auth/actor.js';
import { revokeCredentials } from '../auth/issuing.js';
import { type Cluster, clusterOf } from '../fleet/facts.js';
import { lockRuntime, refuseOtherRuntime, runtimeReference, type RuntimeHead, shareRuntime } from '../phase/facts.js';
import { refuseByPhase } from '../phase/phase.js';
import { swapRuntime } from '../phase/steps.js';
import { findWriteOff } from '../write-off/facts.js';
import { writeOffId } from '../write-off/write-off.js';
import { gatesTo, nextPhase } from './gates.js';
import { type LoadedGateFacts, loadGateFacts } from './gate-facts.js';
import { insertRetirement, newestRetirement, relayCredential, retirementSnapshots } from './rows.js';

interface Locked {
  readonly cluster: Cluster;
  readonly runtime: RuntimeHead;
}

type RuntimeLock = (tx: Tx, clusterId: string) => Promise<RuntimeHead | undefined>;

async function lockCluster(
  tx: Tx,
  actor: AdministratorActor,
  clusterId: string,
  lock: RuntimeLock,
): Promise<Locked | Refused> {
  const [cluster, runtime] = await Promise.all([clusterOf(tx, actor.organizationId, clusterId), lock(tx, clusterId)]);
  return isRefused(cluster) ? cluster : { cluster, runtime: present(runtime) };
}

const notApplied = { mutationOutcome: 'not-applied', retrySafe: false } as const;

/**
 * Moves to the next phase if every gate is met in this very transaction. It holds the runtime `for update`, and whoever
 * can falsify a gate holds it `for share`: what it reads cannot change before it commits.
 */
export function advanceFleetCutoverPhase(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'advanceFleetCutoverPhase'>,
): Promise<MethodResponse<'advanceFleetCutoverPhase'> | Refused> {
  const { clusterId } = input;
  return mutate(deps, actor, input, {
    method: 'advanceFleetCutoverPhase',
    clusterId,
    lock: (tx) => lockCluster(tx, actor, clusterId, lockRuntime),
    apply: async (tx, { cluster, runtime }) => {
      const stale = refuseOtherRuntime(cluster.clusterLife, runtime, input.runtime);
      if (stale !== null) return stale;
      if (nextPhase(runtime.phase) !== input.to) {
        return refuse('phase-order', { detail: `${input.to} does not follow ${runtime.phase}`, ...notApplied });
      }
      const loaded = await loadGateFacts(tx, cluster, runtime, deps.clock.now().getTime());
      const gates = gatesTo(input.to, loaded.facts);
      const unmet = gates.filter((gate) => !gate.met);
      if (unmet.length > 0) {
        return refuse('gate-unmet', { detail: unmet.map((gate) => gate.code).join(', '), gates: unmet, ...notApplied });
      }
      const next = await nextRuntime(tx, cluster, runtime, input.to, loaded);
      if ((await swapRuntime(tx, next)) === 'stale') throw new Error('the runtime moved although its row is locked');
      return { result: { runtime: next, gates } };
    },
    isCurrent: async (tx, recorded) => {
      const locked = await lockCluster(tx, actor, clusterId, shareRuntime);
      return !isRefused(locked) && locked.runtime.generation === recorded.runtime.generation;
    },
  });
}

async function nextRuntime(
  tx: Tx,
  cluster: Cluster,
  runtime: RuntimeHead,
  phase: TFleetCutoverPhase,
  loaded: LoadedGateFacts,
): Promise<IFleetCutoverRuntime> {
  return sealRecord(digestDomain('IFleetCutoverRuntime'), {
    id: runtimeId(cluster.clusterLife),
    generation: runtime.generation + 1,
    clusterId: cluster.clusterId,
    phase,
    gate: await gateEvidence(tx, cluster, phase, loaded),
    predecessor: runtimeReference(cluster.clusterLife, runtime),
  });
}

/** What the met gates rest on; every one of these was looked at just now. */
async function gateEvidence(
  tx: Tx,
  cluster: Cluster,
  phase: TFleetCutoverPhase,
  { facts, derivation, localSnapshotsDigest }: LoadedGateFacts,
): Promise<IFleetCutoverGateEvidence> {
  const { relay } = facts;
  return {
    scope: present(facts.scope ?? undefined).reference,
    targetSet: present(facts.targetSet ?? undefined),
    derivation,
    managerSnapshot: present(facts.managerSnapshot ?? undefined).reference,
    localSnapshotsDigest,
    aggregate: phase === 'draining' ? null : present(facts.aggregate ?? undefined).reference,
    coreflowRelay: phase === 'switching' && relay.kind === 'classified' ? relay.live : null,
    coreflowRetirement:
      phase === 'pallet' && relay.kind === 'classified'
        ? await retireRelay(tx, cluster, relay, facts.managerSnapshot)
        : null,
  };
}

type ClassifiedRelay = Extract<LoadedGateFacts['facts']['relay'], { kind: 'classified' }>;

/** Assembles and keeps the retirement's evidence, from accepted evidence only. */
async function retireRelay(
  tx: Tx,
  cluster: Cluster,
  relay: ClassifiedRelay,
  managerSnapshot: LoadedGateFacts['facts']['managerSnapshot'],
): Promise<Reference> {
  const bound = present(relay.bound ?? undefined);
  const credential = present(relay.credential ?? undefined);
  const [predecessor, writeOff] = await Promise.all([
    newestRetirement(tx, cluster.clusterId),
    findWriteOff(tx, cluster.clusterId, writeOffId(cluster.clusterLife, { kind: 'node', nodeId: bound.nodeId })),
  ]);
  const lost = writeOff?.state === 'confirmed' ? referenceOf(writeOff) : null;
  const local = lost === null ? await retirementSnapshots(tx, cluster, bound.nodeId) : null;
  if (local !== null && !local.spark.oldModeRefused)
    throw new Error('the gate was met although the old mode is accepted');
  const id = recordId('cr', { clusterLife: cluster.clusterLife, record: 'coreflow-retirement' });
  const evidence: IFleetCutoverCoreflowRetirementEvidence = sealRecord(
    digestDomain('IFleetCutoverCoreflowRetirementEvidence'),
    {
      id,
      generation: (predecessor?.generation ?? 0) + 1,
      clusterId: cluster.clusterId,
      relay: bound,
      managerSnapshot: present(managerSnapshot ?? undefined).reference,
      localSnapshot: local?.reference ?? null,
      spark: local === null ? null : { ...local.spark, oldModeRefused: true as const },
      writeOff: lost,
      credential: { credentialId: credential.credentialId, generation: credential.generation },
      predecessor: predecessor === undefined ? null : referenceOf(predecessor),
    },
  );
  await insertRetirement(tx, evidence, canonicalizeStrictJson(evidence));
  return referenceOf(evidence);
}

/** The relay never gets another credential. */
export function revokeFleetCutoverCoreflowCredential(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'revokeFleetCutoverCoreflowCredential'>,
): Promise<MethodResponse<'revokeFleetCutoverCoreflowCredential'> | Refused> {
  const { clusterId } = input;
  return mutate(deps, actor, input, {
    method: 'revokeFleetCutoverCoreflowCredential',
    clusterId,
    lock: (tx) => lockCluster(tx, actor, clusterId, shareRuntime),
    apply: async (tx, { cluster, runtime }) => {
      const stale =
        refuseOtherRuntime(cluster.clusterLife, runtime, input.runtime) ??
        refuseByPhase(runtime.phase, 'revoke-coreflow');
      if (stale !== null) return stale;
      const credential = await relayCredential(tx, clusterId);
      if (credential === undefined) return refuse('relay-unknown', notApplied);
      await revokeCredentials(tx, [credential.credentialId]);
      const { credentialId, generation } = credential;
      return { result: { credentialId, generation } };
    },
    // For good.
    isCurrent: () => Promise.resolve(true),
  });
}
