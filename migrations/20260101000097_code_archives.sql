-- Code archives: folders of users' programs that the API server keeps in the checkpoint store.

create table code_archive (
    tenant_id uuid not null references tenant (id),
    sha256 text not null,
    bytes bigint not null,
    created_at timestamptz not null,
    used_at timestamptz not null,
    primary key (tenant_id, sha256)
);
comment on table code_archive is 'A code archive of a tenant in the checkpoint store.';
comment on column code_archive.tenant_id is 'Owner.';
comment on column code_archive.sha256 is 'SHA-256 of the archive, 64 hexadecimal digits; also its name in the store.';
comment on column code_archive.bytes is 'Size of the archive.';
comment on column code_archive.created_at is 'When it was first uploaded.';
comment on column code_archive.used_at is 'When it was last uploaded or named by a new document, to the hour.';

-- Archives that a job or study names are kept.
create index job_by_code on job (tenant_id, (spec #>> '{command,code,archive}'))
    where spec #>> '{command,code,archive}' is not null;

alter table code_archive enable row level security;
alter table code_archive force row level security;
create policy api_own on code_archive to muster_api
    using (tenant_id = muster_tenant()) with check (tenant_id = muster_tenant());
grant select, insert, update, delete on code_archive to muster_api;
