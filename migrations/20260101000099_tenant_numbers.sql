-- Numbers of tenants: executors that run each tenant's processes as a Unix user of its own derive
-- the user from it, equally on all nodes.

alter table tenant add column number integer generated always as identity (minvalue 0 start 0) unique;
comment on column tenant.number is 'Number of the tenant, never used again. Executors derive the Unix user of its processes from it.';
