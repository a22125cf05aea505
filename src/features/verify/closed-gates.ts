/**
 * `localSnapshotsDigest` of the runtimes, computed again from the local snapshots that the gate can have rested on: each node
 * that it asked had a newest snapshot that names the runtime being left.
 *
 * A node may have more than one such snapshot (reports go on while a gate is asked, and after it was closed), and no row tells
 * which one was the newest. So every choice is tried, up to a thousand of them. Not covered: an edit of a record and its digest
 * among snapshots that are older than their node's newest one, where the choices are more than that, where a node has more
 * snapshots under that runtime than are told apart, or where the audit chain or any snapshot or target set is broken.
 */
import { bareDigest } from '../../contract/digest.js';
import { fleetCutoverRuntimeRecord, type IFleetCutoverRuntime } from '../../contract/runtime.js';
import { compareText } from '../../contract/schema.js';
import { sql } from 'kysely';
import { qb } from '../../db/query.js';
import type { AuditedFacts } from './audited-facts.js';
import { readCanonical, type StoredRecord } from './sealed-record.js';
import { type LocalSnapshots, tellableSnapshots } from './snapshots.js';
import type { Verification, VerifiedCluster } from './verification.js';

const maximumChoices = 1_000;

/** What the digest has of one node. */
interface Asked {
  readonly nodeId: string;
  readonly generation: number;
  readonly digest: string | null;
}

export async function verifyClosedGates(
  verification: Verification,
  { clusterId }: VerifiedCluster,
  facts: AuditedFacts | undefined,
  snapshots: ReadonlyMap<string, LocalSnapshots>,
): Promise<void> {
  const { tx, findings } = verification;
  const broken =
    findings.hasAny('local_snapshots', { cluster_id: clusterId }) ||
    findings.hasAny('nodes', { cluster_id: clusterId }) ||
    findings.hasAny('runtime_revisions', { cluster_id: clusterId });
  if (facts === undefined || broken) return;
  const rows = await tx.rows(
    sql<StoredRecord>`
      select generation, digest, record from control.runtime_revisions where cluster_id = ${clusterId}
      order by generation limit 16`.compile(qb),
  );
  for (const { generation, record } of rows) {
    const key = { cluster_id: clusterId, generation };
    const runtime = findings.has('runtime_revisions', key) ? undefined : readCanonical(record);
    if (!fleetCutoverRuntimeRecord.is(runtime) || runtime.gate === null) continue;
    const targets = await targetsOf(verification, clusterId, runtime);
    const seq = facts.advances.get(generation);
    if (targets === undefined || seq === undefined) continue;
    const choices = choicesOf(runtime, targets, seq, facts, snapshots);
    if (choices === null || isAmong(runtime.gate.localSnapshotsDigest, choices)) continue;
    const how = 'no choice of the local snapshots that name the runtime before has it';
    findings.add('runtime_revisions', key, 'localSnapshotsDigest is of other snapshots', how);
  }
}

async function targetsOf(
  { tx, findings }: Verification,
  clusterId: string,
  { gate }: IFleetCutoverRuntime,
): Promise<ReadonlySet<string> | undefined> {
  const { generation } = gate!.targetSet;
  if (findings.hasAny('target_set_nodes', { cluster_id: clusterId, generation })) return undefined;
  if (findings.has('target_set_revisions', { cluster_id: clusterId, generation })) return undefined;
  const rows = await tx.rows(
    sql<{ nodeId: string }>`
      select node_id as "nodeId" from control.target_set_nodes
      where cluster_id = ${clusterId} and generation = ${generation}`.compile(qb),
  );
  return new Set(rows.map(({ nodeId }) => nodeId));
}

/** By node, in their order; null where they are too many to try. */
function choicesOf(
  runtime: IFleetCutoverRuntime,
  targets: ReadonlySet<string>,
  seq: number,
  { nodes }: AuditedFacts,
  snapshots: ReadonlyMap<string, LocalSnapshots>,
): readonly (readonly Asked[])[] | null {
  const choices: Asked[][] = [];
  let count = 1;
  for (const [nodeId, node] of [...nodes].sort(([left], [right]) => compareText(left, right))) {
    const lost = node.writtenOffAt !== null && node.writtenOffAt < seq;
    if (node.seq > seq || lost || (runtime.phase !== 'pallet' && !targets.has(nodeId))) continue;
    const under = snapshots.get(nodeId)?.under.get(runtime.generation - 1) ?? [];
    if (under.length > tellableSnapshots) return null;
    const asked: Asked[] = under.map(({ generation, digest }) => ({ nodeId, generation, digest }));
    // Who was revoked before it ever reported is asked for nothing.
    if (node.revokedAt !== null && node.revokedAt < seq && !snapshots.has(nodeId))
      asked.push({ nodeId, generation: 0, digest: null });
    choices.push(asked);
    count *= asked.length;
    if (count > maximumChoices) return null;
  }
  return choices;
}

function isAmong(wanted: string, choices: readonly (readonly Asked[])[]): boolean {
  const chosen: Asked[] = [];
  const choose = (at: number): boolean => {
    const asked = choices[at];
    if (asked === undefined) return bareDigest(chosen) === wanted;
    return asked.some((each) => {
      chosen[at] = each;
      return choose(at + 1);
    });
  };
  return choose(0);
}
