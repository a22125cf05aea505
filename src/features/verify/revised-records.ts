/** Runtime, scope, target set and service specs: chains of revisions with a head. */
import { sql } from 'kysely';
import { clusterServiceSpecRecord, type IClusterServiceSpec } from '../../contract/fleet.js';
import { runtimeId, scopeId, targetSetId } from '../../contract/record-id.js';
import { fleetCutoverRuntimeRecord, type IFleetCutoverRuntime } from '../../contract/runtime.js';
import {
  fleetCutoverScopeRecord,
  fleetCutoverTargetSetRecord,
  type IFleetCutoverScope,
  type IFleetCutoverTargetSet,
} from '../../contract/scope.js';
import type { Reference } from '../../contract/schema.js';
import { qb } from '../../db/query.js';
import { type LastRevision, RevisionChain, type RevisedRecord, type RevisionsOf } from './revisions.js';
import type { StoredRecord } from './sealed-record.js';
import { pagesOf, type Verification, type VerifiedCluster } from './verification.js';

/** A scope may have some megabytes. */
const revisionsPerPage = 8;

interface OfCluster extends RevisedRecord {
  readonly clusterId: string;
}

async function verifyChain<
  T extends OfCluster,
  R extends StoredRecord,
  H extends { readonly generation: number; readonly digest: string | null },
>(
  verification: Verification,
  clusterId: string,
  table: 'runtime' | 'scope' | 'target_set',
  of: Omit<RevisionsOf<T, R>, 'table' | 'key'>,
  headContradiction: (head: H, last: T) => string | null,
): Promise<LastRevision<T> | undefined> {
  const { tx, findings } = verification;
  const chain = new RevisionChain<T, R>(verification, {
    ...of,
    table: `${table}_revisions`,
    key: (generation) => ({ cluster_id: clusterId, generation }),
    contradiction: (value, row) =>
      value.clusterId === clusterId
        ? (of.contradiction?.(value, row) ?? null)
        : `the record is of cluster ${value.clusterId}`,
  });
  await chain.takeAll((generation) =>
    tx.rows(
      sql<R>`
        select * from ${sql.table(`control.${table}_revisions`)}
        where cluster_id = ${clusterId} and generation > ${generation}
        order by generation limit ${revisionsPerPage}`.compile(qb),
    ),
  );
  const head = await tx.maybe(
    sql<H>`select * from ${sql.table(`control.${table}_heads`)} where cluster_id = ${clusterId}`.compile(qb),
  );
  chain.end(head, `${table}_heads`, { cluster_id: clusterId });
  const { last } = chain;
  const value = last?.value ?? null;
  const wrong = head === undefined || value === null ? null : headContradiction(head, value);
  if (wrong !== null)
    findings.add(`${table}_heads`, { cluster_id: clusterId }, 'the head is not the newest revision', wrong);
  return last;
}

export function verifyRuntime(verification: Verification, { clusterId, clusterLife }: VerifiedCluster) {
  return verifyChain<
    IFleetCutoverRuntime,
    StoredRecord & { phase: string },
    { generation: number; digest: string; phase: string }
  >(
    verification,
    clusterId,
    'runtime',
    {
      record: fleetCutoverRuntimeRecord,
      id: runtimeId(clusterLife),
      contradiction: (value, row) =>
        value.phase === row.phase ? null : `the record is in phase ${value.phase}, the row in ${row.phase}`,
    },
    (head, last) => (head.phase === last.phase ? null : `its phase is ${head.phase}, the record's ${last.phase}`),
  );
}

/** Which runtime a record names that was made by an agent; it may name one that never was. */
export class RuntimeNames {
  readonly #digests: ReadonlyMap<number, string>;

  private constructor(digests: ReadonlyMap<number, string>) {
    this.#digests = digests;
  }

  static async of({ tx }: Verification, clusterId: string): Promise<RuntimeNames> {
    const rows = await tx.rows(
      sql<{ generation: number; digest: string }>`
        select generation, digest from control.runtime_revisions where cluster_id = ${clusterId}
        order by generation limit 16`.compile(qb),
    );
    return new RuntimeNames(new Map(rows.map(({ generation, digest }) => [generation, digest])));
  }

  generationOf(reference: Reference | null): number | null {
    if (reference === null) return null;
    return this.#digests.get(reference.generation) === reference.digest ? reference.generation : null;
  }
}

export function verifyScope(verification: Verification, { clusterId, clusterLife, swarmId }: VerifiedCluster) {
  return verifyChain<IFleetCutoverScope, StoredRecord, { generation: number; digest: string | null; state: string }>(
    verification,
    clusterId,
    'scope',
    {
      record: fleetCutoverScopeRecord,
      id: scopeId(clusterLife),
      contradiction: (value) =>
        value.swarmId === swarmId
          ? null
          : `the record is of swarm ${value.swarmId}, the cluster of ${swarmId ?? 'none'}`,
    },
    (head, last) => (head.state === last.state ? null : `it is ${head.state}, the record ${last.state}`),
  );
}

export function verifyTargetSet(verification: Verification, { clusterId, clusterLife }: VerifiedCluster) {
  return verifyChain<IFleetCutoverTargetSet, StoredRecord, { generation: number; digest: string | null }>(
    verification,
    clusterId,
    'target_set',
    { record: fleetCutoverTargetSetRecord, id: targetSetId(clusterLife) },
    () => null,
  );
}

interface SpecHead {
  readonly serviceId: string;
  readonly specId: string;
  readonly generation: number;
  readonly digest: string;
}

const headsPerPage = 500;

export async function verifyServiceSpecs(verification: Verification, { clusterId }: VerifiedCluster): Promise<void> {
  const { tx } = verification;
  const heads = pagesOf<SpecHead>((last) =>
    tx.rows(
      sql<SpecHead>`
        select service_id as "serviceId", spec_id as "specId", generation, digest from control.service_spec_heads
        where cluster_id = ${clusterId} and service_id > ${last?.serviceId ?? ''} order by service_id limit ${headsPerPage}`.compile(
        qb,
      ),
    ),
  );
  for await (const page of heads) for (const head of page) await verifySpec(verification, clusterId, head);
  const lost = await tx.rows(
    sql<{ serviceId: string }>`
      select distinct service_id as "serviceId" from control.service_spec_revisions revision
      where cluster_id = ${clusterId} and not exists (
        select from control.service_spec_heads head where head.cluster_id = revision.cluster_id and head.service_id = revision.service_id)
      order by service_id limit ${headsPerPage}`.compile(qb),
  );
  for (const { serviceId } of lost) {
    verification.findings.add(
      'service_spec_heads',
      { cluster_id: clusterId, service_id: serviceId },
      'the head is missing',
      'the service has spec revisions',
    );
  }
}

async function verifySpec(verification: Verification, clusterId: string, head: SpecHead): Promise<void> {
  const { tx } = verification;
  const { serviceId } = head;
  const owner = { cluster_id: clusterId, service_id: serviceId };
  const chain = new RevisionChain<IClusterServiceSpec, StoredRecord>(verification, {
    table: 'service_spec_revisions',
    record: clusterServiceSpecRecord,
    id: head.specId,
    key: (generation) => ({ ...owner, generation }),
    contradiction: (value) =>
      value.clusterId === clusterId && value.serviceId === serviceId
        ? null
        : `the record is of ${value.clusterId} ${value.serviceId}`,
  });
  await chain.takeAll((generation) =>
    tx.rows(
      sql<StoredRecord>`
        select generation, digest, record from control.service_spec_revisions
        where cluster_id = ${clusterId} and service_id = ${serviceId} and generation > ${generation}
        order by generation limit ${revisionsPerPage}`.compile(qb),
    ),
  );
  chain.end(head, 'service_spec_heads', owner);
}
