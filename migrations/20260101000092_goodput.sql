-- What is measured of jobs whose coordinator chooses the batch: the time of an update by batch, and
-- the gradient noise over the course. The jobs of one family share both.

create table update_time (
    job_id uuid not null references job (id) on delete cascade,
    gpu_kind text not null,
    workers integer not null,
    nodes integer not null,
    batch_class integer not null,
    tenant_id uuid not null references tenant (id),
    family text not null,
    batch double precision not null,
    update_s double precision not null,
    exchange_s double precision not null,
    weight double precision not null,
    observed_at timestamptz not null,
    primary key (job_id, gpu_kind, workers, nodes, batch_class)
);
comment on table update_time is 'Measured time of an update of a job by placement and batch, where its coordinator chooses the batch.';
comment on column update_time.job_id is 'Its job.';
comment on column update_time.gpu_kind is 'Model of the GPUs of all its workers, as the driver names it.';
comment on column update_time.workers is 'Workers.';
comment on column update_time.nodes is 'Nodes on which the workers were.';
comment on column update_time.batch_class is 'Class of the batch: four times its binary logarithm, rounded.';
comment on column update_time.tenant_id is 'Owner; the job''s.';
comment on column update_time.family is 'Key of the job''s family (muster_model::family::Family).';
comment on column update_time.batch is 'Mean of the newest samples: examples of an update over all workers.';
comment on column update_time.update_s is 'Mean of the newest samples: seconds of an update.';
comment on column update_time.exchange_s is 'Mean of the newest samples: seconds of an update that wait for the exchange.';
comment on column update_time.weight is 'Samples in the mean; halved for every seven days of age, at most 200.';
comment on column update_time.observed_at is 'When the newest sample was recorded.';
create index update_time_by_family on update_time (tenant_id, family, job_id desc);

create table course_noise (
    job_id uuid not null references job (id) on delete cascade,
    part integer not null,
    tenant_id uuid not null references tenant (id),
    family text not null,
    noise_scale double precision not null,
    primary key (job_id, part)
);
comment on table course_noise is 'Gradient noise of a job by part of its steps, where its coordinator chooses the batch.';
comment on column course_noise.job_id is 'Its job.';
comment on column course_noise.part is 'Twentieth of the job''s steps, from 0.';
comment on column course_noise.tenant_id is 'Owner; the job''s.';
comment on column course_noise.family is 'Key of the job''s family (muster_model::family::Family).';
comment on column course_noise.noise_scale is 'Gradient noise scale in examples; the newest sample counts as much as all earlier ones.';
create index course_noise_by_family on course_noise (tenant_id, family, job_id desc);

alter table update_time enable row level security;
alter table update_time force row level security;
create policy api_forget on update_time for delete to muster_api using (tenant_id = muster_tenant());
create policy api_read on update_time for select to muster_api using (tenant_id = muster_tenant());
create policy scheduler_all on update_time to muster_scheduler using (true) with check (true);
grant select, delete on update_time to muster_api;
grant select, insert, update, delete on update_time to muster_scheduler;

alter table course_noise enable row level security;
alter table course_noise force row level security;
create policy api_forget on course_noise for delete to muster_api using (tenant_id = muster_tenant());
create policy api_read on course_noise for select to muster_api using (tenant_id = muster_tenant());
create policy scheduler_all on course_noise to muster_scheduler using (true) with check (true);
grant select, delete on course_noise to muster_api;
grant select, insert, update, delete on course_noise to muster_scheduler;
