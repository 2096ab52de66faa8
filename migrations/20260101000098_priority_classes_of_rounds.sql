-- A round reads the priority classes: it proposes only priorities that the API accepts.

create policy scheduler_read on priority_class for select to muster_scheduler using (true);
grant select on priority_class to muster_scheduler;
