-- The cluster that a machine belongs to, such as Kubernetes, says of it that it is closed, and where it stands.

alter table node add column notice jsonb;
comment on column node.notice is 'JSON of muster_model::node::Notice; null where nobody has said anything.';
grant update (notice) on node to muster_api;
