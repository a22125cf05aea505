-- Held fences and their coverage, facts that gates rest on, the relay's retirement, write-offs; phases only go forward.

alter table control.nodes drop constraint nodes_state;
alter table control.nodes add constraint nodes_state check (state in ('active', 'quarantined', 'revoked', 'written-off'));
-- Generation of the runtime that the latest accepted local snapshot names, if it names one of ours.
alter table control.nodes add column local_runtime_generation bigint;
-- Where Pallet keeps the node's fences, as the latest accepted local snapshot says.
alter table control.nodes add column fence_store_id control.key;
alter table control.manager_snapshot_heads add column runtime_generation bigint;

alter table control.observed_services add column mode text not null default 'replicated';
alter table control.observed_services add column replicas bigint;
alter table control.observed_services add column spec_version bigint not null default 0;
alter table control.observed_services add column spec_digest control.key not null default '';
alter table control.observed_services add column role text;

-- What gates need of each node's latest accepted local snapshot, derived together with its required entries.
create table control.node_gate_facts (
  cluster_id control.key not null,
  node_id control.key not null,
  pallet_ready boolean not null,
  old_mode_refused boolean not null,
  -- Containers of applications that run, are paused, restart or were created.
  active_containers bigint not null,
  -- Containers of confirmed overlaps that are there still.
  confirmed_containers bigint not null,
  -- The first of both, and every container of the relay, with what of Spark is bound by a retirement.
  detail jsonb not null,
  constraint node_gate_facts_key primary key (cluster_id, node_id)
);

-- One row per fence of a prepared handoff, as the node reported it last.
create table control.held_fences (
  cluster_id control.key not null,
  node_id control.key not null,
  handoff_id control.key not null,
  fence_id control.key not null,
  generation bigint not null,
  digest control.key not null,
  handoff_generation bigint not null,
  record text not null,
  constraint held_fences_key primary key (cluster_id, node_id, handoff_id),
  constraint held_fences_generation check (generation >= 1)
);

-- Members of each target set, so that one node's membership is one look-up.
create table control.target_set_nodes (
  cluster_id control.key not null,
  generation bigint not null,
  node_id control.key not null,
  constraint target_set_nodes_key primary key (cluster_id, generation, node_id)
);
insert into control.target_set_nodes (cluster_id, generation, node_id)
  select cluster_id, generation, jsonb_array_elements_text(record::jsonb -> 'nodeIds') from control.target_set_revisions;
call control.make_immutable('target_set_nodes');

-- Every swarm node id that a node ever had: Swarm keeps tasks of the old one for months.
create table control.node_swarm_ids (
  cluster_id control.key not null,
  swarm_node_id control.key not null,
  node_id control.key not null,
  constraint node_swarm_ids_key primary key (cluster_id, swarm_node_id)
);
create index node_swarm_ids_by_node on control.node_swarm_ids (cluster_id, node_id);
insert into control.node_swarm_ids (cluster_id, swarm_node_id, node_id)
  select cluster_id, swarm_node_id, node_id from control.nodes where swarm_node_id is not null;

create sequence control.coverage_versions;

-- One row per node: which pages of one aggregate generation it has reported. Bit n is page n.
create table control.coverage (
  cluster_id control.key not null,
  node_id control.key not null,
  aggregate_generation bigint not null,
  covered integer not null,
  covered_pages bit(4096) not null,
  -- Pages on which the node has entries: a new reporter session voids them.
  held_pages bit(4096) not null,
  version bigint not null,
  -- Unix minute, and how many pages were covered in it.
  minute bigint not null,
  minute_covered integer not null,
  constraint coverage_key primary key (cluster_id, node_id),
  constraint coverage_count check (covered = bit_count(covered_pages))
);

create table control.coreflow_retirements (
  cluster_id control.key not null,
  generation bigint not null,
  digest control.key not null,
  record text not null,
  constraint coreflow_retirements_key primary key (cluster_id, generation)
);
call control.make_immutable('coreflow_retirements');

create table control.write_offs (
  cluster_id control.key not null,
  write_off_id control.key not null,
  generation bigint not null,
  digest control.key not null,
  state text not null,
  node_id control.key not null,
  -- Null: the whole node.
  handoff_id control.key,
  record text not null,
  constraint write_offs_key primary key (cluster_id, write_off_id, generation),
  constraint write_offs_state check ((generation = 1 and state = 'proposed') or (generation = 2 and state = 'confirmed'))
);
create index write_offs_confirmed on control.write_offs (cluster_id, node_id) where state = 'confirmed';
call control.make_immutable('write_offs');

-- swarm, draining, switching, pallet: one step at a time, never back, whoever writes.
create function control.phase_rank(phase text) returns integer language sql immutable as $$
  select array_position(array['swarm', 'draining', 'switching', 'pallet'], phase)
$$;

create function control.guard_runtime_head() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' then
    raise exception 'a runtime is never deleted' using errcode = 'restrict_violation';
  end if;
  if tg_op = 'INSERT' then
    if new.phase <> 'swarm' or new.generation <> 1 then
      raise exception 'a runtime begins in phase swarm' using errcode = 'restrict_violation';
    end if;
    return new;
  end if;
  if new.cluster_id <> old.cluster_id or new.generation <> old.generation + 1
     or control.phase_rank(new.phase) is distinct from control.phase_rank(old.phase) + 1 then
    raise exception 'phase % does not follow %', new.phase, old.phase using errcode = 'restrict_violation';
  end if;
  return new;
end $$;
create trigger forward_only before insert or update or delete on control.runtime_heads
  for each row execute function control.guard_runtime_head();
create trigger never_emptied before truncate on control.runtime_heads
  for each statement execute function control.refuse_change();

create function control.guard_runtime_revision() returns trigger language plpgsql as $$
declare
  before text;
begin
  select phase into before from control.runtime_revisions where cluster_id = new.cluster_id and generation = new.generation - 1;
  if coalesce(control.phase_rank(before), 0) + 1 is distinct from control.phase_rank(new.phase) or (before is null and new.generation <> 1) then
    raise exception 'phase % does not follow %', new.phase, coalesce(before, 'nothing') using errcode = 'restrict_violation';
  end if;
  return new;
end $$;
create trigger forward_only before insert on control.runtime_revisions
  for each row execute function control.guard_runtime_revision();

do $$
begin
  if exists (select from pg_roles where rolname = 'fleet_cutover_service') then
    grant select, insert, update on control.node_gate_facts, control.held_fences, control.coverage, control.node_swarm_ids to fleet_cutover_service;
    grant select, insert on control.coreflow_retirements, control.write_offs, control.target_set_nodes to fleet_cutover_service;
    grant usage on sequence control.coverage_versions to fleet_cutover_service;
  end if;
end $$;

create view operator.coverage as
select target.cluster_id, target.node_id, head.generation as aggregate_generation, head.page_count,
  case when coverage.aggregate_generation = head.generation then coverage.covered else 0 end as covered_pages,
  head.page_count - case when coverage.aggregate_generation = head.generation then coverage.covered else 0 end as missing_pages
from control.target_set_heads targets
join control.target_set_nodes target using (cluster_id, generation)
join control.aggregate_heads head on head.cluster_id = target.cluster_id
join control.nodes node on node.cluster_id = target.cluster_id and node.node_id = target.node_id and node.state <> 'written-off'
left join control.coverage coverage on coverage.cluster_id = target.cluster_id and coverage.node_id = target.node_id;
comment on view operator.coverage is 'How many pages of the current aggregate each target node has covered with held fences.';

create view operator.missing_coverage as
select coverage.cluster_id, coverage.node_id, page.page_index
from operator.coverage
cross join lateral generate_series(0, coverage.page_count - 1) as page (page_index)
left join control.coverage row on row.cluster_id = coverage.cluster_id and row.node_id = coverage.node_id
  and row.aggregate_generation = coverage.aggregate_generation
where row.covered_pages is null or get_bit(row.covered_pages, page.page_index::integer) = 0;
comment on view operator.missing_coverage is 'Which page of the current aggregate each target node still has to report.';

create view operator.held_fences as
select cluster_id, node_id, handoff_id, fence_id, generation, handoff_generation from control.held_fences;
comment on view operator.held_fences is 'Which fence each node reported for each handoff.';

create view operator.phases as
select cluster_id, generation, phase, record::jsonb -> 'gate' as gate_evidence, digest from control.runtime_revisions;
comment on view operator.phases is 'Every phase that a cluster entered, and the accepted records that closed its gate.';

create view operator.write_offs as
select cluster_id, write_off_id, state, node_id, handoff_id, record::jsonb ->> 'reason' as reason,
  record::jsonb ->> 'verified' as verified, record::jsonb ->> 'proposedBy' as proposed_by,
  record::jsonb ->> 'confirmedBy' as confirmed_by
from control.write_offs;
comment on view operator.write_offs is 'What people declared destroyed or lost, who did, and what they verified.';

do $$
begin
  if exists (select from pg_roles where rolname = 'fleet_cutover_operator') then
    grant select on all tables in schema operator to fleet_cutover_operator;
  end if;
end $$;
