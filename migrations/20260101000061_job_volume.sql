-- What tasks of a job have told: what is kept of it is bounded by the limits of its tenant.

create table job_volume (
    job_id uuid primary key references job (id) on delete cascade,
    tenant_id uuid not null,
    events bigint not null default 0 check (events >= 0),
    event_bytes bigint not null default 0 check (event_bytes >= 0),
    points bigint not null default 0 check (points >= 0),
    checkpoints bigint not null default 0 check (checkpoints >= 0),
    log_bytes bigint not null default 0 check (log_bytes >= 0),
    dropped bigint not null default 0 check (dropped >= 0)
);
comment on table job_volume is 'What tasks of a job have told since this table is there; a job without a row has told nothing.';
comment on column job_volume.job_id is 'The job.';
comment on column job_volume.tenant_id is 'Owner; the job''s.';
comment on column job_volume.events is 'Events that were kept.';
comment on column job_volume.event_bytes is 'Bytes of the JSON of these events.';
comment on column job_volume.points is 'Points of its series that were kept, those among them that a later start has rewound.';
comment on column job_volume.checkpoints is 'Checkpoints that were announced.';
comment on column job_volume.log_bytes is 'Bytes of output that is stored, at most: what each task''s own bound has dropped is not taken off.';
comment on column job_volume.dropped is 'Lines of which an event or a point was not kept.';

alter table job_volume enable row level security;
alter table job_volume force row level security;
create policy api_read on job_volume for select to muster_api using (tenant_id = muster_tenant());
create policy scheduler_all on job_volume to muster_scheduler using (true) with check (true);
grant select on job_volume to muster_api;
grant select, insert, update, delete on job_volume to muster_scheduler;
