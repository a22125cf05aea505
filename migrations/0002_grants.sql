-- Least privilege for the service's login: reads everything, inserts everything, changes only heads and what is derived.
do $$
declare
  immutable text[] := array['service_spec_revisions', 'service_spec_releases', 'volumes', 'audit_rows', 'runtime_revisions',
    'scope_revisions', 'target_set_revisions', 'local_snapshots', 'manager_snapshots', 'derivation_revisions',
    'aggregate_revisions', 'handoff_revisions', 'handoff_pages'];
  deletable text[] := array['observed_task_containers', 'observed_tasks', 'observed_services', 'observed_swarm_nodes',
    'task_verdicts', 'page_heads'];
  name text;
begin
  if exists (select from pg_roles where rolname = 'fleet_cutover_service') then
    grant usage on schema control to fleet_cutover_service;
    grant select on control.migrations to fleet_cutover_service;
    for name in select tablename from pg_tables where schemaname = 'control' and tablename <> 'migrations' loop
      execute format('grant select, insert on control.%I to fleet_cutover_service', name);
      if not name = any (immutable) then
        execute format('grant update on control.%I to fleet_cutover_service', name);
      end if;
      if name = any (deletable) then
        execute format('grant delete on control.%I to fleet_cutover_service', name);
      end if;
    end loop;
  end if;
  if exists (select from pg_roles where rolname = 'fleet_cutover_operator') then
    grant usage on schema operator to fleet_cutover_operator;
  end if;
end $$;
