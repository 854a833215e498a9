//! The outbox on SQLite: an order and its event are one transaction, and a shaky warehouse gets it in the end.
//!
//! `cargo run -p backstop-examples --example outbox_sqlite`

use std::collections::BTreeSet;
use std::time::Duration;

use backstop::outbox::DeadFilter;
use backstop::retry::Exponential;
use backstop::{Event, Failure, Outbox};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

#[derive(Serialize, Deserialize)]
struct Order {
    number: u32,
    item: String,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let pool = backstop::sqlite::open(directory.path().join("shop.db")).await?;
    sqlx::query("create table shop_order (number int, item text)").execute(&pool).await?;

    // The handler is a plain async closure. Whatever error it returns, the event is tried again.
    let (shipped, mut parcels) = mpsc::channel::<String>(16);
    let outbox = Outbox::single_node(pool)
        .on("Order", "OrderPlaced", move |event: Event| {
            let shipped = shipped.clone();
            async move {
                let order: Order = event.payload()?;
                match order.number {
                    // Never works: dead at once, and visible until somebody looks after it.
                    3 => return Err(Failure::permanent("address", "no such street")),
                    // Works the second time or later.
                    _ if the_warehouse_sleeps() => return Err(Failure::transient("timeout", "no answer")),
                    _ => shipped.send(format!("order {}: {}", order.number, order.item)).await?,
                }
                Ok(())
            }
        })
        // Quicker than the defaults, so that this program ends soon.
        .retry_policy(Exponential { base: Duration::from_millis(20), max: Duration::from_millis(200) })
        .interval(Duration::from_millis(50))
        .start()
        .await?;

    for (number, item) in (1..).zip(["tea", "honey", "rye bread", "pears"]) {
        let order = Order { number, item: item.to_owned() };
        let mut tx = outbox.begin().await?;
        // Your own statement and the event: both happen, or neither.
        sqlx::query("insert into shop_order values (?, ?)")
            .bind(order.number)
            .bind(&order.item)
            .execute(&mut *tx)
            .await?;
        tx.append(Event::of("OrderPlaced").aggregate("Order", number.to_string()).json(&order)?).await?;
        tx.commit().await?; // delivery begins here
    }

    // An order that is rolled back was never there, and neither was its event.
    let mut tx = outbox.begin().await?;
    tx.append(Event::of("OrderPlaced").aggregate("Order", "5").json(&["never"])?).await?;
    tx.rollback().await?;

    // An event may come twice, so what is done with it must not mind: here a set.
    let mut arrived = BTreeSet::new();
    while arrived.len() < 3 {
        let parcel = parcels.recv().await.unwrap_or_default();
        if arrived.insert(parcel.clone()) {
            println!("shipped {parcel}");
        }
    }

    // After this everything is written down.
    outbox.close().await?;
    let metrics = outbox.metrics();
    println!("{} appended, {} delivered", metrics.append.total(), metrics.dispatch_success.total());
    for dead in outbox.dead().query(&DeadFilter::default(), 10).await? {
        println!("dead after {} attempt: {}", dead.attempts, dead.error.unwrap_or_default());
    }
    Ok(())
}

/// A warehouse that does not answer every third call.
fn the_warehouse_sleeps() -> bool {
    use std::sync::atomic::{AtomicU32, Ordering};
    static CALLS: AtomicU32 = AtomicU32::new(0);
    CALLS.fetch_add(1, Ordering::Relaxed).is_multiple_of(3)
}
