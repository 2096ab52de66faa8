-- Jobs that ended long before the upgrade are not deleted at once: an administrator has the whole retention time to change it.
create table retention_begun (
    only_row boolean primary key default true check (only_row),
    at timestamptz not null default now()
);
insert into retention_begun default values;
comment on table retention_begun is 'Time since when ended jobs are deleted by age. No job is deleted before the retention time has passed after it.';
comment on column retention_begun.only_row is 'There is one row.';
comment on column retention_begun.at is 'Time of the migration that created this table.';
alter table retention_begun enable row level security;
alter table retention_begun force row level security;
create policy scheduler_read on retention_begun for select to muster_scheduler using (true);
create policy owner_all on retention_begun to current_user using (true) with check (true);
grant select on retention_begun to muster_scheduler;
