-- Jobs take turns on GPUs: their workers stand still with their processes kept, and go on.

alter table job drop constraint job_phase_check;
alter table job add constraint job_phase_check
    check (phase in ('queued', 'starting', 'running', 'suspended', 'stopping', 'paused', 'succeeded', 'failed', 'cancelled'));
alter table job drop constraint job_intent_check;
alter table job add constraint job_intent_check check (intent in ('run', 'suspend', 'pause', 'cancel'));
alter table job add column turn bigint not null default 0 check (turn >= 0);
alter table job add column turned_at timestamptz;
comment on column job.turn is 'Goes up each time that its workers are told to stand still or to go on: odd while they are to stand still. Fences their reports.';
comment on column job.turned_at is 'When the present turn began; null since the start of its tasks while there was none.';

alter table task drop constraint task_phase_check;
alter table task add constraint task_phase_check
    check (phase in ('assigned', 'running', 'suspending', 'suspended', 'stopping', 'ending', 'released'));

-- A task holds its GPUs once for each of its turns.
alter table allocation drop constraint allocation_pkey;
alter table allocation add primary key (task_id, gpu_index, allocated_at);
comment on column allocation.released_at is 'When its holder was known to be gone, or to stand still; null while held.';
