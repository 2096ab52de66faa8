-- Scheduling rounds as they were decided, and answers kept for repeated requests.

create table round (
    number bigint primary key check (number > 0),
    at timestamptz not null,
    snapshot bytea not null,
    plan json not null,
    report json not null
);
create index round_by_time on round (at);
comment on table round is 'What each round saw and decided, so that it can be replayed byte for byte.';
comment on column round.number is 'Rises with every round that was kept; two leaders at once would collide here.';
comment on column round.at is 'The instant that the round was given as now.';
comment on column round.snapshot is 'Its whole input, in the scheduler''s own encoding.';
comment on column round.plan is 'What it decided. The type json, unlike jsonb, keeps every byte.';
comment on column round.report is 'Why.';
alter table round enable row level security;
alter table round force row level security;
create policy scheduler_all on round to muster_scheduler using (true) with check (true);
grant select, insert, delete on round to muster_scheduler;

create table idempotency (
    tenant_id uuid not null references tenant (id),
    key text not null check (length(key) between 1 and 255),
    request_hash bytea not null,
    status integer,
    body text,
    expires_at timestamptz not null,
    primary key (tenant_id, key)
);
create index idempotency_expiry on idempotency (expires_at);
comment on table idempotency is 'Answers of the api by Idempotency-Key, so that a repeated request is not carried out twice.';
comment on column idempotency.tenant_id is 'Owner.';
comment on column idempotency.key is 'What the client sent.';
comment on column idempotency.request_hash is 'SHA-256 of the request; another request under the same key is refused.';
comment on column idempotency.status is 'HTTP status of the answer; null until there is one.';
comment on column idempotency.body is 'The answer.';
comment on column idempotency.expires_at is 'From here on the key is free again.';
alter table idempotency enable row level security;
alter table idempotency force row level security;
create policy api_all on idempotency to muster_api
    using (tenant_id = muster_tenant()) with check (tenant_id = muster_tenant());
grant select, insert, update, delete on idempotency to muster_api;
