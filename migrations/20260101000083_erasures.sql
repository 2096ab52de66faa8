-- The files of deleted jobs are erased: by a node, as the scheduler tells it.
alter table job add column erased_at timestamptz;
comment on column job.erased_at is 'When a node reported that the deleted job has no checkpoint and no model left; null before.';

-- Jobs that were deleted before keep their files, as their owners were told. The owner is bound by row level security too.
alter table job no force row level security;
update job set erased_at = deleted_at where deleted_at is not null;
alter table job force row level security;

create index job_unerased on job (deleted_at, id) where deleted_at is not null and erased_at is null;

-- A document of an older release may have a text that json keeps and no operator reads, such as a NUL.
create function study_begins_from(document json) returns text
    language plpgsql immutable parallel safe
as $$
begin
    return document #>> '{job,from,job}';
exception when others then
    return null;
end
$$;
comment on function study_begins_from(json) is 'The job that trials of this document begin from, as text; null where it names none or cannot be read.';

create index study_begins_from on study (study_begins_from(document))
    where deleted_at is null and study_begins_from(document) is not null;

create function muster_is_needed(wanted uuid) returns boolean
    language sql stable
    set search_path = public, pg_temp
as $$
    select exists (select from job c where c.origin_job = wanted and c.deleted_at is null and (c.finished_at is null or c.study_id is not null))
        or exists (select from study s where s.deleted_at is null and study_begins_from(s.document) = wanted::text)
        or exists (select from job j join study s on s.id = j.study_id where j.id = wanted and s.deleted_at is null)
$$;
comment on function muster_is_needed(uuid) is
    'Whether the job''s row and checkpoints stay though it was deleted: an open job begins from it, or a study that is not deleted has it as a trial, may begin from it, or has a trial that does.';
revoke all on function muster_is_needed(uuid) from public;
grant execute on function muster_is_needed(uuid) to muster_scheduler;
