/** Services of the organization, and their specs in one cluster. */
import { type ICredentialState, clusterServiceSpecRecord } from '../../contract/fleet.js';
import type { MethodRequest, MethodResponse } from '../../contract/methods.js';
import { refuse, type Refused } from '../../contract/problems.js';
import { referenceOf, sameReference } from '../../contract/schema.js';
import { read, type Tx } from '../../db/transaction.js';
import type { Deps } from '../../deps.js';
import { newIdentifier } from '../../random.js';
import { isRefused } from '../../refusal.js';
import { mutate } from '../audit/mutation.js';
import type { AdministratorActor } from '../auth/actor.js';
import { lockOrganization } from '../auth/facts.js';
import { issueCredentials, rotate } from '../auth/issuing.js';
import { isNewestAndAlive } from '../auth/operations.js';
import { credentialState } from '../auth/response.js';
import { lockRelayCredentials, pageOfCredentials } from '../auth/rows.js';
import { type Cluster, clusterOf, findNodes, findServices, lockClusterOf, shareServices } from './facts.js';
import { refuseMutation, refuseOtherSpec, refuseRelay, refuseServiceName, refuseSpecOwner } from './fleet.js';
import { fleetService, fleetServiceWithSpec, specOf } from './response.js';
import {
  currentSpecs,
  findSpec,
  insertServices,
  insertSpecs,
  pageOfServices,
  retireServiceRow,
  servicesByName,
  swapSpec,
} from './rows.js';
import { duplicatesOf, nextSpec, sameContent, strangersOf } from './spec.js';

export function createService(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'createService'>,
): Promise<MethodResponse<'createService'> | Refused> {
  return mutate(deps, actor, input, {
    method: 'createService',
    clusterId: null,
    lock: (tx) => lockOrganization(tx, actor.organizationId),
    apply: async (tx) => {
      const [existing] = await servicesByName(tx, actor.organizationId, [input.name]);
      const refused = refuseServiceName(existing);
      if (refused) return refused;
      const service = { serviceId: newIdentifier(deps.random, 'sv'), name: input.name, state: 'live' } as const;
      await insertServices(tx, actor.organizationId, [service]);
      return { result: { service: fleetService(service) } };
    },
    isCurrent: async (tx, recorded) => {
      const [service] = await findServices(tx, actor.organizationId, [recorded.service.serviceId]);
      return service?.state === 'live';
    },
  });
}

/** May be done again: a retired service stays as it is. */
export function retireService(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'retireService'>,
): Promise<MethodResponse<'retireService'> | Refused> {
  return mutate(deps, actor, input, {
    method: 'retireService',
    clusterId: null,
    lock: (tx) => lockOrganization(tx, actor.organizationId),
    apply: async (tx) => {
      const [service] = await findServices(tx, actor.organizationId, [input.serviceId]);
      if (service === undefined) return refuseMutation('service-unknown');
      await retireServiceRow(tx, input.serviceId);
      return { result: { service: fleetService({ ...service, state: 'retired' }) } };
    },
    // For good.
    isCurrent: () => Promise.resolve(true),
  });
}

/** A content that is equal to the current one keeps the current revision. */
export function putServiceSpec(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'putServiceSpec'>,
): Promise<MethodResponse<'putServiceSpec'> | Refused> {
  return mutate(deps, actor, input, {
    method: 'putServiceSpec',
    clusterId: input.clusterId,
    lock: (tx) => lockClusterOf(tx, actor.organizationId, input.clusterId),
    apply: (tx, cluster) => applySpec(tx, cluster, actor, input),
    isCurrent: async (tx, recorded) => {
      const [row] = await currentSpecs(tx, input.clusterId, [input.serviceId]);
      return row !== undefined && sameReference(referenceOf(specOf(row)), referenceOf(recorded.spec));
    },
  });
}

async function applySpec(tx: Tx, cluster: Cluster, actor: AdministratorActor, input: MethodRequest<'putServiceSpec'>) {
  const [[service], [row], nodes] = await Promise.all([
    shareServices(tx, actor.organizationId, [input.serviceId]),
    currentSpecs(tx, input.clusterId, [input.serviceId]),
    findNodes(tx, input.clusterId, input.spec.placement),
  ]);
  const current = row === undefined ? null : specOf(row);
  const refused =
    refuseSpecOwner(service) ??
    refuseOtherSpec(current && referenceOf(current), input.expectedSpec) ??
    refuseSpecContent(input.spec, new Set(nodes.map((node) => node.nodeId)));
  if (refused) return refused;
  if (current !== null && sameContent(current, input.spec)) return { result: { spec: current } };
  const spec = nextSpec(cluster, input.serviceId, input.spec, current);
  if (row === undefined) await insertSpecs(tx, input.clusterId, [spec]);
  else if ((await swapSpec(tx, spec, row)) === 0) throw new Error('the spec changed under the cluster’s lock');
  return { result: { spec } };
}

function refuseSpecContent(
  content: MethodRequest<'putServiceSpec'>['spec'],
  nodeIds: ReadonlySet<string>,
): Refused | null {
  const strangers = strangersOf(content, nodeIds).map((nodeId) => `the cluster has no node ${nodeId}`);
  const errors = [...duplicatesOf(content), ...strangers].slice(0, 8);
  return errors.length > 0 ? refuseMutation('spec-refused', { errors }) : null;
}

export function registerCoreflowRelay(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'registerCoreflowRelay'>,
): Promise<MethodResponse<'registerCoreflowRelay'> | Refused> {
  return mutate(deps, actor, input, {
    method: 'registerCoreflowRelay',
    clusterId: input.clusterId,
    lock: (tx) => lockClusterOf(tx, actor.organizationId, input.clusterId),
    apply: async (tx, cluster) => {
      const relays = await lockRelayCredentials(tx, input.clusterId);
      const refused = refuseRelay(relays, input.swarmServiceId);
      if (refused) return refused;
      const [known] = relays;
      const order = { kind: 'coreflow-relay', subjectId: input.swarmServiceId, role: null } as const;
      const { organizationId, clusterId } = cluster;
      const [issued] = known
        ? [await rotate(tx, deps.random, known.credential_id)]
        : await issueCredentials(tx, deps.random, [{ ...order, organizationId, clusterId }]);
      if (issued === undefined) throw new Error('no credential was issued');
      return { result: { credential: credentialState(issued.row) }, secrets: [issued.secret] };
    },
    isCurrent: (tx, recorded) => isNewestAndAlive(tx, actor.organizationId, recorded.credential),
  });
}

export function listServices(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'listServices'>,
): Promise<MethodResponse<'listServices'> | Refused> {
  return read(deps, 'listServices', async (tx) => {
    const cluster = await clusterOf(tx, actor.organizationId, input.clusterId);
    if (isRefused(cluster)) return cluster;
    const page = { cursor: input.cursor, limit: input.limit + 1 };
    const rows = await pageOfServices(tx, actor.organizationId, input.clusterId, page);
    const services = rows.slice(0, input.limit).map(fleetServiceWithSpec);
    return { services, nextCursor: rows.length > input.limit ? (services.at(-1)?.serviceId ?? null) : null };
  });
}

export function readServiceSpec(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'readServiceSpec'>,
): Promise<MethodResponse<'readServiceSpec'> | Refused> {
  return read(deps, 'readServiceSpec', async (tx) => {
    const cluster = await clusterOf(tx, actor.organizationId, input.clusterId);
    if (isRefused(cluster)) return cluster;
    const [service] = await findServices(tx, actor.organizationId, [input.serviceId]);
    if (service === undefined) return refuse('service-unknown');
    const row = await findSpec(tx, input.clusterId, input.serviceId, input.generation);
    if (row === undefined) return refuse('record-unknown');
    const spec = specOf(row);
    const intact = clusterServiceSpecRecord.check(spec).length === 0 && spec.digest === row.digest;
    return intact ? { spec, state: row.released ? 'released' : 'held' } : refuse('record-corrupt');
  });
}

export function listCredentials(
  deps: Deps,
  actor: AdministratorActor,
  input: MethodRequest<'listCredentials'>,
): Promise<MethodResponse<'listCredentials'> | Refused> {
  return read(deps, 'listCredentials', async (tx) => {
    if (input.clusterId !== null) {
      const cluster = await clusterOf(tx, actor.organizationId, input.clusterId);
      if (isRefused(cluster)) return cluster;
    }
    const page = { clusterId: input.clusterId, cursor: input.cursor, limit: input.limit + 1 };
    const rows = await pageOfCredentials(tx, actor.organizationId, page);
    const credentials: ICredentialState[] = rows.slice(0, input.limit).map(credentialState);
    return { credentials, nextCursor: rows.length > input.limit ? (credentials.at(-1)?.credentialId ?? null) : null };
  });
}
