-- What autoscalers and dashboards ask: how much waits, over all tenants, and why. No tenant, user or job is named.

create function muster_demand()
    returns table (reason text, jobs bigint, gpus bigint)
    language sql stable security definer
    set search_path = public, pg_temp
as $$
    select coalesce(waiting -> 'why' ->> 'reason', 'not_considered'), count(*),
           sum(coalesce((spec #>> '{scale,workers,min}')::bigint, 1) * coalesce((spec #>> '{resources,worker,gpus}')::bigint, 1))::bigint
    from job
    where phase = 'queued' and intent = 'run'
    group by 1
$$;
comment on function muster_demand() is 'Jobs that wait to start and the GPUs of their smallest gangs, by the reason of the newest round.';
revoke all on function muster_demand() from public;
grant execute on function muster_demand() to muster_api;
