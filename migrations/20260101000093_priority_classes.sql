-- Priority classes: ranges of `priority` with a name, for certain roles and tenants. Without any
-- class, every caller may use the whole range.

create table priority_class (
    name text primary key check (name ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
    description text not null,
    lowest integer not null,
    highest integer not null,
    default_priority integer not null,
    roles text[] not null,
    tenants text[] not null,
    check (-100 <= lowest and lowest <= default_priority and default_priority <= highest and highest <= 100)
);
comment on table priority_class is 'Ranges of job priorities, with the roles and tenants that may use them.';
comment on column priority_class.name is 'Unique DNS label; job documents name it.';
comment on column priority_class.description is 'Text for users.';
comment on column priority_class.lowest is 'Lowest priority of its jobs.';
comment on column priority_class.highest is 'Highest priority of its jobs.';
comment on column priority_class.default_priority is 'Priority of jobs whose document states only the class.';
comment on column priority_class.roles is 'Access of the tokens that may use it, as in api_token.access; administrators always may.';
comment on column priority_class.tenants is 'Names of the tenants whose jobs may use it; empty is all.';

alter table priority_class enable row level security;
alter table priority_class force row level security;
-- Every caller needs all of them: whether there is any class decides which priorities are allowed.
create policy api_read on priority_class for select to muster_api using (true);
create policy api_create on priority_class for insert to muster_api with check (muster_is_admin());
create policy api_change on priority_class for update to muster_api using (muster_is_admin()) with check (muster_is_admin());
create policy api_delete on priority_class for delete to muster_api using (muster_is_admin());
grant select, insert, update, delete on priority_class to muster_api;
