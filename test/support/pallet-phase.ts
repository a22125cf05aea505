/** A cluster in phase `pallet` with the service that becomes its ingress, and what a test asks of both. */
import type { IClusterServiceSpecContent } from '../../src/contract/fleet.js';
import type { IFleetCutoverIngressDesignation } from '../../src/contract/ingress.js';
import type { MethodRequest, MethodResponse } from '../../src/contract/methods.js';
import type { IObservedPort } from '../../src/contract/observation.js';
import { type Reference, referenceOf } from '../../src/contract/schema.js';
import { authenticateLauncher } from '../../src/features/auth/facts.js';
import { type KeyRing, open } from '../../src/features/ingress/sealing.js';
import { isRefused } from '../../src/refusal.js';
import type { Secret } from '../../src/secret.js';
import { type Cutover, cutover } from './cutover.js';
import { type Answer, mutationId, type TestService } from './service.js';

type Prepare = MethodRequest<'prepareFleetCutoverIngress'>;

export interface IngressStage {
  readonly cut: Cutover;
  readonly clusterId: string;
  /** The service that is to be the ingress. */
  readonly serviceId: string;
  /** The request that names what is current. */
  request(over?: Partial<Prepare>): Promise<Prepare>;
  prepare(over?: Partial<Prepare>, token?: string): Promise<Answer<'prepareFleetCutoverIngress'>>;
  /** Fails where it is refused. */
  prepared(over?: Partial<Prepare>): Promise<MethodResponse<'prepareFleetCutoverIngress'>>;
  /** The current designation; null before the first. */
  designation(): Promise<IFleetCutoverIngressDesignation | null>;
  spec(serviceId?: string): Promise<MethodResponse<'readServiceSpec'>>;
  /** Writes the next held revision of a spec. */
  putSpec(content: Partial<IClusterServiceSpecContent>, serviceId?: string): Promise<Answer<'putServiceSpec'>>;
  /** Releases a spec revision, as a later operation of the service will do it. */
  release(spec: Reference, serviceId?: string): Promise<void>;
  /** Reports these ports of one node. */
  reportPorts(node: number, ports: IObservedPort[], runtime?: Reference): Promise<void>;
  /** A service with a held spec, beside the first. */
  another(name: string): Promise<string>;
  /** What was sealed for a generation of the credential. */
  bearer(ring: KeyRing, designation: IFleetCutoverIngressDesignation): Promise<Secret>;
  revoke(expectedDesignation?: Reference): Promise<Answer<'revokeFleetCutoverIngressCredential'>>;
}

export const emptySpec: IClusterServiceSpecContent = {
  imageDigest: `sha256:${'e'.repeat(64)}`,
  mounts: [],
  secretInputs: [],
  publishedPorts: [],
  placement: [],
};

/** `reported`: every node reported after the phase began, so that its ports are known. */
export async function ingressStage(
  service: TestService,
  clusterId: string,
  { reported = true }: { readonly reported?: boolean } = {},
): Promise<IngressStage> {
  const cut = await cutover(service, clusterId, { volumes: [1, 1] });
  await cut.bringTo('pallet');
  if (reported) await cut.reportAll();
  return stageOver(service, cut, await newService(service, clusterId, `${clusterId}-new-edge`));
}

/** A live service of the organization with a held spec that publishes nothing. */
async function newService(service: TestService, clusterId: string, name: string): Promise<string> {
  const created = await service.done('createService', { mutationId: mutationId(), name });
  const { serviceId } = created.service;
  await service.done('putServiceSpec', {
    mutationId: mutationId(),
    clusterId,
    serviceId,
    expectedSpec: null,
    spec: emptySpec,
  });
  return serviceId;
}

function stageOver(service: TestService, cut: Cutover, serviceId: string): IngressStage {
  const { clusterId } = cut;
  const spec: IngressStage['spec'] = (of = serviceId) =>
    service.done('readServiceSpec', { clusterId, serviceId: of, generation: null });
  const designation: IngressStage['designation'] = async () => {
    const answer = await service.call('readFleetCutoverIngressDesignation', { clusterId, designation: null });
    return answer.status === 200 ? answer.body.designation : null;
  };
  const request: IngressStage['request'] = async (over = {}) => {
    const [state, current, { spec: held }] = await Promise.all([
      cut.fleet.state(),
      designation(),
      spec(over.serviceId ?? serviceId),
    ]);
    return {
      mutationId: mutationId(),
      clusterId,
      serviceId,
      runtime: referenceOf(state.runtime),
      scope: state.scope!,
      targetSet: state.targetSet!,
      heldSpec: referenceOf(held),
      expectedDesignation: current === null ? null : referenceOf(current),
      ...over,
    };
  };
  const prepare: IngressStage['prepare'] = async (over, token) =>
    service.call('prepareFleetCutoverIngress', await request(over), token);
  return {
    cut,
    clusterId,
    serviceId,
    request,
    prepare,
    prepared: async (over) => service.done('prepareFleetCutoverIngress', await request(over)),
    designation,
    spec,
    putSpec: async (content, of = serviceId) => {
      const { spec: current } = await spec(of);
      const { imageDigest, mounts, secretInputs, publishedPorts, placement } = current;
      return service.call('putServiceSpec', {
        mutationId: mutationId(),
        clusterId,
        serviceId: of,
        expectedSpec: referenceOf(current),
        spec: { imageDigest, mounts, secretInputs, publishedPorts, placement, ...content },
      });
    },
    release: async ({ generation }, of = serviceId) => {
      await service.database.owner.query(
        'insert into control.service_spec_releases (cluster_id, service_id, generation) values ($1, $2, $3)',
        [clusterId, of, generation],
      );
    },
    reportPorts: async (node, ports, runtime) => {
      const snapshot = await cut.local(node, runtime);
      await cut.fleet.reported(cut.nodeIds[node]!, { local: { ...snapshot, ports } });
    },
    another: (name) => newService(service, clusterId, name),
    bearer: (ring, named) => sealedBearer(service, ring, named),
    revoke: async (expected) =>
      service.call('revokeFleetCutoverIngressCredential', {
        mutationId: mutationId(),
        clusterId,
        runtime: await cut.runtime(),
        expectedDesignation: expected ?? referenceOf((await designation())!),
      }),
  };
}

async function sealedBearer(
  service: TestService,
  ring: KeyRing,
  { clusterId, serviceId, credential, secret }: IFleetCutoverIngressDesignation,
): Promise<Secret> {
  const { rows } = await service.database.owner.query<{ key_id: string; nonce: Buffer; ciphertext: Buffer }>(
    'select key_id, nonce, ciphertext from control.sealed_secrets where cluster_id = $1 and secret_id = $2 and version = $3',
    [clusterId, secret.secretId, secret.version],
  );
  const [row] = rows;
  if (row === undefined) throw new Error('the secret is not sealed');
  const binding = { clusterId, serviceId, ...credential };
  return open(ring, binding, { keyId: row.key_id, nonce: row.nonce, ciphertext: row.ciphertext });
}

/** The generation that the verifier takes a launcher's bearer for, or the refusal's code. */
export async function launcherLogin(
  service: TestService,
  credentialId: string,
  bearer: Secret,
): Promise<number | string> {
  const actor = await authenticateLauncher(service.deps, credentialId, bearer);
  return isRefused(actor) ? actor.problem.code : actor.generation;
}

/** Declares a node destroyed, by the service's first administrator and a second one. */
export async function writeOffByTwo(
  service: TestService,
  { cut, clusterId }: IngressStage,
  nodeId: string,
): Promise<void> {
  const issued = await service.done('issueAdministratorToken', {
    mutationId: mutationId(),
    principalId: 'bob',
    role: 'administrator',
  });
  const request = async (proposal: Reference | null) => ({
    mutationId: mutationId(),
    clusterId,
    nodeId,
    runtime: await cut.runtime(),
    proposal,
    reason: 'the building burned down',
    verified: 'two people were there',
  });
  const { writeOff } = await service.done('writeOffNode', await request(null));
  await service.done('writeOffNode', await request(referenceOf(writeOff)), issued.secrets[0]!.secret);
}
