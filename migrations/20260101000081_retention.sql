-- Retention: the scheduler removes what is old, so that every table is bounded.

-- Ended jobs by age, and deleted jobs by age.
create index job_ended on job (finished_at) where finished_at is not null and deleted_at is null;
create index job_deleted on job (deleted_at, id) where deleted_at is not null;
-- Removing a node asks whether any task refers to it.
create index task_by_node on task (node_id);
create index allocation_by_node on allocation (node_id);
create index node_fault_by_job on node_fault (job_id) where job_id is not null;
create index node_fault_by_task on node_fault (task_id) where task_id is not null;

grant delete on task, allocation, node, study, study_event, study_trial to muster_scheduler;

-- Tokens that were revoked, beside those that have expired.
create policy scheduler_see_revoked on api_token for select to muster_scheduler using (revoked_at is not null);
create policy scheduler_forget_revoked on api_token for delete to muster_scheduler using (revoked_at is not null);
grant select (revoked_at) on api_token to muster_scheduler;

-- `event` is append-only for every role. Only these functions remove events, and only old ones or those of deleted jobs.
create policy owner_read on event for select to current_user using (true);
create policy owner_forget on event for delete to current_user using (true);

create function muster_forget_events(before timestamptz, most integer) returns bigint
    language plpgsql volatile security definer
    set search_path = public, pg_temp
as $$
declare
    forgotten bigint;
begin
    if before > now() - interval '1 hour' then
        raise exception 'events of the last hour are not removed; before is %', before;
    end if;
    -- The order of the cursor is that of time, but for a few seconds and for what a node with a wrong clock has told.
    with oldest as materialized (
        select xid, seq, at from event order by xid, seq limit most
    ), gone as (
        delete from event e using oldest o where e.xid = o.xid and e.seq = o.seq and o.at < before returning 1
    )
    select count(*) into forgotten from gone;
    return forgotten;
end
$$;
comment on function muster_forget_events(timestamptz, integer) is
    'Removes events before a time, which is at least an hour ago, among the oldest so many events. Returns how many; 0 when none is left.';
revoke all on function muster_forget_events(timestamptz, integer) from public;
grant execute on function muster_forget_events(timestamptz, integer) to muster_scheduler;

create function muster_forget_events_of(jobs uuid[], most integer) returns bigint
    language sql volatile security definer
    set search_path = public, pg_temp
as $$
    with due as materialized (
        select id from job where id = any (jobs) and deleted_at is not null
    ), batch as materialized (
        select e.xid, e.seq from event e join due on due.id = e.job_id limit most
    ), gone as (
        delete from event e using batch b where e.xid = b.xid and e.seq = b.seq returning 1
    )
    select count(*) from gone
$$;
comment on function muster_forget_events_of(uuid[], integer) is
    'Removes events of these jobs as far as the jobs were deleted, so many at most. Returns how many.';
revoke all on function muster_forget_events_of(uuid[], integer) from public;
grant execute on function muster_forget_events_of(uuid[], integer) to muster_scheduler;

create policy owner_forget on app_user for delete to current_user using (true);

create function muster_forget_users(before timestamptz, most integer) returns bigint
    language sql volatile security definer
    set search_path = public, pg_temp
as $$
    with idle as materialized (
        select u.id from app_user u
        where u.created_at < before
          and not exists (select from api_token k where k.user_id = u.id)
          and not exists (select from job j where j.submitted_by = u.id)
          and not exists (select from study s where s.created_by = u.id)
        limit most
    ), gone as (
        delete from app_user u using idle where u.id = idle.id returning 1
    )
    select count(*) from gone
$$;
comment on function muster_forget_users(timestamptz, integer) is
    'Removes users that were made before a time and have no token, job or study, so many at most. Returns how many.';
revoke all on function muster_forget_users(timestamptz, integer) from public;
grant execute on function muster_forget_users(timestamptz, integer) to muster_scheduler;
