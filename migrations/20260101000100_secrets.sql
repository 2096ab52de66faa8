-- Secrets of tenants for users' programs, encrypted with a key that the database does not have.

create table secret (
    tenant_id uuid not null references tenant (id),
    name text not null check (name ~ '^[A-Za-z_][A-Za-z0-9_.-]{0,62}$'),
    version bigint not null check (version > 0),
    key_id text not null,
    nonce bytea not null,
    ciphertext bytea not null,
    created_at timestamptz not null,
    updated_at timestamptz not null,
    updated_by jsonb not null,
    primary key (tenant_id, name)
);
comment on table secret is 'A secret of a tenant, encrypted with AES-256-GCM.';
comment on column secret.tenant_id is 'Owner; part of the authenticated data.';
comment on column secret.name is 'Name in documents; part of the authenticated data.';
comment on column secret.version is '1, and one more with each replacement; part of the authenticated data.';
comment on column secret.key_id is 'Id of the key in the key file of the daemons.';
comment on column secret.nonce is 'Random nonce of this encryption.';
comment on column secret.ciphertext is 'Encrypted value with its authentication tag.';
comment on column secret.created_at is 'When the first version was stored.';
comment on column secret.updated_at is 'When the present version was stored.';
comment on column secret.updated_by is 'JSON of muster_model::actor::Actor: the author of the present version.';

-- Open jobs whose program names secrets.
create index job_with_secrets on job (tenant_id)
    where spec #> '{command,secrets}' is not null and finished_at is null;

alter table secret enable row level security;
alter table secret force row level security;
create policy api_own on secret to muster_api
    using (tenant_id = muster_tenant()) with check (tenant_id = muster_tenant());
create policy scheduler_read on secret for select to muster_scheduler using (true);
grant select, insert, update, delete on secret to muster_api;
grant select on secret to muster_scheduler;
