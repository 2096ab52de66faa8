-- What a step takes by GPU kind and placement, kept across jobs: the jobs of one family share it.

create table placed_speed (
    job_id uuid not null references job (id) on delete cascade,
    gpu_kind text not null,
    workers integer not null,
    ps_shards integer not null,
    nodes integer not null,
    tenant_id uuid not null references tenant (id),
    family text not null,
    steps_per_s double precision not null,
    weight double precision not null,
    samples bigint not null,
    observed_at timestamptz not null,
    primary key (job_id, gpu_kind, workers, ps_shards, nodes)
);
comment on table placed_speed is 'Measured speed of a job on each kind of GPU and each placement that it has had. The rows of the jobs of a family are what is known of the family.';
comment on column placed_speed.job_id is 'Its job.';
comment on column placed_speed.gpu_kind is 'Model of the GPUs of all its workers, as the driver names it.';
comment on column placed_speed.workers is 'Workers.';
comment on column placed_speed.ps_shards is 'PS shards.';
comment on column placed_speed.nodes is 'Nodes on which the workers were.';
comment on column placed_speed.tenant_id is 'Owner; the job''s.';
comment on column placed_speed.family is 'Key of the job''s family (muster_model::family::Family).';
comment on column placed_speed.steps_per_s is 'Mean of the newest samples, of updates: a step each, unless the batch grows with the workers.';
comment on column placed_speed.weight is 'Samples in the mean; halved for every seven days of age, at most 200.';
comment on column placed_speed.samples is 'All samples, however old.';
comment on column placed_speed.observed_at is 'When the newest sample was recorded.';

-- Ids of jobs ascend with the time of submission, so both find the newest jobs first.
-- They have no column that a sample changes.
create index placed_speed_by_family on placed_speed (tenant_id, family, job_id desc);
create index placed_speed_by_tenant on placed_speed (tenant_id, job_id desc);

alter table job add column family text;
comment on column job.family is 'Key of the job''s family (muster_model::family::Family); null until it is needed in rows of releases that did not keep it.';

alter table placed_speed enable row level security;
alter table placed_speed force row level security;
create policy api_read on placed_speed for select to muster_api using (tenant_id = muster_tenant());
create policy api_forget on placed_speed for delete to muster_api using (tenant_id = muster_tenant());
create policy scheduler_all on placed_speed to muster_scheduler using (true) with check (true);
grant select, delete on placed_speed to muster_api;
grant select, insert, update, delete on placed_speed to muster_scheduler;
