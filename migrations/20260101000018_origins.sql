-- Jobs may begin from checkpoints of other jobs, which these then keep until that has happened.

alter table job
    add column origin_job uuid references job (id),
    add column origin_step bigint check (origin_step >= 0),
    add column origin_told boolean not null default false,
    add column rung_step bigint check (rung_step >= 0),
    add constraint job_origin check ((origin_job is null) = (origin_step is null));
create index job_by_origin on job (origin_job) where origin_job is not null;
create index job_origin_untold on job (id) where origin_job is not null and not origin_told;
comment on column job.origin_job is 'spec.from.job: the job from whose checkpoint it begins; null when it begins fresh.';
comment on column job.origin_step is 'spec.from.step: optimizer steps after which that checkpoint was written.';
comment on column job.origin_told is 'The nodes of origin_job have been told, or will be with their next assignment, that the checkpoint stays.';
comment on column job.rung_step is 'The step at which it had succeeded before it was told to train on; that checkpoint stays, because a study may yet let a trial begin from it.';
