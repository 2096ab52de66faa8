-- Artifacts: files of users' programs that executors keep in the checkpoint store.

create table artifact (
    job_id uuid not null references job (id) on delete cascade,
    path text collate "C" not null check (octet_length(path) between 1 and 500),
    tenant_id uuid not null references tenant (id),
    object uuid not null,
    bytes bigint not null check (bytes >= 0),
    sha256 text not null,
    content_type text not null,
    role text not null,
    role_index integer not null check (role_index >= 0),
    revision bigint not null,
    stored_at timestamptz not null,
    primary key (job_id, path)
);
comment on table artifact is 'A file of a job''s program in the checkpoint store.';
comment on column artifact.job_id is 'Job whose program has written it.';
comment on column artifact.path is 'Names separated by slashes.';
comment on column artifact.tenant_id is 'Owner; the job''s.';
comment on column artifact.object is 'Name of its content in the store: artifacts/<tenant>/<job>/<object>. New with each content.';
comment on column artifact.bytes is 'Size of the content.';
comment on column artifact.sha256 is 'SHA-256 of the content, 64 hexadecimal digits.';
comment on column artifact.content_type is 'Content type by the ending of the path.';
comment on column artifact.role is 'Role of the task that has written it last: worker or ps_shard.';
comment on column artifact.role_index is 'Rank of that worker, or index of that PS shard.';
comment on column artifact.revision is 'Revision of that task. Tasks of earlier revisions do not replace it.';
comment on column artifact.stored_at is 'When the content was stored.';

-- Sums per job, so that limits need no sum over all artifacts of a tenant.
create table artifact_use (
    job_id uuid primary key references job (id) on delete cascade,
    tenant_id uuid not null references tenant (id),
    files bigint not null check (files >= 0),
    bytes bigint not null check (bytes >= 0)
);
comment on table artifact_use is 'Number and size of the artifacts of a job; a job without a row has none.';
comment on column artifact_use.job_id is 'The job.';
comment on column artifact_use.tenant_id is 'Owner; the job''s.';
comment on column artifact_use.files is 'Number of its artifacts.';
comment on column artifact_use.bytes is 'Sum of their sizes.';
create index artifact_use_by_tenant on artifact_use (tenant_id) include (bytes);

do $$
declare
    name text;
begin
    foreach name in array array['artifact', 'artifact_use'] loop
        execute format('alter table %I enable row level security', name);
        execute format('alter table %I force row level security', name);
        execute format('create policy api_read on %I for select to muster_api using (tenant_id = muster_tenant())', name);
        execute format('create policy scheduler_all on %I to muster_scheduler using (true) with check (true)', name);
        execute format('grant select on %I to muster_api', name);
        execute format('grant select, insert, update, delete on %I to muster_scheduler', name);
    end loop;
end
$$;
