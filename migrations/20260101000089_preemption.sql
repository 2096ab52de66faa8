-- What a stop for another job costs: work since the last checkpoint that a program reported.

alter table job
    add column reported_step bigint check (reported_step >= 0),
    add column reported_at timestamptz,
    add column lost_s double precision not null default 0 check (lost_s >= 0);
comment on column job.reported_step is 'Step from which the user''s program continues, as it last reported; null without a report and for the built-in engine.';
comment on column job.reported_at is 'Time of that report.';
comment on column job.lost_s is 'Seconds of work that the job lost because it was stopped for other jobs, as estimated at each stop.';
