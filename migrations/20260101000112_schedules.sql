-- Schedules: job documents that the API server submits at the times of a cron expression.

create table schedule (
    tenant_id uuid not null references tenant (id),
    name text not null check (name ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
    user_id uuid not null references app_user (id) on delete cascade,
    cron text not null,
    time_zone text not null,
    catch_up text not null check (catch_up in ('none', 'latest')),
    overlap text not null check (overlap in ('allow', 'skip')),
    document jsonb not null,
    paused text check (paused in ('by_user', 'owner_without_token')),
    next_at timestamptz not null,
    last jsonb,
    last_job uuid,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    primary key (tenant_id, name)
);
comment on table schedule is 'A schedule of a tenant.';
comment on column schedule.tenant_id is 'Owner.';
comment on column schedule.name is 'Name, and the value of the label schedule of its jobs.';
comment on column schedule.user_id is 'The user that stored it last, to which its jobs belong.';
comment on column schedule.cron is 'Five fields of cron, or a name such as @daily.';
comment on column schedule.time_zone is 'IANA name of the time zone of cron.';
comment on column schedule.catch_up is 'What happens to a missed time: none, or latest, which submits one job for the newest one.';
comment on column schedule.overlap is 'Whether a job is submitted while the last one has not ended: allow, or skip.';
comment on column schedule.document is 'JSON of muster_model::spec::JobSpec, as it was stored.';
comment on column schedule.paused is 'Why it submits nothing; null if it is not paused.';
comment on column schedule.next_at is 'The next planned time. The transaction that submits a job advances it.';
comment on column schedule.last is 'JSON of muster_model::schedule::ScheduleRun: the result of the newest planned time.';
comment on column schedule.last_job is 'The last job, to which overlap applies. Its row may be gone.';
comment on column schedule.created_at is 'When it was stored first.';
comment on column schedule.updated_at is 'When it was stored last.';

create index schedule_due on schedule (next_at, tenant_id, name) where paused is null;
create index schedule_of_user on schedule (user_id);

alter table schedule enable row level security;
alter table schedule force row level security;
create policy api_own on schedule to muster_api
    using (tenant_id = muster_tenant()) with check (tenant_id = muster_tenant());
create policy owner_read on schedule for select to current_user using (true);
grant select, insert, update, delete on schedule to muster_api;

-- The API server sees one tenant at a time, and asks here which tenants have due schedules.
create function muster_due_schedules(
    at timestamptz, after_at timestamptz, after_tenant uuid, after_name text, most bigint
)
    returns table (tenant_id uuid, name text, next_at timestamptz)
    language sql stable security definer
    set search_path = public, pg_temp
as $$
    select s.tenant_id, s.name, s.next_at from schedule s
    where s.paused is null and s.next_at <= at
      and (after_at is null or (s.next_at, s.tenant_id, s.name) > (after_at, after_tenant, after_name))
    order by s.next_at, s.tenant_id, s.name limit most
$$;
comment on function muster_due_schedules(timestamptz, timestamptz, uuid, text, bigint) is
    'Schedules of all tenants whose planned time has come, the longest overdue first. With after_at those that follow this schedule.';
revoke all on function muster_due_schedules(timestamptz, timestamptz, uuid, text, bigint) from public;
grant execute on function muster_due_schedules(timestamptz, timestamptz, uuid, text, bigint) to muster_api;

-- A user that owns a schedule stays: the schedule would be deleted with it.
create or replace function muster_forget_users(before timestamptz, most integer) returns bigint
    language sql volatile security definer
    set search_path = public, pg_temp
as $$
    with idle as materialized (
        select u.id from app_user u
        where u.created_at < before
          and not exists (select from api_token k where k.user_id = u.id)
          and not exists (select from job j where j.submitted_by = u.id)
          and not exists (select from study s where s.created_by = u.id)
          and not exists (select from schedule c where c.user_id = u.id)
        limit most
    ), gone as (
        delete from app_user u using idle where u.id = idle.id returning 1
    )
    select count(*) from gone
$$;
comment on function muster_forget_users(timestamptz, integer) is
    'Removes users that were made before a time and have no token, job, study or schedule, so many at most. Returns how many.';
