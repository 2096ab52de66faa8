-- What the schema's owner and the scheduler may do beyond the daily path.

-- An owner that is no superuser is bound by row level security too; it makes the first tenant, user and token.
create policy owner_create on tenant for insert to current_user with check (true);
create policy owner_create on app_user for insert to current_user with check (true);
create policy owner_create on api_token for insert to current_user with check (true);

-- The scheduler forgets expired answers of all tenants; it sees no more of them than when they expire.
create policy scheduler_see on idempotency for select to muster_scheduler using (true);
create policy scheduler_forget on idempotency for delete to muster_scheduler using (true);
grant select (expires_at), delete on idempotency to muster_scheduler;
