/** What closed the gates of the phases: every record that a runtime names, and the relay's retirement. */
import { sql } from 'kysely';
import {
  fleetCutoverCoreflowRetirementEvidenceRecord,
  type IFleetCutoverCoreflowRetirementEvidence,
} from '../../contract/coreflow.js';
import {
  aggregateId,
  derivationId,
  localSnapshotId,
  managerSnapshotId,
  recordId,
  scopeId,
  targetSetId,
} from '../../contract/record-id.js';
import { fleetCutoverRuntimeRecord, type IFleetCutoverRuntime } from '../../contract/runtime.js';
import { qb } from '../../db/query.js';
import { compareReferences, type NamedRecord } from './references.js';
import { recordsAfter, RevisionChain } from './revisions.js';
import { readCanonical, type StoredRecord } from './sealed-record.js';
import type { Verification, VerifiedCluster } from './verification.js';

type Retirement = IFleetCutoverCoreflowRetirementEvidence;

const retirementsPerPage = 64;

/** Chains of everything that is named must have been looked at before. */
export async function verifyRuntimeGates(verification: Verification, cluster: VerifiedCluster): Promise<void> {
  const { tx, findings } = verification;
  const { clusterId } = cluster;
  // A cluster has at most one runtime per phase.
  const rows = await tx.rows(
    sql<StoredRecord>`
      select generation, digest, record from control.runtime_revisions where cluster_id = ${clusterId}
      order by generation limit 16`.compile(qb),
  );
  const sound = rows.flatMap(({ generation, record }) => {
    if (findings.has('runtime_revisions', { cluster_id: clusterId, generation })) return [];
    const value = readCanonical(record);
    return fleetCutoverRuntimeRecord.is(value) ? [value] : [];
  });
  const complete = !findings.hasAny('runtime_revisions', { cluster_id: clusterId });
  await verifyRetirements(verification, cluster, sound, complete);
  for (const runtime of sound) {
    const naming = { table: 'runtime_revisions', key: { cluster_id: clusterId, generation: runtime.generation } };
    await compareReferences(verification, clusterId, naming, namedByGate(cluster, runtime));
  }
}

function namedByGate({ clusterLife }: VerifiedCluster, { gate }: IFleetCutoverRuntime): NamedRecord[] {
  if (gate === null) return [];
  const { coreflowRelay: relay } = gate;
  return [
    { name: 'scope', table: 'scope_revisions', reference: gate.scope, id: scopeId(clusterLife) },
    { name: 'target set', table: 'target_set_revisions', reference: gate.targetSet, id: targetSetId(clusterLife) },
    { name: 'derivation', table: 'derivation_revisions', reference: gate.derivation, id: derivationId(clusterLife) },
    {
      name: 'manager snapshot',
      table: 'manager_snapshots',
      reference: gate.managerSnapshot,
      id: managerSnapshotId(clusterLife),
    },
    { name: 'aggregate', table: 'aggregate_revisions', reference: gate.aggregate, id: aggregateId(clusterLife) },
    {
      name: 'coreflow retirement',
      table: 'coreflow_retirements',
      reference: gate.coreflowRetirement,
      id: retirementId(clusterLife),
    },
    ...(relay === null ? [] : namedByRelay(clusterLife, relay)),
  ];
}

function namedByRelay(clusterLife: string, relay: Retirement['relay']): NamedRecord[] {
  const { nodeId, managerSnapshot, localSnapshot } = relay;
  return [
    {
      name: 'the relay’s manager snapshot',
      table: 'manager_snapshots',
      reference: managerSnapshot,
      id: managerSnapshotId(clusterLife),
    },
    {
      name: 'the relay’s local snapshot',
      table: 'local_snapshots',
      reference: localSnapshot,
      id: localSnapshotId(clusterLife, nodeId),
      owner: { column: 'node_id', value: nodeId },
    },
  ];
}

function retirementId(clusterLife: string): string {
  return recordId('cr', { clusterLife, record: 'coreflow-retirement' });
}

/** They have no head: the runtime whose gate a retirement closed names it. `complete`: no runtime is broken or gone. */
async function verifyRetirements(
  verification: Verification,
  cluster: VerifiedCluster,
  runtimes: readonly IFleetCutoverRuntime[],
  complete: boolean,
): Promise<void> {
  const { findings } = verification;
  const { clusterId, clusterLife } = cluster;
  const named = new Map(
    runtimes.flatMap(({ generation, gate }) => {
      const retirement = gate?.coreflowRetirement ?? null;
      return retirement === null ? [] : [[retirement.generation, { by: generation, digest: retirement.digest }]];
    }),
  );
  const key = (generation: number) => ({ cluster_id: clusterId, generation });
  const chain = new RevisionChain<Retirement, StoredRecord>(verification, {
    table: 'coreflow_retirements',
    record: fleetCutoverCoreflowRetirementEvidenceRecord,
    id: retirementId(clusterLife),
    key,
    contradiction: (value) => (value.clusterId === clusterId ? null : `the record is of cluster ${value.clusterId}`),
  });
  const after = recordsAfter(verification, 'coreflow_retirements', clusterId, retirementsPerPage);
  await chain.takeAll(after, async (value, row) => {
    const naming = named.get(row.generation);
    named.delete(row.generation);
    if (naming === undefined) {
      if (complete)
        findings.add('coreflow_retirements', key(row.generation), 'nobody made the row', 'no runtime names it');
    } else if (naming.digest !== row.digest) {
      const how = `runtime ${naming.by} names ${naming.digest}`;
      findings.add('coreflow_retirements', key(row.generation), 'the row was replaced', how);
    }
    if (value !== null) await compareRetirement(verification, cluster, value);
  });
  for (const [generation, { by }] of named)
    findings.add('coreflow_retirements', key(generation), 'the row is missing', `runtime ${by} names it`);
}

async function compareRetirement(
  verification: Verification,
  { clusterId, clusterLife }: VerifiedCluster,
  retirement: Retirement,
): Promise<void> {
  const { generation, relay, managerSnapshot, localSnapshot, writeOff, credential } = retirement;
  const naming = { table: 'coreflow_retirements', key: { cluster_id: clusterId, generation } };
  await compareReferences(verification, clusterId, naming, [
    {
      name: 'manager snapshot',
      table: 'manager_snapshots',
      reference: managerSnapshot,
      id: managerSnapshotId(clusterLife),
    },
    {
      name: 'local snapshot',
      table: 'local_snapshots',
      reference: localSnapshot,
      id: localSnapshotId(clusterLife, relay.nodeId),
      owner: { column: 'node_id', value: relay.nodeId },
    },
    {
      name: 'write-off',
      table: 'write_offs',
      reference: writeOff,
      owner: { column: 'write_off_id', value: writeOff?.id ?? '' },
    },
    ...namedByRelay(clusterLife, relay),
  ]);
  const known = await verification.tx.maybe(
    sql<{ generation: number; revoked: boolean }>`
      select newest_generation as generation, revoked from control.credentials
      where credential_id = ${credential.credentialId} and cluster_id = ${clusterId} and kind = 'coreflow-relay'`.compile(
      qb,
    ),
  );
  if (known?.revoked === true && known.generation === credential.generation) return;
  verification.findings.add(
    'credentials',
    { credential_id: credential.credentialId },
    'the relay’s credential is not revoked as it was',
    `retirement ${generation} has it revoked at generation ${credential.generation}`,
  );
}
