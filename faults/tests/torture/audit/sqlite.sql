create table audit (
  number integer primary key autoincrement, at bigint not null, event_id text not null, old_status bigint,
  new_status bigint, attempts bigint not null, owner text, claim bigint not null, created bigint not null
);

create trigger audit_insert after insert on outbox_event begin
  insert into audit (at, event_id, old_status, new_status, attempts, owner, claim, created) values (
    cast((julianday('now') - 2440587.5) * 86400000 as integer) * 1000, new.event_id, null, new.status, new.attempts,
    new.locked_by, new.claim_seq,
    cast(strftime('%s', new.created_at) as integer) * 1000000 + cast(substr(new.created_at, 21, 6) as integer));
end;

create trigger audit_update after update on outbox_event begin
  insert into audit (at, event_id, old_status, new_status, attempts, owner, claim, created) values (
    cast((julianday('now') - 2440587.5) * 86400000 as integer) * 1000, new.event_id, old.status, new.status,
    new.attempts, new.locked_by, new.claim_seq,
    cast(strftime('%s', new.created_at) as integer) * 1000000 + cast(substr(new.created_at, 21, 6) as integer));
end;

create trigger audit_delete after delete on outbox_event begin
  insert into audit (at, event_id, old_status, new_status, attempts, owner, claim, created) values (
    cast((julianday('now') - 2440587.5) * 86400000 as integer) * 1000, old.event_id, old.status, null, old.attempts,
    old.locked_by, old.claim_seq,
    cast(strftime('%s', old.created_at) as integer) * 1000000 + cast(substr(old.created_at, 21, 6) as integer));
end;
