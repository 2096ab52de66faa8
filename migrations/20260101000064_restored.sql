-- A database restored from a backup has lost revisions under which tasks have run. The next one must be above them: checkpoints
-- refuse a writer of an older revision.
alter table job add column revision_floor bigint not null default 0 check (revision_floor >= 0);
comment on column job.revision_floor is 'The next revision is above this one. Raised when a node shows that the database lost commits; 0 before.';
