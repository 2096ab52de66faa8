-- A running job whose growth a node refuses is counted too: it tries again after a longer rest each time, and is never charged for it.
comment on column job.put_off is 'How often in a row nodes have refused its start or, while it runs, its growth.';
