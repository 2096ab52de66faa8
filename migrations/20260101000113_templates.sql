-- Templates: job documents with parameters.

create table template (
    tenant_id uuid not null references tenant (id),
    name text not null check (name ~ '^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'),
    document jsonb not null,
    version bigint not null check (version > 0),
    created_at timestamptz not null,
    updated_at timestamptz not null,
    updated_by jsonb not null,
    primary key (tenant_id, name)
);
comment on table template is 'A template of a tenant.';
comment on column template.tenant_id is 'Owner.';
comment on column template.name is 'Name, and the value of the label template of its jobs.';
comment on column template.document is 'JSON of muster_model::template::TemplateDocument.';
comment on column template.version is '1, and one more with each replacement.';
comment on column template.created_at is 'When the first version was stored.';
comment on column template.updated_at is 'When the present version was stored.';
comment on column template.updated_by is 'JSON of muster_model::actor::Actor: the author of the present version.';

alter table template enable row level security;
alter table template force row level security;
create policy api_own on template to muster_api
    using (tenant_id = muster_tenant()) with check (tenant_id = muster_tenant());
grant select, insert, update, delete on template to muster_api;
