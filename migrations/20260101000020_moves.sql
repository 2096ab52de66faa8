-- What stopping a job and starting it again costs it, as measured: a job moves only where that is repaid.

alter table job
    add column stopped_at timestamptz,
    add column stops integer not null default 0 check (stops >= 0),
    add column stop_s double precision not null default 0 check (stop_s >= 0),
    add column starts integer not null default 0 check (starts >= 0),
    add column start_s double precision not null default 0 check (start_s >= 0),
    add column resumed integer not null default 0 check (resumed >= 0),
    add column lost_steps double precision not null default 0 check (lost_steps >= 0);
comment on column job.stopped_at is 'When it was told to stop while it ran; null unless its tasks are on their way out.';
comment on column job.stops is 'Times that it was told to stop while it ran, and had stopped.';
comment on column job.stop_s is 'Seconds from those orders until its last task was known to be gone: the last checkpoint is written in them.';
comment on column job.starts is 'Times that its chief said after a start that it trains.';
comment on column job.start_s is 'Seconds from those starts until then.';
comment on column job.resumed is 'Of those times, how often it went on from a checkpoint.';
comment on column job.lost_steps is 'Steps that it had told of by then and did once more.';
