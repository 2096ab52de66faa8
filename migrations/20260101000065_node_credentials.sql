-- Each node has a credential of its own: the cluster's join token only lets a node join for the first time.

alter table node add column credential_sha256 bytea check (length(credential_sha256) = 32);
alter table node add column removed_at timestamptz;
comment on column node.credential_sha256 is 'SHA-256 of the secret by which its executor proves that it speaks for this node. Null until one has presented a secret, and after a reset.';
comment on column node.removed_at is 'When an administrator removed it; null unless so. A node that joins under the name again ends it.';
grant update (credential_sha256, identity, removed_at) on node to muster_api;

create table node_join (
    token_sha256 bytea primary key check (length(token_sha256) = 32),
    name text not null check (length(name) between 1 and 253),
    created_at timestamptz not null,
    expires_at timestamptz not null
);
create index node_join_of on node_join (name);
comment on table node_join is 'One-time join tokens: each lets one executor speak for the node of one name.';
comment on column node_join.token_sha256 is 'SHA-256 of the token, which is stored nowhere.';
comment on column node_join.name is 'The node; it need not exist yet.';
comment on column node_join.created_at is 'When an administrator made it.';
comment on column node_join.expires_at is 'From when it counts no more.';

alter table node_join enable row level security;
alter table node_join force row level security;
create policy api_admin on node_join to muster_api using (muster_is_admin()) with check (muster_is_admin());
create policy scheduler_all on node_join to muster_scheduler using (true) with check (true);
grant select, insert, delete on node_join to muster_api;
grant select, delete on node_join to muster_scheduler;
