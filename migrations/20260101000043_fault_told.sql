-- A node tells of an error of its GPUs again until it was heard. What it is known by then is the node's own time: the time of the charge is
-- not later than the scheduler's clock, so that of a node whose clock is ahead it was another one each time, and one error counted as several.
alter table node_fault add column told_at timestamptz;
comment on column node_fault.told_at is 'When its node says that it was; null where that is at.';
drop index node_fault_once;
-- Whoever writes no told_at, as the release before, is held to once as before.
create unique index node_fault_once
    on node_fault (node_id, coalesce(told_at, at), fault, coalesce(task_id, '00000000-0000-0000-0000-000000000000'));
