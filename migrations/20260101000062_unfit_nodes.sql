-- Nodes that say themselves that they take no new tasks, as for a full disk.

alter table node add column excluded_by_itself boolean not null default false;
comment on column node.excluded_by_itself is 'The node itself says why it takes no new tasks, and ends that itself. Means nothing where excluded_at is null.';
