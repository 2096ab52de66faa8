-- Free GPUs that are kept for a suspended job's turn are lent to others, who give them back as soon as that turn can begin. Daemons of the
-- release before neither read nor write it: a job is then not known to be a borrower, and has a whole slice.
alter table job add column lent boolean not null default false;
comment on column job.lent is 'At work on GPUs that are kept for another job''s turn, to which it yields before its slice is over.';
