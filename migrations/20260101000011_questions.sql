-- Questions about what is not (plans, what-ifs): the api asks, the scheduler answers, whoever asked reads and forgets.

create table question (
    id uuid primary key,
    tenant_id uuid not null references tenant (id),
    asked_at timestamptz not null,
    expires_at timestamptz not null,
    question json not null,
    answer json,
    check (expires_at > asked_at)
);
create index question_by_tenant on question (tenant_id, expires_at);
comment on table question is 'Questions that somebody waits for; the scheduler deletes those that have expired.';
comment on column question.id is 'The question.';
comment on column question.tenant_id is 'Whose member asked; what is answered is for its eyes.';
comment on column question.asked_at is 'When it was asked: the oldest of each tenant is answered first.';
comment on column question.expires_at is 'Nobody waits for the answer any more.';
comment on column question.question is 'What is asked.';
comment on column question.answer is 'What is answered; null until then.';
alter table question enable row level security;
alter table question force row level security;
create policy api_own on question to muster_api using (tenant_id = muster_tenant()) with check (tenant_id = muster_tenant());
create policy scheduler_all on question to muster_scheduler using (true) with check (true);
grant select, insert, delete on question to muster_api;
grant select, update, delete on question to muster_scheduler;
