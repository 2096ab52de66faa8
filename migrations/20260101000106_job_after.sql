-- Jobs that start after others of their tenant have ended.

create table job_after (
    job_id uuid not null references job (id) on delete cascade,
    before_id uuid not null,
    tenant_id uuid not null references tenant (id),
    condition text not null check (condition in ('success', 'end')),
    primary key (job_id, before_id)
);
comment on table job_after is 'Jobs that must end before a job starts. A row is removed when the other job has ended.';
comment on column job_after.job_id is 'The job that waits.';
comment on column job_after.before_id is 'The job that must end first. It is open, so its row exists.';
comment on column job_after.tenant_id is 'Owner of both jobs.';
comment on column job_after.condition is 'success: it must succeed, otherwise the job that waits is cancelled; end: any end.';

create index job_after_before on job_after (before_id);

alter table job_after enable row level security;
alter table job_after force row level security;
create policy api_own on job_after to muster_api
    using (tenant_id = muster_tenant()) with check (tenant_id = muster_tenant());
create policy scheduler_all on job_after to muster_scheduler using (true) with check (true);
grant select, insert on job_after to muster_api;
grant select, delete on job_after to muster_scheduler;
