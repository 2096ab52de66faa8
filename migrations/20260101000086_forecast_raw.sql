-- Forecasts are calibrated by what the simulated runs gave, and earlier jobs of the same document tell the length of engine jobs too.

-- The newest starts are compared with their forecasts at every forecast.
create index job_started on job (started_at desc) where started_at is not null;

alter table forecast add column raw jsonb;
comment on column forecast.raw is 'JSON of muster_store::forecast::Raw: the quantiles of the runs before the calibration, and what they rest on; null in forecasts of releases before it, by which nothing is calibrated.';
comment on column forecast.widen is 'By how much older releases widened the interval of the end; 1 since raw is kept.';
comment on column forecast.start_widen is 'By how much older releases widened the interval of the start; 1 since raw is kept.';

create function job_content(spec jsonb) returns text language sql immutable parallel safe
    return md5(case
        when jsonb_typeof(spec -> 'command') = 'object' then jsonb_build_array(spec -> 'command', spec -> 'scale')::text
        else jsonb_build_array(spec -> 'engine', spec -> 'exchange', spec -> 'stop', spec -> 'scale', spec -> 'evaluate')::text
    end);
comment on function job_content is 'The same for documents whose jobs are expected to take equally long.';
