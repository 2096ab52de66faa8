-- A PS shard holds no GPU, so what is held of GPUs does not tell whether a node is empty.

create policy owner_read on task for select to current_user using (true);

create function muster_tasks_of_nodes()
    returns table (node_id uuid, tasks bigint)
    language sql stable security definer
    set search_path = public, pg_temp
as $$
    select t.node_id, count(*) from task t where t.released_at is null group by t.node_id
$$;
comment on function muster_tasks_of_nodes() is 'How many tasks of each node have not ended, over all tenants; no row for one that has none.';
revoke all on function muster_tasks_of_nodes() from public;
grant execute on function muster_tasks_of_nodes() to muster_api, muster_scheduler;
