-- Metrics that users' programs log, by name: a series of each in at most 2,000 buckets.

create table metric_series (
    job_id uuid not null references job (id) on delete cascade,
    name text not null,
    number integer not null check (number >= 0),
    tenant_id uuid not null references tenant (id),
    revision bigint not null,
    width_log2 integer not null check (width_log2 between 0 and 63),
    buckets integer not null check (buckets >= 0),
    points bigint not null check (points >= 0),
    min_value double precision not null,
    max_value double precision not null,
    last_step bigint not null check (last_step >= 0),
    last_value double precision not null,
    primary key (job_id, name),
    unique (job_id, number)
);
comment on table metric_series is 'Metrics of a job by name, with a summary of the values that its buckets hold.';
comment on column metric_series.job_id is 'Its job.';
comment on column metric_series.name is 'Name as the program logs it.';
comment on column metric_series.number is 'Key of its buckets; the series of a job are numbered from 0.';
comment on column metric_series.tenant_id is 'Owner; the job''s.';
comment on column metric_series.revision is 'Revision of the job that logged the newest value.';
comment on column metric_series.width_log2 is 'A bucket spans 2^width_log2 steps; it doubles when the buckets exceed their maximum.';
comment on column metric_series.buckets is 'Number of its buckets.';
comment on column metric_series.points is 'Number of logged values.';
comment on column metric_series.min_value is 'Smallest value.';
comment on column metric_series.max_value is 'Largest value.';
comment on column metric_series.last_step is 'Step of the newest value.';
comment on column metric_series.last_value is 'The newest value.';

create table metric_bucket (
    job_id uuid not null references job (id) on delete cascade,
    series integer not null,
    bucket bigint not null check (bucket >= 0),
    tenant_id uuid not null references tenant (id),
    revision bigint not null,
    points bigint not null check (points > 0),
    sum double precision not null,
    min_value double precision not null,
    max_value double precision not null,
    last_step bigint not null check (last_step >= 0),
    last_value double precision not null,
    primary key (job_id, series, bucket)
);
comment on table metric_bucket is 'Summary of the values of a metric in equally many steps. Values of a later revision of the job replace those of an earlier one.';
comment on column metric_bucket.job_id is 'Its job.';
comment on column metric_bucket.series is 'Number of its series (metric_series.number).';
comment on column metric_bucket.bucket is 'Its first step divided by the width of the series.';
comment on column metric_bucket.tenant_id is 'Owner; the job''s.';
comment on column metric_bucket.revision is 'Revision of the job that logged the values.';
comment on column metric_bucket.points is 'Number of logged values.';
comment on column metric_bucket.sum is 'Sum of the values.';
comment on column metric_bucket.min_value is 'Smallest value.';
comment on column metric_bucket.max_value is 'Largest value.';
comment on column metric_bucket.last_step is 'Step of the newest value.';
comment on column metric_bucket.last_value is 'The newest value.';

do $$
declare
    name text;
begin
    foreach name in array array['metric_series', 'metric_bucket'] loop
        execute format('alter table %I enable row level security', name);
        execute format('alter table %I force row level security', name);
        execute format('create policy api_read on %I for select to muster_api using (tenant_id = muster_tenant())', name);
        execute format('create policy scheduler_all on %I to muster_scheduler using (true) with check (true)', name);
        execute format('grant select on %I to muster_api', name);
        execute format('grant select, insert, update, delete on %I to muster_scheduler', name);
    end loop;
end
$$;

alter table job_volume add column dropped_metrics bigint not null default 0 check (dropped_metrics >= 0);
comment on column job_volume.dropped_metrics is 'Number of values that were dropped because the job has the maximum number of metric names.';
