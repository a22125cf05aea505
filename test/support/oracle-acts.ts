/**
 * One act per mutation of the contract and per shape of it that runs other statements, plus the reports. Each can be made
 * again and again: every run is a fresh request whose acceptance needs nothing but what the run before left.
 */
import {
  buildFaultFleet,
  digestText,
  type FaultFleet,
  type FaultFleetSize,
  type FaultNode,
  nextReport,
  prepareAllKeys,
  prepareBody,
  registerFaultNode,
  removalOf,
  statementOf,
  upsertOf,
} from './fault-fleet.js';
import { type Act, type ActRequest, type Count, ownerRequest } from './oracle-act.js';
import { advanceActs, CutoverStock, drainingCutover, heldFenceAct, relayAct } from './oracle-cutover-acts.js';
import {
  type AnswerBody,
  observationPath,
  oracleMutationId,
  type RawAnswer,
  type RawClient,
  type Reference,
  referenceIn,
} from './oracle-http.js';
import { ingressActs } from './oracle-ingress-acts.js';
import type { SealingKey } from './oracle-sealing.js';
import { writeOffActs } from './oracle-write-off-acts.js';

/**
 * A set that is complete with three pages, one that stays incomplete, and one that completes at every second step; clusters
 * in each phase; a fleet that gets lost. The service seals under the key.
 */
export function makeActs(client: RawClient, prefix: string, key: SealingKey): Act[] {
  const fleet = (name: string, size: FaultFleetSize) => buildFaultFleet(client, `${prefix}-${name}`, size);
  const prepared = async (name: string, size: FaultFleetSize): Promise<FaultFleet> => {
    const made = await fleet(name, size);
    await prepareAllKeys(client, made);
    return made;
  };
  const open = kept(() => fleet('open', { nodes: 2, volumesPerNode: 20 }));
  const second = kept(async () => {
    const issue = { mutationId: oracleMutationId(), principalId: `${prefix}-bea`, role: 'administrator' };
    const token: string = (await client.done('issueAdministratorToken', issue)).secrets[0].secret;
    // Its first use is written down, which is no part of what is done with it later.
    await client.done('listClusters', {}, token);
    return token;
  });
  const nodes = kept(async () => {
    const clusterId = `${prefix}-nodes`;
    await client.done('createCluster', { mutationId: oracleMutationId(), clusterId, ...owners });
    return clusterId;
  });
  const stock = new CutoverStock(client, prefix);
  return [
    ...handoffActs(client, {
      complete: kept(() => prepared('full', { nodes: 2, volumesPerNode: 36 })),
      open,
      turning: kept(() => prepared('turn', { nodes: 1, volumesPerNode: 40 })),
    }),
    ...scopeActs(client, open),
    ...fleetActs(client, prefix, nodes),
    ...nodeActs(client, nodes),
    ...reportActs(client, open),
    heldFenceAct(
      client,
      kept(() => drainingCutover(client, `${prefix}-held`)),
    ),
    ...advanceActs(client, stock),
    relayAct(client, prefix),
    ...ingressActs(client, stock, key),
    ...writeOffActs(
      client,
      kept(() => fleet('lost', { nodes: 1, volumesPerNode: 256 })),
      second,
    ),
  ];
}

const owners = { controllerId: 'c', runtimeNamespace: 'r' };

/** Made when it is wanted first, and once. */
function kept<T>(make: () => Promise<T>): () => Promise<T> {
  let made: Promise<T> | undefined;
  return () => (made ??= make());
}

async function headOf(client: RawClient, clusterId: string): Promise<Reference | null> {
  const { aggregate } = await client.done('readFleetCutoverVolumeHandoffAggregate', { clusterId, aggregate: null });
  return aggregate === null ? null : referenceIn(aggregate);
}

type Made = () => Promise<FaultFleet>;

function handoffActs(client: RawClient, made: { complete: Made; open: Made; turning: Made }): Act[] {
  const method = 'prepareFleetCutoverVolumeHandoffs';
  let capacity = 0;
  /** `pages`: how many of them become other ones, where the set is complete then. */
  const prepare = async (fleet: FaultFleet, upserts: object[], pages = 0): Promise<ActRequest> => {
    const expectedAggregate = await headOf(client, fleet.clusterId);
    const body = prepareBody(fleet, { expectedAggregate, upserts });
    return ownerRequest(client, method, body, [
      nextRevision(fleet, expectedAggregate),
      {
        table: 'handoff_revisions',
        where: `cluster_id = '${fleet.clusterId}' and aggregate_generation > ${expectedAggregate?.generation ?? 0}`,
        added: upserts.length,
      },
      {
        table: 'handoff_pages',
        where: `cluster_id = '${fleet.clusterId}' and since_generation > ${expectedAggregate?.generation ?? 0}`,
        added: pages,
      },
    ]);
  };
  const revise = (keys: FaultFleet['keys']) => {
    capacity += 1;
    return keys.map((key) => upsertOf(key, capacity));
  };
  return [
    {
      name: 'prepare, incomplete',
      method,
      next: async () => {
        const open = await made.open();
        return prepare(open, revise(open.keys.slice(0, 5)));
      },
    },
    {
      name: 'prepare, in place',
      method,
      next: async () => {
        const complete = await made.complete();
        return prepare(complete, revise([complete.keys[0]!, complete.keys.at(-1)!]), 2);
      },
    },
    {
      name: 'prepare, completing',
      method,
      next: async () => {
        const turning = await made.turning();
        const last = turning.keys.at(-1)!;
        const expectedAggregate = await headOf(client, turning.clusterId);
        const removed = prepareBody(turning, { expectedAggregate, removals: [removalOf(last)] });
        // Not removed where the last run failed for good; then the upsert completes all the same.
        await client.owner(method, removed);
        return prepare(turning, revise([last]), 1);
      },
    },
    {
      name: 'rederive',
      method: 'rederiveFleetCutoverVolumeHandoffs',
      next: async () => {
        const open = await made.open();
        const expectedAggregate = await headOf(client, open.clusterId);
        const { clusterId, runtime, scope } = open;
        const body = { mutationId: oracleMutationId(), clusterId, runtime, scope, expectedAggregate };
        return ownerRequest(client, 'rederiveFleetCutoverVolumeHandoffs', body, [
          nextRevision(open, expectedAggregate),
        ]);
      },
    },
  ];
}

function nextRevision(fleet: FaultFleet, head: Reference | null): Count {
  return {
    table: 'aggregate_revisions',
    where: `cluster_id = '${fleet.clusterId}' and generation > ${head?.generation ?? 0}`,
  };
}

function scopeActs(client: RawClient, made: Made): Act[] {
  let words = 0;
  return [
    {
      name: 'classify',
      method: 'classifyFleetCutoverScope',
      next: async () => {
        const fleet = await made();
        const { clusterId, runtime } = fleet;
        const state = await client.done('readFleetCutoverState', { clusterId });
        words += 1;
        fleet.scope = state.scope;
        const body = {
          mutationId: oracleMutationId(),
          clusterId,
          runtime,
          inventory: state.managerSnapshot,
          expectedScope: state.scope,
          statement: statementOf(fleet, `no relay, said ${words} times`),
        };
        const count = {
          table: 'scope_revisions',
          where: `cluster_id = '${clusterId}' and generation > ${state.scope.generation}`,
        };
        const request = ownerRequest(client, 'classifyFleetCutoverScope', body, [count]);
        return { ...request, send: async () => noteScope(fleet, await request.send()) };
      },
    },
    {
      name: 'targets',
      method: 'acceptFleetCutoverTargetSet',
      next: async () => {
        const fleet = await made();
        const { clusterId, runtime } = fleet;
        const state = await client.done('readFleetCutoverState', { clusterId });
        const body = {
          mutationId: oracleMutationId(),
          clusterId,
          runtime,
          expectedTargetSet: state.targetSet,
          nodeIds: fleet.nodes.map((node) => node.nodeId),
        };
        const count = {
          table: 'target_set_revisions',
          where: `cluster_id = '${clusterId}' and generation > ${state.targetSet.generation}`,
        };
        return ownerRequest(client, 'acceptFleetCutoverTargetSet', body, [count]);
      },
    },
  ];
}

/** The other acts on this fleet name the newest scope. */
function noteScope(fleet: FaultFleet, answer: RawAnswer): RawAnswer {
  if (answer.status === 200) fleet.scope = answer.body.scope;
  return answer;
}

function fleetActs(client: RawClient, prefix: string, cluster: () => Promise<string>): Act[] {
  let serial = 0;
  const name = (what: string): string => `${prefix}-${what}-${(serial += 1)}`;
  const createService = async (): Promise<AnswerBody> =>
    client.done('createService', { mutationId: oracleMutationId(), name: name('made') });
  const issue = async (): Promise<AnswerBody> =>
    client.done('issueAdministratorToken', {
      mutationId: oracleMutationId(),
      principalId: name('who'),
      role: 'operator',
    });
  const act = (method: string, make: () => Promise<{ body: Record<string, unknown>; count: Count }>): Act => ({
    name: method,
    method,
    next: async () => {
      const { body, count } = await make();
      return ownerRequest(client, method, { mutationId: oracleMutationId(), ...body }, [count]);
    },
  });
  const spec = { imageDigest: digestText('image'), mounts: [], secretInputs: [], publishedPorts: [], placement: [] };
  return [
    act('createCluster', async () => {
      const id = name('cluster');
      return {
        body: { clusterId: id, ...owners },
        count: { table: 'clusters', where: `cluster_id = '${id}'` },
      };
    }),
    act('importFleet', async () => {
      const nodeId = name('imported');
      return {
        body: {
          clusterId: await cluster(),
          nodes: [{ nodeId, corestorePublicKey: null }],
          services: [{ name: `${nodeId}-s` }],
          specs: [{ serviceName: `${nodeId}-s`, spec }],
        },
        count: { table: 'nodes', where: `node_id = '${nodeId}'` },
      };
    }),
    act('createService', async () => {
      const service = name('service');
      return { body: { name: service }, count: { table: 'services', where: `name = '${service}'` } };
    }),
    act('retireService', async () => {
      const { serviceId } = (await createService()).service;
      return {
        body: { serviceId },
        count: { table: 'services', where: `service_id = '${serviceId}' and state = 'retired'` },
      };
    }),
    act('putServiceSpec', async () => {
      const { serviceId } = (await createService()).service;
      return {
        body: { clusterId: await cluster(), serviceId, expectedSpec: null, spec },
        count: { table: 'service_spec_revisions', where: `service_id = '${serviceId}'` },
      };
    }),
    // A cluster has one relay.
    act('registerCoreflowRelay', async () => {
      const id = name('relayed');
      await client.done('createCluster', { mutationId: oracleMutationId(), clusterId: id, ...owners });
      return {
        body: { clusterId: id, swarmServiceId: 'relay' },
        count: { table: 'credentials', where: `kind = 'coreflow-relay' and cluster_id = '${id}'` },
      };
    }),
    act('issueAdministratorToken', async () => {
      const principalId = name('principal');
      return {
        body: { principalId, role: 'operator' },
        count: { table: 'credentials', where: `subject_id = '${principalId}'` },
      };
    }),
    act('rotateAdministratorToken', async () => {
      const { credentialId } = (await issue()).credential;
      return {
        body: { credentialId },
        count: { table: 'credentials', where: `credential_id = '${credentialId}' and newest_generation > 1` },
      };
    }),
    act('revokeAdministratorToken', async () => {
      const { credentialId } = (await issue()).credential;
      return {
        body: { credentialId },
        count: { table: 'credentials', where: `credential_id = '${credentialId}' and revoked` },
      };
    }),
  ];
}

/** Each on a node of its own, in clusters of its own, since a node's state is what they change. */
function nodeActs(client: RawClient, cluster: () => Promise<string>): Act[] {
  let serial = 100;
  const register = async (): Promise<FaultNode> => registerFaultNode(client, await cluster(), (serial += 1), 1);
  const report = async (node: FaultNode, sessionId: string, swarmNodeId: string): Promise<void> => {
    const clusterId = await cluster();
    const body = nextReport({ clusterId, swarmServiceId: 'nobody', nodes: [] }, node);
    delete body.observation.fleetCutoverLocalNodeSnapshot;
    Object.assign(body.observation, { reporterSessionId: sessionId, localSwarmNodeId: swarmNodeId });
    await client.spark(observationPath, body);
  };
  const act = (method: string, make: (node: FaultNode) => Promise<{ more?: object; where: string }>): Act => ({
    name: method,
    method,
    next: async () => {
      const node = await register();
      const { more, where } = await make(node);
      const clusterId = await cluster();
      const body = { mutationId: oracleMutationId(), clusterId, nodeId: node.nodeId, ...more };
      return ownerRequest(client, method, body, [{ table: 'nodes', where: `node_id = '${node.nodeId}' and ${where}` }]);
    },
  });
  return [
    {
      name: 'registerNode',
      method: 'registerNode',
      next: async () => {
        const clusterId = await cluster();
        const nodeId = `${clusterId}-r${(serial += 1)}`;
        const body = { mutationId: oracleMutationId(), clusterId, nodeId, corestorePublicKey: null };
        return ownerRequest(client, 'registerNode', body, [{ table: 'nodes', where: `node_id = '${nodeId}'` }]);
      },
    },
    {
      name: 'rotateNodeCredential',
      method: 'rotateNodeCredential',
      next: async () => {
        const [{ nodeId }, clusterId] = [await register(), await cluster()];
        const body = { mutationId: oracleMutationId(), clusterId, nodeId, kind: 'node-token' };
        const where = `kind = 'node-token' and subject_id = '${nodeId}' and newest_generation > 1`;
        return ownerRequest(client, 'rotateNodeCredential', body, [{ table: 'credentials', where }]);
      },
    },
    act('revokeNode', async () => ({ where: `state = 'revoked'` })),
    act('setCorestorePublicKey', async () => ({
      more: { corestorePublicKey: 'ab'.repeat(32) },
      where: 'corestore_public_key_generation = 1',
    })),
    act('releaseNodeQuarantine', async (node) => {
      // A new report of a replaced session: two reporters are live.
      for (const session of ['one', 'two', 'one']) await report(node, session, node.swarmNodeId);
      return { where: `state = 'active'` };
    }),
    act('confirmNodeRejoin', async (node) => {
      const again = `${node.swarmNodeId}-again`;
      await report(node, 'one', node.swarmNodeId);
      await report(node, 'one', again);
      return { more: { swarmNodeId: again }, where: `swarm_node_id = '${again}'` };
    }),
  ];
}

/** The node's last report. */
function reportCount(node: FaultNode): Count {
  return {
    table: 'reporter_sessions',
    where: `node_id = '${node.nodeId}' and observation_sequence = ${node.sequence}`,
  };
}

function reportActs(client: RawClient, made: Made): Act[] {
  let mark = 0;
  const of = async (position: number, change: (node: FaultNode) => void): Promise<ActRequest> => {
    const fleet = await made();
    const node = fleet.nodes[position]!;
    change(node);
    const body = nextReport(fleet, node, `mark ${mark}`);
    return { mutationId: null, counts: [reportCount(node)], send: () => client.spark(observationPath, body) };
  };
  return [
    {
      name: 'report, nothing new',
      method: null,
      next: async () => {
        // The same content is there already, whatever the act before reported.
        await (await of(1, () => {})).send();
        return of(1, () => {});
      },
    },
    { name: 'report, another snapshot', method: null, next: () => of(1, () => (mark += 1)) },
    // Keys come and none ever goes, so each of these reports adds one.
    {
      name: 'report, of a manager',
      method: null,
      next: () => of(0, (node) => ((mark += 1), (node.lastVolume = `volume-new-${mark}`))),
    },
  ];
}
