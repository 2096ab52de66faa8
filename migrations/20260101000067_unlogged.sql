-- A user's program logs only some of the numbers that the built-in engine measures. Expand: a missing number stays 0 in its column,
-- which the previous release reads, and `unlogged` names the column. The next release makes the columns nullable and drops the list.

alter table progress_sample add column unlogged text[] not null default '{}';
comment on column progress_sample.unlogged is 'Columns of this row that hold 0 as the program logged no such number.';

alter table evaluation add column unlogged text[] not null default '{}';
alter table evaluation add column split text not null default 'test' check (split in ('test', 'validation'));
comment on column evaluation.unlogged is 'Columns of this row that hold 0 as the program logged no such number.';
comment on column evaluation.split is 'Data that it was made on.';
