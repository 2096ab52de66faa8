-- Nodes: the machines with an executor. They belong to no tenant.

create table node (
    id uuid primary key,
    name text not null unique check (length(name) between 1 and 253),
    state text not null check (state in ('up', 'lost')),
    drained boolean not null default false,
    capacity jsonb not null,
    generation bigint not null default 0 check (generation >= 0),
    first_seen_at timestamptz not null,
    last_seen_at timestamptz not null
);
comment on table node is 'One machine with an executor.';
comment on column node.id is 'UUID version 7, made by the scheduler at the first session under this name.';
comment on column node.name is 'Unique; a node that comes back under its name is the same node.';
comment on column node.state is 'up: has a session, or had one less than its lease ago; lost: its tasks count as gone.';
comment on column node.drained is 'Drained by an administrator: takes no new task.';
comment on column node.capacity is 'JSON of muster_model::node::Capacity, as the node told it last.';
comment on column node.generation is 'Version of its assignment; rises with every change of what it shall run.';
comment on column node.first_seen_at is 'Its first session.';
comment on column node.last_seen_at is 'Its newest heartbeat.';

alter table node enable row level security;
alter table node force row level security;
create policy api_read on node for select to muster_api using (true);
create policy api_drain on node for update to muster_api using (muster_is_admin()) with check (muster_is_admin());
create policy scheduler_all on node to muster_scheduler using (true) with check (true);
grant select, update (drained) on node to muster_api;
grant select, insert, update on node to muster_scheduler;
