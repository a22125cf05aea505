-- What operators see of the gates, and one procedure in place of the block that let them read each new view.

-- To be called at the end of every migration that makes a view.
create procedure control.let_operators_read() language plpgsql as $$
begin
  if exists (select from pg_roles where rolname = 'fleet_cutover_operator') then
    grant usage on schema operator to fleet_cutover_operator;
    grant select on all tables in schema operator to fleet_cutover_operator;
  end if;
end $$;

-- The gates themselves are one function of the program, which an advance, its dry run and `explain` share. Here are only the
-- counts that rows tell by themselves; a test compares them with `explain`. Null is what they don't tell: whether the aggregate
-- is behind, and what became of Coreflow. Nothing here opens a gate, and evidence and actor of each are not shown.
create view operator.gates as
select runtime.cluster_id, runtime.phase, gate.place, gate.code as gate, gate.missing_count, gate.missing_count = 0 as met
from control.runtime_heads runtime
join control.scope_heads scope_head using (cluster_id)
join control.target_set_heads targets using (cluster_id)
join control.manager_snapshot_heads manager using (cluster_id)
join control.aggregate_heads aggregate using (cluster_id)
left join control.scope_revisions scope
  on scope.cluster_id = runtime.cluster_id and scope.generation = scope_head.generation
cross join lateral (
  select coalesce(scope.record::jsonb -> 'unclassified', '[]') as unclassified,
    coalesce(scope.record::jsonb -> 'services', '[]') as services,
    coalesce(scope.record::jsonb -> 'coreflow' ->> 'state', 'undetermined') as coreflow
) stated
cross join lateral (
  select array(select service ->> 'swarmServiceId' from jsonb_array_elements(stated.services) service
    where service ->> 'class' = 'application') as applications,
    stated.coreflow <> 'undetermined' and exists (select from jsonb_array_elements(stated.services) service
      where service ->> 'class' = 'coreflow') as has_relay
) classed
cross join lateral (
  select count(*) filter (where targeted and not observed) as unobserved_targets,
    count(*) filter (where not observed and (node.state <> 'revoked' or node.known)) as unobserved_nodes,
    count(*) filter (where node.state = 'quarantined' or targeted and node.state <> 'active') as quarantined,
    count(*) filter (where targeted and not pallet_ready) as pallet_not_ready,
    coalesce(sum(active_containers), 0)::bigint as active_containers,
    coalesce(sum(confirmed_containers), 0)::bigint as confirmed_containers,
    coalesce(sum(vanished_volumes), 0)::bigint as vanished_volumes,
    coalesce(sum(unkept_volumes), 0)::bigint as unkept_volumes
  from (
    select each.state, target.node_id is not null as targeted,
      each.local_runtime_generation is not distinct from runtime.generation and each.local_incomplete is null as observed,
      each.swarm_node_id is not null or each.local_digest is not null as known,
      coalesce(facts.pallet_ready, false) as pallet_ready, facts.active_containers, facts.confirmed_containers,
      -- Derived by who did not look at volumes: one shortage, as nothing is known. The program of before 0007 leaves what these
      -- columns said, while its detail lacks the keys.
      case when facts.node_id is null then 0 when judged then facts.vanished_volumes else 1 end as vanished_volumes,
      case when facts.node_id is null then 0 when judged then facts.unkept_volumes else 1 end as unkept_volumes
    from control.nodes each
    left join control.target_set_nodes target on target.cluster_id = each.cluster_id
      and target.generation = targets.generation and target.node_id = each.node_id
    left join control.node_gate_facts facts on facts.cluster_id = each.cluster_id and facts.node_id = each.node_id
    cross join lateral (
      select facts.unkept_volumes is not null and facts.vanished_volumes is not null
        and facts.detail ?& array['unkept', 'vanished'] as judged
    ) volumes
    where each.cluster_id = runtime.cluster_id and each.state <> 'written-off'
  ) node
) nodes
cross join lateral (
  select count(*) as all_of_them, count(*) filter (where code = 'node-not-targeted') as not_targeted
  from control.blockers where cluster_id = runtime.cluster_id and until is null
) blockers
cross join lateral (
  select (select count(*) from operator.required_volume_handoffs entry
      where entry.cluster_id = runtime.cluster_id and entry.state = 'missing') as missing,
    (select count(*) from operator.surplus_volume_handoffs head where head.cluster_id = runtime.cluster_id) as surplus,
    (select coalesce(sum(coverage.missing_pages), 0)::bigint from operator.coverage
      where coverage.cluster_id = runtime.cluster_id) as uncovered,
    (select count(*) from control.observed_services service where service.cluster_id = runtime.cluster_id
      and service.swarm_service_id = any (classed.applications) and service.replicas is distinct from 0) as running_services,
    (select count(*) from control.observed_tasks task
      left join control.node_swarm_ids ever on ever.cluster_id = task.cluster_id and ever.swarm_node_id = task.swarm_node_id
      left join control.nodes node on node.cluster_id = ever.cluster_id and node.node_id = ever.node_id
      left join control.task_verdicts verdict
        on verdict.cluster_id = task.cluster_id and verdict.swarm_task_id = task.swarm_task_id
      where task.cluster_id = runtime.cluster_id and task.swarm_service_id = any (classed.applications)
        and task.state in ('new', 'pending', 'assigned', 'accepted', 'preparing', 'ready', 'starting', 'running')
        and node.state is distinct from 'written-off' and verdict.verdict is distinct from 'stopped') as running_tasks,
    (select count(*) filter (where not revoked) = 0 and count(*) > 0 from control.credentials credential
      where credential.cluster_id = runtime.cluster_id and credential.kind = 'coreflow-relay') as relay_revoked
) counted
cross join lateral (values
  (1, 'scope-complete', array['swarm', 'draining', 'switching'], case
    when scope_head.state = 'complete' then 0 else greatest(jsonb_array_length(stated.unclassified), 1) end::bigint),
  (2, 'inventory-current', array['swarm', 'draining', 'switching'], (manager.digest is null or manager.incomplete is not null
    or manager.runtime_generation is distinct from runtime.generation)::integer::bigint),
  (3, 'targets-accepted', array['swarm', 'draining', 'switching'], (targets.generation = 0)::integer::bigint),
  (4, 'targets-observed', array['swarm', 'draining', 'switching'], nodes.unobserved_targets),
  (5, 'targets-cover-entries', array['swarm', 'draining', 'switching'], blockers.not_targeted),
  (6, 'no-quarantine', array['swarm', 'draining', 'switching'], nodes.quarantined),
  (7, 'no-blocker', array['draining', 'switching'], blockers.all_of_them),
  (8, 'aggregate-complete', array['draining', 'switching'], case
    when aggregate.state = 'complete' then counted.missing + counted.surplus
    else greatest(counted.missing + counted.surplus, 1) end),
  (9, 'aggregate-current', array['draining', 'switching'], null),
  (10, 'coverage-complete', array['draining', 'switching'], case
    when aggregate.state = 'complete' then counted.uncovered else 1 end),
  (11, 'volumes-present', array['draining', 'switching'], nodes.vanished_volumes),
  (12, 'anonymous-volumes-kept', array['draining', 'switching'], nodes.unkept_volumes),
  (13, 'coreflow-identified', array['draining'], null),
  (14, 'applications-stopped', array['switching'], counted.running_services + counted.running_tasks),
  (15, 'containers-stopped', array['switching'], nodes.unobserved_nodes + nodes.active_containers),
  (16, 'no-stray', array['switching'], counted.missing),
  (17, 'confirmed-overlaps-gone', array['switching'], nodes.confirmed_containers),
  (18, 'pallet-ready', array['switching'], nodes.pallet_not_ready),
  (19, 'coreflow-retired', array['switching', 'pallet'], null),
  (20, 'coreflow-credential-revoked', array['switching', 'pallet'], (not counted.relay_revoked)::integer::bigint)
) gate (place, code, asked_in, missing_count)
where runtime.phase = any (gate.asked_in) and (gate.code <> 'coreflow-credential-revoked' or classed.has_relay);
comment on view operator.gates is
  'What each gate of the next phase still misses, as far as rows tell; null, and with which evidence: ask fleet-cutover explain.';

call control.let_operators_read();
