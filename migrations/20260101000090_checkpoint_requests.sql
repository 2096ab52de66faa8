-- Requests for a checkpoint before a stop that the scheduler decides, and caps on what the jobs of
-- a tenant demand in `preemption`.

alter table tenant add column preemption jsonb not null default '{}';
comment on column tenant.preemption is 'Caps on the preemption part of its job documents, as JSON of the model''s TenantPreemption.';
grant update (preemption) on tenant to muster_api;

alter table job
    add column asked_at timestamptz,
    add column answer_ms bigint check (answer_ms >= 0);
comment on column job.asked_at is 'Time since which the job''s program is asked for a checkpoint; its tasks stop once the request has ended. Null without such a request.';
comment on column job.answer_ms is 'Milliseconds from the newest request for a checkpoint to its report; null without a request or a report.';
