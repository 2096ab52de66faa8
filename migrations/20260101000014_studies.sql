-- Studies: searches whose trials are jobs. The api states what users want of one, the scheduler carries the search on.

create table study (
    id uuid primary key,
    tenant_id uuid not null references tenant (id),
    created_by uuid not null references app_user (id),
    name text not null,
    labels jsonb not null,
    document json not null,
    phase text not null default 'created' check (phase in ('created', 'running', 'paused', 'closing', 'finished')),
    cancelled boolean not null default false,
    trials_limit integer not null check (trials_limit >= 0),
    seq bigint not null default 0 check (seq >= 0),
    state json,
    state_seq bigint not null default 0 check (state_seq between 0 and seq),
    created_at timestamptz not null,
    finished_at timestamptz,
    deleted_at timestamptz,
    check ((finished_at is not null) = (phase = 'finished')),
    check (deleted_at is null or finished_at is not null)
);
create index study_by_tenant on study (tenant_id, id desc) where deleted_at is null;
create index study_open on study (id) where phase <> 'finished';
comment on table study is 'A search over parameters, and where it stands.';
comment on column study.id is 'UUID version 7, made by the api; sorts by creation.';
comment on column study.tenant_id is 'Owner; of its trials'' jobs too.';
comment on column study.created_by is 'The user in whose name its trials are submitted.';
comment on column study.name is 'document.name, for lists.';
comment on column study.labels is 'document.labels, for lists; an object of strings.';
comment on column study.document is 'JSON of muster_model::study::StudySpec. Text, because a search must read back the very numbers that were written.';
comment on column study.phase is 'Name of the search''s phase.';
comment on column study.cancelled is 'A user has ended it.';
comment on column study.trials_limit is 'Trials that may be created in all, extensions included.';
comment on column study.seq is 'Events that the search has taken in; whoever adds one must have seen all before it.';
comment on column study.state is 'JSON of muster_search::Study after state_seq events; null before the first.';
comment on column study.state_seq is 'Events that are in state; those after it are taken in again when it is loaded.';
comment on column study.created_at is 'When the api took it.';
comment on column study.finished_at is 'When its last trial had ended.';
comment on column study.deleted_at is 'Hidden from its tenant since.';

create table study_event (
    study_id uuid not null references study (id) on delete cascade,
    seq bigint not null check (seq > 0),
    tenant_id uuid not null references tenant (id),
    at timestamptz not null,
    body json not null,
    primary key (study_id, seq)
);
comment on table study_event is 'The facts that a search has taken in, in their order: with its document they give all its decisions again.';
comment on column study_event.study_id is 'Its study.';
comment on column study_event.seq is 'Place in the order, from 1, without gaps.';
comment on column study_event.tenant_id is 'Owner; the study''s.';
comment on column study_event.at is 'When it was taken in.';
comment on column study_event.body is 'JSON of muster_search::Event.';

create table study_order (
    id bigint generated always as identity primary key,
    study_id uuid not null references study (id) on delete cascade,
    tenant_id uuid not null references tenant (id),
    at timestamptz not null,
    body json not null
);
comment on table study_order is 'What users want of a study and what they tell it, until the scheduler has taken it in and deletes it.';
comment on column study_order.id is 'Orders are taken in by it.';
comment on column study_order.study_id is 'Its study.';
comment on column study_order.tenant_id is 'Owner; the study''s.';
comment on column study_order.at is 'When the api took it.';
comment on column study_order.body is 'JSON of muster_model::study::StudyOrder.';

create table study_trial (
    study_id uuid not null references study (id) on delete cascade,
    number integer not null check (number >= 0),
    tenant_id uuid not null references tenant (id),
    job_id uuid unique references job (id),
    state text not null check (state in ('running', 'waiting', 'stopping', 'completed', 'stopped', 'failed')),
    parameters json not null,
    seed bigint not null,
    budget bigint not null check (budget > 0),
    rung integer not null check (rung >= 0),
    from_trial integer,
    from_step bigint,
    reports json not null,
    rungs json not null,
    outcome json,
    is_best boolean not null default false,
    fed_step bigint not null default -1,
    end_fed boolean not null default false,
    asked_at timestamptz,
    failure text,
    created_at timestamptz not null,
    ended_at timestamptz,
    primary key (study_id, number),
    check ((from_trial is null) = (from_step is null))
);
create index study_trial_open on study_trial (study_id, number) where state in ('running', 'stopping');
create index study_trial_best on study_trial (study_id, number) where is_best;
comment on table study_trial is 'Trials of studies as they are shown, and which job each of them is.';
comment on column study_trial.study_id is 'Its study.';
comment on column study_trial.number is 'From 0, in the order of creation.';
comment on column study_trial.tenant_id is 'Owner; the study''s.';
comment on column study_trial.job_id is 'The job that trains it; null when somebody outside does.';
comment on column study_trial.state is 'Name of muster_search::TrialState.';
comment on column study_trial.parameters is 'By name, as they went into the job''s document.';
comment on column study_trial.seed is 'Of the job, unless the document says another.';
comment on column study_trial.budget is 'How far it was told to train, in all, in the units of the document''s budget.';
comment on column study_trial.rung is 'How often its budget was raised.';
comment on column study_trial.from_trial is 'The trial from whose checkpoint it began.';
comment on column study_trial.from_step is 'That checkpoint''s place, in the units of the budget.';
comment on column study_trial.reports is 'What it measured: JSON of a list of muster_model::view::TrialPoint.';
comment on column study_trial.rungs is 'What it had at the end of each rung, likewise.';
comment on column study_trial.outcome is 'The measure by which it is compared, likewise; null before it completed a rung.';
comment on column study_trial.is_best is 'No other trial betters it; with several objectives, it is on the front.';
comment on column study_trial.fed_step is 'Optimizer step of its job''s newest measure that the search knows; -1 before the first.';
comment on column study_trial.end_fed is 'The search knows that its job has ended; false again once that trains on.';
comment on column study_trial.asked_at is 'When somebody outside was given it to train; null until then.';
comment on column study_trial.failure is 'Why it failed, if it did.';
comment on column study_trial.created_at is 'When the search proposed it.';
comment on column study_trial.ended_at is 'When it could not go on any more.';

alter table job
    add column study_id uuid references study (id),
    add column trial integer,
    add constraint job_of_study check ((study_id is null) = (trial is null));
create unique index job_by_trial on job (study_id, trial) where study_id is not null;
comment on column job.study_id is 'The study of which it is a trial, if it is one.';
comment on column job.trial is 'Its number there.';

do $$
declare
    name text;
begin
    foreach name in array array['study', 'study_event', 'study_order', 'study_trial'] loop
        execute format('alter table %I enable row level security', name);
        execute format('alter table %I force row level security', name);
        execute format('create policy api_read on %I for select to muster_api using (tenant_id = muster_tenant())', name);
        execute format('create policy scheduler_all on %I to muster_scheduler using (true) with check (true)', name);
    end loop;
end
$$;
create policy api_create on study for insert to muster_api
    with check (tenant_id = muster_tenant() and phase = 'created' and seq = 0 and state is null);
create policy api_delete on study for update to muster_api using (tenant_id = muster_tenant()) with check (tenant_id = muster_tenant());
create policy api_order on study_order for insert to muster_api with check (tenant_id = muster_tenant());
create policy api_ask on study_trial for update to muster_api using (tenant_id = muster_tenant()) with check (tenant_id = muster_tenant());
grant select, insert, update (deleted_at) on study to muster_api;
grant select on study_event to muster_api;
grant insert, select on study_order to muster_api;
grant select, update (asked_at) on study_trial to muster_api;
grant select, update on study to muster_scheduler;
grant select, insert on study_event to muster_scheduler;
grant select, delete on study_order to muster_scheduler;
grant select, insert, update on study_trial to muster_scheduler;
grant insert on job to muster_scheduler;
