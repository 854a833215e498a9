//! The queue on SQLite: jobs are published beside the data, a worker handles them, and what failed is requeued.
//!
//! `cargo run -p backstop-examples --example queue`

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use backstop::queue::{Filter, Status, Worker};
use backstop::{Event, Failure, Queue};
use tokio::sync::mpsc;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let pool = backstop::sqlite::open(directory.path().join("shop.db")).await?;
    sqlx::query("create table shop_order (number int, item text)").execute(&pool).await?;

    // Who cannot be billed today can be billed tomorrow.
    let (written, mut invoices) = mpsc::channel::<u32>(16);
    let has_address = Arc::new(AtomicBool::new(false));
    let known = has_address.clone();
    let worker = Worker::new()
        .concurrency(2)
        .on("InvoiceRequested", move |event: Event| {
            let (written, known) = (written.clone(), known.clone());
            async move {
                let order: u32 = event.payload()?;
                if order == 3 && !known.load(Ordering::Relaxed) {
                    return Err(Failure::permanent("address", "no such street"));
                }
                written.send(order).await?;
                Ok(())
            }
        })
        .otherwise(|event: Event| async move { println!("nobody handles {}", event.event_type()) });
    let queue = Queue::new(pool.clone()).name("invoices").worker(worker).start().await?;

    for (number, item) in (1_u32..).zip(["tea", "honey", "rye bread"]) {
        let mut tx = pool.begin().await?;
        // Your own statement and the job: both happen, or neither.
        let insert = sqlx::query("insert into shop_order values (?, ?)").bind(number).bind(item);
        insert.execute(&mut *tx).await?;
        let published = queue.publish_in(&mut *tx, Event::of("InvoiceRequested").json(&number)?).await?;
        tx.commit().await?;
        published.committed(); // workers look at once
    }

    let mut done = Vec::new();
    while done.len() < 2 {
        done.extend(invoices.recv().await);
    }
    done.sort_unstable();
    println!("invoices for orders {done:?}");

    // A failure is final, unless the worker is told to retry. It is in the log with its reason.
    let operations = queue.operations();
    let failed = loop {
        let failed = operations.list(Status::Failed, &Filter::default(), 10).await?;
        if !failed.is_empty() {
            break failed;
        }
        tokio::task::yield_now().await;
    };
    for listed in &failed {
        println!("failed: {}", listed.error.as_deref().unwrap_or_default());
    }

    // The cause is removed, so an operator has it handled again.
    has_address.store(true, Ordering::Relaxed);
    let ids: Vec<_> = failed.iter().map(|listed| listed.id).collect();
    operations.requeue(&ids, false).await?;
    println!("invoice for order {} after all", invoices.recv().await.unwrap_or_default());

    queue.close().await?;
    let counts = operations.counts().await?;
    println!("{} completed, {} failed", counts.completed.events, counts.failed.events);
    Ok(())
}
