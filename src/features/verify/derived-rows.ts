/** Stored required entries, blockers and verdicts of one part of a derivation, against a fresh derivation. */
import { sql } from 'kysely';
import { canonicalizeStrictJson } from '../../contract/canonical-json.js';
import type { IFleetCutoverTaskVerdict } from '../../contract/derivation.js';
import { qb } from '../../db/query.js';
import { gateDetail } from '../volume-handoff/derivation-rows.js';
import type { Blocker, NodeGateFacts, RequiredEntry } from '../volume-handoff/derive-node.js';
import { compareRows } from './observed-rows.js';
import type { Verification } from './verification.js';

export type StoredEntry = RequiredEntry & { readonly since: number };

export interface StoredBlocker {
  readonly id: string;
  readonly since: number;
  readonly record: string;
}

export function currentEntries({ tx }: Verification, clusterId: string, nodeId: string): Promise<StoredEntry[]> {
  return tx.rows(
    sql<StoredEntry>`
      select handoff_id as "handoffId", node_id as "nodeId", service_id as "serviceId", swarm_service_id as "swarmServiceId",
        source_digest as "sourceDigest", target_digest as "targetDigest", mount_identity_digest as "mountIdentityDigest",
        source, mount_path as "mountPath", volume_name as "volumeName", anonymous, since
      from control.required_entries
      where cluster_id = ${clusterId} and node_id = ${nodeId} and until is null order by handoff_id`.compile(qb),
  );
}

export function currentBlockers({ tx }: Verification, clusterId: string, part: string): Promise<StoredBlocker[]> {
  return tx.rows(
    sql<StoredBlocker>`
      select blocker_id as id, since, record from control.blockers
      where cluster_id = ${clusterId} and coalesce(node_id, '') = ${part} and until is null order by blocker_id`.compile(
      qb,
    ),
  );
}

export async function compareVerdicts(
  verification: Verification,
  clusterId: string,
  nodeId: string | null,
  verdicts: readonly IFleetCutoverTaskVerdict[],
): Promise<void> {
  const stored = await verification.tx.rows(
    sql<{ id: string; content: unknown[] }>`
      select swarm_task_id as id, jsonb_build_array(swarm_service_id, verdict, reason) as content
      from control.task_verdicts where cluster_id = ${clusterId} and node_id is not distinct from ${nodeId}::text`.compile(
      qb,
    ),
  );
  compareRows(
    verification,
    'task_verdicts',
    new Map(
      verdicts.map((each) => [
        each.swarmTaskId,
        canonicalizeStrictJson([each.swarmServiceId, each.verdict, each.reason]),
      ]),
    ),
    new Map(stored.map((row) => [row.id, canonicalizeStrictJson(row.content)])),
    (id) => ({ cluster_id: clusterId, swarm_task_id: id }),
    'a fresh verdict from the latest accepted snapshots',
  );
}

/** `observed`: the node was derived at least once, by its accepted snapshot. */
export async function compareGateFacts(
  { tx, findings }: Verification,
  clusterId: string,
  nodeId: string,
  gate: NodeGateFacts,
  observed: boolean,
): Promise<void> {
  const row = await tx.maybe(
    sql<{ content: unknown[]; looked: boolean }>`
      select jsonb_build_array(pallet_ready, old_mode_refused, active_containers, confirmed_containers,
          case when looked then unkept_volumes end, case when looked then vanished_volumes end, detail) as content, looked
      from control.node_gate_facts
      cross join lateral (select detail ?| array['unkept', 'vanished'] as looked) volumes
      where cluster_id = ${clusterId} and node_id = ${nodeId}`.compile(qb),
  );
  if (row === undefined && !observed) return;
  const { palletReady, oldModeRefused, active, confirmed, volumes } = gate;
  const { unkept, vanished, ...detail } = gateDetail(gate);
  // A row that was derived by who did not look at volumes meets no gate, and is whole; what its counts say is older, and nobody's.
  const looked = row?.looked !== false;
  const expected = [
    palletReady,
    oldModeRefused,
    active.length,
    confirmed.length,
    looked ? volumes.unkept.length : null,
    looked ? volumes.vanished.length : null,
    looked ? { ...detail, unkept, vanished } : detail,
  ];
  if (row !== undefined && canonicalizeStrictJson(row.content) === canonicalizeStrictJson(expected)) return;
  findings.add(
    'node_gate_facts',
    { cluster_id: clusterId, node_id: nodeId },
    row === undefined ? 'the row is missing' : 'the row was changed',
    'a fresh derivation from the latest accepted snapshots says otherwise',
  );
}

/** What the stored rows lack, and what they have too much, against a fresh derivation. */
export interface Difference {
  readonly missingEntries: readonly RequiredEntry[];
  readonly extraEntries: readonly StoredEntry[];
  readonly missingBlockers: readonly Blocker[];
  readonly extraBlockers: readonly StoredBlocker[];
}

/** Rows that are there but say something else are named here. */
export function compareDerived(
  { findings }: Verification,
  clusterId: string,
  derived: { readonly entries: readonly RequiredEntry[]; readonly blockers: readonly Blocker[] },
  stored: { readonly entries: readonly StoredEntry[]; readonly blockers: readonly StoredBlocker[] },
): Difference {
  const entries = new Map(stored.entries.map((entry) => [entry.handoffId, entry]));
  const missingEntries: RequiredEntry[] = [];
  for (const entry of derived.entries) {
    const row = entries.get(entry.handoffId);
    entries.delete(entry.handoffId);
    if (row === undefined) {
      missingEntries.push(entry);
      continue;
    }
    const { since, ...content } = row;
    if (canonicalizeStrictJson(content) === canonicalizeStrictJson(entry)) continue;
    const key = { cluster_id: clusterId, node_id: row.nodeId, handoff_id: row.handoffId, since };
    findings.add(
      'required_entries',
      key,
      'the row was changed',
      'a fresh derivation from the latest accepted snapshots says otherwise',
    );
  }
  const blockers = new Map(stored.blockers.map((blocker) => [blocker.id, blocker]));
  const missingBlockers: Blocker[] = [];
  for (const blocker of derived.blockers) {
    const row = blockers.get(blocker.record.id);
    blockers.delete(blocker.record.id);
    if (row === undefined) missingBlockers.push(blocker);
    else if (row.record !== canonicalizeStrictJson(blocker.record)) {
      const key = { cluster_id: clusterId, blocker_id: row.id, since: row.since };
      findings.add(
        'blockers',
        key,
        'the row was changed',
        'a fresh derivation from the latest accepted snapshots says otherwise',
      );
    }
  }
  return {
    missingEntries,
    extraEntries: [...entries.values()],
    missingBlockers,
    extraBlockers: [...blockers.values()],
  };
}
