-- Jobs, their tasks and the GPUs that these hold.

create table job (
    id uuid primary key,
    tenant_id uuid not null references tenant (id),
    submitted_by uuid not null references app_user (id),
    name text not null,
    labels jsonb not null,
    priority integer not null,
    spec jsonb not null,
    intent text not null check (intent in ('run', 'pause', 'cancel')),
    phase text not null check (phase in ('queued', 'starting', 'running', 'stopping', 'paused', 'succeeded', 'failed', 'cancelled')),
    state jsonb not null,
    revision bigint not null default 0 check (revision >= 0),
    failures integer not null default 0 check (failures >= 0),
    waiting jsonb,
    not_before timestamptz,
    submitted_at timestamptz not null,
    started_at timestamptz,
    placed_at timestamptz,
    running_since timestamptz,
    finished_at timestamptz,
    deleted_at timestamptz,
    trained_s double precision not null default 0 check (trained_s >= 0),
    secret text,
    finished jsonb,
    failed jsonb,
    latest jsonb,
    sample_at timestamptz,
    revision_samples bigint not null default 0,
    latest_evaluation jsonb,
    check (state ->> 'phase' = phase),
    check ((finished_at is not null) = (phase in ('succeeded', 'failed', 'cancelled'))),
    check (deleted_at is null or finished_at is not null)
);
create index job_by_tenant on job (tenant_id, id desc) where deleted_at is null;
create index job_open on job (id) where phase not in ('succeeded', 'failed', 'cancelled');
comment on table job is 'What a user submitted, and the scheduler''s record of it.';
comment on column job.id is 'UUID version 7, made by the api; sorts by submission.';
comment on column job.tenant_id is 'Owner.';
comment on column job.submitted_by is 'The user who submitted it.';
comment on column job.name is 'spec.name, for lists.';
comment on column job.labels is 'spec.labels, for lists; an object of strings.';
comment on column job.priority is 'spec.priority.';
comment on column job.spec is 'The document, JSON of muster_model::spec::JobSpec.';
comment on column job.intent is 'What the user wants; written by the api, obeyed by the next round.';
comment on column job.phase is 'Name of the state; repeated from state so that it can be filtered and guarded.';
comment on column job.state is 'JSON of muster_model::job::JobState.';
comment on column job.revision is 'Revision of its task set: 0 before the first start, +1 at every start. Fences tasks and plans.';
comment on column job.failures is 'Restarts charged to spec.retries.';
comment on column job.waiting is 'JSON of muster_model::wait::Waiting, from the newest round; null unless it waits.';
comment on column job.not_before is 'After a failure it is not started before.';
comment on column job.submitted_at is 'When the api took it.';
comment on column job.started_at is 'When its first revision started.';
comment on column job.placed_at is 'When its present revision started.';
comment on column job.running_since is 'When all tasks of its present revision were up; null unless they are.';
comment on column job.finished_at is 'When it reached its last state.';
comment on column job.deleted_at is 'Hidden from its tenant since; the row stays for the history that names it.';
comment on column job.trained_s is 'Seconds during which all tasks were up, in revisions that have ended.';
comment on column job.secret is 'Hex of 32 random bytes by which the tasks of the present revision know each other.';
comment on column job.finished is 'The present revision''s report that training is done.';
comment on column job.failed is 'The present revision''s report that it cannot go on.';
comment on column job.latest is 'JSON of muster_model::progress::Sample, the newest.';
comment on column job.sample_at is 'When the newest sample was taken.';
comment on column job.revision_samples is 'Samples seen in the present revision; the first is no measure of speed.';
comment on column job.latest_evaluation is 'JSON of muster_model::progress::Evaluation, the newest.';

create table task (
    id uuid primary key,
    tenant_id uuid not null references tenant (id),
    job_id uuid not null references job (id) on delete cascade,
    revision bigint not null,
    role text not null check (role in ('worker', 'ps_shard')),
    role_index integer not null check (role_index >= 0),
    node_id uuid not null references node (id),
    gpus integer[] not null,
    phase text not null check (phase in ('assigned', 'running', 'stopping', 'released')),
    state jsonb not null,
    address text,
    created_at timestamptz not null,
    released_at timestamptz,
    events_seen bigint not null default 0,
    log_end bigint not null default 0,
    unique (job_id, revision, role, role_index),
    check (state ->> 'phase' = phase),
    check ((released_at is not null) = (phase = 'released'))
);
create index task_held on task (node_id) where released_at is null;
comment on table task is 'One process of a job at one revision, on one node.';
comment on column task.id is 'UUID version 7, made by the scheduler.';
comment on column task.tenant_id is 'Owner; its job''s.';
comment on column task.job_id is 'Its job.';
comment on column task.revision is 'The job''s revision that it belongs to.';
comment on column task.role is 'worker or ps_shard.';
comment on column task.role_index is 'Rank of the worker, index of the shard.';
comment on column task.node_id is 'Where it runs.';
comment on column task.gpus is 'Indices of the node''s GPUs or CPU slots that it was given.';
comment on column task.phase is 'Name of the state, repeated so that it can be guarded.';
comment on column task.state is 'JSON of muster_model::task::TaskState.';
comment on column task.address is 'host:port of its data plane, once it listens.';
comment on column task.created_at is 'When the round that made it was committed.';
comment on column task.released_at is 'When it was known to be gone; null while it may hold anything.';
comment on column task.events_seen is 'Lines of its events file that are recorded; lower numbers are repetitions.';
comment on column task.log_end is 'Bytes of its log that have been received; lower offsets are repetitions.';

create table allocation (
    task_id uuid not null references task (id) on delete cascade,
    gpu_index integer not null check (gpu_index >= 0),
    node_id uuid not null references node (id),
    job_id uuid not null,
    tenant_id uuid not null references tenant (id),
    allocated_at timestamptz not null,
    released_at timestamptz,
    primary key (task_id, gpu_index)
);
-- However wrong a plan is, no GPU is held twice.
create unique index allocation_exclusive on allocation (node_id, gpu_index) where released_at is null;
comment on table allocation is 'GPUs and CPU slots that tasks hold or held.';
comment on column allocation.task_id is 'Holder.';
comment on column allocation.gpu_index is 'Index in the node''s capacity.';
comment on column allocation.node_id is 'Its node.';
comment on column allocation.job_id is 'The holder''s job.';
comment on column allocation.tenant_id is 'Owner; the job''s.';
comment on column allocation.allocated_at is 'When it was committed.';
comment on column allocation.released_at is 'When its holder was known to be gone; null while held.';

alter table job enable row level security;
alter table job force row level security;
alter table task enable row level security;
alter table task force row level security;
alter table allocation enable row level security;
alter table allocation force row level security;

create policy api_read on job for select to muster_api using (tenant_id = muster_tenant());
create policy api_submit on job for insert to muster_api
    with check (tenant_id = muster_tenant() and phase = 'queued' and revision = 0 and intent = 'run');
create policy api_intend on job for update to muster_api
    using (tenant_id = muster_tenant()) with check (tenant_id = muster_tenant());
create policy api_read on task for select to muster_api using (tenant_id = muster_tenant());
create policy api_read on allocation for select to muster_api using (tenant_id = muster_tenant());
create policy scheduler_all on job to muster_scheduler using (true) with check (true);
create policy scheduler_all on task to muster_scheduler using (true) with check (true);
create policy scheduler_all on allocation to muster_scheduler using (true) with check (true);
create policy owner_read on job for select to current_user using (true);
create policy owner_read on allocation for select to current_user using (true);

grant select, insert, update (intent, deleted_at) on job to muster_api;
grant select on task, allocation to muster_api;
grant select, update, delete on job to muster_scheduler;
grant select, insert, update on task, allocation to muster_scheduler;

-- Everyone may see that a GPU is taken and by which job id; whose it is and its name only its own tenant and administrators.
create function muster_held_gpus()
    returns table (node_id uuid, gpu_index integer, task_id uuid, job_id uuid, tenant_id uuid, tenant_name text, job_name text)
    language sql stable security definer
    set search_path = public, pg_temp
as $$
    select a.node_id, a.gpu_index, a.task_id, a.job_id,
           case when seen.it then a.tenant_id end,
           case when seen.it then t.name end,
           case when seen.it then j.name end
    from allocation a
    join job j on j.id = a.job_id
    join tenant t on t.id = a.tenant_id
    cross join lateral (select coalesce(a.tenant_id = muster_tenant(), false) or muster_is_admin() as it) seen
    where a.released_at is null
$$;
comment on function muster_held_gpus() is 'GPUs that are held now, over all tenants.';
revoke all on function muster_held_gpus() from public;
grant execute on function muster_held_gpus() to muster_api, muster_scheduler;
