-- A round loads the jobs that hold something or have an order to obey, and of those that wait the first of each tenant. Each of
-- these sets has an index of its own, which holds only the rows of the set.

create index job_held on job (id) where phase in ('starting', 'running', 'stopping', 'suspended');
create index job_ordered on job (id) where (phase = 'queued' and intent <> 'run') or (phase = 'paused' and intent in ('run', 'cancel'));
create index job_paused on job (id) where phase = 'paused';

-- Jobs that no time starts, as `muster_model::wait::Wait::is_for_good` has it.
create function muster_is_for_good(waiting jsonb) returns boolean
    language sql immutable parallel safe
    return coalesce(
        waiting -> 'why' ->> 'reason' in ('exceeds_max_quota', 'exceeds_cluster')
            or (waiting -> 'why' ->> 'reason' = 'no_matching_nodes' and waiting -> 'why' ->> 'largest_node_gpus' <> '0')
            or waiting -> 'why' ->> 'short' is not null,
        false);
comment on function muster_is_for_good(jsonb) is 'Whether this reason to wait ends only when the job, its quota or the cluster becomes another.';
revoke all on function muster_is_for_good(jsonb) from public;
grant execute on function muster_is_for_good(jsonb) to muster_api, muster_scheduler;

-- The order in which the scheduler considers queued jobs: priority, then jobs that have begun, then age.
create index job_window on job (tenant_id, priority desc, (revision = 0), submitted_at, id)
    where phase = 'queued' and intent = 'run' and not muster_is_for_good(waiting);
-- They take no place of their tenant's part of the window; some of them are considered in every round.
create index job_hopeless on job (id) where phase = 'queued' and intent = 'run' and muster_is_for_good(waiting);
create index job_backing_off on job (not_before) where phase = 'queued' and not_before is not null;
-- Jobs whose reason to wait changes when a round leaves them out.
create index job_untold on job (tenant_id, id)
    where phase = 'queued' and intent = 'run' and not muster_is_for_good(waiting)
      and coalesce(waiting -> 'why' ->> 'reason', '') not in ('behind_earlier_jobs', 'backing_off');

-- What decisions depend on. A command's arguments, variables and files have up to 64 KiB each.
create function muster_decisive(spec jsonb) returns jsonb
    language sql immutable parallel safe
    set search_path = pg_catalog, pg_temp
as $$
    select case when jsonb_typeof(spec -> 'command') = 'object'
        then jsonb_set(spec #- '{command,env}' #- '{command,files}', '{command,argv}', '[]')
        else spec end
$$;
comment on function muster_decisive(jsonb) is 'A job''s document without what no decision depends on.';
revoke all on function muster_decisive(jsonb) from public;
grant execute on function muster_decisive(jsonb) to muster_scheduler;
