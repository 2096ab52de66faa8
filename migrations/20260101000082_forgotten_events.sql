-- Where the history begins: a reader that goes on from an older event is told that it has missed some.
create table event_forgotten (
    only_row boolean primary key default true check (only_row),
    xid xid8 not null,
    seq bigint not null
);
comment on table event_forgotten is 'The newest event that was removed for its age; no row before the first.';
comment on column event_forgotten.only_row is 'There is at most one row.';
comment on column event_forgotten.xid is 'Its transaction.';
comment on column event_forgotten.seq is 'Its number.';
alter table event_forgotten enable row level security;
alter table event_forgotten force row level security;
create policy api_read on event_forgotten for select to muster_api using (true);
create policy owner_all on event_forgotten to current_user using (true) with check (true);
grant select on event_forgotten to muster_api;

create or replace function muster_forget_events(before timestamptz, most integer) returns bigint
    language plpgsql volatile security definer
    set search_path = public, pg_temp
as $$
declare
    forgotten bigint;
begin
    if before > now() - interval '1 hour' then
        raise exception 'events of the last hour are not removed; before is %', before;
    end if;
    -- The order of the cursor is that of time, but for a few seconds and for what a node with a wrong clock has told.
    with oldest as materialized (
        select xid, seq, at from event order by xid, seq limit most
    ), gone as (
        delete from event e using oldest o where e.xid = o.xid and e.seq = o.seq and o.at < before returning e.xid, e.seq
    ), newest as (
        insert into event_forgotten (xid, seq) select xid, seq from gone order by xid desc, seq desc limit 1
        on conflict (only_row) do update set xid = excluded.xid, seq = excluded.seq
            where (event_forgotten.xid, event_forgotten.seq) < (excluded.xid, excluded.seq)
    )
    select count(*) into forgotten from gone;
    return forgotten;
end
$$;
