/** What an administrator admits: the scope of an inventory, and the nodes that will run Pallet. */
import { digestDomain, sealRecord } from '../../contract/digest.js';
import type { MethodRequest, MethodResponse } from '../../contract/methods.js';
import type { IFleetCutoverCompleteManagerSnapshot } from '../../contract/observation.js';
import { type IProblemEntry, refuse, type Refused, refuseStale } from '../../contract/problems.js';
import { scopeId, targetSetId } from '../../contract/record-id.js';
import { referenceOf, sameReference } from '../../contract/schema.js';
import { type IFleetCutoverScope, type IFleetCutoverTargetSet, normalizeScopeStatement } from '../../contract/scope.js';
import { present } from '../../db/present.js';
import type { Tx } from '../../db/transaction.js';
import type { Deps } from '../../deps.js';
import { isRefused } from '../../refusal.js';
import { mutate } from '../audit/mutation.js';
import type { AdministratorActor } from '../auth/actor.js';
import { type Cluster, clusterOf, findNodes, findServices } from '../fleet/facts.js';
import { bindSwarm } from '../fleet/report-rows.js';
import { managerSnapshot, managerSnapshotReference } from '../inventory/facts.js';
import { permission, refuseByPhase, type TAct } from '../phase/phase.js';
import { refuseOtherRuntime, type RuntimeHead, shareRuntime } from '../phase/facts.js';
import {
  lockScopeHead,
  lockTargetSetHead,
  refuseOtherScope,
  type RevisionHead,
  scopeReference,
  scopeRevision,
  targetSetReference,
  targetSetRevision,
} from '../scope/facts.js';
import { swapScope, swapTargetSet } from '../scope/rows.js';
import { judgeStrays } from '../scope/strays.js';
import { judgeStatement } from '../scope/statement.js';
import { blockerSummary, preparedMounts, servicesWithEntries } from '../volume-handoff/facts.js';
import { deriveAgain } from '../volume-handoff/steps.js';

interface Locked {
  readonly cluster: Cluster;
  readonly runtime: RuntimeHead;
  readonly head: RevisionHead;
}

async function lockFor(
  tx: Tx,
  actor: AdministratorActor,
  clusterId: string,
  lockHead: (tx: Tx, clusterId: string) => Promise<RevisionHead | undefined>,
): Promise<Locked | Refused> {
  const [cluster, runtime, head] = await Promise.all([
    clusterOf(tx, actor.organizationId, clusterId),
    shareRuntime(tx, clusterId),
    lockHead(tx, clusterId),
  ]);
  if (isRefused(cluster)) return cluster;
  return { cluster, runtime: present(runtime), head: present(head) };
}

function refuseByRuntime(
  locked: Locked,
  input: { runtime: MethodRequest<'acceptFleetCutoverTargetSet'>['runtime'] },
  act: TAct,
) {
  return (
    refuseOtherRuntime(locked.cluster.clusterLife, locked.runtime, input.runtime) ??
    refuseByPhase(locked.runtime.phase, act)
  );
}

/** Admits an accepted, complete manager snapshot as the inventory, with a class for its services. */
export function classifyFleetCutoverScope(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'classifyFleetCutoverScope'>,
): Promise<MethodResponse<'classifyFleetCutoverScope'> | Refused> {
  const statement = normalizeScopeStatement(input.statement);
  const { clusterId } = input;
  return mutate(
    deps,
    actor,
    { ...input, statement },
    {
      method: 'classifyFleetCutoverScope',
      clusterId,
      lock: (tx) => lockFor(tx, actor, clusterId, lockScopeHead),
      apply: async (tx, locked) => {
        const { cluster, head } = locked;
        const stale =
          refuseByRuntime(locked, input, 'classify-scope') ??
          refuseOtherScope(cluster.clusterLife, head, input.expectedScope, 'expectedScope');
        if (stale !== null) return stale;
        const inventory = await admitInventory(tx, cluster, input);
        if (isRefused(inventory)) return inventory;
        const facts = await statementFacts(tx, actor, cluster, head, input.statement, inventory);
        // Entries are named by the caller's own order, which the normalised statement need not have.
        const judged = judgeStatement(input.statement, facts);
        const strays =
          permission(locked.runtime.phase, 'classify-scope') === 'strays' && facts.predecessor !== null
            ? judgeStrays(facts.predecessor, input.statement, await preparedMounts(tx, clusterId))
            : [];
        if (judged.entries.length + strays.length > 0) {
          return refuse('scope-refused', {
            entries: [...judged.entries, ...strays],
            mutationOutcome: 'not-applied',
            retrySafe: false,
          });
        }
        const scope: IFleetCutoverScope = sealRecord(digestDomain('IFleetCutoverScope'), {
          id: scopeId(cluster.clusterLife),
          generation: head.generation + 1,
          clusterId,
          inventory: input.inventory,
          swarmId: inventory.swarmId,
          ...statement,
          unclassified: [...judged.unclassified],
          state: judged.state,
          predecessor: scopeReference(cluster.clusterLife, head),
        });
        await Promise.all([swapOrThrow(swapScope(tx, scope)), bindSwarm(tx, clusterId, inventory.swarmId)]);
        const derived = await deriveAgain(tx, cluster, { nodes: 'all', cluster: true, always: true });
        return {
          result: {
            scope: referenceOf(scope),
            state: scope.state,
            unclassified: scope.unclassified,
            requiredCount: derived.head.requiredCount,
            blockers: await blockerSummary(tx, clusterId),
          },
        };
      },
      isCurrent: async (tx, recorded) => {
        const locked = await lockFor(tx, actor, clusterId, lockScopeHead);
        return (
          !isRefused(locked) && sameReference(recorded.scope, scopeReference(locked.cluster.clusterLife, locked.head))
        );
      },
    },
  );
}

async function swapOrThrow(swap: Promise<'swapped' | 'stale'>): Promise<void> {
  if ((await swap) === 'stale') throw new Error('a head moved although its row is locked');
}

interface Inventory {
  readonly swarmId: string;
  readonly serviceIds: ReadonlySet<string>;
}

/** Only an accepted snapshot of the cluster's own swarm can be admitted; any kept generation of it. */
async function admitInventory(
  tx: Tx,
  cluster: Cluster,
  input: MethodRequest<'classifyFleetCutoverScope'>,
): Promise<Inventory | Refused> {
  const { inventory } = input;
  const accepted = await managerSnapshot(tx, cluster.clusterId, inventory.generation);
  const reference =
    accepted === undefined
      ? null
      : managerSnapshotReference(cluster.clusterLife, { generation: inventory.generation, digest: accepted.digest });
  if (accepted === undefined || !sameReference(reference, inventory))
    return refuseStale('inventory-stale', 'inventory', reference);
  if (cluster.swarmId !== null && cluster.swarmId !== accepted.swarmId) {
    return refuse('swarm-mismatch', {
      detail: `the cluster is bound to swarm ${cluster.swarmId}`,
      mutationOutcome: 'not-applied',
    });
  }
  const snapshot = JSON.parse(accepted.record) as IFleetCutoverCompleteManagerSnapshot;
  return { swarmId: accepted.swarmId, serviceIds: new Set(snapshot.services.map((service) => service.id)) };
}

async function statementFacts(
  tx: Tx,
  actor: AdministratorActor,
  cluster: Cluster,
  head: RevisionHead,
  statement: MethodRequest<'classifyFleetCutoverScope'>['statement'],
  inventory: Inventory,
) {
  const named = <T extends { nodeId: string }>(list: readonly T[]) => list.map((each) => each.nodeId);
  const nodeIds = new Set([
    ...named(statement.overlapOwners),
    ...named(statement.overlapConfirmations),
    ...named(statement.dormantVolumes),
    ...named(statement.releasedEntries),
  ]);
  const serviceIds = statement.services.flatMap((service) => service.serviceId ?? []);
  const predecessor = head.generation === 0 ? undefined : await scopeRevision(tx, cluster.clusterId, head.generation);
  const [nodes, services, withEntries] = await Promise.all([
    findNodes(tx, cluster.clusterId, [...nodeIds]),
    findServices(tx, actor.organizationId, serviceIds),
    servicesWithEntries(
      tx,
      cluster.clusterId,
      (predecessor?.services ?? []).flatMap((service) => service.serviceId ?? []),
      statement.releasedEntries,
    ),
  ]);
  return {
    inventory: inventory.serviceIds,
    predecessor: predecessor ?? null,
    services: new Map(services.map((service) => [service.serviceId, service.state])),
    nodes: new Set(nodes.map((node) => node.nodeId)),
    servicesWithEntries: new Set(
      (predecessor?.services ?? [])
        .filter((service) => service.serviceId !== null && withEntries.has(service.serviceId))
        .map((service) => service.swarmServiceId),
    ),
  };
}

/** Names the nodes that will run Pallet. */
export function acceptFleetCutoverTargetSet(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'acceptFleetCutoverTargetSet'>,
): Promise<MethodResponse<'acceptFleetCutoverTargetSet'> | Refused> {
  const { clusterId } = input;
  const nodeIds = [...input.nodeIds].sort();
  return mutate(
    deps,
    actor,
    { ...input, nodeIds },
    {
      method: 'acceptFleetCutoverTargetSet',
      clusterId,
      lock: (tx) => lockFor(tx, actor, clusterId, lockTargetSetHead),
      apply: async (tx, locked) => {
        const { cluster, head } = locked;
        const stale = refuseByRuntime(locked, input, 'accept-target-set');
        if (stale !== null) return stale;
        const current = targetSetReference(cluster.clusterLife, head);
        if (!sameReference(input.expectedTargetSet, current))
          return refuseStale('target-set-stale', 'expectedTargetSet', current);
        const entries = await judgeTargets(tx, clusterId, input.nodeIds);
        if (entries.length > 0)
          return refuse('target-set-refused', { entries, mutationOutcome: 'not-applied', retrySafe: false });
        const targetSet: IFleetCutoverTargetSet = sealRecord(digestDomain('IFleetCutoverTargetSet'), {
          id: targetSetId(cluster.clusterLife),
          generation: head.generation + 1,
          clusterId,
          nodeIds,
          predecessor: current,
        });
        await swapOrThrow(swapTargetSet(tx, targetSet));
        const before = head.generation === 0 ? undefined : await targetSetRevision(tx, clusterId, head.generation);
        const nodes = symmetricDifference(before?.nodeIds ?? [], nodeIds);
        await deriveAgain(tx, cluster, { nodes, cluster: false, always: true });
        return { result: { targetSet, blockers: await blockerSummary(tx, clusterId) } };
      },
      isCurrent: async (tx, recorded) => {
        const locked = await lockFor(tx, actor, clusterId, lockTargetSetHead);
        return (
          !isRefused(locked) &&
          sameReference(referenceOf(recorded.targetSet), targetSetReference(locked.cluster.clusterLife, locked.head))
        );
      },
    },
  );
}

/** Nodes that are targets now and were not, or the other way round. */
function symmetricDifference(before: readonly string[], after: readonly string[]): Set<string> {
  const old = new Set(before);
  const now = new Set(after);
  return new Set([...before.filter((each) => !now.has(each)), ...after.filter((each) => !old.has(each))]);
}

async function judgeTargets(tx: Tx, clusterId: string, nodeIds: readonly string[]) {
  const known = new Map((await findNodes(tx, clusterId, nodeIds)).map((node) => [node.nodeId, node.state]));
  const seen = new Set<string>();
  return nodeIds.flatMap((nodeId, index): IProblemEntry[] => {
    const repeated = seen.has(nodeId);
    seen.add(nodeId);
    if (repeated) return [{ list: 'nodeIds', index, code: 'entry-duplicate' }];
    const state = known.get(nodeId);
    if (state === undefined || state === 'revoked' || state === 'written-off')
      return [{ list: 'nodeIds', index, code: 'node-unknown' }];
    return [];
  });
}
