-- Idleness of users' programs.

alter table task add column idle jsonb;
comment on column task.idle is 'Idleness of the program as its node reported it last, with its evidence; null while it is active or not measured.';

alter table job add column idle jsonb;
comment on column job.idle is 'Idleness of all tasks that the history states, with its evidence; null while the job is active or does not run.';
