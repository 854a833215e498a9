//! Two nodes deliver from one table on PostgreSQL, here in one process: each event is handled by one of them.
//!
//! `cargo run -p backstop-examples --example postgres_nodes -- postgres://user:password@host:5432/database`
//!
//! Without a URL it takes that of the variable `BACKSTOP_TEST_POSTGRES_URL`.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;
use backstop::{Event, Failure, Outbox};
use sqlx::{PgPool, Postgres};
use tokio::sync::mpsc;

const EVENTS: usize = 200;

/// Which node handled which event.
type Handled = (&'static str, String);

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let url = std::env::args().nth(1).or_else(|| std::env::var("BACKSTOP_TEST_POSTGRES_URL").ok());
    let url = url.context(
        "no database: give the URL of a PostgreSQL as the first argument or in BACKSTOP_TEST_POSTGRES_URL; \
         `cargo xtask services up` starts one and says where it is",
    )?;
    let pool = backstop::postgres::open(&url).await?;
    let (told, mut heard) = mpsc::channel(EVENTS);
    let north = node("north", &pool, told.clone()).await?;
    let south = node("south", &pool, told).await?;

    // North writes them all. Every other one is delayed: those are nobody's until they are due, and then both
    // nodes claim what they can get.
    let mut handled_by = BTreeMap::<String, Vec<&str>>::new();
    let mut tx = north.begin().await?;
    for number in 0..EVENTS {
        let event = Event::of("OrderPlaced").aggregate("Order", number.to_string());
        let event = if number % 2 == 0 { event } else { event.deliver_after(Duration::from_millis(300)) };
        let id = tx.append(event.json(&number)?).await?;
        handled_by.insert(id.context("no hook holds events back here")?, Vec::new());
    }
    tx.commit().await?;

    // Until each was handled, and then whatever else the nodes still do before they end.
    while handled_by.values().any(Vec::is_empty) {
        let (node, id) = heard.recv().await.context("both nodes have ended")?;
        handled_by.entry(id).or_default().push(node);
    }
    north.close().await?;
    south.close().await?;
    while let Ok((node, id)) = heard.try_recv() {
        handled_by.entry(id).or_default().push(node);
    }

    let by = |name| handled_by.values().flatten().filter(|node| **node == name).count();
    println!("north handled {}, south handled {}", by("north"), by("south"));
    let repeated = handled_by.values().filter(|nodes| nodes.len() > 1).count();
    println!("{} events, {repeated} of them more than once", handled_by.len());

    sqlx::query("drop table example_outbox_event").execute(&pool).await?;
    sqlx::query("delete from backstop_migration where table_name = 'example_outbox_event'")
        .execute(&pool)
        .await?;
    Ok(())
}

/// A node: the same table as the others, and a claim on each row before its event is handled.
async fn node(
    name: &'static str,
    pool: &PgPool,
    told: mpsc::Sender<Handled>,
) -> anyhow::Result<Outbox<Postgres>> {
    let outbox = Outbox::multi_node(pool.clone())
        .name(name)
        .table("example_outbox_event")
        // Longer than the handler takes. A node that dies holds its events up for this long.
        .claim_locking(Duration::from_secs(60))
        .interval(Duration::from_millis(50))
        .batch_size(10)
        .on("Order", "OrderPlaced", move |event: Event| {
            let told = told.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(5)).await; // some work
                told.send((name, event.id().to_owned())).await?;
                Ok::<_, Failure>(())
            }
        })
        .start()
        .await?;
    Ok(outbox)
}
