/** Nodes and their credentials. Each operation holds the node's row, registration holds the cluster's. */
import type { IFleetNode } from '../../contract/fleet.js';
import type { MethodRequest, MethodResponse } from '../../contract/methods.js';
import type { Refused } from '../../contract/problems.js';
import { read, type ReadTx, type Tx } from '../../db/transaction.js';
import type { Deps } from '../../deps.js';
import { isRefused } from '../../refusal.js';
import { mutate } from '../audit/mutation.js';
import { shareRuntime } from '../phase/facts.js';
import type { AdministratorActor } from '../auth/actor.js';
import { isNewestAndAlive } from '../auth/operations.js';
import { type CredentialOrder, issueCredentials, revokeCredentials, rotate } from '../auth/issuing.js';
import { credentialState } from '../auth/response.js';
import { lockSubjectCredentials } from '../auth/rows.js';
import { type Cluster, clusterOf, lockClusterOf, lockNode, type NodeFacts } from './facts.js';
import { refuseMutation, refuseNodeChange, refuseRejoin, refuseRelease, sameOwnerFacts } from './fleet.js';
import { rememberSwarmNode, swarmNodeHolder } from './report-rows.js';
import { fleetNode } from './response.js';
import {
  bindSwarmNode,
  insertNodes,
  pageOfNodes,
  readNode,
  releaseNodeRow,
  revokeNodeRow,
  setNodeKey,
} from './rows.js';

/** Told when a node is bound to another swarm node, by which its tasks are found. */
export type NodeRebound = (tx: Tx, cluster: Cluster, nodeId: string) => Promise<unknown>;

interface LockedNode {
  readonly cluster: Cluster;
  readonly node: NodeFacts | undefined;
}

/** Authorizes the cluster and locks the node; both travel together. */
async function lockClusterNode(
  tx: Tx,
  actor: AdministratorActor,
  input: { readonly clusterId: string; readonly nodeId: string },
): Promise<LockedNode | Refused> {
  const finding = clusterOf(tx, actor.organizationId, input.clusterId);
  const locking = lockNode(tx, actor.organizationId, input.clusterId, input.nodeId);
  const cluster = await finding;
  return isRefused(cluster) ? cluster : { cluster, node: await locking };
}

/** The two credentials of a node, in the order in which its secrets are shown. */
export function nodeCredentialOrders(cluster: Cluster, nodeId: string): CredentialOrder[] {
  const { organizationId, clusterId } = cluster;
  const order = { organizationId, clusterId, subjectId: nodeId, role: null } as const;
  return [
    { ...order, kind: 'node-token' },
    { ...order, kind: 'node-session' },
  ];
}

async function nodeDocument(tx: ReadTx, cluster: Cluster, nodeId: string): Promise<IFleetNode> {
  return fleetNode(cluster.clusterLife, await readNode(tx, cluster.clusterId, nodeId));
}

async function isNodeCurrent(tx: ReadTx, actor: AdministratorActor, clusterId: string, recorded: IFleetNode) {
  const cluster = await clusterOf(tx, actor.organizationId, clusterId);
  return !isRefused(cluster) && sameOwnerFacts(recorded, await nodeDocument(tx, cluster, recorded.nodeId));
}

/** The secrets are the node's Spark token and its session credential, in this order. */
export function registerNode(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'registerNode'>,
): Promise<MethodResponse<'registerNode'> | Refused> {
  return mutate(deps, actor, input, {
    method: 'registerNode',
    clusterId: input.clusterId,
    lock: (tx) => lockClusterOf(tx, actor.organizationId, input.clusterId),
    apply: async (tx, cluster) => {
      const { nodeId, corestorePublicKey } = input;
      // One node more falsifies gates: an advance under way waits, or is waited for.
      void shareRuntime(tx, cluster.clusterId);
      const inserted = await insertNodes(tx, cluster.clusterId, [{ nodeId, corestorePublicKey }]);
      if (inserted === 0) return refuseMutation('node-exists');
      const issued = await issueCredentials(tx, deps.random, nodeCredentialOrders(cluster, nodeId));
      return {
        result: { node: await nodeDocument(tx, cluster, nodeId) },
        secrets: issued.map((each) => each.secret),
      };
    },
    isCurrent: (tx, recorded) => isNodeCurrent(tx, actor, input.clusterId, recorded.node),
  });
}

export function rotateNodeCredential(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'rotateNodeCredential'>,
): Promise<MethodResponse<'rotateNodeCredential'> | Refused> {
  return mutate(deps, actor, input, {
    method: 'rotateNodeCredential',
    clusterId: input.clusterId,
    lock: (tx) => lockClusterNode(tx, actor, input),
    apply: async (tx, { node }) => {
      const refused = refuseNodeChange(node);
      if (refused) return refused;
      const [credential] = await lockSubjectCredentials(tx, input.clusterId, input.nodeId, [input.kind]);
      if (credential === undefined) return refuseMutation('credential-unknown');
      const issued = await rotate(tx, deps.random, credential.credential_id);
      return { result: { credential: credentialState(issued.row) }, secrets: [issued.secret] };
    },
    isCurrent: (tx, recorded) => isNewestAndAlive(tx, actor.organizationId, recorded.credential),
  });
}

/** May be done again: a revoked node stays as it is. */
export function revokeNode(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'revokeNode'>,
): Promise<MethodResponse<'revokeNode'> | Refused> {
  return mutate(deps, actor, input, {
    method: 'revokeNode',
    clusterId: input.clusterId,
    lock: (tx) => lockClusterNode(tx, actor, input),
    apply: async (tx, { cluster, node }) => {
      if (node === undefined) return refuseMutation('node-unknown');
      const kinds = ['node-token', 'node-session'] as const;
      const credentials = await lockSubjectCredentials(tx, input.clusterId, input.nodeId, kinds);
      void revokeCredentials(
        tx,
        credentials.map((each) => each.credential_id),
      );
      // Revoking falsifies gates: an advance under way waits, or is waited for.
      void shareRuntime(tx, input.clusterId);
      void revokeNodeRow(tx, input.clusterId, input.nodeId);
      return { result: { node: await nodeDocument(tx, cluster, input.nodeId) } };
    },
    // For good.
    isCurrent: () => Promise.resolve(true),
  });
}

/** All earlier bearers of the node are refused from now on: nobody knows which of the two reporters holds them. */
export function releaseNodeQuarantine(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'releaseNodeQuarantine'>,
): Promise<MethodResponse<'releaseNodeQuarantine'> | Refused> {
  return mutate(deps, actor, input, {
    method: 'releaseNodeQuarantine',
    clusterId: input.clusterId,
    lock: (tx) => lockClusterNode(tx, actor, input),
    apply: async (tx, { cluster, node }) => {
      const refused = refuseRelease(node);
      if (refused) return refused;
      const kinds = ['node-token', 'node-session'] as const;
      const credentials = await lockSubjectCredentials(tx, input.clusterId, input.nodeId, kinds);
      const inOrder = kinds.flatMap((kind) => credentials.filter((each) => each.kind === kind));
      const issued = await Promise.all(
        inOrder.map((each) => rotate(tx, deps.random, each.credential_id, { forgetUsed: true })),
      );
      void shareRuntime(tx, input.clusterId);
      void releaseNodeRow(tx, input.clusterId, input.nodeId);
      return {
        result: { node: await nodeDocument(tx, cluster, input.nodeId) },
        secrets: issued.map((each) => each.secret),
      };
    },
    isCurrent: (tx, recorded) => isNodeCurrent(tx, actor, input.clusterId, recorded.node),
  });
}

export function confirmNodeRejoin(
  rebound: readonly NodeRebound[],
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'confirmNodeRejoin'>,
): Promise<MethodResponse<'confirmNodeRejoin'> | Refused> {
  return mutate(deps, actor, input, {
    method: 'confirmNodeRejoin',
    clusterId: input.clusterId,
    lock: (tx) => lockClusterNode(tx, actor, input),
    apply: async (tx, { cluster, node }) => {
      const holder = await swarmNodeHolder(tx, input.clusterId, input.swarmNodeId);
      const refused = refuseRejoin(node, input.swarmNodeId, holder);
      if (refused) return refused;
      // Its tasks are judged anew, which falsifies gates.
      await shareRuntime(tx, input.clusterId);
      await bindSwarmNode(tx, input.clusterId, input.nodeId, input.swarmNodeId);
      await rememberSwarmNode(tx, input.clusterId, input.nodeId, input.swarmNodeId);
      for (const tell of rebound) await tell(tx, cluster, input.nodeId);
      return { result: { node: await nodeDocument(tx, cluster, input.nodeId) } };
    },
    isCurrent: async (tx, recorded) => {
      const row = await readNode(tx, input.clusterId, input.nodeId);
      return row.swarm_node_id === recorded.node.swarmNodeId;
    },
  });
}

/** The same key again keeps its generation. */
export function setCorestorePublicKey(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'setCorestorePublicKey'>,
): Promise<MethodResponse<'setCorestorePublicKey'> | Refused> {
  return mutate(deps, actor, input, {
    method: 'setCorestorePublicKey',
    clusterId: input.clusterId,
    lock: (tx) => lockClusterNode(tx, actor, input),
    apply: async (tx, { cluster, node }) => {
      const refused = refuseNodeChange(node);
      if (refused) return refused;
      if (node?.corestorePublicKey !== input.corestorePublicKey) {
        void setNodeKey(tx, input.clusterId, input.nodeId, input.corestorePublicKey);
      }
      return { result: { node: await nodeDocument(tx, cluster, input.nodeId) } };
    },
    isCurrent: async (tx, recorded) => {
      const row = await readNode(tx, input.clusterId, input.nodeId);
      return row.corestore_public_key_generation === recorded.node.corestorePublicKeyGeneration;
    },
  });
}

export function listNodes(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'listNodes'>,
): Promise<MethodResponse<'listNodes'> | Refused> {
  return read(deps, 'listNodes', async (tx) => {
    const cluster = await clusterOf(tx, actor.organizationId, input.clusterId);
    if (isRefused(cluster)) return cluster;
    const rows = await pageOfNodes(tx, input.clusterId, { cursor: input.cursor, limit: input.limit + 1 });
    const nodes = rows.slice(0, input.limit).map((row) => fleetNode(cluster.clusterLife, row));
    return { nodes, nextCursor: rows.length > input.limit ? (nodes.at(-1)?.nodeId ?? null) : null };
  });
}
