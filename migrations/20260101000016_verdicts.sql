-- Ranks tell their pace, and whoever holds a job up is replaced.

alter table task add column pace jsonb;
comment on column task.pace is 'JSON of muster_model::pace::Pace: what the rank told of its rate and its last step; null before it told any.';

alter table job add column verdicts integer not null default 0 check (verdicts >= 0);
alter table job add column suspects jsonb not null default '[]';
comment on column job.verdicts is 'Verdicts on ranks that held it up; each doubles the patience with the next.';
comment on column job.suspects is 'JSON of a list of muster_model::pace::Suspect: ranks that looked slow or hung in the newest round.';
