-- How many proposals of a searcher outside wait to become trials, so that the api can refuse more than may wait.

alter table study add column proposed integer not null default 0 check (proposed >= 0);
comment on column study.proposed is 'Proposals that the search has taken in and that are no trials yet.';
