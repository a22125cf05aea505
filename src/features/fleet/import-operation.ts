import type { MethodRequest, MethodResponse } from '../../contract/methods.js';
import { type Refused } from '../../contract/problems.js';
import { sameReference } from '../../contract/schema.js';
import type { ReadTx, Tx } from '../../db/transaction.js';
import type { Deps } from '../../deps.js';
import { newIdentifier } from '../../random.js';
import { isRefused } from '../../refusal.js';
import { type MutationResult, mutate } from '../audit/mutation.js';
import type { AdministratorActor } from '../auth/actor.js';
import { lockOrganization } from '../auth/facts.js';
import { issueCredentials } from '../auth/issuing.js';
import { type Cluster, findNodes, findNodesAnywhere, findServices, lockClusterOf } from './facts.js';
import { refuseMutation } from './fleet.js';
import {
  decideImport,
  type ExistingFleet,
  type FleetDocument,
  type ImportPlan,
  nodeIdsOf,
  serviceNamesOf,
} from './import.js';
import { shareRuntime } from '../phase/facts.js';
import { nodeCredentialOrders } from './node-operations.js';
import { specOf } from './response.js';
import { currentSpecs, insertNodes, insertServices, insertSpecs, servicesByName } from './rows.js';

/**
 * One transaction of a few statements, whatever the document's size. The secrets are two for each created node, in the
 * document's order: its Spark token and its session credential.
 */
export function importFleet(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'importFleet'>,
): Promise<MethodResponse<'importFleet'> | Refused> {
  return mutate(deps, actor, input, {
    method: 'importFleet',
    clusterId: input.clusterId,
    lock: (tx) => {
      void lockOrganization(tx, actor.organizationId);
      return lockClusterOf(tx, actor.organizationId, input.clusterId);
    },
    apply: async (tx, cluster) => {
      const existing = await existingFleet(tx, cluster, input);
      const plan = decideImport(cluster, input, existing, () => newIdentifier(deps.random, 'sv'));
      if (isRefused(plan)) return plan;
      const nodes = plan.nodes.filter((each) => each.created).map((each) => each.node);
      // More nodes falsify gates: an advance under way waits, or is waited for.
      void shareRuntime(tx, cluster.clusterId);
      if ((await insertNodes(tx, cluster.clusterId, nodes)) !== nodes.length) {
        const detail = 'Another cluster registered one of the nodes in the same moment';
        return refuseMutation('node-exists', { detail, retrySafe: true });
      }
      const orders = nodes.flatMap((node) => nodeCredentialOrders(cluster, node.nodeId));
      const [issued] = await Promise.all([issueCredentials(tx, deps.random, orders), writeServices(tx, cluster, plan)]);
      return { result: importResult(plan), secrets: issued.map((each) => each.secret) };
    },
    isCurrent: (tx, recorded) => isImportCurrent(tx, actor, input.clusterId, recorded),
  });
}

async function existingFleet(tx: ReadTx, cluster: Cluster, document: FleetDocument): Promise<ExistingFleet> {
  const [nodes, services] = await Promise.all([
    findNodesAnywhere(tx, nodeIdsOf(document)),
    servicesByName(tx, cluster.organizationId, serviceNamesOf(document)),
  ]);
  const specs = await currentSpecs(
    tx,
    cluster.clusterId,
    services.map((service) => service.serviceId),
  );
  return {
    nodes: new Map(nodes.map((node) => [node.nodeId, node])),
    services: new Map(services.map((service) => [service.name, service])),
    specs: new Map(specs.map((row) => [row.serviceId, specOf(row)])),
  };
}

async function writeServices(tx: Tx, cluster: Cluster, plan: ImportPlan): Promise<void> {
  await Promise.all([
    insertServices(
      tx,
      cluster.organizationId,
      plan.services.filter((each) => each.created),
    ),
    insertSpecs(
      tx,
      cluster.clusterId,
      plan.specs.flatMap((each) => each.created ?? []),
    ),
  ]);
}

function importResult(plan: ImportPlan): MutationResult<'importFleet'> {
  return {
    nodes: plan.nodes.map(({ node, created }) => ({ nodeId: node.nodeId, created })),
    services: plan.services.map(({ name, serviceId, created }) => ({ name, serviceId, created })),
    specs: plan.specs.map(({ serviceId, reference, created }) => ({
      serviceId,
      spec: reference,
      created: created !== null,
    })),
  };
}

/** Every node of it is still there and not revoked, every service live, every spec the current one. */
async function isImportCurrent(
  tx: ReadTx,
  actor: AdministratorActor,
  clusterId: string,
  recorded: MutationResult<'importFleet'>,
): Promise<boolean> {
  const serviceIds = recorded.services.map((each) => each.serviceId);
  const specOwners = recorded.specs.map((each) => each.serviceId);
  const [nodes, services, rows] = await Promise.all([
    findNodes(
      tx,
      clusterId,
      recorded.nodes.map((each) => each.nodeId),
    ),
    findServices(tx, actor.organizationId, serviceIds),
    currentSpecs(tx, clusterId, specOwners),
  ]);
  const current = new Map(rows.map((row) => [row.serviceId, specOf(row)]));
  return (
    nodes.filter((node) => node.state !== 'revoked').length === recorded.nodes.length &&
    services.filter((service) => service.state === 'live').length === recorded.services.length &&
    recorded.specs.every(({ serviceId, spec }) => sameReference(spec, referenceOrNull(current.get(serviceId))))
  );
}

function referenceOrNull(spec: ReturnType<typeof specOf> | undefined) {
  return spec === undefined ? null : { id: spec.id, generation: spec.generation, digest: spec.digest };
}
