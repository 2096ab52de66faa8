-- Speed of jobs by node, and the deviation of a node from its GPU kind that follows from them.

create table node_speed (
    tenant_id uuid not null references tenant (id),
    job_id uuid not null references job (id) on delete cascade,
    node_id uuid not null references node (id) on delete cascade,
    gpu_kind text not null,
    workers integer not null,
    ps_shards integer not null,
    family text not null,
    steps_per_s double precision not null,
    weight double precision not null,
    observed_at timestamptz not null,
    primary key (job_id, node_id, gpu_kind, workers, ps_shards)
);
comment on table node_speed is 'Measured speed of a job while all its workers were on one node. Jobs of one family on several nodes show how the nodes of a GPU kind differ.';
comment on column node_speed.job_id is 'Its job.';
comment on column node_speed.node_id is 'Node of all its workers.';
comment on column node_speed.gpu_kind is 'Model of the GPUs of all its workers, as the driver names it.';
comment on column node_speed.workers is 'Workers.';
comment on column node_speed.ps_shards is 'PS shards.';
comment on column node_speed.tenant_id is 'Owner; the job''s.';
comment on column node_speed.family is 'Key of the job''s family (muster_model::family::Family).';
comment on column node_speed.steps_per_s is 'Mean of the newest samples, of updates.';
comment on column node_speed.weight is 'Samples in the mean; halved for every seven days of age, at most 200.';
comment on column node_speed.observed_at is 'When the newest sample was recorded.';

-- Ids of jobs ascend with the time of submission, so it finds the newest jobs of a node first. It
-- has no column that a sample changes.
create index node_speed_by_node on node_speed (node_id, job_id desc);
create index node_speed_by_family on node_speed (tenant_id, family);

alter table node_speed enable row level security;
alter table node_speed force row level security;
create policy api_read on node_speed for select to muster_api using (tenant_id = muster_tenant());
create policy api_forget on node_speed for delete to muster_api using (tenant_id = muster_tenant());
create policy scheduler_all on node_speed to muster_scheduler using (true) with check (true);
grant select, delete on node_speed to muster_api;
grant select, insert, update, delete on node_speed to muster_scheduler;

create function muster_gpu_kind(capacity jsonb, notice jsonb) returns text
    language sql immutable set search_path = pg_catalog, public as
$$
    select case when (capacity #>> '{gpus,0,memory_bytes}')::bigint = 0 and notice #>> '{gpus,model}' is not null
        then notice #>> '{gpus,model}'
        else coalesce(capacity #>> '{gpus,0,model}', '') end
$$;
comment on function muster_gpu_kind(jsonb, jsonb) is 'Model of the GPUs of a node: of its executor, or of its labels in the cluster where the executor does not know them.';
revoke all on function muster_gpu_kind(jsonb, jsonb) from public;
grant execute on function muster_gpu_kind(jsonb, jsonb) to muster_scheduler;

alter table node add column speed_percent integer check (speed_percent between 50 and 200);
alter table node add column speed_jobs integer;
comment on column node.speed_percent is 'Measured speed in percent of the typical node of its GPU kind; null if it is not known to deviate.';
comment on column node.speed_jobs is 'Number of jobs that were measured on the node; null with speed_percent.';
