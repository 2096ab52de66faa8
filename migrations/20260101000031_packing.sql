-- Two jobs may share a GPU: the second holds its other lane. What they use and how fast they are decides whether they do.

-- First, as everybody who writes locks jobs before their allocations.
alter table job add column measured jsonb;
comment on column job.measured is 'JSON of muster_model::packing::Measured: what its one worker uses of its GPU, and how fast it is alone and beside others; null where nobody asked for it.';

alter table allocation add column lane smallint not null default 0 check (lane in (0, 1));
comment on column allocation.lane is 'Place on the GPU: 0 of its holder; 1 of a guest beside the holder, who moves to 0 when that has gone.';
-- Whoever knows nothing of lanes, as the release before, writes lane 0 only, and is held to one holder a GPU as before.
create unique index allocation_lane_exclusive on allocation (node_id, gpu_index, lane) where released_at is null;
drop index allocation_exclusive;

-- In whoever's transaction the holder goes, the release's before too: a guest alone in its lane would be on a GPU that counts as free.
create function muster_move_up() returns trigger
    language plpgsql
    set search_path = public, pg_temp
as $$
begin
    update allocation guest set lane = 0
    from gone
    where gone.lane = 0 and gone.released_at is not null
      and guest.node_id = gone.node_id and guest.gpu_index = gone.gpu_index
      and guest.lane = 1 and guest.released_at is null;
    return null;
end
$$;
comment on function muster_move_up() is 'Gives a GPU to its guest when its holder goes.';
create trigger allocation_moves_up after update on allocation
    referencing new table as gone
    for each statement when (pg_trigger_depth() = 0) execute function muster_move_up();

-- The same with the lane, for all who see it: a GPU may have two holders.
drop function muster_held_gpus();
create function muster_held_gpus()
    returns table (node_id uuid, gpu_index integer, task_id uuid, job_id uuid, tenant_id uuid, tenant_name text, job_name text, lane smallint)
    language sql stable security definer
    set search_path = public, pg_temp
as $$
    select a.node_id, a.gpu_index, a.task_id, a.job_id,
           case when seen.it then a.tenant_id end,
           case when seen.it then t.name end,
           case when seen.it then j.name end,
           a.lane
    from allocation a
    join job j on j.id = a.job_id
    join tenant t on t.id = a.tenant_id
    cross join lateral (select coalesce(a.tenant_id = muster_tenant(), false) or muster_is_admin() as it) seen
    where a.released_at is null
$$;
comment on function muster_held_gpus() is 'GPUs that are held now, over all tenants.';
revoke all on function muster_held_gpus() from public;
grant execute on function muster_held_gpus() to muster_api, muster_scheduler;

-- By id alone, as everyone sees which job has a GPU.
create function muster_company(task uuid)
    returns table (job_id uuid, since timestamptz)
    language sql stable security definer
    set search_path = public, pg_temp
as $$
    select other.job_id, greatest(own.allocated_at, other.allocated_at)
    from allocation own
    join allocation other on other.node_id = own.node_id and other.gpu_index = own.gpu_index
         and other.released_at is null and other.lane <> own.lane
    where own.task_id = task and own.released_at is null
    limit 1
$$;
comment on function muster_company(uuid) is 'The other job on a GPU of a task, and since when both are there; no row when it is alone.';
revoke all on function muster_company(uuid) from public;
grant execute on function muster_company(uuid) to muster_api, muster_scheduler;
