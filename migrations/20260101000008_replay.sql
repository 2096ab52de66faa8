-- What a replay of a round needs beside its snapshot, and who may read rounds.

alter table round add column policy json;
comment on column round.policy is 'The numbers and the name of the policy it was decided under; null in rounds of releases that did not keep it.';

-- Rounds hold every tenant's jobs: they are for administrators of the cluster alone.
create policy api_read on round for select to muster_api using (muster_is_admin());
grant select on round to muster_api;
