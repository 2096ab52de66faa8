-- Whoever begins work for a tenant sees that it is still there, and its owner can bring one back.

create policy owner_change on tenant for update to current_user using (true) with check (true);

-- Nobody but administrators may lock a tenant's row, and whoever begins work must.
create function muster_hold_tenant(wanted uuid) returns boolean
    language plpgsql volatile security definer
    set search_path = public, pg_temp
as $$
begin
    perform 1 from tenant where id = wanted and deleted_at is null for key share;
    return found;
end
$$;
comment on function muster_hold_tenant(uuid) is 'Whether the tenant was not deleted, which nobody then does until the end of the transaction.';
revoke all on function muster_hold_tenant(uuid) from public;
grant execute on function muster_hold_tenant(uuid) to muster_api, muster_scheduler;
