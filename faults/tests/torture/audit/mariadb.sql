create table audit (
  number bigint auto_increment primary key, at bigint not null, event_id varchar(36) not null, old_status bigint,
  new_status bigint, attempts bigint not null, owner varchar(128), claim bigint not null, created bigint not null
) character set utf8mb4 collate utf8mb4_bin;

create trigger audit_insert after insert on outbox_event for each row
  insert into audit (at, event_id, old_status, new_status, attempts, owner, claim, created) values (
    unix_timestamp(sysdate(6)) * 1000000, new.event_id, null, new.status, new.attempts, new.locked_by,
    new.claim_seq, timestampdiff(microsecond, '1970-01-01', new.created_at));

create trigger audit_update after update on outbox_event for each row
  insert into audit (at, event_id, old_status, new_status, attempts, owner, claim, created) values (
    unix_timestamp(sysdate(6)) * 1000000, new.event_id, old.status, new.status, new.attempts, new.locked_by,
    new.claim_seq, timestampdiff(microsecond, '1970-01-01', new.created_at));

create trigger audit_delete after delete on outbox_event for each row
  insert into audit (at, event_id, old_status, new_status, attempts, owner, claim, created) values (
    unix_timestamp(sysdate(6)) * 1000000, old.event_id, old.status, null, old.attempts, old.locked_by,
    old.claim_seq, timestampdiff(microsecond, '1970-01-01', old.created_at));
