-- What a tenant may claim when several want more than there is.

alter table tenant add column weight double precision not null default 1 check (weight > 0 and weight <= 1000);
comment on column tenant.weight is 'Share of the cluster beside the other tenants'' weights; 1 is an ordinary tenant.';
grant update (weight) on tenant to muster_api;
