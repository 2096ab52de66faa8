-- Remote sessions: commands, forwarded ports and copied files of running tasks, for members of the
-- job's tenant.

alter table tenant add column interactive boolean not null default false;
comment on column tenant.interactive is 'Whether its members may open remote sessions in the tasks of its jobs.';
grant update (interactive) on tenant to muster_api;

create table remote_session (
    id uuid primary key,
    tenant_id uuid not null references tenant (id),
    job_id uuid not null references job (id) on delete cascade,
    task_id uuid not null references task (id) on delete cascade,
    node_id uuid not null references node (id),
    rank integer not null check (rank >= 0),
    action jsonb not null,
    opened_by jsonb not null,
    key_sha256 bytea not null check (length(key_sha256) = 32),
    opened_at timestamptz not null,
    expires_at timestamptz not null,
    claimed_at timestamptz
);
comment on table remote_session is 'An open remote session. Its row is deleted when it ends; the history of the job keeps its events.';
comment on column remote_session.id is 'Id, which the API server draws.';
comment on column remote_session.tenant_id is 'Owner of the job.';
comment on column remote_session.job_id is 'Job of the task.';
comment on column remote_session.task_id is 'Task in which the session runs.';
comment on column remote_session.node_id is 'Node of the task.';
comment on column remote_session.rank is 'Rank of the task.';
comment on column remote_session.action is 'JSON of muster_model::remote::RemoteAction.';
comment on column remote_session.opened_by is 'JSON of muster_model::actor::Actor: the user.';
comment on column remote_session.key_sha256 is 'SHA-256 of the key with which the API server claims the session at the scheduler.';
comment on column remote_session.opened_at is 'When it was opened.';
comment on column remote_session.expires_at is 'When it ends at the latest.';
comment on column remote_session.claimed_at is 'When the API server claimed it at the scheduler; null before. A session is claimed once.';
create index remote_session_of_tenant on remote_session (tenant_id, job_id);
create index remote_session_of_job on remote_session (job_id);
create index remote_session_of_task on remote_session (task_id);
create index remote_session_of_node on remote_session (node_id);

alter table remote_session enable row level security;
alter table remote_session force row level security;
create policy api_own on remote_session to muster_api
    using (tenant_id = muster_tenant()) with check (tenant_id = muster_tenant());
create policy scheduler_all on remote_session to muster_scheduler using (true) with check (true);
grant select, insert, delete on remote_session to muster_api;
grant select, update, delete on remote_session to muster_scheduler;
