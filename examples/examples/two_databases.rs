//! Two outboxes on two databases in one process: each has its own table, handlers, metrics and life.
//!
//! `cargo run -p backstop-examples --example two_databases`

use std::path::Path;

use backstop::outbox::{Builder, SingleNode};
use backstop::{Event, Outbox};
use sqlx::Sqlite;
use tokio::sync::mpsc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let (told, mut heard) = mpsc::channel(16);

    let billing = told.clone();
    let orders = on_a_database_of_its_own(directory.path(), "orders").await?.on(
        "Order",
        "OrderPlaced",
        move |event: Event| tell(billing.clone(), "billing", event),
    );
    let orders = orders.start().await?;

    let shelf = told.clone();
    let stock = on_a_database_of_its_own(directory.path(), "stock").await?.on(
        "Item",
        "StockLow",
        move |event: Event| tell(shelf.clone(), "purchasing", event),
    );
    let stock = stock.start().await?;

    // Each event is committed in the database it belongs to.
    let order = Event::of("OrderPlaced").aggregate("Order", "42").json(&["tea"])?;
    orders.transaction(async |tx| tx.append(order).await).await?;
    let low = Event::of("StockLow").aggregate("Item", "tea").json(&2)?;
    stock.transaction(async |tx| tx.append(low).await).await?;

    for _ in 0..2 {
        println!("{}", heard.recv().await.unwrap_or_default());
    }

    // One ends without the other noticing.
    orders.close().await?;
    stock.close().await?;
    println!("orders has seen {} of its own", orders.metrics().append.total());
    println!("stock has seen {} of its own", stock.metrics().append.total());
    Ok(())
}

/// A file, and a name for operators, which is also the label of its metrics: what keeps two outboxes apart.
async fn on_a_database_of_its_own(
    directory: &Path,
    name: &str,
) -> Result<Builder<Sqlite, SingleNode>, backstop::Error> {
    let pool = backstop::sqlite::open(directory.join(format!("{name}.db"))).await?;
    Ok(Outbox::single_node(pool).name(name))
}

async fn tell(told: mpsc::Sender<String>, who: &str, event: Event) -> Result<(), backstop::Failure> {
    let about = event.aggregate_id().unwrap_or("nothing");
    told.send(format!("{who} heard of {} about {about}", event.event_type())).await?;
    Ok(())
}
