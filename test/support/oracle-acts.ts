/**
 * One act per mutation of the contract and per shape of it that runs other statements, plus the reports. Each can be made
 * again and again: every run is a fresh request whose acceptance needs nothing but what the run before left.
 */
import {
  buildFaultFleet,
  digestText,
  type FaultFleet,
  type FaultNode,
  nextReport,
  prepareAllKeys,
  prepareBody,
  registerFaultNode,
  removalOf,
  statementOf,
  upsertOf,
} from './fault-fleet.js';
import {
  type AnswerBody,
  observationPath,
  oracleMutationId,
  type RawAnswer,
  type RawClient,
  type Reference,
  referenceIn,
} from './oracle-http.js';

/** A request that may be sent again and again, and has one effect. */
export interface ActRequest {
  send(): Promise<RawAnswer>;
  /** Null for a report, which has no mutation id. */
  readonly mutationId: string | null;
  /** Of what may exist once, a query that counts it: 0 before, 1 after. */
  readonly count: { readonly table: string; readonly where: string } | null;
}

export interface Act {
  readonly name: string;
  /** The owner method; null for reports. */
  readonly method: string | null;
  next(): Promise<ActRequest>;
}

/** A set that is complete with three pages, one that stays incomplete, and one that completes at every second step. */
export async function makeActs(client: RawClient, prefix: string): Promise<Act[]> {
  const complete = await buildFaultFleet(client, `${prefix}-full`, { nodes: 2, volumesPerNode: 36 });
  await prepareAllKeys(client, complete);
  const open = await buildFaultFleet(client, `${prefix}-open`, { nodes: 2, volumesPerNode: 20 });
  const turning = await buildFaultFleet(client, `${prefix}-turn`, { nodes: 1, volumesPerNode: 40 });
  await prepareAllKeys(client, turning);
  return [
    ...handoffActs(client, complete, open, turning),
    ...scopeActs(client, open),
    ...fleetActs(client, prefix),
    ...nodeActs(client, prefix),
    ...reportActs(client, open),
  ];
}

function owner(
  client: RawClient,
  method: string,
  body: { mutationId: string } & Record<string, unknown>,
  count: ActRequest['count'] = null,
): ActRequest {
  return { mutationId: body.mutationId, count, send: () => client.owner(method, body) };
}

async function headOf(client: RawClient, clusterId: string): Promise<Reference | null> {
  const { aggregate } = await client.done('readFleetCutoverVolumeHandoffAggregate', { clusterId, aggregate: null });
  return aggregate === null ? null : referenceIn(aggregate);
}

function handoffActs(client: RawClient, complete: FaultFleet, open: FaultFleet, turning: FaultFleet): Act[] {
  const method = 'prepareFleetCutoverVolumeHandoffs';
  let capacity = 0;
  const prepare = async (
    fleet: FaultFleet,
    change: { upserts?: object[]; removals?: object[] },
  ): Promise<ActRequest> => {
    const expectedAggregate = await headOf(client, fleet.clusterId);
    return owner(
      client,
      method,
      prepareBody(fleet, { expectedAggregate, ...change }),
      nextRevision(fleet, expectedAggregate),
    );
  };
  const revise = (keys: FaultFleet['keys']) => {
    capacity += 1;
    return keys.map((key) => upsertOf(key, capacity));
  };
  const last = () => turning.keys.at(-1)!;
  return [
    { name: 'prepare, incomplete', method, next: () => prepare(open, { upserts: revise(open.keys.slice(0, 5)) }) },
    {
      name: 'prepare, in place',
      method,
      next: () => prepare(complete, { upserts: revise([complete.keys[0]!, complete.keys.at(-1)!]) }),
    },
    {
      name: 'prepare, completing',
      method,
      next: async () => {
        const expectedAggregate = await headOf(client, turning.clusterId);
        const removed = prepareBody(turning, { expectedAggregate, removals: [removalOf(last())] });
        // Not removed where the last run failed for good; then the upsert completes all the same.
        await client.owner(method, removed);
        return prepare(turning, { upserts: revise([last()]) });
      },
    },
    {
      name: 'rederive',
      method: 'rederiveFleetCutoverVolumeHandoffs',
      next: async () => {
        const expectedAggregate = await headOf(client, open.clusterId);
        const { clusterId, runtime, scope } = open;
        const body = { mutationId: oracleMutationId(), clusterId, runtime, scope, expectedAggregate };
        return owner(client, 'rederiveFleetCutoverVolumeHandoffs', body, nextRevision(open, expectedAggregate));
      },
    },
  ];
}

function nextRevision(fleet: FaultFleet, head: Reference | null): ActRequest['count'] {
  return {
    table: 'aggregate_revisions',
    where: `cluster_id = '${fleet.clusterId}' and generation > ${head?.generation ?? 0}`,
  };
}

function scopeActs(client: RawClient, fleet: FaultFleet): Act[] {
  const { clusterId, runtime } = fleet;
  let words = 0;
  return [
    {
      name: 'classify',
      method: 'classifyFleetCutoverScope',
      next: async () => {
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
        const request = owner(client, 'classifyFleetCutoverScope', body, count);
        return { ...request, send: async () => noteScope(fleet, await request.send()) };
      },
    },
    {
      name: 'targets',
      method: 'acceptFleetCutoverTargetSet',
      next: async () => {
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
        return owner(client, 'acceptFleetCutoverTargetSet', body, count);
      },
    },
  ];
}

/** The other acts on this fleet name the newest scope. */
function noteScope(fleet: FaultFleet, answer: RawAnswer): RawAnswer {
  if (answer.status === 200) fleet.scope = answer.body.scope;
  return answer;
}

function fleetActs(client: RawClient, prefix: string): Act[] {
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
  const act = (
    method: string,
    make: () => Promise<{ body: Record<string, unknown>; count?: ActRequest['count'] }>,
  ): Act => ({
    name: method,
    method,
    next: async () => {
      const { body, count } = await make();
      return owner(client, method, { mutationId: oracleMutationId(), ...body }, count);
    },
  });
  const spec = { imageDigest: digestText('image'), mounts: [], secretInputs: [], publishedPorts: [], placement: [] };
  const clusterId = `${prefix}-open`;
  return [
    act('createCluster', async () => {
      const id = name('cluster');
      return {
        body: { clusterId: id, controllerId: 'c', runtimeNamespace: 'r' },
        count: { table: 'clusters', where: `cluster_id = '${id}'` },
      };
    }),
    act('importFleet', async () => {
      const nodeId = name('imported');
      return {
        body: {
          clusterId: `${prefix}-turn`,
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
        body: { clusterId, serviceId, expectedSpec: null, spec },
        count: { table: 'service_spec_revisions', where: `service_id = '${serviceId}'` },
      };
    }),
    // A cluster has one relay.
    act('registerCoreflowRelay', async () => {
      const id = name('relayed');
      await client.done('createCluster', {
        mutationId: oracleMutationId(),
        clusterId: id,
        controllerId: 'c',
        runtimeNamespace: 'r',
      });
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
function nodeActs(client: RawClient, prefix: string): Act[] {
  const clusterId = `${prefix}-turn`;
  let serial = 100;
  const register = (): Promise<FaultNode> => registerFaultNode(client, clusterId, (serial += 1), 1);
  const report = async (node: FaultNode, sessionId: string, swarmNodeId: string): Promise<void> => {
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
      const body = { mutationId: oracleMutationId(), clusterId, nodeId: node.nodeId, ...more };
      return owner(client, method, body, { table: 'nodes', where: `node_id = '${node.nodeId}' and ${where}` });
    },
  });
  return [
    {
      name: 'registerNode',
      method: 'registerNode',
      next: async () => {
        const nodeId = `${clusterId}-r${(serial += 1)}`;
        const body = { mutationId: oracleMutationId(), clusterId, nodeId, corestorePublicKey: null };
        return owner(client, 'registerNode', body, { table: 'nodes', where: `node_id = '${nodeId}'` });
      },
    },
    {
      name: 'rotateNodeCredential',
      method: 'rotateNodeCredential',
      next: async () => {
        const { nodeId } = await register();
        const body = { mutationId: oracleMutationId(), clusterId, nodeId, kind: 'node-token' };
        const where = `kind = 'node-token' and subject_id = '${nodeId}' and newest_generation > 1`;
        return owner(client, 'rotateNodeCredential', body, { table: 'credentials', where });
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

function reportActs(client: RawClient, fleet: FaultFleet): Act[] {
  let mark = 0;
  const send = (body: AnswerBody, node: FaultNode): ActRequest => ({
    mutationId: null,
    count: {
      table: 'reporter_sessions',
      where: `node_id = '${node.nodeId}' and observation_sequence = ${node.sequence}`,
    },
    send: () => client.spark(observationPath, body),
  });
  const of = (position: number, change: (node: FaultNode) => void): Promise<ActRequest> => {
    const node = fleet.nodes[position]!;
    change(node);
    return Promise.resolve(send(nextReport(fleet, node, `mark ${mark}`), node));
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
