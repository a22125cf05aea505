/** Acts on the new ingress: its designation, the rotation of its launcher's bearer, the revocation. */
import type pg from 'pg';
import { type FaultCutover, report } from './fault-cutover.js';
import { digestText } from './fault-fleet.js';
import { type Act, type ActRequest, type Count, ownerRequest } from './oracle-act.js';
import type { CutoverStock } from './oracle-cutover-acts.js';
import { sealedDigestOf } from './oracle-digest.js';
import {
  type AnswerBody,
  oracleMutationId,
  type RawAnswer,
  type RawClient,
  type Reference,
  referenceIn,
  sameReference,
} from './oracle-http.js';
import { judgeSealedBearer, type SealingKey } from './oracle-sealing.js';

interface IngressStage {
  readonly cut: FaultCutover;
  readonly serviceId: string;
}

export function ingressActs(client: RawClient, stock: CutoverStock, key: SealingKey): Act[] {
  let rotating: Promise<IngressStage> | undefined;
  const designated = async (): Promise<IngressStage> => {
    const stage = await ingressStage(client, stock);
    await designate(client, stage);
    return stage;
  };
  const prepare = (name: string, stageOf: () => Promise<IngressStage>): Act => ({
    name: `ingress, ${name}`,
    method: 'prepareFleetCutoverIngress',
    next: async () => preparation(client, await stageOf(), key),
  });
  const revoke = 'revokeFleetCutoverIngressCredential';
  return [
    prepare('designated', () => ingressStage(client, stock)),
    prepare('rotated', () => (rotating ??= designated())),
    prepare('after a revocation', async () => {
      const stage = await (rotating ??= designated());
      await client.done(revoke, await revocation(client, stage));
      return stage;
    }),
    {
      name: revoke,
      method: revoke,
      next: async () => {
        const stage = await (rotating ??= designated());
        await designate(client, stage);
        const body = await revocation(client, stage);
        const { credential } = (await current(client, stage)).designation!;
        const where = `credential_id = '${credential.credentialId}' and revoked`;
        return ownerRequest(client, revoke, body, [{ table: 'credentials', where }]);
      },
    },
  ];
}

/** In `pallet`, its node has reported its ports, and a service is there that publishes nothing. */
async function ingressStage(client: RawClient, stock: CutoverStock): Promise<IngressStage> {
  const cut = await stock.take('pallet');
  const { clusterId } = cut.fleet;
  await report(client, cut);
  const name = `${clusterId}-edge-${cut.node.sequence}`;
  const { serviceId } = (await client.done('createService', { mutationId: oracleMutationId(), name })).service;
  const content = { imageDigest: digestText('edge'), mounts: [], secretInputs: [], publishedPorts: [], placement: [] };
  const put = { mutationId: oracleMutationId(), clusterId, serviceId, expectedSpec: null, spec: content };
  await client.done('putServiceSpec', put);
  return { cut, serviceId };
}

async function current(
  client: RawClient,
  { cut, serviceId }: IngressStage,
): Promise<{ designation: AnswerBody | null; spec: AnswerBody }> {
  const { clusterId } = cut.fleet;
  const read = await client.owner('readFleetCutoverIngressDesignation', { clusterId, designation: null });
  const { spec } = await client.done('readServiceSpec', { clusterId, serviceId, generation: null });
  return { designation: read.status === 200 ? read.body.designation : null, spec };
}

async function preparationBody(
  client: RawClient,
  stage: IngressStage,
): Promise<{ mutationId: string } & Record<string, unknown>> {
  const { clusterId, runtime, scope, targetSet } = stage.cut.fleet;
  const { designation, spec } = await current(client, stage);
  return {
    mutationId: oracleMutationId(),
    clusterId,
    serviceId: stage.serviceId,
    runtime,
    scope,
    targetSet,
    heldSpec: referenceIn(spec),
    expectedDesignation: designation === null ? null : referenceIn(designation),
  };
}

async function designate(client: RawClient, stage: IngressStage): Promise<void> {
  await client.done('prepareFleetCutoverIngress', await preparationBody(client, stage));
}

async function revocation(
  client: RawClient,
  stage: IngressStage,
): Promise<{ mutationId: string } & Record<string, unknown>> {
  const { clusterId, runtime } = stage.cut.fleet;
  const { designation } = await current(client, stage);
  return { mutationId: oracleMutationId(), clusterId, runtime, expectedDesignation: referenceIn(designation) };
}

/** Designation, its spec, its credential's generation and the sealed bearer come together, one of each. */
async function preparation(client: RawClient, stage: IngressStage, key: SealingKey): Promise<ActRequest> {
  const body = await preparationBody(client, stage);
  const { clusterId } = stage.cut.fleet;
  const before = body['expectedDesignation'] as Reference | null;
  const generation = before?.generation ?? 0;
  const spec = (body['heldSpec'] as Reference).generation;
  const here = `cluster_id = '${clusterId}'`;
  const counts: Count[] = [
    { table: 'ingress_designation_revisions', where: here, before: generation },
    { table: 'ingress_designation_heads', where: `${here} and generation = ${generation + 1}` },
    { table: 'service_spec_revisions', where: `${here} and service_id = '${stage.serviceId}'`, before: spec },
    { table: 'sealed_secrets', where: here, before: generation },
    // Each generation of each credential of the launcher is one row.
    {
      table: 'credentials, generate_series(1, newest_generation)',
      where: `${here} and kind = 'ingress-launcher'`,
      before: generation,
    },
  ];
  const request = ownerRequest(client, 'prepareFleetCutoverIngress', body, counts);
  const judge = async (database: pg.Pool, first: RawAnswer, again: RawAnswer): Promise<string[]> => {
    const { designation } = again.body;
    const faults = await judgeSealedBearer(database, key, designation, [first, again]);
    if (sealedDigestOf('fleet-cutover-ingress-designation', designation) !== designation.digest)
      faults.push('the designation’s digest is wrong');
    if (!sameReference(designation.predecessor, before)) faults.push('the designation names another predecessor');
    const known = await current(client, stage);
    if (!sameReference(referenceIn(known.designation), referenceIn(designation)))
      faults.push('another designation is current');
    return faults;
  };
  return { ...request, judge };
}
