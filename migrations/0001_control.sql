-- The control plane's private tables. Plain, forward only. Every text key is `collate "C"`, so that Postgres, bytes and
-- JavaScript sort identifiers the same way. Records are kept as their canonical JSON text: what was digested is what is stored.

create schema if not exists control;
create schema if not exists operator;

create domain control.key as text collate "C";

create function control.refuse_change() returns trigger language plpgsql as $$
begin
  raise exception '% of % is refused: its rows are immutable', tg_op, tg_table_name using errcode = 'restrict_violation';
end $$;

create procedure control.make_immutable(name text) language plpgsql as $$
begin
  execute format('create trigger immutable_rows before update or delete on control.%I for each row execute function control.refuse_change()', name);
  execute format('create trigger immutable_table before truncate on control.%I for each statement execute function control.refuse_change()', name);
end $$;

-- Owners ------------------------------------------------------------------------------------------------------------

create table control.organizations (
  organization_id control.key not null,
  created_at timestamptz not null default now(),
  constraint organizations_key primary key (organization_id)
);

create table control.clusters (
  cluster_id control.key not null,
  organization_id control.key not null,
  controller_id control.key not null,
  controller_epoch bigint not null,
  runtime_namespace control.key not null,
  swarm_id control.key,
  cluster_life control.key not null,
  created_at timestamptz not null default now(),
  constraint clusters_key primary key (cluster_id),
  constraint clusters_organization foreign key (organization_id) references control.organizations,
  constraint clusters_epoch check (controller_epoch >= 1)
);
create index clusters_by_organization on control.clusters (organization_id, cluster_id);

-- One row per credential. The verifier accepts exactly the newest generation and the last one that was used.
create table control.credentials (
  credential_id control.key not null,
  organization_id control.key not null,
  cluster_id control.key,
  kind text not null,
  subject_id control.key not null,
  role text,
  newest_generation bigint not null,
  newest_hash bytea not null,
  used_generation bigint,
  used_hash bytea,
  revoked boolean not null default false,
  created_at timestamptz not null default now(),
  constraint credentials_key primary key (credential_id),
  constraint credentials_organization foreign key (organization_id) references control.organizations,
  constraint credentials_cluster foreign key (cluster_id) references control.clusters,
  constraint credentials_kind check (kind in ('administrator', 'node-token', 'node-session', 'coreflow-relay')),
  constraint credentials_role check ((kind = 'administrator') = (role is not null) and role in ('administrator', 'operator')),
  constraint credentials_hash check (octet_length(newest_hash) = 32 and octet_length(used_hash) = 32),
  constraint credentials_generation check (newest_generation >= 1 and used_generation between 1 and newest_generation),
  constraint credentials_used check ((used_generation is null) = (used_hash is null))
);
create unique index credentials_of_node on control.credentials (kind, subject_id) where kind in ('node-token', 'node-session');
create unique index credentials_of_relay on control.credentials (cluster_id, subject_id) where kind = 'coreflow-relay';
create index credentials_by_organization on control.credentials (organization_id, credential_id);

create table control.nodes (
  cluster_id control.key not null,
  node_id control.key not null,
  state text not null default 'active',
  quarantine_reason text,
  swarm_node_id control.key,
  reported_swarm_node_id control.key,
  corestore_public_key text,
  corestore_public_key_generation bigint not null default 0,
  reporter_session_id control.key,
  observation_sequence bigint,
  reported_state text,
  received_at bigint,
  local_generation bigint not null default 0,
  local_digest control.key,
  local_seen_at bigint,
  local_incomplete text,
  created_at timestamptz not null default now(),
  constraint nodes_key primary key (cluster_id, node_id),
  constraint nodes_cluster foreign key (cluster_id) references control.clusters,
  constraint nodes_id unique (node_id),
  constraint nodes_swarm_node unique (cluster_id, swarm_node_id),
  constraint nodes_state check (state in ('active', 'quarantined', 'revoked')),
  constraint nodes_quarantine check ((state = 'quarantined') = (quarantine_reason is not null)),
  constraint nodes_local check ((local_generation = 0) = (local_digest is null))
);

create table control.services (
  service_id control.key not null,
  organization_id control.key not null,
  name text collate "C" not null,
  state text not null default 'live',
  created_at timestamptz not null default now(),
  constraint services_key primary key (service_id),
  constraint services_organization foreign key (organization_id) references control.organizations,
  constraint services_name unique (organization_id, name),
  constraint services_state check (state in ('live', 'retired'))
);
create index services_by_organization on control.services (organization_id, service_id);

create table control.service_spec_heads (
  cluster_id control.key not null,
  service_id control.key not null,
  spec_id control.key not null,
  generation bigint not null,
  digest control.key not null,
  constraint service_spec_heads_key primary key (cluster_id, service_id),
  constraint service_spec_heads_cluster foreign key (cluster_id) references control.clusters,
  constraint service_spec_heads_service foreign key (service_id) references control.services
);

create table control.service_spec_revisions (
  cluster_id control.key not null,
  service_id control.key not null,
  generation bigint not null,
  digest control.key not null,
  record text not null,
  constraint service_spec_revisions_key primary key (cluster_id, service_id, generation)
);
call control.make_immutable('service_spec_revisions');

-- Releases are facts beside the immutable revisions: a revision without a row here is held.
create table control.service_spec_releases (
  cluster_id control.key not null,
  service_id control.key not null,
  generation bigint not null,
  released_at timestamptz not null default now(),
  constraint service_spec_releases_key primary key (cluster_id, service_id, generation),
  constraint service_spec_releases_revision foreign key (cluster_id, service_id, generation) references control.service_spec_revisions
);
call control.make_immutable('service_spec_releases');

create table control.volumes (
  cluster_id control.key not null,
  node_id control.key not null,
  service_id control.key not null,
  mount_identity_digest control.key not null,
  volume_id control.key not null,
  constraint volumes_key primary key (cluster_id, node_id, service_id, mount_identity_digest),
  constraint volumes_node foreign key (cluster_id, node_id) references control.nodes,
  constraint volumes_service foreign key (service_id) references control.services
);
call control.make_immutable('volumes');

-- Audit: one row per accepted mutation, replay record too ---------------------------------------------------------

create table control.audit_heads (
  chain_id control.key not null,
  seq bigint not null,
  digest bytea not null,
  constraint audit_heads_key primary key (chain_id),
  constraint audit_heads_digest check (octet_length(digest) = 32)
);

create table control.audit_rows (
  chain_id control.key not null,
  seq bigint not null,
  chain_digest bytea not null,
  row_digest bytea not null,
  organization_id control.key not null,
  cluster_id control.key,
  mutation_id control.key not null,
  credential_id control.key not null,
  principal_id control.key not null,
  method text not null,
  request_digest control.key not null,
  -- Canonical JSON of the recorded result; never holds a secret.
  result text not null,
  -- Unix ms, part of what is digested.
  at bigint not null,
  constraint audit_rows_key primary key (chain_id, seq),
  constraint audit_row_mutation unique (organization_id, mutation_id),
  constraint audit_rows_digests check (octet_length(chain_digest) = 32 and octet_length(row_digest) = 32)
);
call control.make_immutable('audit_rows');

create table control.refusal_counts (
  principal_id control.key not null,
  method text not null,
  code text not null,
  minute timestamptz not null,
  chain_id control.key not null,
  chain_seq bigint not null,
  count bigint not null,
  constraint refusal_counts_key primary key (principal_id, method, code, minute, chain_id)
);

-- Runtime, scope, targets -------------------------------------------------------------------------------------------

create table control.runtime_heads (
  cluster_id control.key not null,
  generation bigint not null,
  digest control.key not null,
  phase text not null,
  constraint runtime_heads_key primary key (cluster_id),
  constraint runtime_heads_cluster foreign key (cluster_id) references control.clusters,
  constraint runtime_heads_phase check (phase in ('swarm', 'draining', 'switching', 'pallet'))
);

create table control.runtime_revisions (
  cluster_id control.key not null,
  generation bigint not null,
  digest control.key not null,
  phase text not null,
  record text not null,
  constraint runtime_revisions_key primary key (cluster_id, generation)
);
call control.make_immutable('runtime_revisions');

-- Generation 0 with a null digest: none accepted yet.
create table control.scope_heads (
  cluster_id control.key not null,
  generation bigint not null,
  digest control.key,
  state text not null,
  constraint scope_heads_key primary key (cluster_id),
  constraint scope_heads_cluster foreign key (cluster_id) references control.clusters,
  constraint scope_heads_state check (state in ('absent', 'incomplete', 'complete')),
  constraint scope_heads_none check ((generation = 0) = (digest is null) and (generation = 0) = (state = 'absent'))
);

create table control.scope_revisions (
  cluster_id control.key not null,
  generation bigint not null,
  digest control.key not null,
  record text not null,
  constraint scope_revisions_key primary key (cluster_id, generation)
);
call control.make_immutable('scope_revisions');

create table control.target_set_heads (
  cluster_id control.key not null,
  generation bigint not null,
  digest control.key,
  constraint target_set_heads_key primary key (cluster_id),
  constraint target_set_heads_cluster foreign key (cluster_id) references control.clusters,
  constraint target_set_heads_none check ((generation = 0) = (digest is null))
);

create table control.target_set_revisions (
  cluster_id control.key not null,
  generation bigint not null,
  digest control.key not null,
  record text not null,
  constraint target_set_revisions_key primary key (cluster_id, generation)
);
call control.make_immutable('target_set_revisions');

-- Observations ------------------------------------------------------------------------------------------------------

create table control.reporter_sessions (
  cluster_id control.key not null,
  node_id control.key not null,
  reporter_session_id control.key not null,
  observation_sequence bigint not null,
  request_digest control.key not null,
  receipt text not null,
  opened_at timestamptz not null default now(),
  constraint reporter_sessions_key primary key (cluster_id, node_id, reporter_session_id),
  constraint reporter_sessions_node foreign key (cluster_id, node_id) references control.nodes
);

create table control.local_snapshots (
  cluster_id control.key not null,
  node_id control.key not null,
  generation bigint not null,
  digest control.key not null,
  record text not null,
  accepted_at timestamptz not null default now(),
  constraint local_snapshots_key primary key (cluster_id, node_id, generation)
);
call control.make_immutable('local_snapshots');

create table control.manager_snapshot_heads (
  cluster_id control.key not null,
  generation bigint not null,
  digest control.key,
  node_id control.key,
  seen_at bigint,
  -- Reason of a newer incomplete manager snapshot.
  incomplete text,
  constraint manager_snapshot_heads_key primary key (cluster_id),
  constraint manager_snapshot_heads_cluster foreign key (cluster_id) references control.clusters,
  constraint manager_snapshot_heads_none check ((generation = 0) = (digest is null))
);

create table control.manager_snapshots (
  cluster_id control.key not null,
  generation bigint not null,
  digest control.key not null,
  swarm_id control.key not null,
  node_id control.key not null,
  record text not null,
  accepted_at timestamptz not null default now(),
  constraint manager_snapshots_key primary key (cluster_id, generation)
);
call control.make_immutable('manager_snapshots');

-- Every incomplete snapshot that was reported, one row per node, kind and reason.
create table control.incomplete_snapshots (
  cluster_id control.key not null,
  node_id control.key not null,
  kind text not null,
  reason text not null,
  counts jsonb,
  reported bigint not null,
  last_seen_at bigint not null,
  constraint incomplete_snapshots_key primary key (cluster_id, node_id, kind, reason)
);

-- The latest accepted snapshots in the form that the derivation joins.
create table control.observed_task_containers (
  cluster_id control.key not null,
  node_id control.key not null,
  container_id control.key not null,
  swarm_task_id control.key not null,
  state text not null,
  constraint observed_task_containers_key primary key (cluster_id, node_id, container_id)
);

create table control.observed_tasks (
  cluster_id control.key not null,
  swarm_task_id control.key not null,
  swarm_service_id control.key not null,
  swarm_node_id control.key,
  slot bigint,
  desired_state text not null,
  state text not null,
  container_id control.key,
  constraint observed_tasks_key primary key (cluster_id, swarm_task_id)
);
create index observed_tasks_by_node on control.observed_tasks (cluster_id, swarm_node_id);

create table control.observed_services (
  cluster_id control.key not null,
  swarm_service_id control.key not null,
  name text collate "C" not null,
  mounts jsonb not null,
  constraint observed_services_key primary key (cluster_id, swarm_service_id)
);

create table control.observed_swarm_nodes (
  cluster_id control.key not null,
  swarm_node_id control.key not null,
  hostname text not null,
  state text not null,
  availability text not null,
  constraint observed_swarm_nodes_key primary key (cluster_id, swarm_node_id)
);

-- Derived: required set, blockers, verdicts. `since` and `until` are derivation generations ------------------------

create table control.derivation_heads (
  cluster_id control.key not null,
  generation bigint not null,
  digest control.key not null,
  required_count bigint not null,
  blocker_count bigint not null,
  constraint derivation_heads_key primary key (cluster_id),
  constraint derivation_heads_cluster foreign key (cluster_id) references control.clusters,
  constraint derivation_heads_counts check (required_count between 0 and 131072 and blocker_count >= 0)
);

create table control.derivation_revisions (
  cluster_id control.key not null,
  generation bigint not null,
  digest control.key not null,
  record text not null,
  constraint derivation_revisions_key primary key (cluster_id, generation)
);
call control.make_immutable('derivation_revisions');

create table control.required_entries (
  cluster_id control.key not null,
  node_id control.key not null,
  handoff_id control.key not null,
  since bigint not null,
  until bigint,
  service_id control.key not null,
  swarm_service_id control.key not null,
  source_digest control.key not null,
  target_digest control.key not null,
  mount_identity_digest control.key not null,
  source text not null,
  mount_path text not null,
  volume_name text,
  anonymous boolean not null,
  constraint required_entries_key primary key (cluster_id, node_id, handoff_id, since),
  constraint required_entries_span check (until > since)
);
create unique index required_entries_current on control.required_entries (cluster_id, node_id, handoff_id) where until is null;
create index required_entries_key_facts on control.required_entries (cluster_id, node_id, service_id, mount_identity_digest, since);
create index required_entries_since on control.required_entries (cluster_id, since);
create index required_entries_until on control.required_entries (cluster_id, until) where until is not null;

create table control.blockers (
  cluster_id control.key not null,
  blocker_id control.key not null,
  since bigint not null,
  until bigint,
  code text not null,
  -- Which part of the derivation owns it: a node's id, or '' for what the manager snapshot, scope and targets say.
  part control.key not null,
  node_id control.key,
  -- The required entry that it blocks.
  handoff_id control.key,
  record text not null,
  constraint blockers_key primary key (cluster_id, blocker_id, since),
  constraint blockers_span check (until > since)
);
create unique index blockers_current on control.blockers (cluster_id, blocker_id) where until is null;
create index blockers_by_part on control.blockers (cluster_id, part) where until is null;
create index blockers_by_entry on control.blockers (cluster_id, node_id, handoff_id) where until is null and handoff_id is not null;
create index blockers_in_order on control.blockers (cluster_id, part, blocker_id);
create index blockers_of_entry_ever on control.blockers (cluster_id, handoff_id) where handoff_id is not null;
create index blockers_since on control.blockers (cluster_id, since);
create index blockers_until on control.blockers (cluster_id, until) where until is not null;

create table control.task_verdicts (
  cluster_id control.key not null,
  swarm_task_id control.key not null,
  swarm_service_id control.key not null,
  node_id control.key,
  verdict text not null,
  reason text not null,
  constraint task_verdicts_key primary key (cluster_id, swarm_task_id),
  constraint task_verdicts_verdict check (verdict in ('live', 'not-started', 'stopped', 'unknown'))
);
create index task_verdicts_by_verdict on control.task_verdicts (cluster_id, verdict, swarm_task_id);

-- Prepared volume handoffs -----------------------------------------------------------------------------------------

create table control.aggregate_heads (
  cluster_id control.key not null,
  generation bigint not null,
  digest control.key,
  state text not null,
  prepared_count bigint not null,
  -- How many prepared handoffs are required: kept by whoever holds the derivation row.
  matched_count bigint not null,
  page_count bigint not null,
  derivation_generation bigint not null,
  scope_generation bigint not null,
  target_set_generation bigint not null,
  -- Latest complete revision, 0 for none: what Spark's first read selects is this one only while it is the head.
  complete_generation bigint not null,
  constraint aggregate_heads_key primary key (cluster_id),
  constraint aggregate_heads_cluster foreign key (cluster_id) references control.clusters,
  constraint aggregate_heads_state check (state in ('absent', 'incomplete', 'complete')),
  constraint aggregate_heads_none check ((generation = 0) = (digest is null) and (generation = 0) = (state = 'absent')),
  constraint aggregate_heads_counts check (
    prepared_count between 0 and 131072 and matched_count between 0 and prepared_count and page_count between 0 and 4096
  ),
  constraint aggregate_heads_complete check ((state = 'complete') = (complete_generation = generation and generation > 0))
);

create table control.aggregate_revisions (
  cluster_id control.key not null,
  generation bigint not null,
  digest control.key not null,
  state text not null,
  record text not null,
  constraint aggregate_revisions_key primary key (cluster_id, generation)
);
call control.make_immutable('aggregate_revisions');

-- The newest generation of every handoff, removed ones too, so that a handoff made again continues its generations.
create table control.handoff_heads (
  cluster_id control.key not null,
  node_id control.key not null,
  handoff_id control.key not null,
  generation bigint not null,
  digest control.key not null,
  claim_digest control.key not null,
  request_digest control.key not null,
  removed boolean not null,
  constraint handoff_heads_key primary key (cluster_id, node_id, handoff_id)
);
create index handoff_heads_in_page_order on control.handoff_heads (cluster_id, node_id, handoff_id) include (generation, digest) where not removed;

-- One row per change of a handoff and aggregate revision; `record` null says that the handoff was removed there.
create table control.handoff_revisions (
  cluster_id control.key not null,
  node_id control.key not null,
  handoff_id control.key not null,
  aggregate_generation bigint not null,
  generation bigint not null,
  digest control.key not null,
  record text,
  constraint handoff_revisions_key primary key (cluster_id, node_id, handoff_id, aggregate_generation)
);
create index handoff_revisions_by_aggregate on control.handoff_revisions (cluster_id, aggregate_generation);
call control.make_immutable('handoff_revisions');

-- A pin reads the last row with since_generation <= its generation. `bytes` is the page's canonical JSON without the
-- aggregate reference, which is spliced in when it is sent.
create table control.handoff_pages (
  cluster_id control.key not null,
  page_index integer not null,
  since_generation bigint not null,
  content_digest control.key not null,
  bytes bytea not null,
  constraint handoff_pages_key primary key (cluster_id, page_index, since_generation),
  constraint handoff_pages_index check (page_index between 0 and 4095)
);
call control.make_immutable('handoff_pages');

-- Where the newest complete layout stands: which page begins with which handoff.
create table control.page_heads (
  cluster_id control.key not null,
  page_index integer not null,
  content_digest control.key not null,
  first_node_id control.key not null,
  first_handoff_id control.key not null,
  constraint page_heads_key primary key (cluster_id, page_index)
);
create index page_heads_by_first on control.page_heads (cluster_id, first_node_id, first_handoff_id);
