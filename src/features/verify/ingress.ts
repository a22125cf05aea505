/** The ingress: the chain of its designations with its head, and the sealed secret of each. Nothing sealed is read. */
import { sql } from 'kysely';
import { clusterServiceSpecRecord } from '../../contract/fleet.js';
import {
  fleetCutoverIngressDesignationRecord,
  type IFleetCutoverIngressDesignation,
  launcherBearerInput,
} from '../../contract/ingress.js';
import { recordId, runtimeId, scopeId, targetSetId } from '../../contract/record-id.js';
import { qb } from '../../db/query.js';
import { launcherSecretId } from '../ingress/designation.js';
import { compareReferences } from './references.js';
import { recordsAfter, RevisionChain } from './revisions.js';
import { readCanonical, type StoredRecord } from './sealed-record.js';
import { pagesOf, type Verification, type VerifiedCluster } from './verification.js';

type Designation = IFleetCutoverIngressDesignation;

const designationsPerPage = 32;
const secretsPerPage = 500;

/** Holds one name per designation, each of which an administrator made. */
export async function verifyIngress(verification: Verification, cluster: VerifiedCluster): Promise<void> {
  const { findings } = verification;
  const { clusterId, clusterLife } = cluster;
  const key = (generation: number) => ({ cluster_id: clusterId, generation });
  const chain = new RevisionChain<Designation, StoredRecord>(verification, {
    table: 'ingress_designation_revisions',
    record: fleetCutoverIngressDesignationRecord,
    id: recordId('id', { clusterLife, record: 'ingress-designation' }),
    key,
    contradiction: (value) => {
      if (value.clusterId !== clusterId) return `the record is of cluster ${value.clusterId}`;
      const secretId = launcherSecretId(clusterLife, value.credential.credentialId);
      return value.secret.secretId === secretId ? null : 'its secret is not the one of its credential';
    },
  });
  const designated = new Set<string>();
  const after = recordsAfter(verification, 'ingress_designation_revisions', clusterId, designationsPerPage);
  await chain.takeAll(after, async (designation) => {
    if (designation === null) return;
    designated.add(nameOf(designation.secret));
    await compareDesignation(verification, cluster, designation);
  });
  await compareHead(verification, clusterId, chain);
  const complete = !findings.hasAny('ingress_designation_revisions', { cluster_id: clusterId });
  await verifySealedSecrets(verification, cluster, complete ? designated : null);
}

function nameOf({ secretId, version }: { readonly secretId: string; readonly version: number }): string {
  return `${secretId} ${version}`;
}

async function compareHead(
  { tx, findings }: Verification,
  clusterId: string,
  chain: RevisionChain<Designation, StoredRecord>,
): Promise<void> {
  const key = { cluster_id: clusterId };
  const head = await tx.maybe(
    sql<{ generation: number; digest: string; serviceId: string }>`
      select generation, digest, service_id as "serviceId" from control.ingress_designation_heads
      where cluster_id = ${clusterId}`.compile(qb),
  );
  // Before the first designation there is no head.
  if (head === undefined && chain.last === undefined) return;
  const value = chain.last?.value ?? null;
  chain.end(head, 'ingress_designation_heads', key);
  if (head === undefined || value === null || head.serviceId === value.serviceId) return;
  const how = `it names the service ${head.serviceId}, the record ${value.serviceId}`;
  findings.add('ingress_designation_heads', key, 'the head is not the newest revision', how);
}

async function compareDesignation(
  verification: Verification,
  { clusterId, clusterLife }: VerifiedCluster,
  { generation, serviceId, runtime, scope, targetSet, spec, credential, secret }: Designation,
): Promise<void> {
  const { tx, findings } = verification;
  const key = { cluster_id: clusterId, generation };
  const owner = { column: 'service_id', value: serviceId } as const;
  await compareReferences(verification, clusterId, { table: 'ingress_designation_revisions', key }, [
    { name: 'runtime', table: 'runtime_revisions', reference: runtime, id: runtimeId(clusterLife) },
    { name: 'scope', table: 'scope_revisions', reference: scope, id: scopeId(clusterLife) },
    { name: 'target set', table: 'target_set_revisions', reference: targetSet, id: targetSetId(clusterLife) },
    { name: 'spec', table: 'service_spec_revisions', reference: spec, owner },
  ]);
  const secretKey = { cluster_id: clusterId, secret_id: secret.secretId, version: secret.version };
  const [sealed, cited] = await Promise.all([
    tx.maybe(
      sql<{ serviceId: string; credentialId: string }>`
        select service_id as "serviceId", credential_id as "credentialId" from control.sealed_secrets
        where cluster_id = ${clusterId} and secret_id = ${secret.secretId} and version = ${secret.version}`.compile(qb),
    ),
    tx.maybe(
      sql<{ record: string }>`
        select record from control.service_spec_revisions
        where cluster_id = ${clusterId} and service_id = ${serviceId} and generation = ${spec.generation}`.compile(qb),
    ),
  ]);
  if (sealed === undefined) {
    findings.add('sealed_secrets', secretKey, 'the row is missing', `designation ${generation} names it`);
  } else if (sealed.serviceId !== serviceId || sealed.credentialId !== credential.credentialId) {
    const how = `designation ${generation} has it for ${serviceId} ${credential.credentialId}`;
    findings.add('sealed_secrets', secretKey, 'the row was changed', how);
  }
  const value = cited === undefined ? undefined : readCanonical(cited.record);
  if (!clusterServiceSpecRecord.is(value)) return;
  if (findings.has('service_spec_revisions', { ...key, service_id: serviceId, generation: spec.generation })) return;
  const cites = value.secretInputs.some(
    (input) => input.name === launcherBearerInput && nameOf(input) === nameOf(secret),
  );
  if (cites) return;
  const how = `spec ${spec.generation} of ${serviceId} has no such secret input`;
  findings.add('ingress_designation_revisions', key, 'its spec does not cite its secret', how);
}

interface SecretRow {
  readonly secretId: string;
  readonly version: number;
  readonly serviceId: string;
  readonly credentialId: string;
  /** It is the service's launcher credential, and this generation of it was issued. */
  readonly issued: boolean;
}

/** `designated` null: a designation is broken or gone, so that it isn't known which secrets there are to be. */
async function verifySealedSecrets(
  verification: Verification,
  { clusterId, clusterLife }: VerifiedCluster,
  designated: ReadonlySet<string> | null,
): Promise<void> {
  const { tx, findings } = verification;
  const pages = pagesOf<SecretRow>((last) =>
    tx.rows(
      sql<SecretRow>`
        select sealed.secret_id as "secretId", sealed.version, sealed.service_id as "serviceId",
          sealed.credential_id as "credentialId", exists (
            select from control.credentials credential
            where credential.credential_id = sealed.credential_id and credential.cluster_id = sealed.cluster_id
              and credential.kind = 'ingress-launcher' and credential.subject_id = sealed.service_id
              and credential.newest_generation >= sealed.version) as issued
        from control.sealed_secrets sealed
        where sealed.cluster_id = ${clusterId}
          and (sealed.secret_id, sealed.version) > (${last?.secretId ?? ''}, ${last?.version ?? 0}::bigint)
        order by sealed.secret_id, sealed.version limit ${secretsPerPage}`.compile(qb),
    ),
  );
  for await (const rows of pages) {
    for (const row of rows) {
      const { secretId, version, serviceId, credentialId } = row;
      const key = { cluster_id: clusterId, secret_id: secretId, version };
      if (designated !== null && !designated.has(nameOf(row))) {
        findings.add('sealed_secrets', key, 'the row should not be there', 'no designation names it');
      } else if (secretId !== launcherSecretId(clusterLife, credentialId)) {
        findings.add('sealed_secrets', key, 'the row was changed', `it is not the secret of ${credentialId}`);
      } else if (!row.issued) {
        const how = `generation ${version} of ${credentialId} was not issued to the launcher of ${serviceId}`;
        findings.add('sealed_secrets', key, 'the row belongs to no credential', how);
      }
    }
    verification.advance(rows.length);
  }
}
