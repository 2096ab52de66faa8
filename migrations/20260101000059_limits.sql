-- Limits of tenants: what their users may have open at once.

alter table tenant add column limits jsonb not null default '{}';
comment on column tenant.limits is 'Limits that an administrator has set, as JSON of the model''s LimitsSet; what is left out has its default.';
grant update (limits) on tenant to muster_api;

alter table job add column document_bytes bigint not null default 0 check (document_bytes >= 0);
grant update (document_bytes) on job to muster_api;
comment on column job.document_bytes is 'Bytes of spec as JSON; 0 of jobs that a release without limits stored.';

-- Several rows for each tenant: with one, its submissions, and the rounds in which its jobs end, would wait for each other's commits. A change
-- goes to a row that no other transaction holds. Without a foreign key, as a job's row has it already.
create table job_use (
    tenant_id uuid not null,
    jobs bigint not null,
    bytes bigint not null
) with (fillfactor = 20);
create index job_use_by_tenant on job_use (tenant_id);
comment on table job_use is 'Parts of the number of open jobs. The sum of a tenant''s rows is what it has open.';
comment on column job_use.tenant_id is 'Owner.';
comment on column job_use.jobs is 'Jobs that were opened, less those that ended.';
comment on column job_use.bytes is 'Bytes of the documents of these jobs.';
alter table job_use enable row level security;
alter table job_use force row level security;
create policy api_read on job_use for select to muster_api using (tenant_id = muster_tenant() or muster_is_admin());
create policy scheduler_read on job_use for select to muster_scheduler using (true);
create policy owner_all on job_use to current_user using (true) with check (true);
grant select on job_use to muster_api, muster_scheduler;

create function muster_count_job() returns trigger
    language plpgsql security definer
    set search_path = public, pg_temp
as $$
declare
    closed_ constant text[] := array['succeeded', 'failed', 'cancelled'];
    jobs_ bigint := 0;
    bytes_ bigint := 0;
    tenant_ uuid;
begin
    if tg_op <> 'INSERT' then
        tenant_ := old.tenant_id;
        if old.phase <> all (closed_) then
            jobs_ := -1;
            bytes_ := -old.document_bytes;
        end if;
    end if;
    if tg_op <> 'DELETE' then
        tenant_ := new.tenant_id;
        if new.phase <> all (closed_) then
            jobs_ := jobs_ + 1;
            bytes_ := bytes_ + new.document_bytes;
        end if;
    end if;
    -- Once in a transaction: versions of a row that a round writes a thousand times are walked through each time.
    if current_setting('muster.counted', true) is distinct from pg_current_xact_id()::text then
        perform set_config('muster.counted', pg_current_xact_id()::text, true);
        update job_use set jobs = jobs + jobs_, bytes = bytes + bytes_
        where ctid = (select u.ctid from job_use u where u.tenant_id = tenant_ limit 1 for update skip locked);
        if found then
            return null;
        end if;
    end if;
    insert into job_use (tenant_id, jobs, bytes) values (tenant_, jobs_, bytes_);
    return null;
end
$$;
comment on function muster_count_job() is 'Adds to job_use what a change of a job''s row does to what its tenant has open.';
revoke all on function muster_count_job() from public;

create trigger job_opened after insert on job for each row execute function muster_count_job();
create trigger job_closed after update of phase, document_bytes on job for each row
    when (old.document_bytes <> new.document_bytes
          or (old.phase in ('succeeded', 'failed', 'cancelled')) <> (new.phase in ('succeeded', 'failed', 'cancelled')))
    execute function muster_count_job();
create trigger job_removed after delete on job for each row
    when (old.phase not in ('succeeded', 'failed', 'cancelled')) execute function muster_count_job();

-- The triggers above hold the table, so nothing is submitted or ended between them and this.
insert into job_use (tenant_id, jobs, bytes)
select tenant_id, count(*), sum(document_bytes) from job where phase not in ('succeeded', 'failed', 'cancelled') group by tenant_id;

create function muster_open_work(wanted uuid, out jobs bigint, out bytes bigint, out parts bigint)
    language sql stable security definer
    set search_path = public, pg_temp
    -- Such a scan would pass by what was deleted again and again without marking it.
    set enable_bitmapscan = off
    set enable_seqscan = off
as $$
    select coalesce(sum(u.jobs), 0)::bigint, coalesce(sum(u.bytes), 0)::bigint, count(*) from job_use u where u.tenant_id = wanted
$$;
comment on function muster_open_work(uuid) is 'Open jobs of a tenant, the bytes of their documents, and the rows that say so.';
revoke all on function muster_open_work(uuid) from public;
grant execute on function muster_open_work(uuid) to muster_scheduler;

create function muster_refuse(limit_ text, most_ bigint, used_ bigint, asked_ bigint) returns void
    language plpgsql
as $$
begin
    raise exception using errcode = 'MU001',
        message = json_build_object('limit', limit_, 'most', most_, 'used', used_, 'asked', asked_)::text;
end
$$;
comment on function muster_refuse(text, bigint, bigint, bigint) is 'Fails with SQLSTATE MU001 and the JSON of the store''s Exceeded.';

-- Until the end of the transaction, nothing else is counted against the limits of the tenant.
create function muster_hold_limits(wanted uuid) returns boolean
    language plpgsql volatile
as $$
begin
    perform pg_advisory_xact_lock(hashtextextended(wanted::text, 59));
    return true;
end
$$;
comment on function muster_hold_limits(uuid) is 'Waits until no other transaction opens anything for the tenant, and keeps others waiting until the end of this one.';

-- Far below the limits, submissions share a lock and run at once. Each connection may have one under way that this one does not see yet,
-- so "far" is one job for each connection that Postgres has. Nearer, each waits for the others and sees them. A transaction that opens
-- several jobs holds the limits before (muster_hold_limits).
create function muster_admit_job(wanted uuid, asked bigint, default_jobs bigint, default_bytes bigint) returns boolean
    language plpgsql volatile security definer
    set search_path = public, pg_temp
as $$
declare
    small constant bigint := 65536;
    merge_above constant bigint := 256;
    others constant bigint := current_setting('max_connections')::bigint;
    own jsonb;
    most_jobs bigint;
    most_bytes bigint;
    used record;
begin
    select limits into own from tenant where id = wanted and deleted_at is null for key share;
    if not found then
        return false;
    end if;
    most_jobs := coalesce((own ->> 'open_jobs')::bigint, default_jobs);
    most_bytes := coalesce((own ->> 'open_job_bytes')::bigint, default_bytes);
    used := muster_open_work(wanted);
    if asked <= small and used.jobs + 2 * others <= most_jobs and used.bytes + 2 * others * small <= most_bytes then
        perform pg_advisory_xact_lock_shared(hashtextextended(wanted::text, 59));
        used := muster_open_work(wanted);
    end if;
    if asked > small or used.jobs + others > most_jobs or used.bytes + others * small > most_bytes then
        perform muster_hold_limits(wanted);
        used := muster_open_work(wanted);
        if used.jobs >= most_jobs then
            perform muster_refuse('open_jobs', most_jobs, used.jobs, 1);
        end if;
        if used.bytes + asked > most_bytes then
            perform muster_refuse('open_job_bytes', most_bytes, used.bytes, asked);
        end if;
    end if;
    if used.parts > merge_above and pg_try_advisory_xact_lock(hashtextextended(wanted::text, 60)) then
        with free as materialized (
            select ctid from job_use where tenant_id = wanted for update skip locked
        ), merged as (
            delete from job_use u using free where u.ctid = free.ctid returning u.jobs, u.bytes
        )
        insert into job_use (tenant_id, jobs, bytes)
        select wanted, sum(m.jobs), sum(m.bytes) from merged m having count(*) > 0;
    end if;
    return true;
end
$$;
comment on function muster_admit_job(uuid, bigint, bigint, bigint) is
    'Whether the tenant was not deleted, which nobody then does until the end of the transaction. Fails with MU001 where one more job, with a document of so many bytes, is above a limit; the defaults are of limits that are not set.';
revoke all on function muster_admit_job(uuid, bigint, bigint, bigint) from public;
grant execute on function muster_admit_job(uuid, bigint, bigint, bigint) to muster_api, muster_scheduler;

create policy owner_read on study for select to current_user using (true);
create function muster_limits_use(at timestamptz)
    returns table (tenant_id uuid, open_jobs bigint, open_job_bytes bigint, open_studies bigint, tokens bigint)
    language sql stable security definer
    set search_path = public, pg_temp
as $$
    select t.id, w.jobs, w.bytes,
           (select count(*) from study s where s.tenant_id = t.id and s.phase <> 'finished' and s.deleted_at is null),
           (select count(*) from api_token k
            where k.tenant_id = t.id and k.revoked_at is null and (k.expires_at is null or k.expires_at > at))
    from tenant t cross join lateral muster_open_work(t.id) w
    where t.deleted_at is null and (coalesce(t.id = muster_tenant(), false) or muster_is_admin())
$$;
comment on function muster_limits_use(timestamptz) is 'What counts against the limits of a tenant: of the tenant in scope, for administrators of all.';
revoke all on function muster_limits_use(timestamptz) from public;
grant execute on function muster_limits_use(timestamptz) to muster_api;
