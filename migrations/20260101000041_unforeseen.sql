-- A forecast may say that nobody can tell, and why; and intervals of starts are calibrated by what starts missed.

alter table forecast add column unforeseen text;
alter table forecast add column start_widen double precision check (start_widen > 0);
comment on column forecast.unforeseen is 'Why nobody can tell when it ends, a name of muster_model::forecast::Unforeseen; null where there is an end, or it may never come.';
comment on column forecast.start_widen is 'By how much the interval of the start was widened; null in forecasts of releases that made up lengths, by which nothing is calibrated.';

-- How long programs of a name took, and what ended last, is asked at every forecast.
create index job_succeeded_by_name on job (tenant_id, name, finished_at desc) where phase = 'succeeded';
create index job_succeeded on job (finished_at desc) where phase = 'succeeded';
