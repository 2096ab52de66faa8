-- Nodes on which job after job fails take no new tasks.

alter table node add column excluded_at timestamptz;
alter table node add column excluded_why text;
alter table node add column faults_since timestamptz;
comment on column node.excluded_at is 'Since when it takes no new tasks because too many failed there; null unless so.';
comment on column node.excluded_why is 'What was charged to it, in words.';
comment on column node.faults_since is 'When an administrator took it back: what was charged before counts no more. Null while nobody has.';
grant update (excluded_at, excluded_why, faults_since) on node to muster_api;

create table node_fault (
    node_id uuid not null references node,
    job_id uuid references job,
    task_id uuid references task,
    at timestamptz not null,
    fault jsonb not null
);
create unique index node_fault_once on node_fault (node_id, at, fault, coalesce(task_id, '00000000-0000-0000-0000-000000000000'));
create index node_fault_recent on node_fault (at);
comment on table node_fault is 'What was charged to nodes: tasks killed by a signal of nobody of ours, verdicts on ranks, errors of GPUs.';
comment on column node_fault.node_id is 'Where it happened.';
comment on column node_fault.job_id is 'Whose task it was; null of what is the machine''s for certain.';
comment on column node_fault.task_id is 'The task; null where job_id is.';
comment on column node_fault.at is 'When it was told.';
comment on column node_fault.fault is 'JSON of muster_model::fault::NodeFault.';

alter table node_fault enable row level security;
alter table node_fault force row level security;
create policy scheduler_all on node_fault to muster_scheduler using (true) with check (true);
grant select, insert, delete on node_fault to muster_scheduler;

alter table node add column identity text;
comment on column node.identity is 'Made by its executor with its data folder: one with another knows nothing of the tasks that the node was told to run. Null of executors that tell none.';
