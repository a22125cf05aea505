/**
 * What the phase `pallet` permits: a new ingress is designated, and its launcher's credential rotated twice; the answer of the
 * first rotation gets lost on its way, and another service is refused.
 */
import type { AdministratorClient } from '../client/administrator-client.js';
import { ProblemError } from '../client/errors.js';
import { newMutationId } from '../client/mutation-id.js';
import { bytesDigest } from '../contract/digest.js';
import type { MethodRequest, MethodResponse } from '../contract/methods.js';
import { type Reference, referenceOf } from '../contract/schema.js';
import type { Secret } from '../secret.js';
import { openLosingProxy } from './losing-proxy.js';
import { clusterId, openAdministrator, type Stage } from './stage.js';

export interface IngressOutcome {
  /** The current one, at the end. */
  readonly designation: { readonly generation: number };
  /** The answer was lost after the service had acted, and the repeated request was told what it had done. */
  readonly lostAnswerReplayed: boolean;
}

type Prepared = MethodResponse<'prepareFleetCutoverIngress'>;

export async function playIngress(stage: Stage, admin: AdministratorClient, token: Secret): Promise<IngressOutcome> {
  const { say } = stage;
  const serviceId = await holdSpec(admin, 'fleet-cutover-demo-ingress');
  say('A service for the new ingress has a held spec without published ports.');
  const first = await admin.prepareFleetCutoverIngress(await preparation(admin, serviceId, null));
  sayPrepared(stage, 'The ingress is designated', first);
  const { rotated, lostAnswerReplayed } = await loseAnswer(stage, admin, token, first);
  await refuseOther(stage, admin, rotated);
  const again = await admin.prepareFleetCutoverIngress(
    await preparation(admin, serviceId, referenceOf(rotated.designation)),
  );
  sayPrepared(stage, 'Rotated again', again);
  const { designation } = await admin.readFleetCutoverIngressDesignation({ clusterId, designation: null });
  return { designation: { generation: designation.generation }, lostAnswerReplayed };
}

/** A new service with a held spec that publishes nothing. */
async function holdSpec(admin: AdministratorClient, name: string): Promise<string> {
  const { service } = await admin.createService({ mutationId: newMutationId(), name });
  await admin.putServiceSpec({
    mutationId: newMutationId(),
    clusterId,
    serviceId: service.serviceId,
    expectedSpec: null,
    spec: {
      imageDigest: bytesDigest(`image of ${name}`),
      mounts: [],
      secretInputs: [],
      publishedPorts: [],
      placement: [],
    },
  });
  return service.serviceId;
}

/** The request against what is current. */
async function preparation(
  admin: AdministratorClient,
  serviceId: string,
  expectedDesignation: Reference | null,
): Promise<MethodRequest<'prepareFleetCutoverIngress'>> {
  const { runtime, scope, targetSet } = await admin.readFleetCutoverState({ clusterId });
  const { spec } = await admin.readServiceSpec({ clusterId, serviceId, generation: null });
  if (scope === null || targetSet === null) throw new Error('a cluster in pallet has a scope and targets');
  return {
    mutationId: newMutationId(),
    clusterId,
    serviceId,
    runtime: referenceOf(runtime),
    scope,
    targetSet,
    heldSpec: referenceOf(spec),
    expectedDesignation,
  };
}

/** Rotates through a proxy that cuts the connection after the service has answered; the client repeats its request. */
async function loseAnswer(
  stage: Stage,
  admin: AdministratorClient,
  token: Secret,
  { designation }: Prepared,
): Promise<{ readonly rotated: Prepared; readonly lostAnswerReplayed: boolean }> {
  const request = await preparation(admin, designation.serviceId, referenceOf(designation));
  const proxy = await openLosingProxy(stage.url);
  const throughProxy = openAdministrator({ ...stage, url: proxy.url }, token);
  try {
    const rotated = await throughProxy.prepareFleetCutoverIngress(request);
    stage.say(
      `Rotated, and ${proxy.lost} answer was lost on its way; the client repeated the request with the same mutation id: ` +
        `replayed ${String(rotated.replayed)}.`,
    );
    sayPrepared(stage, 'What had been done, once', rotated);
    const once = rotated.designation.generation === designation.generation + 1;
    return { rotated, lostAnswerReplayed: proxy.lost === 1 && rotated.replayed && once };
  } finally {
    await throughProxy.close();
    await proxy.close();
  }
}

/** Replacing the designated service is another flow. */
async function refuseOther({ say }: Stage, admin: AdministratorClient, { designation }: Prepared): Promise<void> {
  const other = await holdSpec(admin, 'fleet-cutover-demo-other-ingress');
  const request = await preparation(admin, other, referenceOf(designation));
  try {
    await admin.prepareFleetCutoverIngress(request);
  } catch (error) {
    if (!(error instanceof ProblemError)) throw error;
    say(`Another service as the ingress was refused: ${error.status} ${error.code}.`);
    return;
  }
  throw new Error('a second ingress was designated');
}

function sayPrepared({ say }: Stage, what: string, { designation, spec }: Prepared): void {
  const { generation, credential } = designation;
  say(
    `${what}: designation generation ${generation}, credential generation ${credential.generation}, ` +
      `spec generation ${spec.generation}.`,
  );
}
