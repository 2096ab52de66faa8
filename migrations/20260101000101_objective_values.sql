-- Values of a study's objectives that the program of a trial logs, each at its own step.

create table objective_value (
    job_id uuid not null references job (id) on delete cascade,
    name text not null,
    step bigint not null check (step >= 0),
    tenant_id uuid not null references tenant (id),
    revision bigint not null,
    epoch double precision not null,
    value double precision,
    primary key (job_id, name, step)
);
comment on table objective_value is 'Values of objectives that the jobs of trials log and their study has not taken yet, and the newest taken one of each name.';
comment on column objective_value.job_id is 'Job of the trial.';
comment on column objective_value.name is 'Name of the objective as the program logs it.';
comment on column objective_value.step is 'Step at which it was logged.';
comment on column objective_value.tenant_id is 'Owner; the job''s.';
comment on column objective_value.revision is 'Revision of the job that logged it. Values of a later revision replace those of an earlier one from their first step on.';
comment on column objective_value.epoch is 'Epoch that the program logged before it; 0 if it logged none.';
comment on column objective_value.value is 'Value; null for NaN, infinity and values beyond 1e30.';

alter table objective_value enable row level security;
alter table objective_value force row level security;
create policy api_read on objective_value for select to muster_api using (tenant_id = muster_tenant());
create policy scheduler_all on objective_value to muster_scheduler using (true) with check (true);
grant select on objective_value to muster_api;
grant select, insert, update, delete on objective_value to muster_scheduler;
