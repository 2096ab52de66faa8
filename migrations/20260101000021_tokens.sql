-- The scheduler forgets tokens that have long expired: whoever makes itself one for a day, every day, leaves many. It sees no more of them
-- than when they expire, and nothing of those that never do.
create policy scheduler_see on api_token for select to muster_scheduler using (expires_at is not null);
create policy scheduler_forget on api_token for delete to muster_scheduler using (expires_at is not null);
grant select (expires_at), delete on api_token to muster_scheduler;
