//! Hand-written loops over the same table and columns: the ceiling.

use std::time::Instant;

use anyhow::{Result, ensure};
use sqlx::{PgConnection, PgPool, Row};

use crate::contender::Drained;

/// How many events are read at once.
pub(super) const BATCH: i64 = 500;

/// Reads or claims a batch, then writes what became of it, on one connection, until nothing is left.
#[derive(Debug, Clone, Copy)]
pub(super) struct Loop {
    pub(super) read: &'static str,
    pub(super) settle: &'static str,
    /// How many events one statement settles.
    pub(super) settled_at_once: usize,
}

/// One node that owns the table: read a batch, mark it done.
pub(super) const SELECT_DONE: Loop = Loop { read: SELECT, settle: DONE, settled_at_once: 500 };

/// One node that owns the table: read a batch, delete it.
pub(super) const SELECT_DELETE: Loop = Loop { settle: DELETE, ..SELECT_DONE };

/// One of several nodes: claim a batch by writing the lock columns, mark it done.
pub(super) const CLAIM_DONE: Loop = Loop { read: CLAIM, ..SELECT_DONE };

/// The same, with rows found again by their key instead of their place.
pub(super) const CLAIM_BY_ID_DONE: Loop = Loop { read: CLAIM_BY_ID, ..SELECT_DONE };

/// On the plain schema: by key, in the order that its index has.
pub(super) const PLAIN_CLAIM_DONE: Loop = Loop { read: PLAIN_CLAIM, ..SELECT_DONE };

/// On the plain schema: by key, the first created first, which its index cannot give.
pub(super) const PLAIN_CLAIM_DONE_BY_CREATION: Loop = Loop { read: PLAIN_CLAIM_BY_CREATION, ..SELECT_DONE };

macro_rules! columns {
    () => {
        "event_id, event_type, aggregate_type, aggregate_id, tenant_id, payload::text, headers::text, \
         attempts, created_at, available_at"
    };
}

const SELECT: &str = concat!(
    "select ",
    columns!(),
    " from outbox_event where status in (0, 2) and available_at <= statement_timestamp()
      order by available_at, created_at, event_id limit $1"
);

const CLAIM: &str = concat!(
    "with due as materialized (
         select ctid from outbox_event
         where status in (0, 2) and available_at <= statement_timestamp()
           and (locked_by is null or locked_at < statement_timestamp() - interval '5 minutes')
         order by available_at, created_at, event_id limit $1 for update skip locked)
     update outbox_event as o
     set locked_by = 'raw', locked_at = statement_timestamp(), claim_seq = claim_seq + 1
     from due where o.ctid = due.ctid returning ",
    columns!()
);

const CLAIM_BY_ID: &str = concat!(
    "update outbox_event
     set locked_by = 'raw', locked_at = statement_timestamp(), claim_seq = claim_seq + 1
     where event_id in (
         select event_id from outbox_event
         where status in (0, 2) and available_at <= statement_timestamp()
           and (locked_by is null or locked_at < statement_timestamp() - interval '5 minutes')
         order by available_at, created_at, event_id limit $1 for update skip locked)
     returning ",
    columns!()
);

const PLAIN_CLAIM: &str = concat!(
    "update outbox_event set locked_by = 'raw', locked_at = statement_timestamp()
     where event_id in (
         select event_id from outbox_event
         where status = 0 and available_at <= statement_timestamp()
           and (locked_by is null or locked_at < statement_timestamp() - interval '5 minutes')
         order by available_at, created_at limit $1 for update skip locked)
     returning ",
    columns!()
);

const PLAIN_CLAIM_BY_CREATION: &str = concat!(
    "update outbox_event set locked_by = 'raw', locked_at = statement_timestamp()
     where event_id in (
         select event_id from outbox_event
         where status in (0, 2) and available_at <= statement_timestamp()
           and (locked_by is null or locked_at < statement_timestamp() - interval '5 minutes')
         order by created_at limit $1 for update skip locked)
     returning ",
    columns!()
);

const DONE: &str = "update outbox_event
     set status = 1, done_at = statement_timestamp(), locked_by = null, locked_at = null
     where status not in (1, 3) and event_id = any($1)";

const DELETE: &str = "delete from outbox_event where status not in (1, 3) and event_id = any($1)";

pub(super) async fn run(pool: &PgPool, events: u32, by: Loop) -> Result<Drained> {
    let mut connection = pool.acquire().await?;
    let start = Instant::now();
    let mut settled = 0;
    loop {
        let rows = sqlx::query(by.read).bind(BATCH).fetch_all(&mut *connection).await?;
        if rows.is_empty() {
            break;
        }
        let ids: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
        let _payload_bytes: usize = rows.iter().map(|row| row.get::<String, _>(5).len()).sum();
        for ids in ids.chunks(by.settled_at_once) {
            settled += settle(&mut connection, by.settle, ids).await?;
        }
    }
    ensure!(settled == u64::from(events), "{settled} of {events} are done");
    Ok(Drained { events, took: start.elapsed() })
}

async fn settle(connection: &mut PgConnection, settle: &'static str, ids: &[String]) -> Result<u64> {
    Ok(sqlx::query(settle).bind(ids).execute(connection).await?.rows_affected())
}
