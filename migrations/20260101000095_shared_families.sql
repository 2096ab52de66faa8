-- Tenants that share what was measured on the families of their jobs.

alter table tenant add column shares_families boolean not null default false;
comment on column tenant.shares_families is 'Whether measurements of its families count for equal families of other tenants that share, and theirs for its own.';

create function muster_family_tenants(of_tenant uuid) returns uuid[]
    language sql stable set search_path = pg_catalog, public as
$$
    select case
        when exists (select from tenant where id = of_tenant and shares_families and deleted_at is null)
        then array(select id from tenant where shares_families and deleted_at is null)
        else array[of_tenant]
    end
$$;
revoke all on function muster_family_tenants(uuid) from public;
grant execute on function muster_family_tenants(uuid) to muster_scheduler;
comment on function muster_family_tenants(uuid) is 'Tenants whose measurements of families count for this tenant.';
grant update (shares_families) on tenant to muster_api;
