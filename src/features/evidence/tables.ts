/**
 * What the evidence of one cluster is: the rows that `verify --cluster` reads, and nothing else. Then a file can be judged by
 * the very same code as a database. Every table is covered by a check, and every column but those that nothing determines:
 * `test/database/verify-columns.test.ts` edits each alone and lists those, with the reason.
 *
 * In: the audit chain of the cluster; runtimes with the references that closed their gates; accepted manager and local
 * snapshots, scopes, target sets, derivations with required entries and blockers (`since`, `until`); aggregates, handoff
 * revisions, pages; held fences and coverage; retirements, write-offs, designations and specs; credentials without their
 * hashes and sealed secrets without their bytes, since gates and designations name them; and the rows that exist only to be
 * joined or compared against (heads, observed rows, memberships, verdicts), because an edit there changes decisions, too.
 *
 * Out: {@link leftOutTables}, and of the tables that are in {@link EvidenceTable.leftOut}. The chains of organizations stay
 * out: they tell of other clusters and of people, and no check of a cluster depends on one.
 */

export interface EvidenceTable {
  /** Of schema `control`. */
  readonly name: string;
  /** Says which cluster a row belongs to. */
  readonly owner: 'cluster_id' | 'chain_id';
  /** As `verify` names a row; rows stand in this order, numbers as numbers, text by its bytes. */
  readonly key: readonly string[];
  readonly columns: readonly string[];
  /** Of type `bytea`: written as `\\x` and hexadecimal digits. */
  readonly byteColumns: readonly string[];
  /** Columns that are not exported, and why. */
  readonly leftOut: Readonly<Record<string, LeftOut>>;
  /** How many rows are read at once: a few megabytes. */
  readonly rowsPerPage: number;
}

export interface LeftOut {
  readonly why: string;
  /**
   * What stands there instead where the rows are loaded: a value that every check takes for right. Absent: the default of the
   * column.
   */
  readonly instead?: (row: Readonly<Record<string, string | null>>) => string | null;
}

/** Key columns that are ordered as numbers. */
export const numericKeys: ReadonlySet<string> = new Set([
  'seq',
  'generation',
  'since',
  'aggregate_generation',
  'version',
  'page_index',
  'since_generation',
]);

const many = 1_000;
/** A snapshot, or a scope, may have some megabytes. */
const few = 4;

const databaseTime: LeftOut = { why: 'a time of the database, which no digest covers' };
const secretHash = 'a hash of a secret';

/** In the order in which they stand in a file. */
export const evidenceTables: readonly EvidenceTable[] = [
  of(
    'clusters',
    ['cluster_id'],
    'organization_id controller_id controller_epoch runtime_namespace swarm_id cluster_life',
    many,
    {
      created_at: databaseTime,
    },
  ),
  {
    ...of(
      'audit_rows',
      ['chain_id', 'seq'],
      `chain_digest row_digest organization_id cluster_id mutation_id credential_id principal_id method request_digest result at`,
      100,
    ),
    owner: 'chain_id',
    byteColumns: ['chain_digest', 'row_digest'],
  },
  { ...of('audit_heads', ['chain_id'], 'seq digest', many), owner: 'chain_id', byteColumns: ['digest'] },
  of(
    'credentials',
    ['credential_id'],
    'cluster_id organization_id kind subject_id role newest_generation used_generation revoked',
    many,
    {
      newest_hash: { why: secretHash, instead: () => bytes(32, '00') },
      used_hash: {
        why: secretHash,
        // The table and `verify` want it to be the newest one's exactly where that is the used one.
        instead: (row) => {
          const { used_generation: used, newest_generation: newest } = row;
          return used === null ? null : bytes(32, used === newest ? '00' : '01');
        },
      },
      created_at: databaseTime,
    },
  ),
  of(
    'nodes',
    ['cluster_id', 'node_id'],
    `state quarantine_reason swarm_node_id reported_swarm_node_id corestore_public_key corestore_public_key_generation
     reporter_session_id observation_sequence reported_state local_generation local_digest local_incomplete
     local_runtime_generation fence_store_id`,
    many,
    { received_at: databaseTime, local_seen_at: databaseTime, created_at: databaseTime },
  ),
  of('node_swarm_ids', ['cluster_id', 'swarm_node_id'], 'node_id', many),
  of(
    'reporter_sessions',
    ['cluster_id', 'node_id', 'reporter_session_id'],
    'observation_sequence request_digest receipt',
    many,
    {
      opened_at: databaseTime,
    },
  ),
  of('service_spec_heads', ['cluster_id', 'service_id'], 'spec_id generation digest', many),
  of('service_spec_revisions', ['cluster_id', 'service_id', 'generation'], 'digest record', 100),
  of('volumes', ['cluster_id', 'node_id', 'service_id', 'mount_identity_digest'], 'volume_id', many),
  of('runtime_heads', ['cluster_id'], 'generation digest phase', many),
  of('runtime_revisions', ['cluster_id', 'generation'], 'digest phase record', many),
  of('scope_heads', ['cluster_id'], 'generation digest state', many),
  of('scope_revisions', ['cluster_id', 'generation'], 'digest record', few),
  of('target_set_heads', ['cluster_id'], 'generation digest', many),
  of('target_set_revisions', ['cluster_id', 'generation'], 'digest record', few),
  of('target_set_nodes', ['cluster_id', 'generation', 'node_id'], '', many),
  of('local_snapshots', ['cluster_id', 'node_id', 'generation'], 'digest record', few, { accepted_at: databaseTime }),
  of('manager_snapshot_heads', ['cluster_id'], 'generation digest node_id incomplete runtime_generation', many, {
    seen_at: databaseTime,
  }),
  of('manager_snapshots', ['cluster_id', 'generation'], 'digest swarm_id node_id record', few, {
    accepted_at: databaseTime,
  }),
  of('observed_task_containers', ['cluster_id', 'node_id', 'container_id'], 'swarm_task_id state', many),
  of(
    'observed_tasks',
    ['cluster_id', 'swarm_task_id'],
    'swarm_service_id swarm_node_id slot desired_state state container_id',
    many,
  ),
  of(
    'observed_services',
    ['cluster_id', 'swarm_service_id'],
    'name mounts mode replicas spec_version spec_digest role',
    100,
  ),
  of('observed_swarm_nodes', ['cluster_id', 'swarm_node_id'], 'hostname state availability', many),
  of('derivation_heads', ['cluster_id'], 'generation digest required_count blocker_count', many),
  of('derivation_revisions', ['cluster_id', 'generation'], 'digest record', many),
  of(
    'required_entries',
    ['cluster_id', 'node_id', 'handoff_id', 'since'],
    `until service_id swarm_service_id source_digest target_digest mount_identity_digest source mount_path volume_name
     anonymous`,
    many,
  ),
  of('blockers', ['cluster_id', 'blocker_id', 'since'], 'until code part node_id handoff_id record', many),
  of('task_verdicts', ['cluster_id', 'swarm_task_id'], 'swarm_service_id node_id verdict reason', many),
  of(
    'node_gate_facts',
    ['cluster_id', 'node_id'],
    'pallet_ready old_mode_refused active_containers confirmed_containers unkept_volumes vanished_volumes detail',
    100,
  ),
  of(
    'aggregate_heads',
    ['cluster_id'],
    `generation digest state prepared_count matched_count page_count derivation_generation scope_generation
     target_set_generation complete_generation`,
    many,
  ),
  of('aggregate_revisions', ['cluster_id', 'generation'], 'digest state record', 500),
  of(
    'handoff_heads',
    ['cluster_id', 'node_id', 'handoff_id'],
    'generation digest claim_digest request_digest removed',
    many,
  ),
  of(
    'handoff_revisions',
    ['cluster_id', 'node_id', 'handoff_id', 'aggregate_generation'],
    'generation digest record',
    256,
  ),
  {
    ...of('handoff_pages', ['cluster_id', 'page_index', 'since_generation'], 'content_digest bytes', 128),
    byteColumns: ['bytes'],
  },
  of('page_heads', ['cluster_id', 'page_index'], 'content_digest first_node_id first_handoff_id', many),
  of(
    'held_fences',
    ['cluster_id', 'node_id', 'handoff_id'],
    'fence_id generation digest handoff_generation record',
    500,
  ),
  of('coverage', ['cluster_id', 'node_id'], 'aggregate_generation covered covered_pages held_pages', 100, {
    version: { why: 'only compared within one database', instead: () => '0' },
    minute: { why: 'only for the rate that is shown', instead: () => '0' },
    minute_covered: { why: 'only for the rate that is shown', instead: () => '0' },
  }),
  of('coreflow_retirements', ['cluster_id', 'generation'], 'digest record', many),
  of('write_offs', ['cluster_id', 'write_off_id', 'generation'], 'digest state node_id handoff_id record', many),
  of('ingress_designation_heads', ['cluster_id'], 'generation digest service_id', many),
  of('ingress_designation_revisions', ['cluster_id', 'generation'], 'digest record', many),
  of('sealed_secrets', ['cluster_id', 'secret_id', 'version'], 'service_id credential_id key_id', many, {
    nonce: { why: 'part of a sealed secret', instead: () => bytes(12, '00') },
    ciphertext: { why: 'a sealed secret', instead: () => bytes(17, '00') },
  }),
];

/** Tables that no file has, and why. */
export const leftOutTables: Readonly<Record<string, string>> = {
  migrations: 'of the program, not of a cluster',
  organizations: 'of all clusters of an organization',
  services: 'of the organization; records name them by their ids',
  service_spec_releases: 'no check covers them yet',
  refusal_counts: 'refusals are counted, not chained',
  incomplete_snapshots: 'for people; what blocks is a blocker, and the latest reason stands in the node or the head',
};

function of(
  name: string,
  key: readonly string[],
  more: string,
  rowsPerPage: number,
  leftOut: EvidenceTable['leftOut'] = {},
): EvidenceTable {
  const others = more.split(/\s+/).filter((column) => column !== '');
  return { name, owner: 'cluster_id', key, columns: [...key, ...others], byteColumns: [], leftOut, rowsPerPage };
}

function bytes(count: number, hex: string): string {
  return `\\x${hex.repeat(count)}`;
}
