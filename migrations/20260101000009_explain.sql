-- What the newest round said of one job, for its owner: of the round as a whole only administrators read.

create policy owner_read on round for select to current_user using (true);

create function muster_explain(wanted uuid)
    returns table (number bigint, at timestamptz, said json, runner_up json)
    language sql stable security definer
    set search_path = public, pg_temp
as $$
    select r.number, r.at, entry.value, r.report -> 'runner_up'
    from (select r.number, r.at, r.report from round r order by r.number desc limit 1) r
    cross join lateral json_array_elements(r.report -> 'jobs') entry
    where entry.value ->> 'job' = wanted::text
      and exists (select from job j where j.id = wanted and j.tenant_id = muster_tenant() and j.deleted_at is null)
$$;
comment on function muster_explain(uuid) is 'What the newest kept round said of a job of the tenant in scope; no row when it said nothing.';
revoke all on function muster_explain(uuid) from public;
grant execute on function muster_explain(uuid) to muster_api;
