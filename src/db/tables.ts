import type { Generated } from 'kysely';

/** Row types of the private tables, for the typed query builder. Follows `migrations/`; a test compares the two. */

export interface OrganizationsTable {
  organization_id: string;
  created_at: Generated<Date>;
}

export interface ClustersTable {
  cluster_id: string;
  organization_id: string;
  controller_id: string;
  controller_epoch: number;
  runtime_namespace: string;
  swarm_id: string | null;
  cluster_life: string;
  created_at: Generated<Date>;
}

export interface CredentialsTable {
  credential_id: string;
  organization_id: string;
  cluster_id: string | null;
  kind: string;
  subject_id: string;
  role: string | null;
  newest_generation: number;
  newest_hash: Buffer;
  used_generation: number | null;
  used_hash: Buffer | null;
  revoked: Generated<boolean>;
  created_at: Generated<Date>;
}

export interface NodesTable {
  cluster_id: string;
  node_id: string;
  state: Generated<string>;
  quarantine_reason: string | null;
  swarm_node_id: string | null;
  reported_swarm_node_id: string | null;
  corestore_public_key: string | null;
  corestore_public_key_generation: Generated<number>;
  reporter_session_id: string | null;
  observation_sequence: number | null;
  reported_state: string | null;
  received_at: number | null;
  local_generation: Generated<number>;
  local_digest: string | null;
  local_seen_at: number | null;
  local_incomplete: string | null;
  created_at: Generated<Date>;
  local_runtime_generation: number | null;
  fence_store_id: string | null;
}

export interface ServicesTable {
  service_id: string;
  organization_id: string;
  name: string;
  state: Generated<string>;
  created_at: Generated<Date>;
}

export interface ServiceSpecHeadsTable {
  cluster_id: string;
  service_id: string;
  spec_id: string;
  generation: number;
  digest: string;
}

export interface ServiceSpecRevisionsTable {
  cluster_id: string;
  service_id: string;
  generation: number;
  digest: string;
  record: string;
}

export interface ServiceSpecReleasesTable {
  cluster_id: string;
  service_id: string;
  generation: number;
  released_at: Generated<Date>;
}

export interface VolumesTable {
  cluster_id: string;
  node_id: string;
  service_id: string;
  mount_identity_digest: string;
  volume_id: string;
}

export interface AuditHeadsTable {
  chain_id: string;
  seq: number;
  digest: Buffer;
}

export interface AuditRowsTable {
  chain_id: string;
  seq: number;
  chain_digest: Buffer;
  row_digest: Buffer;
  organization_id: string;
  cluster_id: string | null;
  mutation_id: string;
  credential_id: string;
  principal_id: string;
  method: string;
  request_digest: string;
  result: string;
  at: number;
}

export interface RefusalCountsTable {
  principal_id: string;
  method: string;
  code: string;
  minute: Date;
  chain_id: string;
  chain_seq: number;
  count: number;
}

export interface RuntimeHeadsTable {
  cluster_id: string;
  generation: number;
  digest: string;
  phase: string;
}

export interface RuntimeRevisionsTable {
  cluster_id: string;
  generation: number;
  digest: string;
  phase: string;
  record: string;
}

export interface ScopeHeadsTable {
  cluster_id: string;
  generation: number;
  digest: string | null;
  state: string;
}

export interface ScopeRevisionsTable {
  cluster_id: string;
  generation: number;
  digest: string;
  record: string;
}

export interface TargetSetHeadsTable {
  cluster_id: string;
  generation: number;
  digest: string | null;
}

export interface TargetSetRevisionsTable {
  cluster_id: string;
  generation: number;
  digest: string;
  record: string;
}

export interface ReporterSessionsTable {
  cluster_id: string;
  node_id: string;
  reporter_session_id: string;
  observation_sequence: number;
  request_digest: string;
  receipt: string;
  opened_at: Generated<Date>;
}

export interface LocalSnapshotsTable {
  cluster_id: string;
  node_id: string;
  generation: number;
  digest: string;
  record: string;
  accepted_at: Generated<Date>;
}

export interface ManagerSnapshotHeadsTable {
  cluster_id: string;
  generation: number;
  digest: string | null;
  node_id: string | null;
  seen_at: number | null;
  incomplete: string | null;
  runtime_generation: number | null;
}

export interface ManagerSnapshotsTable {
  cluster_id: string;
  generation: number;
  digest: string;
  swarm_id: string;
  node_id: string;
  record: string;
  accepted_at: Generated<Date>;
}

export interface IncompleteSnapshotsTable {
  cluster_id: string;
  node_id: string;
  kind: string;
  reason: string;
  counts: unknown | null;
  reported: number;
  last_seen_at: number;
}

export interface ObservedTaskContainersTable {
  cluster_id: string;
  node_id: string;
  container_id: string;
  swarm_task_id: string;
  state: string;
}

export interface ObservedTasksTable {
  cluster_id: string;
  swarm_task_id: string;
  swarm_service_id: string;
  swarm_node_id: string | null;
  slot: number | null;
  desired_state: string;
  state: string;
  container_id: string | null;
}

export interface ObservedServicesTable {
  cluster_id: string;
  swarm_service_id: string;
  name: string;
  mounts: unknown;
  mode: Generated<string>;
  replicas: number | null;
  spec_version: Generated<number>;
  spec_digest: Generated<string>;
  role: string | null;
}

export interface ObservedSwarmNodesTable {
  cluster_id: string;
  swarm_node_id: string;
  hostname: string;
  state: string;
  availability: string;
}

export interface DerivationHeadsTable {
  cluster_id: string;
  generation: number;
  digest: string;
  required_count: number;
  blocker_count: number;
}

export interface DerivationRevisionsTable {
  cluster_id: string;
  generation: number;
  digest: string;
  record: string;
}

export interface RequiredEntriesTable {
  cluster_id: string;
  node_id: string;
  handoff_id: string;
  since: number;
  until: number | null;
  service_id: string;
  swarm_service_id: string;
  source_digest: string;
  target_digest: string;
  mount_identity_digest: string;
  source: string;
  mount_path: string;
  volume_name: string | null;
  anonymous: boolean;
}

export interface BlockersTable {
  cluster_id: string;
  blocker_id: string;
  since: number;
  until: number | null;
  code: string;
  part: string;
  node_id: string | null;
  handoff_id: string | null;
  record: string;
}

export interface TaskVerdictsTable {
  cluster_id: string;
  swarm_task_id: string;
  swarm_service_id: string;
  node_id: string | null;
  verdict: string;
  reason: string;
}

export interface AggregateHeadsTable {
  cluster_id: string;
  generation: number;
  digest: string | null;
  state: string;
  prepared_count: number;
  matched_count: number;
  page_count: number;
  derivation_generation: number;
  scope_generation: number;
  target_set_generation: number;
  complete_generation: number;
}

export interface AggregateRevisionsTable {
  cluster_id: string;
  generation: number;
  digest: string;
  state: string;
  record: string;
}

export interface HandoffHeadsTable {
  cluster_id: string;
  node_id: string;
  handoff_id: string;
  generation: number;
  digest: string;
  claim_digest: string;
  request_digest: string;
  removed: boolean;
}

export interface HandoffRevisionsTable {
  cluster_id: string;
  node_id: string;
  handoff_id: string;
  aggregate_generation: number;
  generation: number;
  digest: string;
  record: string | null;
}

export interface HandoffPagesTable {
  cluster_id: string;
  page_index: number;
  since_generation: number;
  content_digest: string;
  bytes: Buffer;
}

export interface PageHeadsTable {
  cluster_id: string;
  page_index: number;
  content_digest: string;
  first_node_id: string;
  first_handoff_id: string;
}

export interface NodeGateFactsTable {
  cluster_id: string;
  node_id: string;
  pallet_ready: boolean;
  old_mode_refused: boolean;
  active_containers: number;
  confirmed_containers: number;
  unkept_volumes: number | null;
  vanished_volumes: number | null;
  detail: unknown;
}

export interface HeldFencesTable {
  cluster_id: string;
  node_id: string;
  handoff_id: string;
  fence_id: string;
  generation: number;
  digest: string;
  handoff_generation: number;
  record: string;
}

export interface TargetSetNodesTable {
  cluster_id: string;
  generation: number;
  node_id: string;
}

export interface NodeSwarmIdsTable {
  cluster_id: string;
  swarm_node_id: string;
  node_id: string;
}

export interface CoverageTable {
  cluster_id: string;
  node_id: string;
  aggregate_generation: number;
  covered: number;
  covered_pages: string;
  held_pages: string;
  version: number;
  minute: number;
  minute_covered: number;
}

export interface CoreflowRetirementsTable {
  cluster_id: string;
  generation: number;
  digest: string;
  record: string;
}

export interface WriteOffsTable {
  cluster_id: string;
  write_off_id: string;
  generation: number;
  digest: string;
  state: string;
  node_id: string;
  handoff_id: string | null;
  record: string;
}

export interface IngressDesignationHeadsTable {
  cluster_id: string;
  generation: number;
  digest: string;
  service_id: string;
}

export interface IngressDesignationRevisionsTable {
  cluster_id: string;
  generation: number;
  digest: string;
  record: string;
}

export interface SealedSecretsTable {
  cluster_id: string;
  secret_id: string;
  version: number;
  service_id: string;
  credential_id: string;
  key_id: string;
  nonce: Buffer;
  ciphertext: Buffer;
}

/** Names are qualified, so that a query says which schema it touches. */
export interface Database {
  'control.organizations': OrganizationsTable;
  'control.clusters': ClustersTable;
  'control.credentials': CredentialsTable;
  'control.nodes': NodesTable;
  'control.services': ServicesTable;
  'control.service_spec_heads': ServiceSpecHeadsTable;
  'control.service_spec_revisions': ServiceSpecRevisionsTable;
  'control.service_spec_releases': ServiceSpecReleasesTable;
  'control.volumes': VolumesTable;
  'control.audit_heads': AuditHeadsTable;
  'control.audit_rows': AuditRowsTable;
  'control.refusal_counts': RefusalCountsTable;
  'control.runtime_heads': RuntimeHeadsTable;
  'control.runtime_revisions': RuntimeRevisionsTable;
  'control.scope_heads': ScopeHeadsTable;
  'control.scope_revisions': ScopeRevisionsTable;
  'control.target_set_heads': TargetSetHeadsTable;
  'control.target_set_revisions': TargetSetRevisionsTable;
  'control.reporter_sessions': ReporterSessionsTable;
  'control.local_snapshots': LocalSnapshotsTable;
  'control.manager_snapshot_heads': ManagerSnapshotHeadsTable;
  'control.manager_snapshots': ManagerSnapshotsTable;
  'control.incomplete_snapshots': IncompleteSnapshotsTable;
  'control.observed_task_containers': ObservedTaskContainersTable;
  'control.observed_tasks': ObservedTasksTable;
  'control.observed_services': ObservedServicesTable;
  'control.observed_swarm_nodes': ObservedSwarmNodesTable;
  'control.derivation_heads': DerivationHeadsTable;
  'control.derivation_revisions': DerivationRevisionsTable;
  'control.required_entries': RequiredEntriesTable;
  'control.blockers': BlockersTable;
  'control.task_verdicts': TaskVerdictsTable;
  'control.aggregate_heads': AggregateHeadsTable;
  'control.aggregate_revisions': AggregateRevisionsTable;
  'control.handoff_heads': HandoffHeadsTable;
  'control.handoff_revisions': HandoffRevisionsTable;
  'control.handoff_pages': HandoffPagesTable;
  'control.page_heads': PageHeadsTable;
  'control.node_gate_facts': NodeGateFactsTable;
  'control.held_fences': HeldFencesTable;
  'control.target_set_nodes': TargetSetNodesTable;
  'control.node_swarm_ids': NodeSwarmIdsTable;
  'control.coverage': CoverageTable;
  'control.coreflow_retirements': CoreflowRetirementsTable;
  'control.write_offs': WriteOffsTable;
  'control.ingress_designation_heads': IngressDesignationHeadsTable;
  'control.ingress_designation_revisions': IngressDesignationRevisionsTable;
  'control.sealed_secrets': SealedSecretsTable;
}
