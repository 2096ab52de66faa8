-- Why a job's last start failed, who asked for what is wanted of it, and tenants that are gone.

alter table job add column last_failure text;
comment on column job.last_failure is 'Why it failed the last time that was charged to its retries; null before the first.';
alter table job add column intent_by jsonb;
comment on column job.intent_by is 'Who asked for intent: the user''s name and whether as administrator; null until somebody has, and where a study did.';
alter table job add column intent_at timestamptz;
comment on column job.intent_at is 'When intent was asked for; null until somebody has.';
grant update (intent_by, intent_at) on job to muster_api;

alter table tenant add column deleted_at timestamptz;
comment on column tenant.deleted_at is 'From here on its tokens are refused and it is in no list; its jobs, events and files stay, and nobody else gets its name.';
grant update (deleted_at) on tenant to muster_api;

create or replace function muster_authenticate(presented bytea, at timestamptz)
    returns table (token_id uuid, tenant_id uuid, tenant_name text, user_id uuid, user_name text, access text)
    language sql stable security definer
    set search_path = public, pg_temp
as $$
    select k.id, k.tenant_id, t.name, k.user_id, u.name, k.access
    from api_token k
    join tenant t on t.id = k.tenant_id
    join app_user u on u.id = k.user_id
    where k.hash = presented
      and k.revoked_at is null
      and (k.expires_at is null or k.expires_at > at)
      and t.deleted_at is null
$$;

create function muster_tenant_use()
    returns table (tenant_id uuid, gpus bigint, jobs bigint)
    language sql stable security definer
    set search_path = public, pg_temp
as $$
    select a.tenant_id, count(*), count(distinct a.job_id)
    from allocation a
    where a.released_at is null and (coalesce(a.tenant_id = muster_tenant(), false) or muster_is_admin())
    group by a.tenant_id
$$;
comment on function muster_tenant_use() is 'GPUs or CPU slots that a tenant''s jobs hold now, and how many jobs those are: of the tenant in scope, for administrators of all.';
revoke all on function muster_tenant_use() from public;
grant execute on function muster_tenant_use() to muster_api;
