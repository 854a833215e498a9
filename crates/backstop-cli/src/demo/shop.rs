//! The shop: takes orders in transactions, ships them with a warehouse that sometimes fails, and has invoices written.

use std::time::Duration;

use anyhow::Context;
use backstop_core::{Event, Failure, Outcome, Shutdown};
use backstop_sql::{Outbox, Queue};
use serde::{Deserialize, Serialize};
use sqlx::{Sqlite, SqlitePool};
use tokio::time::MissedTickBehavior;

/// What the shop works with. Its own data are beside the outbox and the queue, in the same database.
#[derive(Clone)]
pub(crate) struct Shop {
    pub(crate) outbox: Outbox<Sqlite>,
    pub(crate) queue: Queue<Sqlite>,
}

#[derive(Serialize, Deserialize)]
struct Order {
    id: i64,
    item: String,
    pieces: u32,
}

/// How many orders were taken, and how many of their invoices were asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    pub(crate) before: u64,
    pub(crate) now: u64,
    pub(crate) invoices_before: u64,
}

impl Shop {
    /// Creates the shop's tables.
    pub(crate) async fn prepare(pool: &SqlitePool) -> anyhow::Result<()> {
        let invoices = "create table if not exists shop_invoice (order_id integer primary key)";
        let orders = "create table if not exists shop_order (id integer primary key, item text, pieces int)";
        for table in [orders, invoices] {
            sqlx::query(table).execute(pool).await.context("cannot create the shop's tables")?;
        }
        Ok(())
    }

    /// Takes this many orders per second until the shutdown begins. Each order is one transaction with one event and one job.
    pub(crate) async fn take_orders(self, rate: u32, shutdown: Shutdown) -> anyhow::Result<Taken> {
        let before = self.count("select count(*) from shop_order").await?;
        // A directory of an older version has orders without invoices.
        let invoices_before = self.count("select count(*) from shop_invoice").await?;
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / rate);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut now = 0;
        while shutdown.interrupts(ticks.tick()).await.is_some() {
            self.take_order().await.context("cannot take an order")?;
            now += 1;
        }
        Ok(Taken { before, now, invoices_before })
    }

    pub(crate) async fn count(&self, question: &'static str) -> anyhow::Result<u64> {
        let count: i64 = sqlx::query_scalar(question).fetch_one(self.queue.pool()).await?;
        Ok(count.unsigned_abs())
    }

    async fn take_order(&self) -> anyhow::Result<()> {
        let item = ["tea", "honey", "rye bread", "pears"][fastrand::usize(..4)];
        let pieces = fastrand::u32(1..=9);

        let mut tx = self.outbox.begin().await?;
        let id = sqlx::query("insert into shop_order (item, pieces) values (?, ?)")
            .bind(item)
            .bind(pieces)
            .execute(&mut *tx)
            .await?
            .last_insert_rowid();
        let order = Order { id, item: item.to_owned(), pieces };
        sqlx::query("insert into shop_invoice (order_id) values (?)").bind(id).execute(&mut *tx).await?;
        let invoice = Event::of("InvoiceRequested").json(&order)?;
        let invoice = self.queue.publish_in(&mut *tx, invoice).await?;
        tx.append(Event::of("OrderPlaced").aggregate("Order", id.to_string()).json(&order)?).await?;
        tx.commit().await?;
        invoice.committed();
        Ok(())
    }
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

/// The office that writes invoices: now and then its printer jams, and some customers cannot be billed at all.
pub(crate) async fn invoice(event: Event) -> Result<(), Failure> {
    let order: Order = event.payload()?;
    tokio::time::sleep(Duration::from_millis(fastrand::u64(5..60))).await;
    match fastrand::u32(..100) {
        0..6 => Err(Failure::transient("printer", "paper jam")),
        _ if order.id % 71 == 0 => Err(Failure::permanent("tax", "the customer has no tax number")),
        _ => Ok(()),
    }
}
