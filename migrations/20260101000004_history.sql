-- What happened and what was measured: events, progress, evaluations, speeds, checkpoints, logs.

create table event (
    xid xid8 not null default pg_current_xact_id(),
    seq bigint not null generated always as identity,
    at timestamptz not null,
    tenant_id uuid,
    job_id uuid,
    node_id uuid,
    kind text not null,
    body jsonb not null,
    primary key (xid, seq)
);
create index event_by_tenant on event (tenant_id, xid, seq);
create index event_by_job on event (job_id, xid, seq);
create index event_by_node on event (node_id, xid, seq) where node_id is not null;
comment on table event is 'Append-only history of jobs, tasks and nodes. No foreign keys: it outlives what it tells of.';
comment on column event.xid is 'Transaction that appended it. A reader only takes those below every transaction still running, so that none is ever skipped.';
comment on column event.seq is 'Order within and between transactions; with xid the cursor of readers.';
comment on column event.at is 'When it happened, by the clock of who tells it.';
comment on column event.tenant_id is 'Owner; null for what concerns nodes.';
comment on column event.job_id is 'Job concerned, if any.';
comment on column event.node_id is 'Node concerned, if any.';
comment on column event.kind is 'Stable name of the kind of event, repeated from body.';
comment on column event.body is 'JSON of muster_model::event::Event.';

create table progress_sample (
    job_id uuid not null references job (id) on delete cascade,
    step bigint not null,
    tenant_id uuid not null references tenant (id),
    revision bigint not null,
    at timestamptz not null,
    epoch double precision not null,
    loss double precision not null,
    accuracy double precision not null,
    examples_per_s double precision not null,
    steps_per_s double precision not null,
    compute_ms double precision not null,
    exchange_ms double precision not null,
    data_ms double precision not null,
    workers integer not null,
    ps_shards integer not null,
    primary key (job_id, step)
);
comment on table progress_sample is 'The training series of a job. A revision that resumes from a step replaces what came after it.';
comment on column progress_sample.job_id is 'Its job.';
comment on column progress_sample.step is 'Optimizer steps done, over the whole life of the job.';
comment on column progress_sample.tenant_id is 'Owner; the job''s.';
comment on column progress_sample.revision is 'Revision that took it.';
comment on column progress_sample.at is 'When the executor read it.';
comment on column progress_sample.epoch is 'Epochs done, fractional.';
comment on column progress_sample.loss is 'Mean training loss per example since the sample before.';
comment on column progress_sample.accuracy is 'Share of training examples classified rightly since the sample before.';
comment on column progress_sample.examples_per_s is 'All workers together, since the sample before.';
comment on column progress_sample.steps_per_s is 'Since the sample before.';
comment on column progress_sample.compute_ms is 'Per step: forward and backward.';
comment on column progress_sample.exchange_ms is 'Per step: pushing gradients and waiting for new parameters.';
comment on column progress_sample.data_ms is 'Per step: preparing the batch.';
comment on column progress_sample.workers is 'Workers at the time.';
comment on column progress_sample.ps_shards is 'PS shards at the time.';

create table epoch_loss (
    job_id uuid not null references job (id) on delete cascade,
    epoch bigint not null,
    tenant_id uuid not null references tenant (id),
    loss_sum double precision not null,
    samples bigint not null,
    primary key (job_id, epoch)
);
comment on table epoch_loss is 'Mean training loss of each epoch, kept up as samples arrive so that a round need not read the whole series.';
comment on column epoch_loss.job_id is 'Its job.';
comment on column epoch_loss.epoch is 'The epoch, from 0.';
comment on column epoch_loss.tenant_id is 'Owner; the job''s.';
comment on column epoch_loss.loss_sum is 'Sum of the losses of its samples.';
comment on column epoch_loss.samples is 'How many they are.';

create table evaluation (
    job_id uuid not null references job (id) on delete cascade,
    step bigint not null,
    tenant_id uuid not null references tenant (id),
    revision bigint not null,
    at timestamptz not null,
    epoch double precision not null,
    loss double precision not null,
    accuracy double precision not null,
    primary key (job_id, step)
);
comment on table evaluation is 'Passes over the test split.';
comment on column evaluation.job_id is 'Its job.';
comment on column evaluation.step is 'Optimizer steps done by then.';
comment on column evaluation.tenant_id is 'Owner; the job''s.';
comment on column evaluation.revision is 'Revision that made it.';
comment on column evaluation.at is 'When the executor read it.';
comment on column evaluation.epoch is 'Epochs done, fractional.';
comment on column evaluation.loss is 'Mean loss per test example.';
comment on column evaluation.accuracy is 'Share of test examples classified rightly.';

create table speed (
    job_id uuid not null references job (id) on delete cascade,
    workers integer not null,
    ps_shards integer not null,
    tenant_id uuid not null references tenant (id),
    steps_per_s double precision not null,
    samples bigint not null,
    primary key (job_id, workers, ps_shards)
);
comment on table speed is 'Measured speed of a job at each size that it has had; what Optimus fits its curve to.';
comment on column speed.job_id is 'Its job.';
comment on column speed.workers is 'Workers.';
comment on column speed.ps_shards is 'PS shards.';
comment on column speed.tenant_id is 'Owner; the job''s.';
comment on column speed.steps_per_s is 'Running mean over the samples.';
comment on column speed.samples is 'How many they are.';

create table checkpoint (
    id uuid primary key default gen_random_uuid(),
    tenant_id uuid not null references tenant (id),
    job_id uuid not null references job (id) on delete cascade,
    step bigint not null,
    epoch double precision not null,
    revision bigint not null,
    path text not null,
    bytes bigint not null check (bytes >= 0),
    manifest_sha256 text not null,
    retained boolean not null default true,
    written_at timestamptz not null,
    unique (job_id, step, revision)
);
comment on table checkpoint is 'Checkpoints that a job''s chief has written, verified and renamed into place.';
comment on column checkpoint.id is 'Random.';
comment on column checkpoint.tenant_id is 'Owner; the job''s.';
comment on column checkpoint.job_id is 'Its job.';
comment on column checkpoint.step is 'Optimizer steps done.';
comment on column checkpoint.epoch is 'Epochs done, fractional.';
comment on column checkpoint.revision is 'Revision that wrote it.';
comment on column checkpoint.path is 'Folder, relative to the cluster''s checkpoint root.';
comment on column checkpoint.bytes is 'Size of its files together.';
comment on column checkpoint.manifest_sha256 is 'Hex SHA-256 of its manifest, which holds those of the files.';
comment on column checkpoint.retained is 'Still on disk: spec.checkpoint.keep has not pruned it.';
comment on column checkpoint.written_at is 'When the executor read the report.';

create table task_log (
    task_id uuid not null references task (id) on delete cascade,
    start_offset bigint not null,
    tenant_id uuid not null references tenant (id),
    data bytea not null,
    primary key (task_id, start_offset)
);
comment on table task_log is 'Output of tasks, in pieces as executors ship them. Only the newest part of a very long log is kept.';
comment on column task_log.task_id is 'Its task.';
comment on column task_log.start_offset is 'Bytes of the log before this piece.';
comment on column task_log.tenant_id is 'Owner; the job''s.';
comment on column task_log.data is 'The bytes; not necessarily UTF-8.';

do $$
declare
    name text;
begin
    foreach name in array array['progress_sample', 'epoch_loss', 'evaluation', 'speed', 'checkpoint', 'task_log'] loop
        execute format('alter table %I enable row level security', name);
        execute format('alter table %I force row level security', name);
        execute format('create policy api_read on %I for select to muster_api using (tenant_id = muster_tenant())', name);
        execute format('create policy scheduler_all on %I to muster_scheduler using (true) with check (true)', name);
        execute format('grant select on %I to muster_api', name);
        execute format('grant select, insert, update, delete on %I to muster_scheduler', name);
    end loop;
end
$$;

alter table event enable row level security;
alter table event force row level security;
create policy api_read on event for select to muster_api using (tenant_id = muster_tenant() or tenant_id is null);
create policy api_append on event for insert to muster_api
    with check (tenant_id = muster_tenant() or (tenant_id is null and muster_is_admin()));
create policy scheduler_read on event for select to muster_scheduler using (true);
create policy scheduler_append on event for insert to muster_scheduler with check (true);
-- Append-only: nobody but the owner may change or remove what happened, and the reader's cursor cannot be forged.
revoke all on event from public;
grant select, insert (at, tenant_id, job_id, node_id, kind, body) on event to muster_api, muster_scheduler;
