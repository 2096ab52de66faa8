-- Who stands still for others' turns waits for GPUs too: where everybody takes turns, nobody is in the queue.

create or replace function muster_demand()
    returns table (reason text, jobs bigint, gpus bigint)
    language sql stable security definer
    set search_path = public, pg_temp
as $$
    select case phase when 'suspended' then 'takes_turns' else coalesce(waiting -> 'why' ->> 'reason', 'not_considered') end, count(*),
           sum(coalesce((spec #>> '{scale,workers,min}')::bigint, 1) * coalesce((spec #>> '{resources,worker,gpus}')::bigint, 1))::bigint
    from job
    where phase in ('queued', 'suspended') and intent = 'run'
    group by 1
$$;
comment on function muster_demand() is
    'Jobs that wait to start, by the reason of the newest round, or to go on in their turn; and the GPUs of their smallest gangs.';
