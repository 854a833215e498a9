create table audit (
  number bigserial primary key, at bigint not null, event_id text not null, old_status bigint, new_status bigint,
  attempts bigint not null, owner text, claim bigint not null, created bigint not null
);

create function audit() returns trigger language plpgsql as $$
declare
  was outbox_event := case when tg_op <> 'INSERT' then old end;
  is_now outbox_event := case when tg_op <> 'DELETE' then new else old end;
begin
  insert into audit (at, event_id, old_status, new_status, attempts, owner, claim, created) values (
    extract(epoch from clock_timestamp()) * 1000000, is_now.event_id,
    was.status, case when tg_op <> 'DELETE' then is_now.status end,
    is_now.attempts, is_now.locked_by, is_now.claim_seq, extract(epoch from is_now.created_at) * 1000000);
  return null;
end $$;

create trigger audit after insert or update or delete on outbox_event for each row execute function audit();
