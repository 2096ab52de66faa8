-- A job's range of workers and its priority can be changed after it was submitted.

alter table job add column edits bigint not null default 0 check (edits >= 0);
comment on column job.edits is 'How often its owner has changed spec; whoever changes it again may name the number that was read.';
grant update (spec, priority, edits) on job to muster_api;
