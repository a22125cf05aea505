-- Ingress designation, its credential, and sealed secrets. The key-encryption key never comes here.

alter table control.credentials drop constraint credentials_kind;
alter table control.credentials add constraint credentials_kind
  check (kind in ('administrator', 'node-token', 'node-session', 'coreflow-relay', 'ingress-launcher'));
-- A revoked one stays; the next rotation issues another beside it.
create unique index credentials_of_launcher on control.credentials (cluster_id, subject_id)
  where kind = 'ingress-launcher' and not revoked;

create table control.ingress_designation_heads (
  cluster_id control.key not null,
  generation bigint not null,
  digest control.key not null,
  service_id control.key not null,
  constraint ingress_designation_heads_key primary key (cluster_id),
  constraint ingress_designation_heads_cluster foreign key (cluster_id) references control.clusters
);

create table control.ingress_designation_revisions (
  cluster_id control.key not null,
  generation bigint not null,
  digest control.key not null,
  record text not null,
  constraint ingress_designation_revisions_key primary key (cluster_id, generation)
);
call control.make_immutable('ingress_designation_revisions');

-- AES-256-GCM; associated data are cluster, service, credential, generation and key id. Only a new key changes a row.
create table control.sealed_secrets (
  cluster_id control.key not null,
  secret_id control.key not null,
  version bigint not null,
  service_id control.key not null,
  credential_id control.key not null,
  key_id control.key not null,
  nonce bytea not null,
  ciphertext bytea not null,
  constraint sealed_secrets_key primary key (cluster_id, secret_id, version),
  constraint sealed_secrets_nonce check (octet_length(nonce) = 12),
  constraint sealed_secrets_ciphertext check (octet_length(ciphertext) > 16)
);
create index sealed_secrets_by_key on control.sealed_secrets (key_id);

do $$
begin
  if exists (select from pg_roles where rolname = 'fleet_cutover_service') then
    grant select, insert, update on control.ingress_designation_heads to fleet_cutover_service;
    grant select, insert on control.ingress_designation_revisions to fleet_cutover_service;
    grant select, insert, update (key_id, nonce, ciphertext) on control.sealed_secrets to fleet_cutover_service;
  end if;
end $$;

create view operator.ingress_designations as
select revision.cluster_id, revision.generation, revision.generation = head.generation as current,
  revision.record::jsonb ->> 'serviceId' as service_id, revision.record::jsonb -> 'credential' ->> 'credentialId' as credential_id,
  (revision.record::jsonb -> 'credential' ->> 'generation')::bigint as credential_generation,
  (revision.record::jsonb -> 'spec' ->> 'generation')::bigint as spec_generation, revision.digest
from control.ingress_designation_revisions revision
join control.ingress_designation_heads head using (cluster_id);
comment on view operator.ingress_designations is 'Which service is the designated ingress, and which generation its launcher credential has.';

create view operator.sealed_secrets as
select cluster_id, secret_id, version, service_id, credential_id, key_id from control.sealed_secrets;
comment on view operator.sealed_secrets is 'Which sealed secrets there are and under which key; no value.';

do $$
begin
  if exists (select from pg_roles where rolname = 'fleet_cutover_operator') then
    grant select on all tables in schema operator to fleet_cutover_operator;
  end if;
end $$;
