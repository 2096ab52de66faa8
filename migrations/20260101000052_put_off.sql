-- A node that refuses a job's pods costs the job no retry, and the same node may be chosen again: it is put off for longer each time.
alter table job add column put_off integer not null default 0 check (put_off >= 0);
comment on column job.put_off is 'How often nodes have refused its tasks since it last ran.';
