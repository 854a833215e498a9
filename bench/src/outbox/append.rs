//! What an append costs its transaction, against an insert of the same columns by hand.

use std::time::Instant;

use anyhow::Result;
use backstop_core::event::next_id;
use backstop_core::{Clock, Event, SystemClock};
use backstop_sql::Outbox;
use sqlx::{PgPool, Postgres};

use crate::postgres::Fresh;
use crate::report::{Report, Unit, median};

/// Transactions of one kind in a row; then it is the next one's turn.
const BLOCK: usize = 200;

/// How often each has its turn in a round.
const TURNS: usize = 15;

const GROUP: &str = "a transaction with one event, one connection";
pub(super) const OURS: &str = "append in a transaction of the outbox's";
pub(super) const FOREIGN: &str = "append in a transaction of one's own";
pub(super) const PLAIN: &str = "plain insert in a transaction";
pub(super) const OURS_FIRST: &str = "append, then `select 1`";
pub(super) const PLAIN_FIRST: &str = "plain insert, then `select 1`";

/// Each with what it is compared with.
const CONTENDERS: [(&str, Option<&str>); 5] = [
    (PLAIN, None),
    (FOREIGN, Some(PLAIN)),
    (OURS, Some(PLAIN)),
    (PLAIN_FIRST, None),
    (OURS_FIRST, Some(PLAIN_FIRST)),
];

const INSERT: &str = "insert into outbox_event (event_id, event_type, aggregate_type, aggregate_id, tenant_id, \
     payload, headers, status, attempts, available_at, created_at) \
     values ($1, $2, $3, $4, $5, $6::json, $7::json, 0, 0, $8, $9)";

pub(super) async fn measure(round: usize, report: &mut Report) -> Result<()> {
    let database = Fresh::create().await?;
    let outbox = Outbox::writer_only(database.pool.clone()).start().await?;
    let payload = serde_json::json!({ "order": 1_000_000, "text": "x".repeat(170) }).to_string();
    let mut took = CONTENDERS.map(|_| Vec::new());
    // The first turn opens connections and prepares statements; it does not count.
    for turn in 0..=TURNS {
        for ((name, _), took) in CONTENDERS.iter().zip(&mut took) {
            for _ in 0..BLOCK {
                let one = transaction(name, &database.pool, &outbox, &payload).await?;
                took.extend((turn > 0).then_some(one));
            }
        }
    }
    outbox.close().await?;
    database.drop().await?;
    for ((name, against), took) in CONTENDERS.iter().zip(&took) {
        let took = median(took);
        eprintln!("round {round}: {name}: {took:.3} ms");
        report.add(GROUP, name, Unit::Milliseconds, *against, took);
    }
    Ok(())
}

/// Milliseconds of one transaction with one event, from its beginning to its commit.
async fn transaction(name: &str, pool: &PgPool, outbox: &Outbox<Postgres>, payload: &str) -> Result<f64> {
    let start = Instant::now();
    match name {
        OURS | OURS_FIRST => append(outbox, payload, name == OURS_FIRST).await?,
        FOREIGN => append_to_ones_own(pool, outbox, payload).await?,
        _ => insert(pool, payload, name == PLAIN_FIRST).await?,
    }
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

/// After a statement that follows the append, the commit asks for what the transaction holds.
async fn append(outbox: &Outbox<Postgres>, payload: &str, then_asked: bool) -> Result<()> {
    let event = Event::of("OrderPlaced").aggregate("Order", "1000000").payload_json(payload).build()?;
    let mut tx = outbox.begin().await?;
    tx.append(event).await?;
    if then_asked {
        sqlx::query("select 1").execute(&mut *tx).await?;
    }
    Ok(tx.commit().await?)
}

/// The same in a transaction that the outbox does not ask for what it holds.
async fn append_to_ones_own(pool: &PgPool, outbox: &Outbox<Postgres>, payload: &str) -> Result<()> {
    let event = Event::of("OrderPlaced").aggregate("Order", "1000000").payload_json(payload).build()?;
    let mut tx = pool.begin().await?;
    let appended = outbox.writer().append(&mut tx, event).await?;
    tx.commit().await?;
    appended.committed();
    Ok(())
}

async fn insert(pool: &PgPool, payload: &str, then_asked: bool) -> Result<()> {
    let now = SystemClock.now();
    let mut tx = pool.begin().await?;
    sqlx::query(INSERT)
        .bind(next_id())
        .bind("OrderPlaced")
        .bind("Order")
        .bind("1000000")
        .bind(None::<String>)
        .bind(payload)
        .bind(None::<String>)
        .bind(now)
        .bind(now)
        .execute(&mut *tx)
        .await?;
    if then_asked {
        sqlx::query("select 1").execute(&mut *tx).await?;
    }
    Ok(tx.commit().await?)
}
