-- Arrays of jobs of which a limited number run at the same time.

create table job_array (
    job_id uuid primary key references job (id) on delete cascade,
    tenant_id uuid not null references tenant (id),
    name text not null,
    parallel integer not null check (parallel > 0),
    held boolean not null
);
comment on table job_array is 'Jobs of an array with a limit. A row is removed when its job has ended.';
comment on column job_array.job_id is 'The job.';
comment on column job_array.tenant_id is 'Owner of the job.';
comment on column job_array.name is 'Name of the array, unique in the tenant.';
comment on column job_array.parallel is 'Maximum number of its jobs that are not held.';
comment on column job_array.held is 'Whether the job waits for the end of others of the array, with not_before in the year 9999.';

create index job_array_name on job_array (tenant_id, name, held, job_id);

alter table job_array enable row level security;
alter table job_array force row level security;
create policy api_own on job_array to muster_api
    using (tenant_id = muster_tenant()) with check (tenant_id = muster_tenant());
create policy scheduler_all on job_array to muster_scheduler using (true) with check (true);
grant select, insert on job_array to muster_api;
grant select, update, delete on job_array to muster_scheduler;
