//! The shop: takes orders in transactions, and ships them with a warehouse that sometimes fails.

use std::time::Duration;

use anyhow::Context;
use backstop_core::{Event, Failure, Outcome, Shutdown};
use backstop_sql::Outbox;
use serde::{Deserialize, Serialize};
use sqlx::{Sqlite, SqlitePool};
use tokio::time::MissedTickBehavior;

/// The shop's own data, beside the outbox in the same database.
pub(crate) struct Shop;

impl Shop {
    /// Creates the shop's table.
    pub(crate) async fn prepare(pool: &SqlitePool) -> anyhow::Result<()> {
        sqlx::query("create table if not exists shop_order (id integer primary key, item text, pieces int)")
            .execute(pool)
            .await
            .context("cannot create the shop's table")?;
        Ok(())
    }
}

#[derive(Serialize, Deserialize)]
struct Order {
    id: i64,
    item: String,
    pieces: u32,
}

/// How many orders were taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) before: u64,
    pub(crate) now: u64,
}

/// Takes this many orders per second until the shutdown begins. Each order is one transaction with one event.
pub(crate) async fn take_orders(
    outbox: Outbox<Sqlite>,
    rate: u32,
    shutdown: Shutdown,
) -> anyhow::Result<Taken> {
    let before = orders_so_far(&outbox).await?;
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut now = 0;
    while shutdown.interrupts(ticks.tick()).await.is_some() {
        take_order(&outbox).await.context("cannot take an order")?;
        now += 1;
    }
    Ok(Taken { before, now })
}

async fn orders_so_far(outbox: &Outbox<Sqlite>) -> anyhow::Result<u64> {
    let mut tx = outbox.begin().await?;
    let (count,): (i64,) = sqlx::query_as("select count(*) from shop_order").fetch_one(&mut *tx).await?;
    Ok(count.unsigned_abs())
}

async fn take_order(outbox: &Outbox<Sqlite>) -> anyhow::Result<()> {
    let item = ["tea", "honey", "rye bread", "pears"][fastrand::usize(..4)];
    let pieces = fastrand::u32(1..=9);

    let mut tx = outbox.begin().await?;
    let id = sqlx::query("insert into shop_order (item, pieces) values (?, ?)")
        .bind(item)
        .bind(pieces)
        .execute(&mut *tx)
        .await?
        .last_insert_rowid();
    let order = Order { id, item: item.to_owned(), pieces };
    tx.append(Event::of("OrderPlaced").aggregate("Order", id.to_string()).json(&order)?).await?;
    tx.commit().await?;
    Ok(())
}

/// The warehouse: it is slow, now and then does not answer, and refuses what it does not stock.
pub(crate) async fn ship(event: Event) -> Result<Outcome, Failure> {
    let order: Order = event.payload()?;
    tokio::time::sleep(Duration::from_millis(fastrand::u64(2..40))).await;
    match fastrand::u32(..100) {
        0..8 => Err(Failure::transient("timeout", "the warehouse did not answer")),
        8..11 => Ok(Outcome::retry_after(Duration::from_secs(3))), // the van is out, come back
        // Some orders fail every time, so that a few of them end as dead.
        _ if order.id % 53 == 0 => Err(Failure::transient("stock", "not enough pieces on the shelf")),
        _ if order.id % 97 == 0 => Err(Failure::permanent("address", "no such street")),
        _ => Ok(Outcome::Done),
    }
}
