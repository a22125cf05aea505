/**
 * Computes again, from the rows, everything that can be: digests, chains, sets, pages, the required set. Reads one moment in
 * one REPEATABLE READ transaction beside a serving service, a page of rows at a time; of a cluster's handoffs it holds one
 * set of references, of its census one snapshot.
 *
 * What hands-on editing leaves behind is found in two ways: a row that contradicts itself, and a row that contradicts those
 * that were made of it. Each finding names one row; what merely follows from it is not reported again.
 */
import { sql } from 'kysely';
import { refuse, type Refused } from '../../contract/problems.js';
import { qb } from '../../db/query.js';
import { read, type ReadTx } from '../../db/transaction.js';
import type { Deps } from '../../deps.js';
import { isRefused } from '../../refusal.js';
import { organizationChainId } from '../audit/chain.js';
import { compareAggregateHead } from './aggregate-head.js';
import { verifyAggregate } from './aggregate.js';
import { verifyAuditChains } from './audit-chains.js';
import { auditedFacts } from './audited-facts.js';
import { compareAuditedCluster, compareAuditedCredentials, compareAuditedNodes } from './audited-rows.js';
import { verifyCoverage } from './coverage.js';
import { verifyCredentials } from './credentials.js';
import { derivationEvidence, type DerivationEvidence } from './derivation-evidence.js';
import { verifyDerivationRevisions } from './derivation-revisions.js';
import { verifyClosedGates } from './closed-gates.js';
import { compareDerivation } from './derivation.js';
import { verifyDerivedRows } from './derived-row-content.js';
import { type Finding, Findings } from './finding.js';
import { verifyHandoffs } from './handoffs.js';
import { verifyHeldFences } from './held-fences.js';
import { verifyIngress } from './ingress.js';
import { verifyNodeSwarmIds, verifyTargetSetNodes } from './node-memberships.js';
import type { RememberedHead } from './remembered-head.js';
import { compareManagerHead, compareReports, verifyReporterSessions } from './reporter-sessions.js';
import { RuntimeNames, verifyRuntime, verifyScope, verifyServiceSpecs, verifyTargetSet } from './revised-records.js';
import { verifyStrayRows } from './stray-rows.js';
import type { LastRevision } from './revisions.js';
import { verifyRuntimeGates } from './runtime-gates.js';
import { type ManagerEvidence, verifyLocalSnapshots, verifyManagerSnapshots } from './snapshots.js';
import type { Verification, VerifiedCluster } from './verification.js';
import { compareWrittenOffNodes, verifyWriteOffs } from './write-offs.js';

export interface VerifyInput {
  /** Null: all clusters, and the organizations' own rows. */
  readonly clusterId: string | null;
  /** Audit heads that somebody has written down; proves that the chains still contain them. */
  readonly remembered: readonly RememberedHead[];
  /** What is known to be wrong already, of rows that are not there for it. */
  readonly known?: readonly Finding[];
}

export interface VerifyReport {
  readonly clean: boolean;
  readonly clusters: readonly string[];
  /** Rows that were looked at. */
  readonly rows: number;
  /** At most 1,000. */
  readonly findings: readonly Finding[];
  readonly findingCount: number;
  /** What could not be compared because of a finding. */
  readonly skipped: readonly string[];
}

export interface VerifyProgress {
  readonly clusterId: string | null;
  /** Rows looked at, of about so many. */
  readonly rows: number;
  readonly total: number;
}

/** Refused: `cluster-unknown`. Throws what `read` throws. */
export function verify(
  deps: Deps,
  input: VerifyInput,
  onProgress: (progress: VerifyProgress) => void = () => {},
): Promise<VerifyReport | Refused> {
  return read(deps, 'verify', async (tx) => {
    const clusters = await clustersOf(tx, input.clusterId);
    if (input.clusterId !== null && clusters.length === 0) return refuse('cluster-unknown');
    const remembered = await nameChains(clusters, input);
    if (isRefused(remembered)) return remembered;
    const total = await countRows(tx, input.clusterId);
    let rows = 0;
    let clusterId: string | null = null;
    const verification: Verification = {
      tx,
      findings: new Findings(input.known),
      skipped: [],
      advance: (more) => {
        rows += more;
        onProgress({ clusterId, rows, total });
      },
    };
    await verifyAuditChains(verification, await chainsOf(tx, clusters, input, remembered), remembered);
    await verifyCredentials(verification, input.clusterId);
    for (const cluster of clusters) {
      clusterId = cluster.clusterId;
      await verifyCluster(verification, cluster);
    }
    const { findings, skipped } = verification;
    return {
      clean: findings.total === 0,
      clusters: clusters.map((cluster) => cluster.clusterId),
      rows,
      findings: findings.list,
      findingCount: findings.total,
      skipped,
    };
  });
}

/** In an order in which a row that others are compared with was looked at before them. */
async function verifyCluster(verification: Verification, cluster: VerifiedCluster): Promise<void> {
  const audited = await auditedFacts(verification, cluster.clusterId);
  compareAuditedCluster(verification, cluster, audited);
  await verifyRuntime(verification, cluster);
  const scope = await verifyScope(verification, cluster);
  const targetSet = await verifyTargetSet(verification, cluster);
  await verifyTargetSetNodes(verification, cluster);
  await verifyServiceSpecs(verification, cluster);
  const runtimes = await RuntimeNames.of(verification, cluster.clusterId);
  const snapshots = await verifyLocalSnapshots(verification, cluster, runtimes);
  const manager = await verifyManagerSnapshots(verification, cluster);
  const receipts = await verifyReporterSessions(verification, cluster);
  await compareReports(verification, cluster, receipts, snapshots, runtimes);
  await compareManagerHead(verification, cluster, receipts, runtimes);
  const aggregate = await verifyAggregate(verification, cluster);
  await verifyHandoffs(verification, cluster, aggregate.set);
  await verifyDerivedRows(verification, cluster);
  const writeOffs = await verifyWriteOffs(verification, cluster);
  await verifyNodeSwarmIds(verification, cluster);
  const evidence = await evidenceOf(verification, cluster.clusterId, scope, targetSet, manager);
  const { ledger, matchedCount } = await compareDerivation(
    verification,
    cluster,
    evidence,
    aggregate.set,
    writeOffs.broken,
  );
  await verifyDerivationRevisions(verification, cluster, ledger);
  const restored = ledger.restored.filter(({ nodeId, id }) => aggregate.set.get(nodeId, id) !== undefined);
  await compareAggregateHead(verification, cluster, aggregate, matchedCount + restored.length);
  await compareWrittenOffNodes(verification, cluster, writeOffs);
  await compareAuditedNodes(verification, cluster, audited);
  await compareAuditedCredentials(verification, cluster, audited);
  await verifyStrayRows(verification, cluster, audited);
  await verifyRuntimeGates(verification, cluster);
  await verifyClosedGates(verification, cluster, audited, snapshots);
  await verifyIngress(verification, cluster);
  await verifyHeldFences(verification, cluster);
  await verifyCoverage(verification, cluster);
}

/** Undefined where a broken row would make every derivation another one. */
async function evidenceOf(
  { tx, skipped }: Verification,
  clusterId: string,
  scope: Awaited<ReturnType<typeof verifyScope>>,
  targetSet: Awaited<ReturnType<typeof verifyTargetSet>>,
  manager: ManagerEvidence | null | undefined,
): Promise<DerivationEvidence | undefined> {
  const broken = [
    isBroken(scope) && 'scope',
    isBroken(targetSet) && 'target set',
    manager === undefined && 'manager snapshot',
  ].filter((each) => each !== false);
  if (broken.length > 0 || manager === undefined) {
    skipped.push(`derivation of cluster ${clusterId}: its latest ${broken.join(', ')} is broken`);
    return undefined;
  }
  const head = await tx.maybe(
    sql<{
      incomplete: string | null;
    }>`select incomplete from control.manager_snapshot_heads where cluster_id = ${clusterId}`.compile(qb),
  );
  return derivationEvidence(scope?.value ?? null, targetSet?.value ?? null, manager, head?.incomplete ?? null);
}

function isBroken(last: LastRevision<unknown> | undefined): boolean {
  return last !== undefined && last.value === null;
}

function clustersOf(tx: ReadTx, clusterId: string | null): Promise<VerifiedCluster[]> {
  return tx.rows(
    sql<VerifiedCluster>`
      select cluster_id as "clusterId", organization_id as "organizationId", cluster_life as "clusterLife", swarm_id as "swarmId",
        controller_id as "controllerId", controller_epoch as "controllerEpoch", runtime_namespace as "runtimeNamespace"
      from control.clusters where ${clusterId}::text is null or cluster_id = ${clusterId}::text order by cluster_id`.compile(
      qb,
    ),
  );
}

/** A remembered head without a chain is of the one cluster that is verified. */
function nameChains(
  clusters: readonly VerifiedCluster[],
  { remembered }: VerifyInput,
): readonly RememberedHead[] | Refused {
  const [only] = clusters;
  if (remembered.every((head) => head.chainId !== null)) return remembered;
  if (only === undefined || clusters.length > 1) {
    return refuse('cluster-unknown', {
      detail: 'the remembered head names no chain, and there is more than one cluster',
    });
  }
  return remembered.map((head) => ({ ...head, chainId: head.chainId ?? only.clusterId }));
}

/** With a cluster: its chain. Without: every chain that should be there, or is. */
async function chainsOf(
  tx: ReadTx,
  clusters: readonly VerifiedCluster[],
  { clusterId }: VerifyInput,
  remembered: readonly RememberedHead[],
): Promise<string[]> {
  const chains = new Set([
    ...clusters.map((cluster) => cluster.clusterId),
    ...remembered.flatMap((head) => head.chainId ?? []),
  ]);
  if (clusterId !== null) return [...chains];
  const organizations = await tx.rows(
    sql<{ id: string }>`select organization_id as id from control.organizations`.compile(qb),
  );
  for (const { id } of organizations) chains.add(organizationChainId(id));
  const known = await tx.rows(
    sql<{
      id: string;
    }>`select chain_id as id from control.audit_heads union select distinct chain_id from control.audit_rows`.compile(
      qb,
    ),
  );
  for (const { id } of known) chains.add(id);
  return [...chains];
}

/** For the progress alone. */
async function countRows(tx: ReadTx, clusterId: string | null): Promise<number> {
  const tables = [
    'scope_revisions',
    'reporter_sessions',
    'local_snapshots',
    'manager_snapshots',
    'aggregate_revisions',
    'handoff_pages',
    'handoff_revisions',
    'required_entries',
    'blockers',
    'derivation_revisions',
    'nodes',
    'target_set_nodes',
    'write_offs',
    'coreflow_retirements',
    'ingress_designation_revisions',
    'sealed_secrets',
    'held_fences',
    'coverage',
  ];
  const counts = tables.map(
    (table) =>
      sql`(select count(*) from ${sql.table(`control.${table}`)} where ${clusterId}::text is null or cluster_id = ${clusterId}::text)`,
  );
  const { total } = await tx.one(
    sql<{ total: number }>`
      select (select count(*) from control.audit_rows where ${clusterId}::text is null or chain_id = ${clusterId}::text)
        + ${sql.join(counts, sql` + `)} as total`.compile(qb),
  );
  return total;
}
