-- When jobs are expected to start and to end, as the scheduler forecast it at different times.

create table forecast (
    job_id uuid not null references job (id),
    made_at timestamptz not null,
    tenant_id uuid not null references tenant (id),
    widen double precision not null check (widen > 0),
    start_p10 timestamptz,
    start_p50 timestamptz,
    start_p90 timestamptz,
    finish_p10 timestamptz,
    finish_p50 timestamptz,
    finish_p90 timestamptz,
    gpu_s double precision not null,
    primary key (job_id, made_at),
    check ((start_p10 is null) = (start_p90 is null) and (start_p10 is null) = (start_p50 is null)),
    check ((finish_p10 is null) = (finish_p90 is null) and (finish_p10 is null) = (finish_p50 is null))
);
create index forecast_by_time on forecast (made_at);
comment on table forecast is 'Forecasts, kept with time so that it is known how often their intervals hold.';
comment on column forecast.job_id is 'The job.';
comment on column forecast.made_at is 'The instant of the snapshot that it was made from.';
comment on column forecast.tenant_id is 'Owner; the job''s.';
comment on column forecast.widen is 'By how much the intervals were widened, for what earlier ones had missed.';
comment on column forecast.start_p10 is 'It starts earlier in one case of ten; null when it had started, or may never.';
comment on column forecast.start_p50 is 'The middle.';
comment on column forecast.start_p90 is 'It starts later in one case of ten.';
comment on column forecast.finish_p10 is 'It ends earlier in one case of ten; null when it may never end.';
comment on column forecast.finish_p50 is 'The middle.';
comment on column forecast.finish_p90 is 'It ends later in one case of ten.';
comment on column forecast.gpu_s is 'GPU-seconds that it will still hold, in the mean.';
alter table forecast enable row level security;
alter table forecast force row level security;
create policy api_read on forecast for select to muster_api using (tenant_id = muster_tenant());
create policy scheduler_all on forecast to muster_scheduler using (true) with check (true);
grant select on forecast to muster_api;
grant select, insert, delete on forecast to muster_scheduler;
