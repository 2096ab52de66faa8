-- What the pods of a tenant's tasks may have (muster_model::tenant::TenantPods).

alter table tenant add column pods jsonb not null default '{}';
comment on column tenant.pods is 'Images, claims, secrets and ConfigMaps that its jobs may name, and the service account of their tasks, as JSON of the model''s TenantPods.';
grant update (pods) on tenant to muster_api;
