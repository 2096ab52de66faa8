-- Resizes in place: a revision may keep tasks of the one before.

comment on column job.revision is 'Revision of its task set: 0 before the first start, +1 at every start and every resize in place. Fences tasks and plans.';
comment on column job.placed_at is 'When its present revision began.';
comment on column job.secret is 'Hex of 32 random bytes by which the tasks know each other, new at every start and kept by resizes in place.';
comment on column task.revision is 'The job''s newest revision that it belongs to; one that is told to leave stays at the revision before.';
