//! What an append costs its transaction, against an insert of the same columns by hand.

use std::time::Instant;

use anyhow::Result;
use backstop_core::event::next_id;
use backstop_core::{Clock, Event, SystemClock};
use backstop_sql::Outbox;
use sqlx::{PgPool, Postgres};

use super::postgres::Fresh;
use crate::report::{Report, Unit, median};

/// Transactions of one kind in a row; then it is the other's turn.
const BLOCK: usize = 200;

/// How often both have their turn in a round.
const TURNS: usize = 15;

const GROUP: &str = "a transaction with one event, one connection";
pub(super) const OURS: &str = "append in a transaction of the outbox's";
pub(super) const FOREIGN: &str = "append in a transaction of one's own";
pub(super) const PLAIN: &str = "plain insert in a transaction";

const INSERT: &str = "insert into outbox_event (event_id, event_type, aggregate_type, aggregate_id, tenant_id, \
     payload, headers, status, attempts, available_at, created_at) \
     values ($1, $2, $3, $4, $5, $6::json, $7::json, 0, 0, $8, $9)";

pub(super) async fn measure(round: usize, report: &mut Report) -> Result<()> {
    let database = Fresh::create().await?;
    let outbox = Outbox::writer_only(database.pool.clone()).start().await?;
    let payload = serde_json::json!({ "order": 1_000_000, "text": "x".repeat(170) }).to_string();
    let (mut ours, mut foreign, mut plain) = (Vec::new(), Vec::new(), Vec::new());
    // The first turn opens connections and prepares statements; it does not count.
    for turn in 0..=TURNS {
        for _ in 0..BLOCK {
            let took = append(&outbox, &payload).await?;
            ours.extend((turn > 0).then_some(took));
        }
        for _ in 0..BLOCK {
            let took = append_to_ones_own(&database.pool, &outbox, &payload).await?;
            foreign.extend((turn > 0).then_some(took));
        }
        for _ in 0..BLOCK {
            let took = insert(&database.pool, &payload).await?;
            plain.extend((turn > 0).then_some(took));
        }
    }
    outbox.close().await?;
    database.drop().await?;
    let (ours, foreign, plain) = (median(&ours), median(&foreign), median(&plain));
    eprintln!("round {round}: {OURS}: {ours:.3} ms, {FOREIGN}: {foreign:.3} ms, {PLAIN}: {plain:.3} ms");
    report.add(GROUP, PLAIN, Unit::Milliseconds, None, plain);
    report.add(GROUP, FOREIGN, Unit::Milliseconds, Some(PLAIN), foreign);
    report.add(GROUP, OURS, Unit::Milliseconds, Some(PLAIN), ours);
    Ok(())
}

/// Milliseconds of one transaction with one event, from its beginning to its commit.
async fn append(outbox: &Outbox<Postgres>, payload: &str) -> Result<f64> {
    let start = Instant::now();
    let event = Event::of("OrderPlaced").aggregate("Order", "1000000").payload_json(payload).build()?;
    let mut tx = outbox.begin().await?;
    tx.append(event).await?;
    tx.commit().await?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

/// The same in a transaction that the outbox does not ask for what it holds.
async fn append_to_ones_own(pool: &PgPool, outbox: &Outbox<Postgres>, payload: &str) -> Result<f64> {
    let start = Instant::now();
    let event = Event::of("OrderPlaced").aggregate("Order", "1000000").payload_json(payload).build()?;
    let mut tx = pool.begin().await?;
    let appended = outbox.writer().append(&mut tx, event).await?;
    tx.commit().await?;
    appended.committed();
    Ok(start.elapsed().as_secs_f64() * 1e3)
}

async fn insert(pool: &PgPool, payload: &str) -> Result<f64> {
    let start = Instant::now();
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
    tx.commit().await?;
    Ok(start.elapsed().as_secs_f64() * 1e3)
}
