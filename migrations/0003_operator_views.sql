-- One view per question of an operator. They show no secret, no hash and no record that could hold one.

create view operator.clusters as
select cluster.cluster_id, cluster.organization_id, cluster.controller_id, cluster.controller_epoch, cluster.runtime_namespace,
  cluster.swarm_id, runtime.phase, runtime.generation as runtime_generation, scope.state as scope_state,
  scope.generation as scope_generation, targets.generation as target_set_generation, derivation.required_count,
  aggregate.prepared_count, derivation.required_count - aggregate.matched_count as missing_count,
  aggregate.prepared_count - aggregate.matched_count as surplus_count, derivation.blocker_count,
  aggregate.state as aggregate_state, aggregate.generation as aggregate_generation, aggregate.page_count
from control.clusters cluster
join control.runtime_heads runtime using (cluster_id)
join control.scope_heads scope using (cluster_id)
join control.target_set_heads targets using (cluster_id)
join control.derivation_heads derivation using (cluster_id)
join control.aggregate_heads aggregate using (cluster_id);
comment on view operator.clusters is 'How far is each cluster: phase, scope, required against prepared, blockers, aggregate.';

create view operator.nodes as
select cluster_id, node_id, state, quarantine_reason, swarm_node_id, reported_swarm_node_id, reporter_session_id,
  observation_sequence, reported_state, to_timestamp(received_at / 1000.0) as received_at,
  local_generation as local_snapshot_generation, to_timestamp(local_seen_at / 1000.0) as local_snapshot_seen_at,
  local_incomplete as local_snapshot_incomplete
from control.nodes;
comment on view operator.nodes is 'What each node reported last; both sides of a clone, and what waits for a confirmation.';

create view operator.tasks as
select verdict.cluster_id, verdict.verdict, verdict.reason, verdict.node_id, service.name as service_name,
  verdict.swarm_service_id, verdict.swarm_task_id, task.desired_state, task.state
from control.task_verdicts verdict
left join control.observed_tasks task using (cluster_id, swarm_task_id)
left join control.observed_services service
  on service.cluster_id = verdict.cluster_id and service.swarm_service_id = verdict.swarm_service_id;
comment on view operator.tasks is 'Each task of the latest manager snapshot with its verdict and the reason.';

create view operator.required_volume_handoffs as
select entry.cluster_id, entry.node_id, entry.handoff_id, entry.service_id, service.name as service_name, entry.volume_name,
  entry.source, entry.mount_path, case when head.handoff_id is null then 'missing' else 'prepared' end as state,
  head.generation as handoff_generation,
  array(select distinct blocker.code from control.blockers blocker
    where blocker.cluster_id = entry.cluster_id and blocker.node_id = entry.node_id and blocker.handoff_id = entry.handoff_id
      and blocker.until is null order by blocker.code) as blockers
from control.required_entries entry
left join control.services service on service.service_id = entry.service_id
left join control.handoff_heads head
  on head.cluster_id = entry.cluster_id and head.node_id = entry.node_id and head.handoff_id = entry.handoff_id and not head.removed
where entry.until is null;
comment on view operator.required_volume_handoffs is 'What is required, and what of it is missing or blocked.';

create view operator.surplus_volume_handoffs as
select head.cluster_id, head.node_id, head.handoff_id, head.generation as handoff_generation
from control.handoff_heads head
where not head.removed and not exists (
  select from control.required_entries entry
  where entry.cluster_id = head.cluster_id and entry.node_id = head.node_id and entry.handoff_id = head.handoff_id
    and entry.until is null);
comment on view operator.surplus_volume_handoffs is 'What is prepared although it is not required any more.';

create view operator.blockers as
select blocker.cluster_id, blocker.code, blocker.node_id, service.name as service_name,
  blocker.record::jsonb ->> 'containerName' as container_name, blocker.record::jsonb ->> 'target' as target,
  blocker.record::jsonb ->> 'volumeName' as volume_name, blocker.record::jsonb ->> 'swarmTaskId' as swarm_task_id,
  blocker.handoff_id, blocker.record::jsonb ->> 'detail' as detail, blocker.since as since_derivation
from control.blockers blocker
left join control.observed_services service
  on service.cluster_id = blocker.cluster_id and service.swarm_service_id = blocker.record::jsonb ->> 'swarmServiceId'
where blocker.until is null;
comment on view operator.blockers is 'What keeps each cluster from being complete, and why.';

create view operator.aggregate_history as
select cluster_id, generation, state, (record::jsonb ->> 'requiredCount')::bigint as required_count,
  (record::jsonb ->> 'actualCount')::bigint as actual_count, (record::jsonb ->> 'pageCount')::bigint as page_count,
  (record::jsonb -> 'derivation' ->> 'generation')::bigint as derivation_generation,
  (record::jsonb -> 'scope' ->> 'generation')::bigint as scope_generation, digest
from control.aggregate_revisions;
comment on view operator.aggregate_history is 'Every revision of the prepared handoffs.';

create view operator.incomplete_snapshots as
select cluster_id, node_id, kind, reason, counts, reported, to_timestamp(last_seen_at / 1000.0) as last_seen_at
from control.incomplete_snapshots;
comment on view operator.incomplete_snapshots is 'Which snapshots were reported incomplete, why and how often; also those that became whole since.';

create view operator.credentials as
select organization_id, cluster_id, kind, subject_id, credential_id, role, newest_generation, used_generation, revoked, created_at
from control.credentials;
comment on view operator.credentials is 'State of every credential: which generation is the newest, and which was used last.';

create view operator.audit as
select chain_id, seq, organization_id, cluster_id, to_timestamp(at / 1000.0) as at, principal_id, method, mutation_id,
  request_digest, encode(chain_digest, 'hex') as chain_digest
from control.audit_rows;
comment on view operator.audit is 'Who changed what when, in chain order.';

create view operator.refusals as
select principal_id, method, code, minute, chain_id, chain_seq, count from control.refusal_counts;
comment on view operator.refusals is 'How often whom was refused what, per minute.';

do $$
begin
  if exists (select from pg_roles where rolname = 'fleet_cutover_operator') then
    grant select on all tables in schema operator to fleet_cutover_operator;
  end if;
end $$;
