-- Roles, the scope of a transaction, tenants, users and tokens.

-- Roles belong to the whole cluster, not to one database: two databases may be migrated at the same time.
do $$
declare
    wanted text;
begin
    foreach wanted in array array['muster_api', 'muster_scheduler'] loop
        if not exists (select from pg_roles where rolname = wanted) then
            begin
                execute format('create role %I nologin', wanted);
            exception
                when duplicate_object or unique_violation then null;
            end;
        end if;
    end loop;
end
$$;

-- After a transaction, a setting made with set_config(.., is_local => true) reads as the empty string, not as null.
create function muster_tenant() returns uuid
    language sql stable parallel safe
as $$ select nullif(current_setting('muster.tenant', true), '')::uuid $$;
comment on function muster_tenant() is 'Tenant on whose behalf the transaction acts; null when none was set, which then sees no row.';

create function muster_is_admin() returns boolean
    language sql stable parallel safe
as $$ select coalesce(current_setting('muster.admin', true), '') = 'on' $$;
comment on function muster_is_admin() is 'Whether the transaction acts for an administrator: tenants, tokens and nodes, never other tenants'' jobs.';

create table tenant (
    id uuid primary key,
    name text not null unique check (name ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
    gpu_quota integer check (gpu_quota >= 0),
    created_at timestamptz not null
);
comment on table tenant is 'Who owns jobs and quota.';
comment on column tenant.id is 'UUID version 7, made by the api.';
comment on column tenant.name is 'Unique DNS label.';
comment on column tenant.gpu_quota is 'GPUs or CPU slots that the jobs may hold at once; null is no limit.';
comment on column tenant.created_at is 'When the tenant was created.';

create table app_user (
    id uuid primary key,
    tenant_id uuid not null references tenant (id),
    name text not null check (length(name) between 1 and 255),
    created_at timestamptz not null,
    unique (tenant_id, name),
    unique (id, tenant_id)
);
comment on table app_user is 'A person or a service account of one tenant.';
comment on column app_user.id is 'UUID version 7, made by the api.';
comment on column app_user.tenant_id is 'Owner.';
comment on column app_user.name is 'Unique within the tenant.';
comment on column app_user.created_at is 'When the user was created.';

create table api_token (
    id uuid primary key,
    tenant_id uuid not null references tenant (id),
    user_id uuid not null,
    name text not null check (length(name) between 1 and 255),
    access text not null check (access in ('member', 'admin')),
    hash bytea not null unique check (octet_length(hash) = 32),
    created_at timestamptz not null,
    expires_at timestamptz,
    revoked_at timestamptz,
    foreign key (user_id, tenant_id) references app_user (id, tenant_id)
);
create index api_token_tenant on api_token (tenant_id, id);
comment on table api_token is 'Bearer tokens. The secret itself is never stored.';
comment on column api_token.id is 'UUID version 7, made by the api.';
comment on column api_token.tenant_id is 'Owner; the same as its user''s.';
comment on column api_token.user_id is 'On whose behalf the bearer acts.';
comment on column api_token.name is 'What its owner calls it.';
comment on column api_token.access is 'member: jobs of its tenant; admin: nodes and tenants besides.';
comment on column api_token.hash is 'SHA-256 of the secret, which has enough entropy to need no salt.';
comment on column api_token.created_at is 'When it was made.';
comment on column api_token.expires_at is 'From here on it is refused; null is never.';
comment on column api_token.revoked_at is 'From here on it is refused; null while valid.';

alter table tenant enable row level security;
alter table tenant force row level security;
alter table app_user enable row level security;
alter table app_user force row level security;
alter table api_token enable row level security;
alter table api_token force row level security;

create policy api_read on tenant for select to muster_api using (id = muster_tenant() or muster_is_admin());
create policy api_create on tenant for insert to muster_api with check (muster_is_admin());
create policy api_change on tenant for update to muster_api using (muster_is_admin()) with check (muster_is_admin());
create policy api_read on app_user for select to muster_api using (tenant_id = muster_tenant() or muster_is_admin());
create policy api_create on app_user for insert to muster_api with check (tenant_id = muster_tenant() or muster_is_admin());
create policy api_read on api_token for select to muster_api using (tenant_id = muster_tenant());
create policy api_create on api_token for insert to muster_api with check (tenant_id = muster_tenant());
create policy api_change on api_token for update to muster_api using (tenant_id = muster_tenant()) with check (tenant_id = muster_tenant());
create policy scheduler_all on tenant to muster_scheduler using (true) with check (true);
-- The functions below run as the owner, who is bound by row level security too unless a superuser.
create policy owner_read on tenant for select to current_user using (true);
create policy owner_read on app_user for select to current_user using (true);
create policy owner_read on api_token for select to current_user using (true);

grant select, insert, update (gpu_quota) on tenant to muster_api;
grant select, insert on app_user to muster_api;
grant select, insert, update (revoked_at) on api_token to muster_api;
grant select on tenant to muster_scheduler;

-- Before a token is known, no tenant is: only this function may look across tenants, and only by an exact hash.
create function muster_authenticate(presented bytea, at timestamptz)
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
$$;
comment on function muster_authenticate(bytea, timestamptz) is 'Whom the bearer of a token with this hash stands for; no row when unknown, expired or revoked.';
revoke all on function muster_authenticate(bytea, timestamptz) from public;
grant execute on function muster_authenticate(bytea, timestamptz) to muster_api;
