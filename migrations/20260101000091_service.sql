-- GPU time that jobs have held, for the policies of attained service. Rows of allocations do not
-- last as long as their jobs.

alter table job
    add column held_gpu_s double precision not null default 0 check (held_gpu_s >= 0),
    add column demoted_at timestamptz;
comment on column job.held_gpu_s is 'GPU-seconds of the job''s allocations that were released.';
comment on column job.demoted_at is 'Time of demotion in Tiresias; written at the next release of an allocation.';

-- The owner is bound by row level security too.
alter table job no force row level security;
update job
set held_gpu_s = known.gpu_s,
    demoted_at = case when known.gpu_s >= 57600 then known.until end
from (
    select job_id, max(released_at) as until,
           sum(greatest(extract(epoch from released_at - allocated_at), 0))::float8 as gpu_s
    from allocation where released_at is not null group by job_id) known
where job.id = known.job_id and job.deleted_at is null
  and (job.finished_at is null or job.finished_at > now() - interval '30 days');
alter table job force row level security;
