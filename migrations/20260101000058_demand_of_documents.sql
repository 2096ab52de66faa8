-- What waits is asked for every few seconds, and a document has up to a mebibyte: the GPUs of the smallest gang are kept beside it.

alter table job add column min_gpus bigint;
comment on column job.min_gpus is 'GPUs of the smallest gang that spec asks for; null in rows of releases that did not keep it.';

create function muster_keep_min_gpus() returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    new.min_gpus := coalesce((new.spec #>> '{scale,workers,min}')::bigint, 1) * coalesce((new.spec #>> '{resources,worker,gpus}')::bigint, 1);
    return new;
end
$$;
comment on function muster_keep_min_gpus() is 'Keeps job.min_gpus as its document has it.';
create trigger job_keeps_min_gpus before insert or update of spec on job for each row execute function muster_keep_min_gpus();

create or replace function muster_demand()
    returns table (reason text, jobs bigint, gpus bigint)
    language sql stable security definer
    set search_path = public, pg_temp
as $$
    select case phase when 'suspended' then 'takes_turns' else coalesce(waiting -> 'why' ->> 'reason', 'not_considered') end, count(*),
           sum(coalesce(min_gpus, coalesce((spec #>> '{scale,workers,min}')::bigint, 1) * coalesce((spec #>> '{resources,worker,gpus}')::bigint, 1)))::bigint
    from job
    where phase in ('queued', 'suspended') and intent = 'run'
    group by 1
$$;
