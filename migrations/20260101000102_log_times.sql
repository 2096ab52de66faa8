-- Times of output: `muster logs --since` and `--timestamps` read them.

alter table task_log add column received_at timestamptz;
comment on column task_log.received_at is 'When the piece was stored; null for pieces of releases that did not record it.';
