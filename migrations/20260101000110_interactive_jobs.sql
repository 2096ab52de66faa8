-- A submission of an interactive job adds up the GPUs of the tenant's open ones.
create index job_interactive_open on job (tenant_id)
    where deleted_at is null and spec -> 'interactive' is not null
      and phase not in ('succeeded', 'failed', 'cancelled');
