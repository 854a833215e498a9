//! The shapes that a handler may have: with the event or with all that is known of its delivery, with `anyhow` or without.
//!
//! `cargo run -p backstop-examples --example handlers`

use anyhow::{Context as _, ensure};
use backstop::{Delivery, Event, Failure, Outbox, Outcome};
use tokio::sync::mpsc;

/// Any error is a failure that may pass: the event comes again.
async fn ship(event: Event) -> anyhow::Result<()> {
    let items: Vec<String> = event.payload().context("this is no order")?;
    ensure!(!items.is_empty(), "the warehouse needs something to ship");
    println!("shipping {items:?}");
    Ok(())
}

/// A handler that says more: what will not pass is buried at once, and what is too early comes later.
async fn refund(delivery: Delivery) -> Result<Outcome, Failure> {
    let cents: i64 = delivery.event.payload()?;
    println!("attempt {} of {} on {}", delivery.attempt, delivery.route, delivery.component);
    match cents {
        ..0 => Err(Failure::permanent("negative", "nobody refunds less than nothing")),
        _ => Ok(Outcome::Done),
    }
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let (done, mut all_done) = mpsc::channel::<()>(1);
    let outbox = Outbox::single_node(backstop::sqlite::open(directory.path().join("shop.db")).await?)
        .on("Order", "OrderPlaced", ship)
        .on("Order", "RefundIssued", refund)
        .otherwise(move |event: Event| {
            let done = done.clone();
            async move {
                println!("{} is for nobody else", event.event_type());
                let _ = done.send(()).await;
            }
        })
        .start()
        .await?;
    outbox
        .transaction(async |tx| -> Result<(), backstop::Error> {
            tx.append(Event::of("OrderPlaced").aggregate("Order", "42").json(&["tea"])?).await?;
            tx.append(Event::of("RefundIssued").aggregate("Order", "42").json(&250)?).await?;
            tx.append(Event::of("OrderArchived").aggregate("Order", "42").json(&())?).await?;
            Ok(())
        })
        .await?;
    all_done.recv().await;
    outbox.close().await?;
    Ok(())
}
